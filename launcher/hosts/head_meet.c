/* head_meet.c - owns what the head finds in the job's store of the hosts that come. In a job that
 * goes on without hosts, no host need be there for the meeting of the nodes, so the head gathers
 * and compares their records, and answers them. In a job with a fixed number of hosts, node 0 does
 * that (node_gather.c). */
#include "launcher/hosts/head.h"

#include "launcher/nodes/node_place.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 2000 /* timeout of our own store */ };

/* Whether the record of node @p i of a fixed job is in the store. */
static bool has_record(const struct cddpi_head *head, cddp_store *store, int i)
{
    char key[CDDPI_PLACE_KEY_BYTES];
    void *record = NULL;

    snprintf(key, sizeof key, CDDPI_PLACE_NODE_KEY, head->rendezvous.job, i);
    if (store == NULL || cddp_store_try_get(store, key, &record, NULL) != CDDP_OK) {
        return false;
    }
    cddp_free(record);
    return true;
}

/* Append host @p i, of a fixed job with its number: "0 (alpha), 2 (gamma)". Returns the length. */
static size_t append(const struct cddpi_head *head, int i, char *out, size_t bytes, size_t used)
{
    const char *comma = used > 0 ? ", " : "";
    const char *name = head->hosts.hosts[i].name;

    if (used >= bytes) {
        return used;
    }
    return used +
           (size_t)(head->state.is_elastic
                        ? snprintf(out + used, bytes - used, "%s%.64s", comma, name)
                        : snprintf(out + used, bytes - used, "%s%d (%.64s)", comma, i, name));
}

int cddpi_head_list_missing(struct cddpi_head *head, char *out, size_t bytes,
                            bool *out_first_is_there)
{
    const struct cddpi_job_rendezvous *rendezvous = &head->rendezvous;
    bool is_elastic = head->state.is_elastic;
    cddp_store *store = NULL;
    size_t used = 0;
    int missing = 0;

    out[0] = '\0';
    *out_first_is_there = false;
    if (!is_elastic && cddpi_place_open_store(rendezvous->store, rendezvous->token, ANSWER_MS,
                                              &store) != CDDP_OK) {
        store = NULL;
    }
    for (int i = 0; i < head->hosts.count; i++) {
        bool is_there = is_elastic ? cddpi_head_is_there(&head->state, i)
                                   : has_record(head, store, i);

        *out_first_is_there = *out_first_is_there || (is_there && i == 0);
        if (!is_there && missing++ < CDDPI_HEAD_NAMED) {
            used = append(head, i, out, bytes, used);
        }
    }
    if (missing > CDDPI_HEAD_NAMED && used < bytes) {
        snprintf(out + used, bytes - used, " and %d more", missing - CDDPI_HEAD_NAMED);
    }
    cddp_store_close(store);
    return missing;
}

/* Whether the node of agent @p i, whose record has come, fits to the others. */
static bool fits(struct cddpi_head *head, int i, const struct cddpi_node_record *record,
                 char out_why[CDDPI_REFUSAL_BYTES])
{
    int node = head->state.hosts[i].node;

    if (!head->has_first) {
        head->has_first = true;
        head->first = *record;
        head->first_node = node;
    }
    head->agents[i].nproc = record->nproc;
    return !cddpi_node_record_differs(&head->first, head->first_node, record, node, out_why,
                                      CDDPI_REFUSAL_BYTES);
}

bool cddpi_head_look_for(struct cddpi_head *head, int i, char out_why[CDDPI_REFUSAL_BYTES])
{
    struct cddpi_node_record record;
    char key[CDDPI_PLACE_KEY_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    bool has_come = false;

    out_why[0] = '\0';
    snprintf(key, sizeof key, CDDPI_PLACE_NODE_KEY, head->rendezvous.job,
             head->state.hosts[i].node);
    if (cddp_store_try_get(head->client, key, &value, &bytes) != CDDP_OK) {
        return false;
    }
    if (cddpi_message_decode(&cddpi_node_record_form, value, bytes, &record) == CDDP_OK) {
        has_come = fits(head, i, &record, out_why);
    } else {
        snprintf(out_why, CDDPI_REFUSAL_BYTES,
                 "%s is of another cddp version than this one (%s): %s",
                 cddpi_head_agent_name(head, i), cddp_version(), cddp_last_error());
    }
    cddp_free(value);
    return has_come;
}

static int by_number(const void *a, const void *b)
{
    const struct cddpi_plan_node *left = a;
    const struct cddpi_plan_node *right = b;

    return left->node - right->node;
}

/* The plan of the nodes that are there, by number. Returns the number of their ranks. */
static int64_t fill_plan(const struct cddpi_head *head, struct cddpi_node_plan *plan)
{
    int64_t ranks = 0;

    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_plan_node *node = &plan->nodes[plan->count];

        if (cddpi_head_is_there(&head->state, i)) {
            node->node = head->state.hosts[i].node;
            node->nproc = head->agents[i].nproc;
            memcpy(node->host, head->hosts.hosts[i].name, sizeof node->host);
            plan->count++;
            ranks += head->agents[i].nproc;
        }
    }
    qsort(plan->nodes, (size_t)plan->count, sizeof *plan->nodes, by_number);
    return ranks;
}

/* The nodes of @p plan are the job's: answer them, and follow their log. */
static cddp_status open_link(struct cddpi_head *head, const struct cddpi_node_plan *plan)
{
    const struct cddpi_job_rendezvous *rendezvous = &head->rendezvous;
    struct cddpi_membership *members = &head->nodes.members;
    char key[CDDPI_PLACE_KEY_BYTES];

    members->outside_store = rendezvous->store;
    members->room = plan->count + CDDPI_MAX_JOINS; /* as all nodes have it */
    members->is_elastic = true;
    members->max_restarts = head->options->max_restarts;
    snprintf(key, sizeof key, "%s/0/plan", rendezvous->job);
    CDDPI_TRY(cddpi_message_set(head->client, key, &cddpi_node_plan_form, plan));
    return cddpi_nodes_follow(&head->nodes, rendezvous, plan);
}

cddp_status cddpi_head_let_meet(struct cddpi_head *head)
{
    struct cddpi_node_plan plan = {.count = 0};
    cddp_status status;

    plan.nodes = cddpi_zalloc_array((size_t)head->hosts.count, sizeof *plan.nodes);
    if (plan.nodes == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", head->hosts.count);
    } else if (fill_plan(head, &plan) > CDDPI_MAX_WORLD_SIZE) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "more than %d ranks", CDDPI_MAX_WORLD_SIZE);
    } else {
        status = open_link(head, &plan);
    }
    cddpi_node_plan_fini(&plan);
    return status;
}
