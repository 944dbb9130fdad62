/* supervise_nodes.c - owns what follows for the ranks of this machine from what happens on others,
 * and what the others are told of these. */
#include "launcher/supervise/supervision.h"

#include "launcher/nodes/nodes.h"

#include "base/clock.h"

#include <string.h>

enum { SAVING_MS = 1000 }; /* between two such events: each stays in the store */

/* A rank elsewhere failed only because another did, which has as long to end as a rank that was
 * asked to. */
static void take_follow(struct cddpi_supervision *run)
{
    if (run->phase == CDDPI_RUNNING && run->secondary == NULL && run->deadline_ns == CDDPI_NEVER) {
        run->deadline_ns = cddpi_deadline_ns((uint32_t)run->job->options.grace_ms);
    }
}

/* What has happened elsewhere, and was said. */
static void take_failure(struct cddpi_supervision *run, const struct cddpi_node_event *event)
{
    const struct cddpi_nodes *nodes = run->job->nodes;
    char text[CDDPI_EVENT_TEXT_BYTES + CDDPI_HOST_BYTES + 64];

    if (event->kind != CDDPI_EVENT_FAILURE && nodes->self == 0 && event->node > 0) {
        /* its cddp-run could not tell the ranks that wait for its own */
        snprintf(text, sizeof text, "%s is lost: %s", cddpi_node_name(nodes, event->node),
                 event->text);
        cddpi_rendezvous_tell(&run->job->rendezvous, run->job->generation, text);
    }
    if (event->kind != CDDPI_EVENT_FAILURE || event->node != nodes->self) {
        cddpi_supervision_end(run, event->exit_status, event->may_restart);
    }
}

static void take(struct cddpi_supervision *run, const struct cddpi_node_event *event)
{
    switch (event->kind) {
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_LOST:
    case CDDPI_EVENT_CUT:
        take_failure(run, event);
        break;
    case CDDPI_EVENT_FOLLOW:
        take_follow(run);
        break;
    case CDDPI_EVENT_SIGNAL:
        cddpi_supervision_signal(run, event->number, event->node, cddpi_now_ns());
        break;
    default:
        break;
    }
}

void cddpi_supervision_nodes(struct cddpi_supervision *run)
{
    struct cddpi_node_event event;

    while (cddpi_node_link_next(run->job->nodes->link, &event)) {
        cddpi_nodes_take(run->job->nodes, &event, run->output);
        take(run, &event);
    }
}

void cddpi_supervision_catch_up(struct cddpi_supervision *run)
{
    const struct cddpi_nodes *nodes = run->job->nodes;

    if (nodes == NULL) {
        return;
    }
    if (nodes->failure.kind != CDDPI_EVENT_NONE) {
        take(run, &nodes->failure);
    }
    if (nodes->follow.kind != CDDPI_EVENT_NONE) {
        take_follow(run);
    }
    if (nodes->asked_signal != 0) {
        cddpi_supervision_signal(run, nodes->asked_signal, -1, cddpi_now_ns());
    }
}

void cddpi_supervision_follow(struct cddpi_supervision *run)
{
    const struct cddpi_nodes *nodes = run->job->nodes;

    cddpi_output_say(run->output, "%s: %s", cddpi_node_name(nodes, nodes->follow.node),
                     nodes->follow.text);
    cddpi_supervision_end(run, nodes->follow.exit_status, nodes->follow.may_restart);
}

void cddpi_supervision_pass_signal(struct cddpi_supervision *run, int number, int64_t now_ns)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_SIGNAL, .rank = -1, .number = number};

    if (nodes == NULL || nodes->is_cut) {
        cddpi_supervision_signal(run, number, -1, now_ns);
        return;
    }
    event.node = nodes->self;
    event.generation = run->job->generation;
    cddpi_node_link_publish(nodes->link, &event);
}

/* Append what @p rank itself reported of its failure, on one line. */
static void add_cause(const struct cddpi_supervision *run, int rank, char *text, size_t bytes)
{
    const struct cddpi_worker *worker = cddpi_supervision_worker(run, rank);
    const struct cddpi_reported_failure *failure;
    size_t used = strlen(text);

    if (worker == NULL) {
        return;
    }
    failure = &run->deduplicator.failures[rank - run->job->first_rank];
    if (failure->text == NULL) {
        return;
    }
    snprintf(text + used, bytes - used, ": %.*s", (int)(failure->bytes - failure->named),
             failure->text + failure->named);
    for (char *at = text + used; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    for (used = strlen(text); used > 0 && text[used - 1] == ' '; used--) {
        text[used - 1] = '\0';
    }
}

void cddpi_supervision_publish_saving(struct cddpi_supervision *run)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_SAVING, .rank = -1};

    if (nodes == NULL || !nodes->is_silent || cddpi_left_ms(run->saving_ns) > 0) {
        return;
    }
    run->saving_ns = cddpi_deadline_ns(SAVING_MS);
    event.node = nodes->self;
    event.generation = run->job->generation;
    cddpi_node_link_publish(nodes->link, &event);
}

void cddpi_supervision_publish(struct cddpi_supervision *run, enum cddpi_node_event_kind kind,
                               int rank, const char *text)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    struct cddpi_node_event event = {.kind = kind, .rank = rank};

    if (nodes == NULL || run->has_told) {
        return;
    }
    run->has_told = true;
    event.node = nodes->self;
    event.generation = run->job->generation;
    event.exit_status = run->outcome.exit_status & 255;
    event.may_restart = rank >= 0 && run->asked_signal == 0;
    snprintf(event.text, sizeof event.text, "%s", text);
    add_cause(run, rank, event.text, sizeof event.text);
    cddpi_node_link_publish(nodes->link, &event);
}
