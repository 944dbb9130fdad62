/* node_meeting.c - owns the meeting of nodes: each node writes its record to JOB/0/node/I in the
 * store; node 0 answers all (node_record.c) in JOB/0/plan. */
#include "launcher/nodes/node_place.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/streams.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REFUSED_MS = 500 }; /* interval of reading the list of refused clients */

/* Write the command to run, as a command line. */
static void put_words(const struct cddpi_launch_options *options, struct cddpi_node_record *record)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL) {
        return;
    }
    if (options->config != NULL) {
        cddpi_shell_quote(to, options->config);
    }
    for (int i = 0; i < options->argument_count; i++) {
        fputs(options->config != NULL || i > 0 ? " " : "", to);
        cddpi_shell_quote(to, options->arguments[i]);
    }
    if (fclose(to) == 0) {
        snprintf(record->words, sizeof record->words, "%s", text);
        record->words_bytes = (int64_t)bytes;
    }
    free(text);
}

static void describe_self(const struct cddpi_job *job, struct cddpi_node_record *out)
{
    *out = (struct cddpi_node_record){.nproc = job->local_world_size,
                                      .count = job->options.nnodes,
                                      .max_restarts = job->options.max_restarts};
    snprintf(out->version, sizeof out->version, "%s", cddp_version());
    if (job->host != NULL) {
        snprintf(out->host, sizeof out->host, "%s", job->host);
    } else {
        (void)gethostname(out->host, sizeof out->host - 1);
    }
    memcpy(out->timeout_ms, job->options.timeout_ms, sizeof out->timeout_ms);
    put_words(&job->options, out);
}

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
    return CDDP_OK;
}

/* Take the next free number if --node-rank was not given. */
static cddp_status learn_rank(struct cddpi_place *place)
{
    char key[CDDPI_PLACE_KEY_BYTES];
    int64_t number = 0;

    if (place->self < 0) {
        cddpi_place_key(place, "arrived", -1, key);
        CDDPI_TRY(cddp_store_add(place->store, key, 1, &number));
        place->self = (int)(number < INT32_MAX ? number : INT32_MAX);
    }
    if (place->self >= place->job->options.nnodes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%d nodes have come already",
                          place->job->options.nnodes);
    }
    if (place->job->options.node_rank < 0) {
        cddpi_output_say(place->wait->output, "this is node %d of %d, by order of arrival",
                         place->self, place->job->options.nnodes);
    }
    return CDDP_OK;
}

static cddp_status put_record(struct cddpi_place *place, const struct cddpi_node_record *own)
{
    struct cddpi_node_record other;
    void *value = NULL;
    size_t bytes = 0;
    bool is_free = false;
    char key[CDDPI_PLACE_KEY_BYTES];
    cddp_status status;

    cddpi_place_key(place, "node", place->self, key);
    status = cddpi_message_set_first(place->store, key, &cddpi_node_record_form, own, &is_free,
                                     &value, &bytes);
    if (status == CDDP_OK && !is_free) {
        bool is_known = cddpi_message_decode(&cddpi_node_record_form, value, bytes, &other) ==
                        CDDP_OK;

        status = cddpi_fail(CDDP_ERR_ARGUMENT,
                            "node %d has come already, from %s: does another job use this --rdzv, "
                            "or another node this --node-rank?",
                            place->self, is_known ? other.host : "?");
    }
    cddp_free(value);
    return status;
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
    char missing[CDDPI_MISSING_BYTES];

    tell_refused(place, told);
    if (!place->job->options.is_agent && cddpi_place_wait_lasts(place)) {
        cddpi_node_list_missing(place, missing);
        if (missing[0] == '\0') {
            cddpi_place_say_wait(place, "all nodes have come, but node 0 has not answered yet");
        } else {
            cddpi_place_say_wait(place, "of %d nodes these have not come yet: %s",
                                 place->job->options.nnodes, missing);
        }
    }
}

/* Other nodes: wait for node 0's answer. */
static cddp_status await_plan(struct cddpi_place *place, struct cddpi_node_plan *out)
{
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
        return cddpi_fail(CDDP_ERR_TIMEOUT, "node 0 did not answer within %g s%s%s",
                          cddpi_place_timeout_ms(&place->job->options) / 1000.0,
                          text[0] != '\0' ? "; the job's store has refused " : "", text);
    }
    if (status != CDDP_OK) {
        return place->wait->is_over
                   ? status
                   : cddpi_fail_prefix(status, "node 0 went away before all nodes had come");
    }
    status = cddpi_node_plan_decode(value, bytes, place->job->options.nnodes, out);
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status, "node 0's answer is not understood");
    }
    cddp_free(value);
    cddpi_place_key(place, "read", place->self, key);
    /* node 0 waits briefly for this key, so errors do not matter */
    return cddp_store_set(place->store, key, "", 0) == CDDP_ERR_NO_MEMORY ? CDDP_ERR_NO_MEMORY
                                                                          : status;
}

/* Copy ranks and sizes from the plan. */
static cddp_status take_plan(struct cddpi_place *place, const struct cddpi_node_plan *plan,
                             struct cddpi_nodes *nodes)
{
    struct cddpi_job *job = place->job;

    if (plan->refusal[0] != '\0') {
        nodes->is_refused = true;
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s", plan->refusal);
    }
    CDDPI_TRY(cddpi_nodes_init(place->self, plan->count, nodes));
    cddpi_nodes_limit(nodes, job);
    nodes->job = job;
    nodes->wait = place->wait;
    for (int i = 0; i < plan->count; i++) {
        (void)cddpi_membership_add(&nodes->members, i, plan->nodes[i].host, plan->nodes[i].nproc);
    }
    if (plan->master_host[0] != '\0') {
        memcpy(job->rendezvous.master_host, plan->master_host, sizeof plan->master_host);
    }
    return CDDP_OK;
}

static cddp_status open_link(struct cddpi_job *job, struct cddpi_nodes *nodes)
{
    struct cddpi_node_link_options options = {.store = job->rendezvous.store,
                                              .token = job->rendezvous.token,
                                              .job = job->rendezvous.job,
                                              .self = nodes->members.self,
                                              .count = nodes->members.count};

    CDDPI_TRY(cddpi_node_link_open(&options, &nodes->link));
    job->rendezvous.link = nodes->link;
    job->nodes = nodes;
    return CDDP_OK;
}

cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                             struct cddpi_nodes *out)
{
    struct cddpi_place place = {
        .job = job,
        .wait = wait,
        .deadline_ns = cddpi_deadline_ns(cddpi_place_timeout_ms(&job->options))};
    struct cddpi_node_record own;
    struct cddpi_node_plan plan = {.count = 0};
    cddp_status status;

    describe_self(job, &own);
    cddpi_place_wait_begins(&place);
    CDDPI_TRY_GOTO(out, status, cddpi_place_open(&place));
    CDDPI_TRY_GOTO(out, status, learn_job(&place));
    CDDPI_TRY_GOTO(out, status, learn_rank(&place));
    CDDPI_TRY_GOTO(out, status, put_record(&place, &own));
    CDDPI_TRY_GOTO(out, status,
                   place.self == 0 ? cddpi_node_plan_make(&place, &own, &plan)
                                   : await_plan(&place, &plan));
    CDDPI_TRY_GOTO(out, status, take_plan(&place, &plan, out));
    status = open_link(job, out);

out:
    cddpi_node_plan_fini(&plan);
    cddpi_place_fini(&place);
    return status;
}
