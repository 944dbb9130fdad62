/* nodes.c - passes events to the state machine of the members, and carries out what it decides. */
#include "launcher/nodes/nodes.h"

#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_place.h"
#include "launcher/nodes/node_record.h"
#include "launcher/supervise/supervision.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"

#include <assert.h>
#include <string.h>

enum { LOOK_MS = 10 };

cddp_status cddpi_nodes_init(int self, int room, struct cddpi_nodes *out)
{
    *out = (struct cddpi_nodes){.members = {.self = self, .room = room, .most = room}};
    out->members.phase = CDDPI_MEMBERS_AWAIT;
    out->members.generation = -1;
    out->members.leaving_rank = -1;
    out->members.deadline_ns = CDDPI_JOB_NEVER;
    out->members.list = cddpi_zalloc_array((size_t)room, sizeof *out->members.list);
    out->actions = cddpi_zalloc(sizeof *out->actions);
    CDDPI_TRY_MEMORY(out->members.list != NULL && out->actions != NULL, "no memory for %d nodes",
                     room);
    return CDDP_OK;
}

void cddpi_nodes_fini(struct cddpi_nodes *nodes)
{
    cddpi_node_link_close(nodes->link);
    cddpi_free(nodes->members.list);
    cddpi_free(nodes->actions);
    *nodes = (struct cddpi_nodes){.members = {.self = nodes->members.self}};
}

void cddpi_nodes_await_readers(struct cddpi_job_rendezvous *rendezvous, struct cddpi_wait *wait)
{
    int64_t deadline_ns = cddpi_deadline_ns(CDDPI_READ_MS);

    cddp_store_close(rendezvous->board); /* a client, too */
    rendezvous->board = NULL;
    while (rendezvous->server != NULL && cddpi_store_server_has_clients(rendezvous->server) &&
           cddpi_left_ms(deadline_ns) > 0 && cddpi_wait_for(wait, -1, LOOK_MS)) {
    }
}

void cddpi_nodes_limit(struct cddpi_nodes *nodes, const struct cddpi_job *job)
{
    const struct cddpi_launch_options *options = &job->options;
    struct cddpi_membership *members = &nodes->members;

    members->is_elastic = options->least > 0;
    members->is_alone = options->rdzv == NULL;
    members->is_silent = options->is_agent;
    members->outside_store = job->rendezvous.has_outside_store ? job->rendezvous.store : NULL;
    members->max_restarts = options->max_restarts;
    members->gather_ms = cddpi_place_timeout_ms(options);
    members->least = members->is_alone ? 1 : options->least > 0 ? options->least : options->nnodes;
    members->most = members->is_alone ? 1 : options->nnodes;
    nodes->slow.factor = options->straggler_factor;
    nodes->slow.patience_ms = options->straggler_ms;
    nodes->slow.replaces = options->replace_stragglers != NULL;
    if (members->is_alone && members->is_elastic) {
        members->least_ranks = options->least;
        members->most_ranks = options->most;
    }
}

cddp_status cddpi_nodes_alone(struct cddpi_job *job, struct cddpi_wait *wait,
                              struct cddpi_nodes *out)
{
    CDDPI_TRY(cddpi_nodes_init(CDDPI_LEADER, 1, out));
    cddpi_nodes_limit(out, job);
    out->job = job;
    out->wait = wait;
    out->checked_ranks = job->local_world_size; /* before the supervisor began */
    job->nodes = out;
    (void)cddpi_membership_add(&out->members, CDDPI_LEADER, "", job->local_world_size);
    return CDDP_OK;
}

cddp_status cddpi_nodes_follow(struct cddpi_nodes *nodes,
                               const struct cddpi_job_rendezvous *rendezvous,
                               const struct cddpi_node_plan *plan)
{
    int *numbers = cddpi_zalloc_array((size_t)plan->count, sizeof *numbers);
    struct cddpi_node_link_options link = {.store = rendezvous->store,
                                           .token = rendezvous->token,
                                           .job = rendezvous->job,
                                           .self = -1,
                                           .nodes = numbers,
                                           .count = plan->count,
                                           .has_outside_store = true};
    cddp_status status;

    CDDPI_TRY_MEMORY(numbers != NULL, "no memory for %d nodes", plan->count);
    for (int i = 0; i < plan->count; i++) {
        const struct cddpi_plan_node *node = &plan->nodes[i];

        numbers[i] = node->node;
        (void)cddpi_membership_add(&nodes->members, node->node, node->host, node->nproc);
    }
    status = cddpi_node_link_open(&link, &nodes->link);
    cddpi_free(numbers);
    return status;
}

const char *cddpi_node_name(const struct cddpi_nodes *nodes, int node)
{
    return cddpi_member_name(&nodes->members, node);
}

static int64_t slept_ms(const struct cddpi_nodes *nodes)
{
    return cddpi_membership_is_dispensable(&nodes->members) && nodes->link != NULL
               ? cddpi_node_link_slept_ms(nodes->link)
               : 0;
}

bool cddpi_nodes_given_up(const struct cddpi_nodes *nodes)
{
    return nodes->members.is_expelled || slept_ms(nodes) > 0;
}

void cddpi_nodes_say_given_up(struct cddpi_nodes *nodes, struct cddpi_output *output)
{
    char words[160];

    if (!nodes->members.is_expelled) {
        nodes->members.is_expelled = true;
        cddpi_membership_word_given_up(&nodes->members, slept_ms(nodes), words, sizeof words);
        cddpi_output_say(output, "%s", words);
    }
}

/* cddp-ctl, perhaps on another machine, may ask for a checkpoint while no ranks run that could
 * write it. */
static void note_saves(struct cddpi_node_saves *saves, const struct cddpi_node_event *event)
{
    if (event->kind == CDDPI_EVENT_SIGNAL && event->number == CDDPI_SAVE_SIGNAL) {
        saves->is_wanted = true;
    } else if (event->kind == CDDPI_EVENT_SAVED) {
        saves->is_wanted = false;
        saves->written += event->number != 0;
        saves->failed += event->number == 0;
    }
}

/* A node leaves out a card: cddp-ctl shows it. */
static void note_card(struct cddpi_node_cards *cards, const struct cddpi_node_event *event)
{
    struct cddpi_node_card *card = &cards->list[cards->count];

    if (event->kind == CDDPI_EVENT_CARD && cards->count < CDDPI_NODE_CARDS) {
        card->node = event->node;
        card->rank = event->rank;
        snprintf(card->text, sizeof card->text, "%.*s", CDDPI_NODE_CARD_BYTES - 1, event->text);
        cards->count++;
    }
}

void cddpi_nodes_take(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                      struct cddpi_output *output)
{
    struct cddpi_membership_event heard = {
        .kind = CDDPI_MEMBERS_HEARD, .now_ns = cddpi_now_ns(), .heard = event};
    const struct cddpi_membership_actions *actions = nodes->actions;

    nodes->steps++;
    note_saves(&nodes->saves, event);
    note_card(&nodes->cards, event);
    cddpi_membership_step(&nodes->members, &heard, nodes->actions);
    for (int i = 0; i < actions->count; i++) {
        if (actions->list[i].kind == CDDPI_DO_SAY) {
            cddpi_output_say(output, "%s", actions->list[i].text);
        }
    }
}

/* One machine: whether the last event of the queue is another number of ranks, as @p event is. What
 * matters is the last of them, and there are many if the configuration refuses one after the other.
 */
static bool replaces_last(const struct cddpi_nodes *nodes, const struct cddpi_node_event *event)
{
    return nodes->queued > 0 && event->kind == CDDPI_EVENT_SIZE &&
           nodes->queue[nodes->queued - 1].kind == CDDPI_EVENT_SIZE;
}

/* Append @p event to the job's log. */
static void publish(struct cddpi_nodes *nodes, const struct cddpi_node_event *event)
{
    if (nodes->link != NULL) {
        cddpi_node_link_publish(nodes->link, event);
        return;
    }
    nodes->queued -= replaces_last(nodes, event);
    assert(nodes->queued < (int)(sizeof nodes->queue / sizeof nodes->queue[0]));
    nodes->queue[nodes->queued++] = *event;
}

/* Leader: begin a generation of @p ranks ranks, if the configuration allows that. */
static void start_generation(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                             int ranks)
{
    struct cddpi_job *job = nodes->job;
    struct cddpi_node_event start = *event;
    int exit_status = 0;

    if (event->generation > 0 && nodes->checked_ranks != ranks && job->options.config != NULL) {
        exit_status = cddpi_command_validate(&job->command, ranks);
    }
    if (exit_status == 0) {
        nodes->checked_ranks = ranks;
        if (cddpi_rendezvous_reserve(&job->rendezvous) != CDDP_OK) {
            cddpi_output_say(nodes->wait->output, "%s", cddp_last_error());
            exit_status = 1;
        }
    }
    if (exit_status != 0) {
        nodes->refusal = exit_status;
        return;
    }
    cddpi_rendezvous_forget(&job->rendezvous, event->generation);
    start.number = job->rendezvous.master_port;
    if (nodes->members.outside_store != NULL) {
        cddpi_place_master_host(&job->rendezvous, start.address, sizeof start.address);
    }
    publish(nodes, &start);
}

/* Any node may be rank 0's, since any may lead. */
static void take_master_host(struct cddpi_job_rendezvous *rendezvous, const char *host)
{
    struct cddpi_address store;
    const char *rest = rendezvous->store + strlen("tcp://");

    if (host[0] == '\0' && cddpi_address_next(&rest, &store) == CDDP_OK) {
        host = store.host;
    }
    snprintf(rendezvous->master_host, sizeof rendezvous->master_host, "%s", host);
}

/* The ranks of this node are to be started: the job has this node's place in the generation. */
static void take_place(struct cddpi_nodes *nodes)
{
    const struct cddpi_membership *members = &nodes->members;
    const struct cddpi_job_member *own = cddpi_membership_find(members, members->self);
    struct cddpi_job *job = nodes->job;

    job->generation = members->generation;
    job->world_size = members->world_size;
    job->local_world_size = own->ranks;
    job->first_rank = own->first_rank;
    if (job->rendezvous.master_port != (uint16_t)members->start.number) {
        cddpi_rendezvous_release(&job->rendezvous); /* of an own START that did not count */
        job->rendezvous.master_port = (uint16_t)members->start.number;
    }
    if (members->outside_store != NULL) {
        take_master_host(&job->rendezvous, members->start.address);
    }
    nodes->is_due = true;
}

static void act(struct cddpi_nodes *nodes, const struct cddpi_membership_action *action)
{
    switch (action->kind) {
    case CDDPI_DO_PUBLISH:
        publish(nodes, &action->event);
        break;
    case CDDPI_DO_START:
        start_generation(nodes, &action->event, action->number);
        break;
    case CDDPI_DO_RUN:
        take_place(nodes);
        break;
    case CDDPI_DO_TELL:
        if (nodes->run != NULL) {
            cddpi_supervision_feed(nodes->run, &action->job);
        }
        break;
    case CDDPI_DO_TELL_LOSS:
        cddpi_rendezvous_tell(&nodes->job->rendezvous, nodes->job->generation, action->text);
        break;
    case CDDPI_DO_SAY:
        cddpi_output_say(nodes->wait->output, "%s", action->text);
        break;
    case CDDPI_DO_FINISH:
        break;
    }
}

/* One step. Carrying out its actions leads to no other step before the last of them. */
static void step(struct cddpi_nodes *nodes, const struct cddpi_membership_event *event)
{
    struct cddpi_membership_event timed = *event;
    const struct cddpi_membership_actions *actions = nodes->actions;

    assert(!nodes->is_acting);
    if (timed.now_ns == 0) {
        timed.now_ns = cddpi_now_ns();
    }
    timed.slept_ms = slept_ms(nodes);
    if (timed.kind == CDDPI_MEMBERS_HEARD) {
        note_saves(&nodes->saves, timed.heard);
        note_card(&nodes->cards, timed.heard);
    }
    cddpi_membership_step(&nodes->members, &timed, nodes->actions);
    nodes->steps += timed.kind != CDDPI_MEMBERS_TIME || actions->count > 0;
    nodes->is_acting = true;
    for (int i = 0; i < actions->count; i++) {
        act(nodes, &actions->list[i]);
    }
    nodes->is_acting = false;
}

/* A step, and what follows if a generation could not be started: without the node that was refused,
 * the next one may be refused, too. */
static void step_on(struct cddpi_nodes *nodes, const struct cddpi_membership_event *event)
{
    step(nodes, event);
    while (nodes->refusal != 0) {
        struct cddpi_membership_event refused = {.kind = CDDPI_MEMBERS_REFUSED,
                                                 .number = nodes->refusal};

        nodes->refusal = 0;
        step(nodes, &refused);
    }
}

void cddpi_nodes_feed(struct cddpi_nodes *nodes, const struct cddpi_membership_event *event)
{
    bool is_outer = !nodes->is_hearing;

    if (event->kind == CDDPI_MEMBERS_TIME && cddpi_left_ms(nodes->members.deadline_ns) > 0) {
        return;
    }
    step_on(nodes, event);
    while (is_outer && nodes->queued > 0) { /* one machine hears what it has published */
        struct cddpi_node_event heard = nodes->queue[0];
        struct cddpi_membership_event next = {
            .kind = CDDPI_MEMBERS_HEARD, .heard = &heard, .now_ns = event->now_ns};

        nodes->queued--;
        memmove(&nodes->queue[0], &nodes->queue[1], (size_t)nodes->queued * sizeof nodes->queue[0]);
        nodes->is_hearing = true;
        step_on(nodes, &next);
        nodes->is_hearing = false;
    }
}

void cddpi_nodes_hear(struct cddpi_nodes *nodes)
{
    struct cddpi_node_event event;

    while (nodes->link != NULL && cddpi_node_link_next(nodes->link, &event)) {
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_HEARD, .heard = &event);
    }
}

void cddpi_nodes_catch_up(struct cddpi_nodes *nodes)
{
    const struct cddpi_membership_actions *actions = nodes->actions;

    cddpi_membership_catch_up(&nodes->members, nodes->actions);
    for (int i = 0; i < actions->count; i++) {
        if (actions->list[i].kind == CDDPI_DO_TELL || actions->list[i].kind == CDDPI_DO_TELL_LOSS) {
            act(nodes, &actions->list[i]);
        }
    }
}
