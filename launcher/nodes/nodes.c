/* nodes.c - owns what a node knows about the other nodes, and the agreement between generations:
 * each node announces that its ranks have ended; when all nodes have, node 0 announces whether and
 * when the next generation begins. */
#include "launcher/nodes/nodes.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

enum { LOOK_MS = 1000, LEAVE_MS = 10000 };

const char *cddpi_node_name(const struct cddpi_nodes *nodes, int node)
{
    static char name[CDDPI_HOST_BYTES + 32]; /* static, since one thread calls this */

    if (node < 0) {
        return "the first cddp-run";
    }
    snprintf(name, sizeof name, "node %d (%s)", node, nodes->list[node].host);
    return name;
}

void cddpi_nodes_fini(struct cddpi_nodes *nodes)
{
    cddpi_node_link_close(nodes->link);
    cddpi_free(nodes->list);
    *nodes = (struct cddpi_nodes){.self = nodes->self};
}

bool cddpi_nodes_given_up(const struct cddpi_nodes *nodes)
{
    return nodes->is_expelled || (nodes->self >= 0 && cddpi_node_link_slept_ms(nodes->link) > 0);
}

void cddpi_nodes_say_given_up(struct cddpi_nodes *nodes, struct cddpi_output *output)
{
    if (nodes->is_expelled) {
        return;
    }
    nodes->is_expelled = true;
    cddpi_output_say(output,
                     "this host did not answer for %.1f s, so the others went on without it",
                     (double)cddpi_node_link_slept_ms(nodes->link) / 1000);
}

/* Whether @p event is what a node receives if the others have given it up. */
static bool may_be_gone(const struct cddpi_nodes *nodes, const struct cddpi_node_event *event)
{
    return event->kind == CDDPI_EVENT_CUT ||
           (event->kind == CDDPI_EVENT_LOST &&
            (event->node == nodes->self || nodes->self == 0 || event->node == 0));
}

static void take_failure(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                         struct cddpi_output *output)
{
    bool is_first = nodes->failure.kind == CDDPI_EVENT_NONE;
    const char *verb = event->kind == CDDPI_EVENT_LOST ? " is lost" : "";

    nodes->is_cut = nodes->is_cut || event->kind == CDDPI_EVENT_CUT;
    if (event->kind == CDDPI_EVENT_LOST && event->node >= 0) {
        if (nodes->list[event->node].is_lost) {
            return; /* several nodes watch it */
        }
        nodes->list[event->node].is_lost = true;
    }
    if (nodes->end.kind != CDDPI_EVENT_NONE) {
        return; /* the job is over: nodes leave at different times */
    }
    if (is_first) {
        nodes->failure = *event;
    }
    if (may_be_gone(nodes, event) && cddpi_nodes_given_up(nodes)) {
        cddpi_nodes_say_given_up(nodes, output);
        return;
    }
    if (nodes->is_silent || event->node == nodes->self ||
        (!is_first && event->kind != CDDPI_EVENT_LOST)) {
        return;
    }
    if (event->kind == CDDPI_EVENT_CUT) {
        cddpi_output_say(output, "%s is lost: %s", cddpi_node_name(nodes, 0), event->text);
    } else {
        cddpi_output_say(output, "%s%s: %s", cddpi_node_name(nodes, event->node), verb,
                         event->text);
    }
}

static void take_done(struct cddpi_nodes *nodes, const struct cddpi_node_event *event)
{
    if (event->node < 0) {
        return;
    }
    nodes->list[event->node].is_done = true;
    nodes->has_saved = nodes->has_saved || event->has_saved;
    if (nodes->exit_status == 0) {
        nodes->exit_status = event->exit_status;
    }
}

/* Reset what belongs to the last generation. A lost node stays lost. */
static void forget_generation(struct cddpi_nodes *nodes)
{
    if (nodes->failure.kind == CDDPI_EVENT_FAILURE) {
        memset(&nodes->failure, 0, sizeof nodes->failure);
    }
    memset(&nodes->follow, 0, sizeof nodes->follow);
    nodes->exit_status = 0;
    nodes->has_saved = false;
    for (int i = 0; i < nodes->count; i++) {
        nodes->list[i].is_done = false;
    }
}

void cddpi_nodes_take(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                      struct cddpi_output *output)
{
    switch (event->kind) {
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_LOST:
    case CDDPI_EVENT_CUT:
        take_failure(nodes, event, output);
        break;
    case CDDPI_EVENT_FOLLOW:
        if (nodes->follow.kind == CDDPI_EVENT_NONE) {
            nodes->follow = *event;
        }
        break;
    case CDDPI_EVENT_SIGNAL:
        if (event->number == SIGINT || event->number == SIGTERM || event->number == SIGHUP ||
            event->number == SIGQUIT) {
            nodes->asked_signal = event->number;
        }
        break;
    case CDDPI_EVENT_DONE:
        take_done(nodes, event);
        break;
    case CDDPI_EVENT_START:
        forget_generation(nodes);
        nodes->start = *event;
        break;
    case CDDPI_EVENT_END:
        nodes->end = *event;
        break;
    case CDDPI_EVENT_BYE:
        if (event->node >= 0) {
            nodes->list[event->node].has_left = true;
        }
        break;
    case CDDPI_EVENT_SAVING:
    case CDDPI_EVENT_NONE:
        break;
    }
}

/* Wait up to @p milliseconds for events and process them. A signal to this process is passed on to
 * all nodes. Returns false if the process that started us is gone. */
static bool wait_for_events(struct cddpi_nodes *nodes, int milliseconds, struct cddpi_wait *wait)
{
    struct cddpi_node_event event;
    bool goes_on = cddpi_wait_for(wait, cddpi_node_link_fd(nodes->link), milliseconds);

    if (wait->number != 0) {
        CDDPI_PUBLISH(nodes->link, .kind = CDDPI_EVENT_SIGNAL, .node = nodes->self,
                      .number = wait->number);
        wait->number = 0;
        wait->is_over = false;
        goes_on = true;
    }
    while (cddpi_node_link_next(nodes->link, &event)) {
        cddpi_nodes_take(nodes, &event, wait->output);
    }
    return goes_on;
}

/* Whether no more events will arrive: node 0 is gone or unreachable, or the others have given this
 * node up because it stood still for too long. */
static bool is_alone(const struct cddpi_nodes *nodes)
{
    return nodes->is_cut ||
           (nodes->self != 0 && (nodes->list[0].is_lost || nodes->list[nodes->self].is_lost));
}

bool cddpi_nodes_begin(struct cddpi_job *job, struct cddpi_wait *wait, int *out_exit_status)
{
    struct cddpi_nodes *nodes = job->nodes;

    if (nodes->self == 0) {
        if (cddpi_rendezvous_reserve(&job->rendezvous) != CDDP_OK) {
            cddpi_output_say(wait->output, "%s", cddp_last_error());
            *out_exit_status = 1;
            return false;
        }
        CDDPI_PUBLISH(nodes->link, .kind = CDDPI_EVENT_START, .generation = job->generation,
                      .number = job->rendezvous.master_port);
    }
    while (nodes->start.kind == CDDPI_EVENT_NONE || nodes->start.generation != job->generation) {
        if (!wait_for_events(nodes, LOOK_MS, wait) || is_alone(nodes) ||
            nodes->end.kind != CDDPI_EVENT_NONE) {
            *out_exit_status = nodes->end.kind != CDDPI_EVENT_NONE ? nodes->end.exit_status : 1;
            return false;
        }
    }
    if (nodes->self != 0) {
        job->rendezvous.master_port = (uint16_t)nodes->start.number;
    }
    return true;
}

static bool have_all_ended(const struct cddpi_nodes *nodes)
{
    for (int i = 0; i < nodes->count; i++) {
        if (!nodes->list[i].is_done && !nodes->list[i].is_lost) {
            return false;
        }
    }
    return true;
}

/* Node 0: determine how the generation ended on all machines. */
static void judge_generation(struct cddpi_nodes *nodes, struct cddpi_generation_outcome *outcome)
{
    const struct cddpi_node_event *failure = nodes->failure.kind != CDDPI_EVENT_NONE
                                                 ? &nodes->failure
                                                 : &nodes->follow;

    outcome->has_saved = nodes->has_saved;
    outcome->may_restart = failure->kind != CDDPI_EVENT_NONE && failure->may_restart &&
                           nodes->asked_signal == 0;
    outcome->exit_status = failure->kind != CDDPI_EVENT_NONE ? failure->exit_status
                                                             : nodes->exit_status;
    for (int i = 0; i < nodes->count; i++) {
        outcome->may_restart = outcome->may_restart && !nodes->list[i].is_lost;
    }
    if (outcome->exit_status == 0 && !have_all_ended(nodes)) {
        outcome->exit_status =
            1; /* the process that started us is gone, and other nodes still run */
    }
}

void cddpi_nodes_finish(struct cddpi_job *job, struct cddpi_wait *wait,
                        struct cddpi_generation_outcome *outcome)
{
    struct cddpi_nodes *nodes = job->nodes;
    bool goes_on = true;

    CDDPI_PUBLISH(nodes->link, .kind = CDDPI_EVENT_DONE, .generation = job->generation,
                  .node = nodes->self, .exit_status = outcome->exit_status,
                  .has_saved = outcome->has_saved);
    if (nodes->self == 0) {
        while (goes_on && !nodes->is_cut && !have_all_ended(nodes)) {
            goes_on = wait_for_events(nodes, LOOK_MS, wait);
        }
        judge_generation(nodes, outcome);
    } else {
        bool has_next = false;

        while (goes_on && !is_alone(nodes) && nodes->end.kind == CDDPI_EVENT_NONE && !has_next) {
            goes_on = wait_for_events(nodes, LOOK_MS, wait);
            has_next = nodes->start.generation > job->generation;
        }
        outcome->may_restart = has_next;
        outcome->exit_status = nodes->end.kind != CDDPI_EVENT_NONE ? nodes->end.exit_status
                               : outcome->exit_status != 0         ? outcome->exit_status
                                                                   : 1;
    }
    outcome->may_restart = outcome->may_restart && goes_on;
}

bool cddpi_nodes_pause(struct cddpi_job *job, int64_t milliseconds, struct cddpi_wait *wait,
                       int *exit_status)
{
    struct cddpi_nodes *nodes = job->nodes;
    int64_t deadline_ns = cddpi_deadline_ns((uint32_t)milliseconds);

    do {
        if (!wait_for_events(nodes, cddpi_left_ms(deadline_ns), wait) ||
            nodes->failure.kind == CDDPI_EVENT_LOST || nodes->is_cut) {
            return false;
        }
        if (nodes->asked_signal != 0) {
            *exit_status = 128 + nodes->asked_signal;
            return false;
        }
    } while (cddpi_left_ms(deadline_ns) > 0);
    return true;
}

static bool have_all_left(const struct cddpi_nodes *nodes)
{
    for (int i = 0; i < nodes->count; i++) {
        if (i != nodes->self && !nodes->list[i].has_left && !nodes->list[i].is_lost) {
            return false;
        }
    }
    return true;
}

void cddpi_nodes_leave(struct cddpi_job *job, int exit_status, struct cddpi_wait *wait)
{
    struct cddpi_nodes *nodes = job->nodes;
    int64_t deadline_ns = cddpi_deadline_ns(LEAVE_MS);

    CDDPI_PUBLISH(nodes->link, .kind = nodes->self == 0 ? CDDPI_EVENT_END : CDDPI_EVENT_BYE,
                  .node = nodes->self, .exit_status = exit_status);
    while (nodes->self == 0 && !have_all_left(nodes) && cddpi_left_ms(deadline_ns) > 0 &&
           !nodes->is_cut && wait_for_events(nodes, LOOK_MS, wait)) {
    }
}
