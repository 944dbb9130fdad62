/* node_meeting.c - owns the meeting of nodes: each node writes its record to JOB/0/node/I in the
 * store; node 0 counts and compares the records, and writes its answer to JOB/0/plan. */
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

enum {
    LOOK_MS = 50,
    FIRST_NEWS_MS = 10000, /* after this time, missing nodes are named */
    NEWS_MS = 60000,
    REFUSED_MS = 500, /* interval of reading the list of refused clients */
    READ_MS = 3000,   /* how long other nodes have to read a refusal */
    KEY_BYTES = 128
};

/* What node 0 has gathered. */
struct gathering {
    struct cddpi_place *place;
    struct cddpi_node_record own;
    struct cddpi_node_plan plan;
    int came;
    int64_t news_ns;
    struct cddpi_refused_list refused; /* clients that the store has refused */
};

static void make_key(const struct cddpi_place *place, const char *name, int node,
                     char out[KEY_BYTES])
{
    if (node < 0) {
        snprintf(out, KEY_BYTES, "%s/0/%s", place->job->rendezvous.job, name);
    } else {
        snprintf(out, KEY_BYTES, "%s/0/%s/%d", place->job->rendezvous.job, name, node);
    }
}

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
    void *id = NULL;
    cddp_status status;

    if (rendezvous->server != NULL) {
        return CDDP_OK;
    }
    while ((status = cddp_store_try_get(place->store, CDDPI_PLACE_JOB_KEY, &id, NULL)) ==
           CDDP_ERR_NOT_FOUND) {
        if (cddpi_left_ms(place->deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "%s is a store, but cddp-run does not serve it",
                              rendezvous->store);
        }
        if (!cddpi_wait_for(place->wait, -1, LOOK_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
    if (status == CDDP_OK) {
        snprintf(rendezvous->job, sizeof rendezvous->job, "%s", (char *)id);
    }
    cddp_free(id);
    return status;
}

/* Take the next free number if --node-rank was not given. */
static cddp_status learn_rank(struct cddpi_place *place)
{
    char key[KEY_BYTES];
    int64_t number = 0;

    if (place->self < 0) {
        make_key(place, "arrived", -1, key);
        CDDPI_TRY(cddp_store_add(place->store, key, 1, &number));
        place->self = (int)(number < INT32_MAX ? number : INT32_MAX);
    }
    if (place->self >= place->job->options.nnodes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%d nodes have come already",
                          place->job->options.nnodes);
    }
    if (place->job->options.node_rank < 0) {
        cddpi_output_say(place->output, "this is node %d of %d, by order of arrival", place->self,
                         place->job->options.nnodes);
    }
    return CDDP_OK;
}

static cddp_status put_record(struct cddpi_place *place, const struct cddpi_node_record *own)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    struct cddpi_node_record other;
    void *value = NULL;
    size_t bytes = 0;
    bool is_free = false;
    char key[KEY_BYTES];
    cddp_status status = cddpi_message_encode(&cddpi_node_record_form, own, &message);

    make_key(place, "node", place->self, key);
    if (status == CDDP_OK) {
        status = cddp_store_compare_set(place->store, key, NULL, 0, message.data, message.bytes,
                                        &is_free, &value, &bytes);
    }
    if (status == CDDP_OK && !is_free) {
        bool is_known = cddpi_message_decode(&cddpi_node_record_form, value, bytes, &other) ==
                        CDDP_OK;

        status = cddpi_fail(CDDP_ERR_ARGUMENT,
                            "node %d has come already, from %s: does another job use this --rdzv, "
                            "or another node this --node-rank?",
                            place->self, is_known ? other.host : "?");
    }
    cddp_free(value);
    cddpi_buffer_fini(&message);
    return status;
}

/* Read the record of node @p i from @p key. */
static void read_record(struct gathering *all, const char *key, int i)
{
    struct cddpi_node_record record;
    void *value = NULL;
    size_t bytes = 0;
    char *refusal = all->plan.refusal;
    bool is_read = cddp_store_try_get(all->place->store, key, &value, &bytes) == CDDP_OK;

    if (is_read &&
        cddpi_message_decode(&cddpi_node_record_form, value, bytes, &record) != CDDP_OK) {
        snprintf(refusal, sizeof all->plan.refusal,
                 "node %d is of another cddp version than node 0 (%s): %s", i, cddp_version(),
                 cddp_last_error());
    } else if (is_read && !cddpi_node_record_differs(&all->own, &record, i, refusal,
                                                     sizeof all->plan.refusal)) {
        memcpy(all->plan.nodes[i].host, record.host, sizeof record.host);
        all->plan.nodes[i].nproc = record.nproc;
        all->came++;
    }
    cddp_free(value);
}

static cddp_status read_records(struct gathering *all)
{
    struct cddpi_place *place = all->place;
    char prefix[KEY_BYTES];
    char **keys = NULL;
    size_t count = 0;

    make_key(place, "node/", -1, prefix);
    CDDPI_TRY(cddp_store_list(place->store, prefix, &keys, &count));
    for (size_t k = 0; k < count && all->plan.refusal[0] == '\0'; k++) {
        int i = atoi(keys[k] + strlen(prefix));

        if (i < 0 || i >= CDDPI_MAX_NODES) {
            continue;
        }
        if (i >= all->plan.count || all->plan.nodes[i].nproc == 0) {
            read_record(all, keys[k], i);
        }
    }
    cddp_free(keys);
    return CDDP_OK;
}

/* List the nodes that have arrived, as "1 (alpha), 3 (beta)", or (@p have_come false) have not, as
 * "1, 3". */
static void list_nodes(const struct gathering *all, bool have_come, char *out, size_t bytes)
{
    size_t used = 0;
    int named = 0;

    out[0] = '\0';
    for (int i = 0; i < all->plan.count; i++) {
        const struct cddpi_plan_node *node = &all->plan.nodes[i];

        if ((node->nproc > 0) != have_come) {
            continue;
        }
        if (used < bytes && named < 20) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%d%s%s%s", named > 0 ? ", " : "",
                                     i, have_come ? " (" : "", node->host, have_come ? ")" : "");
        } else if (used < bytes && named == 20) {
            used += (size_t)snprintf(out + used, bytes - used, " ...");
        }
        named++;
    }
}

static void refuse_missing(struct gathering *all)
{
    char missing[512];
    char there[512];
    char refused[CDDPI_REFUSED_BYTES];

    cddpi_refused_say(&all->refused, refused);
    list_nodes(all, false, missing, sizeof missing);
    list_nodes(all, true, there, sizeof there);
    snprintf(all->plan.refusal, sizeof all->plan.refusal,
             "of %d nodes these did not come within %g s: %s (these did: %s). Is cddp-run started "
             "there, with this --rdzv and this token?%s%s",
             all->plan.count, cddpi_place_timeout_ms(&all->place->job->options) / 1000.0, missing,
             there, refused[0] != '\0' ? " The job's store has refused " : "", refused);
}

static void tell_missing(struct gathering *all)
{
    char missing[512];

    if (cddpi_left_ms(all->news_ns) > 0) {
        return;
    }
    list_nodes(all, false, missing, sizeof missing);
    cddpi_output_say(all->place->output, "of %d nodes these have not come yet: %s", all->plan.count,
                     missing);
    all->news_ns = cddpi_deadline_ns(NEWS_MS);
}

/* Wait until all nodes have arrived, or there is a refusal. */
static cddp_status gather_records(struct gathering *all)
{
    all->news_ns = cddpi_deadline_ns(FIRST_NEWS_MS);
    for (;;) {
        cddp_status status = read_records(all);

        cddpi_refused_publish(&all->place->job->rendezvous, &all->refused);
        if (status != CDDP_OK || all->plan.refusal[0] != '\0' || all->came == all->plan.count) {
            return status;
        }
        if (cddpi_left_ms(all->place->deadline_ns) == 0) {
            (void)cddpi_refused_read(all->place->store, all->place->job->rendezvous.job,
                                     &all->refused);
            refuse_missing(all);
            return CDDP_OK;
        }
        tell_missing(all);
        if (!cddpi_wait_for(all->place->wait, -1, LOOK_MS)) {
            (void)cddpi_wait_fail(all->place->wait);
            snprintf(all->plan.refusal, sizeof all->plan.refusal, "node 0 (%s): %.500s",
                     all->own.host, cddp_last_error());
            return CDDP_OK;
        }
    }
}

/* Let the other nodes read the refusal before the store is gone. */
static void wait_until_read(struct gathering *all)
{
    int64_t deadline_ns = cddpi_deadline_ns(READ_MS);
    char prefix[KEY_BYTES];
    char node_prefix[KEY_BYTES];

    make_key(all->place, "read/", -1, prefix);
    make_key(all->place, "node/", -1, node_prefix);
    while (cddpi_left_ms(deadline_ns) > 0) {
        char **keys = NULL;
        char **nodes = NULL;
        size_t count = 0;
        size_t there = 0;

        if (cddp_store_list(all->place->store, prefix, &keys, &count) != CDDP_OK ||
            cddp_store_list(all->place->store, node_prefix, &nodes, &there) != CDDP_OK) {
            cddp_free(keys);
            return;
        }
        cddp_free(keys);
        cddp_free(nodes);
        if (count + 1 >= there || !cddpi_wait_for(all->place->wait, -1, LOOK_MS)) {
            return;
        }
    }
}

static void check_world_size(struct gathering *all)
{
    int64_t ranks = 0;

    for (int i = 0; i < all->plan.count; i++) {
        ranks += all->plan.nodes[i].nproc;
    }
    if (ranks > CDDPI_MAX_WORLD_SIZE) {
        snprintf(all->plan.refusal, sizeof all->plan.refusal, "%lld ranks, more than %d",
                 (long long)ranks, CDDPI_MAX_WORLD_SIZE);
    }
}

/* Choose the address at which others reach node 0: the store's host or, if the cddp-run of --hosts
 * serves the store on another machine, the address from which node 0 talks to that store. */
static void choose_master(struct gathering *all)
{
    struct cddpi_job *job = all->place->job;
    struct cddpi_address store;
    const char *rest = job->rendezvous.store + strlen("tcp://");

    if (job->rendezvous.server == NULL && cddpi_address_next(&rest, &store) == CDDP_OK &&
        !cddpi_address_is_local(store.host, true)) {
        cddpi_address_towards(&store, all->plan.master_host, sizeof all->plan.master_host);
    }
}

static cddp_status publish_plan(const struct cddpi_place *place, const struct cddpi_node_plan *plan)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    struct cddpi_node_plan told = *plan;
    char key[KEY_BYTES];
    cddp_status status;

    told.count = plan->refusal[0] == '\0' ? plan->count : 0;
    status = cddpi_message_encode(&cddpi_node_plan_form, &told, &message);
    if (status == CDDP_OK) {
        make_key(place, "plan", -1, key);
        status = cddp_store_set(place->store, key, message.data, message.bytes);
    }
    cddpi_buffer_fini(&message);
    return status;
}

/* Node 0: wait for all nodes and answer them. @p out: release with cddpi_node_plan_fini(), also
 * after a failure. */
static cddp_status make_plan(struct cddpi_place *place, const struct cddpi_node_record *own,
                             struct cddpi_node_plan *out)
{
    struct gathering *all = cddpi_zalloc(sizeof *all);
    cddp_status status;

    if (all != NULL) {
        all->plan.nodes = cddpi_zalloc_array((size_t)own->count, sizeof *all->plan.nodes);
    }
    if (all == NULL || all->plan.nodes == NULL) {
        cddpi_free(all);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", own->count);
    }
    all->place = place;
    all->own = *own;
    all->plan.count = own->count;
    choose_master(all);
    CDDPI_TRY_GOTO(out, status, gather_records(all));
    if (all->plan.refusal[0] == '\0') {
        check_world_size(all);
    }
    CDDPI_TRY_GOTO(out, status, publish_plan(place, &all->plan));
    if (all->plan.refusal[0] != '\0') {
        wait_until_read(all);
    }

out:
    *out = all->plan;
    cddpi_free(all);
    return status;
}

/* Other nodes: print which clients the store has refused. The process that serves the store prints
 * that itself. */
static void tell_refused(struct cddpi_place *place, int64_t *next_ns,
                         struct cddpi_refused_list *refused)
{
    char text[CDDPI_REFUSED_BYTES];

    if (place->job->options.is_agent || cddpi_left_ms(*next_ns) > 0) {
        return;
    }
    *next_ns = cddpi_deadline_ns(REFUSED_MS);
    if (cddpi_refused_read(place->store, place->job->rendezvous.job, refused)) {
        cddpi_refused_say(refused, text);
        cddpi_output_say(place->output, "the job's store has refused %s", text);
    }
}

static cddp_status fail_without_answer(const struct cddpi_place *place,
                                       const struct cddpi_refused_list *refused)
{
    char text[CDDPI_REFUSED_BYTES];

    cddpi_refused_say(refused, text);
    return cddpi_fail(CDDP_ERR_TIMEOUT, "node 0 did not answer within %g s%s%s",
                      cddpi_place_timeout_ms(&place->job->options) / 1000.0,
                      text[0] != '\0' ? "; the job's store has refused " : "", text);
}

/* Other nodes: wait for node 0's answer. */
static cddp_status await_plan(struct cddpi_place *place, struct cddpi_node_plan *out)
{
    char key[KEY_BYTES];
    struct cddpi_refused_list refused = {.count = 0};
    int64_t refused_ns = 0;
    /* node 0 may have started later, so its deadline is later, and its answer then says more than
     * we know */
    int64_t deadline_ns = place->deadline_ns + (int64_t)READ_MS * 1000000;
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    make_key(place, "plan", -1, key);
    while ((status = cddp_store_try_get(place->store, key, &value, &bytes)) == CDDP_ERR_NOT_FOUND) {
        if (cddpi_left_ms(deadline_ns) == 0) {
            return fail_without_answer(place, &refused);
        }
        tell_refused(place, &refused_ns, &refused);
        if (!cddpi_wait_for(place->wait, -1, LOOK_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "node 0 went away before all nodes had come");
    }
    status = cddpi_node_plan_decode(value, bytes, place->job->options.nnodes, out);
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status, "node 0's answer is not understood");
    }
    cddp_free(value);
    make_key(place, "read", place->self, key);
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
    nodes->list = cddpi_zalloc_array((size_t)plan->count, sizeof *nodes->list);
    if (nodes->list == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", plan->count);
    }
    nodes->count = plan->count;
    nodes->self = place->self;
    nodes->is_silent = job->options.is_agent;
    job->world_size = 0;
    for (int i = 0; i < plan->count; i++) {
        memcpy(nodes->list[i].host, plan->nodes[i].host, sizeof nodes->list[i].host);
        nodes->list[i].nproc = plan->nodes[i].nproc;
        nodes->list[i].first_rank = job->world_size;
        job->world_size += plan->nodes[i].nproc;
    }
    job->first_rank = nodes->list[place->self].first_rank;
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
                                              .self = nodes->self,
                                              .count = nodes->count};
    cddp_status status = cddpi_node_link_open(&options, &nodes->link);

    if (status == CDDP_OK) {
        job->rendezvous.link = nodes->link;
        job->nodes = nodes;
    }
    return status;
}

cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                             struct cddpi_output *output, struct cddpi_nodes *out)
{
    struct cddpi_place place = {
        .job = job,
        .wait = wait,
        .output = output,
        .deadline_ns = cddpi_deadline_ns(cddpi_place_timeout_ms(&job->options))};
    struct cddpi_node_record own;
    struct cddpi_node_plan plan = {.count = 0};
    cddp_status status;

    describe_self(job, &own);
    CDDPI_TRY_GOTO(out, status, cddpi_place_open(&place));
    CDDPI_TRY_GOTO(out, status, learn_job(&place));
    CDDPI_TRY_GOTO(out, status, learn_rank(&place));
    CDDPI_TRY_GOTO(out, status, put_record(&place, &own));
    CDDPI_TRY_GOTO(out, status,
                   place.self == 0 ? make_plan(&place, &own, &plan) : await_plan(&place, &plan));
    CDDPI_TRY_GOTO(out, status, take_plan(&place, &plan, out));
    status = open_link(job, out);

out:
    cddpi_node_plan_fini(&plan);
    cddpi_place_fini(&place);
    return status;
}
