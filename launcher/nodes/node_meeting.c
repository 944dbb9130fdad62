/* node_meeting.c - owns the meeting of nodes: each node writes its record to JOB/0/node/I in the
 * store; node 0 answers all (node_gather.c) in JOB/0/plan, or (--hosts) the cddp-run that has
 * started them does. In an elastic job, a node that is not in the plan has come later, and joins
 * (node_join.c). */
#include "launcher/nodes/node_join.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_place.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    REFUSED_MS = 500, /* interval of reading the list of refused clients */
    AGAIN_MS = 100    /* between two looks for a job after the one that has ended */
};

/* Read the job's id, which the cddp-run that serves the store wrote there. */
static cddp_status learn_job(struct cddpi_place *place)
{
    struct cddpi_job_rendezvous *rendezvous = &place->job->rendezvous;
    char what[] = "the store has been reached, but no cddp-run has put its job there yet";
    void *id = NULL;
    cddp_status status;

    if (rendezvous->server != NULL) {
        return CDDP_OK;
    }
    status = cddpi_place_await(place, place->store, CDDPI_PLACE_JOB_KEY, place->deadline_ns,
                               cddpi_place_tell_wait, what, &id, NULL);
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(CDDP_ERR_TIMEOUT, "%s is a store, but cddp-run does not serve it",
                          rendezvous->store);
    }
    CDDPI_TRY(status);
    snprintf(rendezvous->job, sizeof rendezvous->job, "%s", (char *)id);
    cddp_free(id);
    return cddpi_place_look_outside(place);
}

/* Take the next free number if --node-rank was not given. */
static cddp_status learn_rank(struct cddpi_place *place)
{
    const struct cddpi_launch_options *options = &place->job->options;
    int most = options->least == 0 ? options->nnodes
               : options->is_agent ? CDDPI_NODE_NUMBERS
                                   : CDDPI_MAX_NODES;
    char key[CDDPI_PLACE_KEY_BYTES];
    char count[CDDPI_NNODES_BYTES];
    int64_t number = 0;

    if (place->self < 0) {
        cddpi_place_key(place, "arrived", -1, key);
        CDDPI_TRY(cddp_store_add(place->store, key, 1, &number));
        number -= place->job->rendezvous.has_outside_store ? 1 : 0; /* else node 0 serves it */
        place->self = (int)(number < INT32_MAX ? number : INT32_MAX);
    }
    if (place->self >= most) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%d nodes have come already", most);
    }
    if (options->node_rank < 0) {
        cddpi_output_say(place->wait->output, "this is node %d of %s, by order of arrival",
                         place->self, cddpi_nnodes_text(options->least, options->nnodes, count));
    }
    return CDDP_OK;
}

/* Write this node's record, unless a node with its number has come before. */
static cddp_status put_record(struct cddpi_place *place, const struct cddpi_node_record *own,
                              bool *out_is_free, char out_other[CDDPI_HOST_BYTES])
{
    struct cddpi_node_record other;
    void *value = NULL;
    size_t bytes = 0;
    char key[CDDPI_PLACE_KEY_BYTES];
    cddp_status status;

    cddpi_place_key(place, "node", place->self, key);
    status = cddpi_message_set_first(place->store, key, &cddpi_node_record_form, own, out_is_free,
                                     &value, &bytes);
    if (status == CDDP_OK && !*out_is_free) {
        bool is_known = cddpi_message_decode(&cddpi_node_record_form, value, bytes, &other) ==
                        CDDP_OK;

        snprintf(out_other, CDDPI_HOST_BYTES, "%s", is_known ? other.host : "?");
    }
    cddp_free(value);
    return status;
}

/* Write this node's record under its number. A number belongs to one cddp-run: in an elastic job, a
 * node that comes back gets another one. */
static cddp_status take_number(struct cddpi_place *place, const struct cddpi_node_record *own)
{
    const struct cddpi_launch_options *options = &place->job->options;
    int wanted = place->self;
    bool is_free = false;
    char other[CDDPI_HOST_BYTES] = "";
    char key[CDDPI_PLACE_KEY_BYTES];

    for (;;) {
        int64_t later = 0;

        CDDPI_TRY(put_record(place, own, &is_free, other));
        if (is_free) {
            break;
        }
        if (options->least == 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "node %d has come already, from %s: does another job use this "
                              "--rdzv, or another node this --node-rank?",
                              place->self, other);
        }
        cddpi_place_key(place, "later", -1, key);
        CDDPI_TRY(cddp_store_add(place->store, key, 1, &later));
        if (later > CDDPI_MAX_JOINS) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "nodes have come %d times: no more can",
                              CDDPI_MAX_JOINS);
        }
        place->self = options->nnodes + (int)later - 1;
    }
    if (place->self != wanted) {
        cddpi_output_say(place->wait->output,
                         "a node %d has come before: this one is node %d from now on", wanted,
                         place->self);
    }
    return CDDP_OK;
}

/* The clients of which this node has printed that the store refused them. */
struct told_refusals {
    struct cddpi_refused_list list;
    int64_t next_ns; /* when to look again */
};

/* Other nodes: print which clients the store has refused. The process that serves the store prints
 * that itself. */
static void tell_refused(struct cddpi_place *place, void *context)
{
    struct told_refusals *told = context;
    char text[CDDPI_REFUSED_BYTES];

    if (place->job->options.is_agent || cddpi_left_ms(told->next_ns) > 0) {
        return;
    }
    told->next_ns = cddpi_deadline_ns(REFUSED_MS);
    if (cddpi_refused_read(place->store, place->job->rendezvous.job, &told->list)) {
        cddpi_refused_say(&told->list, text);
        cddpi_output_say(place->wait->output, "the job's store has refused %s", text);
    }
}

/* Other nodes, while they wait for node 0's answer. */
static void look_around(struct cddpi_place *place, void *told)
{
    tell_refused(place, told);
    if (!place->job->options.is_agent && cddpi_place_wait_lasts(place)) {
        cddpi_node_say_missing(place);
    }
}

/* Whether the cddp-run that has started this one answers the nodes, since node 0 may never come. */
static bool is_started(const struct cddpi_job *job)
{
    return job->options.is_agent && job->options.least > 0;
}

static const char *who_answers(const struct cddpi_job *job)
{
    return is_started(job) ? "the cddp-run that started this one" : "node 0";
}

/* Other nodes: wait for the answer of node 0, or of the cddp-run that has started this one. */
static cddp_status await_plan(struct cddpi_place *place, struct cddpi_node_plan *out)
{
    const struct cddpi_launch_options *options = &place->job->options;
    bool is_elastic = options->least > 0;
    struct told_refusals told = {.next_ns = 0};
    /* node 0 may have started later, so its deadline is later, and its answer then says more than
     * we know */
    int64_t deadline_ns = place->deadline_ns + (int64_t)CDDPI_READ_MS * 1000000;
    char key[CDDPI_PLACE_KEY_BYTES];
    char text[CDDPI_REFUSED_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    cddpi_place_key(place, "plan", -1, key);
    cddpi_place_wait_begins(place);
    status = cddpi_place_await(place, place->store, key, deadline_ns, look_around, &told, &value,
                               &bytes);
    if (status == CDDP_ERR_NOT_FOUND) {
        cddpi_refused_say(&told.list, text);
        return cddpi_fail(CDDP_ERR_TIMEOUT, "%s did not answer within %g s%s%s",
                          who_answers(place->job),
                          cddpi_place_timeout_ms(&place->job->options) / 1000.0,
                          text[0] != '\0' ? "; the job's store has refused " : "", text);
    }
    if (status != CDDP_OK) {
        return place->wait->is_over
                   ? status
                   : cddpi_fail_prefix(status, "%s went away before all nodes had come",
                                       who_answers(place->job));
    }
    status = cddpi_node_plan_decode(value, bytes, is_elastic ? options->least : options->nnodes,
                                    is_elastic ? CDDPI_MAX_NODES : options->nnodes, out);
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status, "the answer of %s is not understood",
                                   who_answers(place->job));
    }
    cddp_free(value);
    cddpi_place_key(place, "read", place->self, key);
    /* node 0 waits briefly for this key, so errors do not matter */
    return cddp_store_set(place->store, key, "", 0) == CDDP_ERR_NO_MEMORY ? CDDP_ERR_NO_MEMORY
                                                                          : status;
}

/* Copy members from the plan. */
static cddp_status take_plan(struct cddpi_place *place, const struct cddpi_node_plan *plan,
                             struct cddpi_nodes *nodes)
{
    struct cddpi_job *job = place->job;
    int room = plan->count + (job->options.least > 0 ? CDDPI_MAX_JOINS : 0);

    if (plan->refusal[0] != '\0') {
        nodes->is_refused = true;
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s", plan->refusal);
    }
    CDDPI_TRY(cddpi_nodes_init(place->self, room, nodes));
    cddpi_nodes_limit(nodes, job);
    nodes->job = job;
    nodes->wait = place->wait;
    for (int i = 0; i < plan->count; i++) {
        (void)cddpi_membership_add(&nodes->members, plan->nodes[i].node, plan->nodes[i].host,
                                   plan->nodes[i].nproc);
    }
    if (plan->master_host[0] != '\0') {
        memcpy(job->rendezvous.master_host, plan->master_host, sizeof plan->master_host);
    }
    return CDDP_OK;
}

/* @p is_late: this node learns from the log who is there, and needs to know node 0 alone. */
static cddp_status open_link(struct cddpi_job *job, bool is_late, struct cddpi_nodes *nodes)
{
    int count = is_late ? 1 : nodes->members.count;
    int *numbers = cddpi_zalloc_array((size_t)count, sizeof *numbers);
    cddp_status status;
    struct cddpi_node_link_options options = {
        .store = job->rendezvous.store,
        .token = job->rendezvous.token,
        .job = job->rendezvous.job,
        .self = nodes->members.self,
        .nodes = numbers,
        .count = count,
        .has_outside_store = job->rendezvous.has_outside_store};

    CDDPI_TRY_MEMORY(numbers != NULL, "no memory for %d nodes", count);
    for (int i = 0; i < count; i++) {
        numbers[i] = nodes->members.list[i].node;
    }
    status = cddpi_node_link_open(&options, &nodes->link);
    cddpi_free(numbers);
    CDDPI_TRY(status);
    job->rendezvous.link = nodes->link;
    job->nodes = nodes;
    return CDDP_OK;
}

/* Meet the others. *out_is_over: they belong to a job that has ended. */
static cddp_status meet(struct cddpi_place *place, const struct cddpi_node_record *own,
                        struct cddpi_nodes *out, bool *out_is_over)
{
    struct cddpi_node_plan plan = {.count = 0};
    bool is_late = false;
    cddp_status status;

    *out_is_over = false;
    CDDPI_TRY(learn_rank(place));
    CDDPI_TRY(take_number(place, own));
    CDDPI_TRY_GOTO(out, status,
                   place->self == 0 && !is_started(place->job)
                       ? cddpi_node_plan_make(place, own, &plan)
                       : await_plan(place, &plan));
    is_late = plan.count > 0 && !cddpi_node_plan_has(&plan, place->self);
    if (is_late && !place->job->rendezvous.has_outside_store) { /* that one ends with its job */
        CDDPI_TRY_GOTO(out, status, cddpi_node_has_ended(place, out_is_over));
    }
    if (*out_is_over) {
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, take_plan(place, &plan, out));
    CDDPI_TRY_GOTO(out, status, open_link(place->job, is_late, out));
    if (is_late) {
        status = cddpi_node_join(place, own, out->members.list[0].node, out->link);
    } else if (place->self == 0 && out->members.is_elastic) {
        place->job->rendezvous.board = place->board;
        place->board = NULL;
    }

out:
    cddpi_node_plan_fini(&plan);
    return status;
}

/* Find the store and the job, and meet the others. A job that has ended is like no job: its store
 * will soon be gone. */
static cddp_status open_and_meet(struct cddpi_place *place, const struct cddpi_node_record *own,
                                 struct cddpi_nodes *out)
{
    char ended[sizeof place->job->rendezvous.job] = "";
    char what[] = "the job there has ended, and no other has come yet";

    for (;;) {
        bool is_over = true;

        CDDPI_TRY(cddpi_place_open(place));
        CDDPI_TRY(learn_job(place));
        if (strcmp(place->job->rendezvous.job, ended) != 0) {
            CDDPI_TRY(meet(place, own, out, &is_over));
        }
        if (!is_over) {
            return CDDP_OK;
        }
        snprintf(ended, sizeof ended, "%s", place->job->rendezvous.job);
        cddpi_place_fini(place);
        cddpi_place_tell_wait(place, what);
        if (cddpi_left_ms(place->deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT,
                              "the job there has ended, and no other came within "
                              "%g s",
                              cddpi_place_timeout_ms(&place->job->options) / 1000.0);
        }
        if (!cddpi_wait_for(place->wait, -1, AGAIN_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
}

cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                             struct cddpi_nodes *out)
{
    struct cddpi_place place = {
        .job = job,
        .wait = wait,
        .deadline_ns = cddpi_deadline_ns(cddpi_place_timeout_ms(&job->options))};
    struct cddpi_node_record own;
    cddp_status status;

    cddpi_node_record_describe(job, &own);
    cddpi_place_wait_begins(&place);
    status = open_and_meet(&place, &own, out);
    cddpi_place_fini(&place);
    return status;
}
