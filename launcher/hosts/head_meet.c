/* head_meet.c - owns the meeting of the nodes of a job that goes on without hosts: no host need be
 * there for it, so the cddp-run that starts the nodes gathers and compares their records, and
 * answers them. In a job with a fixed number of hosts, node 0 does that (node_gather.c). */
#include "launcher/hosts/head.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 100,
    SETTLE_MS = 3000, /* with enough nodes: how long to wait for each further one */
    NEWS_MS = 60000
};

static bool is_there(const struct cddpi_agent *agent)
{
    return agent->has_come && !agent->has_ended;
}

/* List the hosts that have not come, as "alpha, gamma". Returns how many have. */
static int list_missing(const struct cddpi_head *head, char *out, size_t bytes)
{
    size_t used = 0;
    int missing = 0;

    out[0] = '\0';
    for (int i = 0; i < head->hosts.count; i++) {
        if (!is_there(&head->agents[i]) && missing++ < CDDPI_HEAD_NAMED && used < bytes) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%.64s", used > 0 ? ", " : "",
                                     head->hosts.hosts[i].name);
        }
    }
    if (missing > CDDPI_HEAD_NAMED && used < bytes) {
        snprintf(out + used, bytes - used, " and %d more", missing - CDDPI_HEAD_NAMED);
    }
    return head->hosts.count - missing;
}

/* The job cannot begin. */
static void refuse(struct cddpi_head *head, const char *why)
{
    cddpi_output_say(head->output, "%s", why);
    head->exit_status = 2;
    (void)cddpi_head_end_agents(head);
}

/* The record of agent @p i has come. */
static void take_record(struct cddpi_head *head, int i, const struct cddpi_node_record *record)
{
    struct cddpi_agent *agent = &head->agents[i];
    char why[CDDPI_REFUSAL_BYTES];

    if (!head->has_any_come) {
        head->first = *record;
        head->first_node = agent->node;
    }
    if (cddpi_node_record_differs(&head->first, head->first_node, record, agent->node, why,
                                  sizeof why)) {
        refuse(head, why);
        return;
    }
    agent->nproc = record->nproc;
    head->came_ns = cddpi_now_ns();
    cddpi_head_agent_came(head, i);
}

/* Look for the record of agent @p i. */
static void look_for(struct cddpi_head *head, int i)
{
    struct cddpi_node_record record;
    char key[CDDPI_PLACE_KEY_BYTES];
    char why[CDDPI_REFUSAL_BYTES];
    void *value = NULL;
    size_t bytes = 0;

    snprintf(key, sizeof key, CDDPI_PLACE_NODE_KEY, head->rendezvous.job, head->agents[i].node);
    if (cddp_store_try_get(head->client, key, &value, &bytes) != CDDP_OK) {
        return;
    }
    if (cddpi_message_decode(&cddpi_node_record_form, value, bytes, &record) == CDDP_OK) {
        take_record(head, i, &record);
    } else {
        snprintf(why, sizeof why, "%s is of another cddp version than this one (%s): %s",
                 cddpi_head_agent_name(head, i), cddp_version(), cddp_last_error());
        refuse(head, why);
    }
    cddp_free(value);
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
        const struct cddpi_agent *agent = &head->agents[i];
        struct cddpi_plan_node *node = &plan->nodes[plan->count];

        if (is_there(agent)) {
            node->node = agent->node;
            node->nproc = agent->nproc;
            memcpy(node->host, head->hosts.hosts[i].name, sizeof node->host);
            plan->count++;
            ranks += agent->nproc;
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

/* Enough nodes are there: begin. */
static void begin(struct cddpi_head *head)
{
    struct cddpi_node_plan plan = {.count = 0};
    char missing[2048];
    cddp_status status = CDDP_ERR_NO_MEMORY;
    int came = list_missing(head, missing, sizeof missing);

    plan.nodes = cddpi_zalloc_array((size_t)head->hosts.count, sizeof *plan.nodes);
    if (plan.nodes == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", head->hosts.count);
    } else if (fill_plan(head, &plan) > CDDPI_MAX_WORLD_SIZE) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "more than %d ranks", CDDPI_MAX_WORLD_SIZE);
    } else {
        status = open_link(head, &plan);
    }
    cddpi_node_plan_fini(&plan);
    if (status != CDDP_OK) {
        refuse(head, cddp_last_error());
        return;
    }
    head->has_met = true;
    head->begin_ns = head->news_ns = INT64_MAX;
    if (came < head->most) {
        cddpi_output_say(head->output,
                         "the job begins on %d of %d hosts; not there yet: %s: let in when they "
                         "come",
                         came, head->hosts.count, missing);
    }
}

/* Too few nodes have come in time. */
static void give_up(struct cddpi_head *head, int came, const char *missing)
{
    char refused[CDDPI_REFUSED_BYTES];

    cddpi_refused_say(&head->refused, refused);
    cddpi_output_say(head->output,
                     "of at least %d hosts %d came within %g s. Not there: %s. Does %.200s reach "
                     "them, and run the command that it is given?%s%s",
                     head->least, came, head->timeout_ms / 1000.0, missing, head->options->ssh,
                     refused[0] != '\0' ? " The job's store has refused " : "", refused);
    head->exit_status = CDDPI_TOO_FEW;
    (void)cddpi_head_end_agents(head);
}

void cddpi_head_meet(struct cddpi_head *head)
{
    bool is_late = cddpi_left_ms(head->begin_ns) == 0;
    char missing[2048];
    int came;

    if (cddpi_now_ns() < head->look_ns) {
        return;
    }
    head->look_ns = cddpi_deadline_ns(LOOK_MS);
    cddpi_refused_publish(&head->rendezvous, &head->refused);
    for (int i = 0; i < head->hosts.count && head->steps == 0; i++) {
        if (!head->agents[i].has_ended && !head->agents[i].has_come) {
            look_for(head, i);
        }
    }
    if (head->steps > 0) {
        return;
    }
    came = list_missing(head, missing, sizeof missing);
    if (came >= head->most ||
        (came >= head->least &&
         (is_late || cddpi_now_ns() >= head->came_ns + SETTLE_MS * INT64_C(1000000)))) {
        begin(head);
    } else if (is_late) {
        give_up(head, came, missing);
    } else if (cddpi_left_ms(head->news_ns) == 0) {
        head->news_ns = cddpi_deadline_ns(NEWS_MS);
        cddpi_output_say(head->output, "of %d hosts these have not come yet: %s", head->hosts.count,
                         missing);
    }
}
