/* node_record.c - owns the encoding of records and plans. Node 0 gathers and compares the records,
 * and makes the plan. */
#include "launcher/nodes/node_record.h"

#include "launcher/nodes/refused.h"
#include "launcher/run_options.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 50 };

#define RECORD struct cddpi_node_record
#define PLAN struct cddpi_node_plan

CDDPI_MESSAGE_FORM(cddpi_node_record_form, RECORD, RECORD, sizeof(RECORD) + 128,
                   CDDPI_TEXT(RECORD, version), CDDPI_TEXT(RECORD, host),
                   CDDPI_NUMBER(RECORD, nproc, 1, CDDPI_MAX_RANKS),
                   CDDPI_NUMBER(RECORD, count, 1, CDDPI_MAX_NODES),
                   CDDPI_NUMBER(RECORD, max_restarts, 0, INT32_MAX), CDDPI_TEXT(RECORD, timeout_ms),
                   CDDPI_TEXT(RECORD, words), CDDPI_NUMBER(RECORD, words_bytes, 0, INT64_MAX));

static const struct cddpi_field node_fields[] = {
    CDDPI_TEXT(struct cddpi_plan_node, host),
    CDDPI_NUMBER(struct cddpi_plan_node, nproc, 1, CDDPI_MAX_RANKS),
    {.type = CDDPI_FIELD_END},
};

CDDPI_MESSAGE_FORM(cddpi_node_plan_form, PLAN, PLAN,
                   sizeof(PLAN) + (size_t)CDDPI_MAX_NODES * (sizeof(struct cddpi_plan_node) + 16),
                   CDDPI_TEXT(PLAN, refusal), CDDPI_TEXT(PLAN, master_host),
                   CDDPI_LIST(PLAN, nodes, count, CDDPI_MAX_NODES, node_fields));

cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int count,
                                   struct cddpi_node_plan *out)
{
    CDDPI_TRY(cddpi_message_decode(&cddpi_node_plan_form, data, bytes, out));
    return out->count == (out->refusal[0] == '\0' ? count : 0)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_FORMAT, "it is for %d nodes, not for %d", out->count, count);
}

void cddpi_node_plan_fini(struct cddpi_node_plan *plan)
{
    cddpi_message_fini(&cddpi_node_plan_form, plan);
}

bool cddpi_node_record_differs(const struct cddpi_node_record *zero,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes)
{
    if (strcmp(zero->version, other->version) != 0) {
        snprintf(out, bytes, "node %d (%s) has cddp %s, node 0 (%s) has %s", i, other->host,
                 other->version, zero->host, zero->version);
    } else if (zero->count != other->count) {
        snprintf(out, bytes, "node %d (%s) was started with --nnodes %d, node 0 (%s) with %d", i,
                 other->host, other->count, zero->host, zero->count);
    } else if (i >= zero->count) {
        snprintf(out, bytes, "node %d (%s) has come, but --nnodes is %d", i, other->host,
                 zero->count);
    } else if (zero->max_restarts != other->max_restarts) {
        snprintf(out, bytes, "node %d (%s) was started with --max-restarts %d, node 0 (%s) with %d",
                 i, other->host, other->max_restarts, zero->host, zero->max_restarts);
    } else if (strcmp(zero->timeout_ms, other->timeout_ms) != 0) {
        snprintf(out, bytes, "node %d (%s) and node 0 (%s) were started with different --timeout",
                 i, other->host, zero->host);
    } else if (strcmp(zero->words, other->words) != 0 || zero->words_bytes != other->words_bytes) {
        snprintf(out, bytes,
                 "node %d (%s) was started to run something else than node 0 (%s): \"%.1000s\", "
                 "not \"%.1000s\"",
                 i, other->host, zero->host, other->words, zero->words);
    } else {
        return false;
    }
    return true;
}

/* What node 0 has gathered. */
struct gathering {
    struct cddpi_place *place;
    struct cddpi_node_record own;
    struct cddpi_node_plan plan;
    int came;
    struct cddpi_refused_list refused; /* clients that the store has refused */
};

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
    char prefix[CDDPI_PLACE_KEY_BYTES];
    char **keys = NULL;
    size_t count = 0;

    cddpi_place_key(place, "node/", -1, prefix);
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
static void list_nodes(const struct cddpi_node_plan *plan, bool have_come, char *out, size_t bytes)
{
    size_t used = 0;
    int named = 0;

    out[0] = '\0';
    for (int i = 0; i < plan->count; i++) {
        const struct cddpi_plan_node *node = &plan->nodes[i];

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
    list_nodes(&all->plan, false, missing, sizeof missing);
    list_nodes(&all->plan, true, there, sizeof there);
    snprintf(all->plan.refusal, sizeof all->plan.refusal,
             "of %d nodes these did not come within %g s: %s (these did: %s). Is cddp-run started "
             "there, with this --rdzv and this token?%s%s",
             all->plan.count, cddpi_place_timeout_ms(&all->place->job->options) / 1000.0, missing,
             there, refused[0] != '\0' ? " The job's store has refused " : "", refused);
}

static void tell_missing(struct gathering *all)
{
    char missing[CDDPI_MISSING_BYTES];

    if (cddpi_place_wait_lasts(all->place)) {
        list_nodes(&all->plan, false, missing, sizeof missing);
        cddpi_place_say_wait(all->place, "of %d nodes these have not come yet: %s", all->plan.count,
                             missing);
    }
}

void cddpi_node_list_missing(struct cddpi_place *place, char out[CDDPI_MISSING_BYTES])
{
    struct cddpi_node_plan plan = {.count = place->job->options.nnodes};
    char prefix[CDDPI_PLACE_KEY_BYTES];
    char **keys = NULL;
    size_t count = 0;

    snprintf(out, CDDPI_MISSING_BYTES, "?");
    cddpi_place_key(place, "node/", -1, prefix);
    plan.nodes = cddpi_zalloc_array((size_t)plan.count, sizeof *plan.nodes);
    if (plan.nodes != NULL && cddp_store_list(place->store, prefix, &keys, &count) == CDDP_OK) {
        for (size_t k = 0; k < count; k++) {
            int i = atoi(keys[k] + strlen(prefix));

            if (i >= 0 && i < plan.count) {
                plan.nodes[i].nproc = 1; /* it has come */
            }
        }
        list_nodes(&plan, false, out, CDDPI_MISSING_BYTES);
    }
    cddp_free(keys);
    cddpi_free(plan.nodes);
}

/* Wait until all nodes have arrived, or there is a refusal. */
static cddp_status gather_records(struct gathering *all)
{
    cddpi_place_wait_begins(all->place);
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
    int64_t deadline_ns = cddpi_deadline_ns(CDDPI_READ_MS);
    char prefix[CDDPI_PLACE_KEY_BYTES];
    char node_prefix[CDDPI_PLACE_KEY_BYTES];

    cddpi_place_key(all->place, "read/", -1, prefix);
    cddpi_place_key(all->place, "node/", -1, node_prefix);
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

cddp_status cddpi_node_plan_make(struct cddpi_place *place, const struct cddpi_node_record *own,
                                 struct cddpi_node_plan *out)
{
    struct gathering *all = cddpi_zalloc(sizeof *all);
    char key[CDDPI_PLACE_KEY_BYTES];
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
    if (all->plan.refusal[0] != '\0') {
        all->plan.count = 0;
    }
    cddpi_place_key(place, "plan", -1, key);
    CDDPI_TRY_GOTO(out, status,
                   cddpi_message_set(place->store, key, &cddpi_node_plan_form, &all->plan));
    if (all->plan.refusal[0] != '\0') {
        wait_until_read(all);
    }

out:
    *out = all->plan;
    cddpi_free(all);
    return status;
}
