/* node_gather.c - owns node 0's part in the meeting: it gathers and compares the records of the
 * nodes, and makes the plan. */
#include "launcher/nodes/node_record.h"

#include "launcher/nodes/refused.h"
#include "launcher/run_options.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 50 };

/* What node 0 has gathered. */
struct gathering {
    struct cddpi_place *place;
    struct cddpi_node_record own;
    struct cddpi_node_plan plan; /* its nodes by number; nproc 0: that node has not come */
    int came;
    int64_t came_ns;                   /* when the last node came */
    int64_t settle_ns;                 /* elastic, with enough nodes: how long to wait for more */
    struct cddpi_refused_list refused; /* clients that the store has refused */
};

static bool is_elastic(const struct gathering *all)
{
    return all->own.least > 0;
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
    } else if (is_read && !cddpi_node_record_differs(&all->own, 0, &record, i, refusal,
                                                     sizeof all->plan.refusal)) {
        memcpy(all->plan.nodes[i].host, record.host, sizeof record.host);
        all->plan.nodes[i].nproc = record.nproc;
        all->plan.nodes[i].node = i;
        all->came++;
        all->came_ns = cddpi_now_ns();
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
    if (is_elastic(all)) {
        snprintf(all->plan.refusal, sizeof all->plan.refusal,
                 "of at least %d nodes %d came within %g s: %s. Is cddp-run started on the others, "
                 "with this --rdzv and this token?%s%s",
                 all->own.least, all->came,
                 cddpi_place_timeout_ms(&all->place->job->options) / 1000.0, there,
                 refused[0] != '\0' ? " The job's store has refused " : "", refused);
        return;
    }
    snprintf(all->plan.refusal, sizeof all->plan.refusal,
             "of %d nodes these did not come within %g s: %s (these did: %s). Is cddp-run started "
             "there, with this --rdzv and this token?%s%s",
             all->own.count, cddpi_place_timeout_ms(&all->place->job->options) / 1000.0, missing,
             there, refused[0] != '\0' ? " The job's store has refused " : "", refused);
}

/* Tell the user which nodes, or how many, have not come. */
static void say_missing(struct cddpi_place *place, const struct cddpi_node_plan *plan, int came)
{
    char missing[CDDPI_MISSING_BYTES];
    int least = place->job->options.least;

    if (least > 0 && came < least) {
        cddpi_place_say_wait(place, "%d node%s come, and the job needs %d", came,
                             came == 1 ? " has" : "s have", least);
    }
    if (least > 0) {
        return;
    }
    list_nodes(plan, false, missing, sizeof missing);
    if (missing[0] == '\0') {
        cddpi_place_say_wait(place, "all nodes have come, but node 0 has not answered yet");
    } else {
        cddpi_place_say_wait(place, "of %d nodes these have not come yet: %s", plan->count,
                             missing);
    }
}

void cddpi_node_say_missing(struct cddpi_place *place)
{
    struct cddpi_node_plan plan = {.count = place->job->options.nnodes};
    char prefix[CDDPI_PLACE_KEY_BYTES];
    char **keys = NULL;
    size_t count = 0;

    cddpi_place_key(place, "node/", -1, prefix);
    plan.nodes = cddpi_zalloc_array((size_t)plan.count, sizeof *plan.nodes);
    if (plan.nodes != NULL && cddp_store_list(place->store, prefix, &keys, &count) == CDDP_OK) {
        for (size_t k = 0; k < count; k++) {
            int i = atoi(keys[k] + strlen(prefix));

            if (i >= 0 && i < plan.count) {
                plan.nodes[i].nproc = 1; /* it has come */
            }
        }
        say_missing(place, &plan, (int)count);
    }
    cddp_free(keys);
    cddpi_free(plan.nodes);
}

int64_t cddpi_node_settle_ns(void)
{
    enum { DEFAULT_MS = 3000 };

    return cddpi_env_integer(CDDPI_ENV_SETTLE_MS, 0, INT32_MAX, DEFAULT_MS) * 1000000;
}

/* Whether enough nodes have come: all of them, or in an elastic job as many as it needs, and no
 * other has come for a while. */
static bool is_complete(const struct gathering *all)
{
    if (!is_elastic(all) || all->came >= all->own.count) {
        return all->came >= all->own.count;
    }
    return all->came >= all->own.least && (cddpi_now_ns() - all->came_ns >= all->settle_ns ||
                                           cddpi_left_ms(all->place->deadline_ns) == 0);
}

/* Wait until enough nodes have arrived, or there is a refusal. */
static cddp_status gather_records(struct gathering *all)
{
    cddpi_place_wait_begins(all->place);
    for (;;) {
        cddp_status status = read_records(all);

        cddpi_refused_publish(&all->place->job->rendezvous, &all->refused);
        if (status != CDDP_OK || all->plan.refusal[0] != '\0' || is_complete(all)) {
            return status;
        }
        if (cddpi_left_ms(all->place->deadline_ns) == 0) {
            (void)cddpi_refused_read(all->place->store, all->place->job->rendezvous.job,
                                     &all->refused);
            refuse_missing(all);
            return CDDP_OK;
        }
        if (all->came < (is_elastic(all) ? all->own.least : all->own.count) &&
            cddpi_place_wait_lasts(all->place)) {
            say_missing(all->place, &all->plan, all->came);
        }
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

/* Leave out the numbers of nodes that have not come. */
static void close_gaps(struct cddpi_node_plan *plan)
{
    int count = 0;

    for (int i = 0; i < plan->count; i++) {
        if (plan->nodes[i].nproc > 0) {
            plan->nodes[count++] = plan->nodes[i];
        }
    }
    plan->count = count;
}

cddp_status cddpi_node_plan_make(struct cddpi_place *place, const struct cddpi_node_record *own,
                                 struct cddpi_node_plan *out)
{
    struct gathering *all = cddpi_zalloc(sizeof *all);
    int room = own->least > 0 ? CDDPI_MAX_NODES : own->count; /* also for those that wait */
    char key[CDDPI_PLACE_KEY_BYTES];
    cddp_status status;

    if (all != NULL) {
        all->plan.nodes = cddpi_zalloc_array((size_t)room, sizeof *all->plan.nodes);
    }
    if (all == NULL || all->plan.nodes == NULL) {
        cddpi_free(all);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", room);
    }
    all->place = place;
    all->own = *own;
    all->settle_ns = cddpi_node_settle_ns();
    all->plan.count = room;
    cddpi_place_master_host(&place->job->rendezvous, all->plan.master_host,
                            sizeof all->plan.master_host);
    CDDPI_TRY_GOTO(out, status, gather_records(all));
    close_gaps(&all->plan);
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
