/* job_store.c - owns the process that serves a job's store outside the job's nodes, so that any
 * node may be lost. It is the one place where events get their order, and so decides nothing
 * itself: who leads follows from the order (membership_leads.c). It watches the nodes, tells their
 * losses, and follows the log to know when they have left, and to show cddp-ctl on other machines
 * what the job does. */
#include "launcher/nodes/job_store.h"

#include "launcher/ctl/ctl.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

enum {
    LOOK_MS = 250,
    ANSWER_MS = 5000,
    LAST_MS = 10000 /* once the job has ended: how long nodes may take to leave */
};

struct job_store {
    struct cddpi_job *job;
    struct cddpi_wait *wait;
    struct cddpi_nodes nodes;
    cddp_store *client; /* of the own server */
    struct cddpi_refused_list refused;
    bool is_asked;       /* a signal has asked the job to end */
    int64_t deadline_ns; /* for nodes to leave, or to come; CDDPI_JOB_NEVER */
};

static cddp_status serve(struct job_store *store)
{
    struct cddpi_job *job = store->job;
    struct cddpi_job_rendezvous *rendezvous = &job->rendezvous;
    const char *rest = job->options.store + strlen("tcp://");
    struct cddpi_address address;
    bool binds_all;

    CDDPI_TRY(cddpi_address_next(&rest, &address));
    if (*rest != '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--store %s: more than one address",
                          job->options.store);
    }
    binds_all = cddpi_place_binds_all(address.host, false);
    if (cddpi_rendezvous_serve(binds_all ? NULL : address.host, address.port, 0, rendezvous) !=
        CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_IO, "--store %s", job->options.store);
    }
    rendezvous->has_outside_store = true;
    if (binds_all) {
        snprintf(address.host, sizeof address.host, "127.0.0.1");
    }
    cddpi_address_url(&address, rendezvous->store);
    CDDPI_TRY(cddpi_store_server_set(rendezvous->server, CDDPI_PLACE_OUTSIDE_KEY, "1", 1));
    CDDPI_TRY(cddpi_store_server_set(rendezvous->server, CDDPI_PLACE_JOB_KEY, rendezvous->job,
                                     strlen(rendezvous->job)));
    CDDPI_TRY(
        cddpi_place_open_store(rendezvous->store, rendezvous->token, ANSWER_MS, &store->client));
    cddpi_output_say(store->wait->output,
                     "the store of a job is served at %s: start its nodes with --rdzv %s",
                     job->options.store, job->options.store);
    return CDDP_OK;
}

/* Tell the user, and the nodes that meet, whom the store has refused. */
static void tell_refused(struct job_store *store)
{
    char text[CDDPI_REFUSED_BYTES];
    int known = store->refused.count;

    cddpi_refused_publish(&store->job->rendezvous, &store->refused);
    if (store->refused.count > known) {
        cddpi_refused_say(&store->refused, text);
        cddpi_output_say(store->wait->output, "the store has refused %s", text);
    }
}

/* Read the value of JOB/0/@p name. */
static cddp_status read_key(struct job_store *store, const char *name, void **out_value,
                            size_t *out_bytes)
{
    char key[CDDPI_PLACE_KEY_BYTES];

    snprintf(key, sizeof key, "%s/0/%s", store->job->rendezvous.job, name);
    return cddp_store_try_get(store->client, key, out_value, out_bytes);
}

static bool has_key(struct job_store *store, const char *name)
{
    void *value = NULL;
    bool is_there = read_key(store, name, &value, NULL) == CDDP_OK;

    cddp_free(value);
    return is_there;
}

/* Wait until node 0 has answered the nodes that meet. */
static cddp_status await_plan(struct job_store *store, struct cddpi_node_plan *out)
{
    int64_t deadline_ns = CDDPI_JOB_NEVER; /* none, before node 0 has come */
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    while ((status = read_key(store, "plan", &value, &bytes)) == CDDP_ERR_NOT_FOUND) {
        tell_refused(store);
        if (store->wait->is_over) {
            return cddpi_wait_fail(store->wait);
        }
        if (deadline_ns == CDDPI_JOB_NEVER && has_key(store, "node/0")) {
            deadline_ns = cddpi_deadline_ns(cddpi_place_timeout_ms(&store->job->options)) +
                          2 * CDDPI_READ_MS * INT64_C(1000000);
        }
        if (deadline_ns != CDDPI_JOB_NEVER && cddpi_left_ms(deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT,
                              "node 0 has come, and has not begun the job within %g s (--timeout): "
                              "start this store again, and then the nodes",
                              cddpi_place_timeout_ms(&store->job->options) / 1000.0);
        }
        (void)cddpi_wait_for(store->wait, -1,
                             LOOK_MS); /* then look again: the job may have begun */
    }
    CDDPI_TRY(status);
    status = cddpi_node_plan_decode(value, bytes, 1, CDDPI_MAX_NODES, out);
    cddp_free(value);
    return status;
}

/* What node 0 has told about the job of @p count nodes. */
static void read_record(struct job_store *store, int count, struct cddpi_node_record *out)
{
    void *value = NULL;
    size_t bytes = 0;

    if (read_key(store, "node/0", &value, &bytes) != CDDP_OK ||
        cddpi_message_decode(&cddpi_node_record_form, value, bytes, out) != CDDP_OK) {
        *out = (struct cddpi_node_record){.least = 1, .count = count, .max_restarts = -1};
    }
    cddp_free(value);
}

/* The nodes have met: follow their log. */
static cddp_status follow(struct job_store *store, const struct cddpi_node_plan *plan)
{
    struct cddpi_nodes *nodes = &store->nodes;
    struct cddpi_node_record record;

    CDDPI_TRY(cddpi_nodes_init(-1, plan->count + CDDPI_MAX_JOINS, nodes));
    read_record(store, plan->count, &record);
    nodes->job = store->job;
    nodes->wait = store->wait;
    nodes->members.outside_store = store->job->options.store;
    nodes->members.is_elastic = record.least > 0;
    nodes->members.least = record.least > 0 ? record.least : record.count;
    nodes->members.most = record.count;
    nodes->members.max_restarts = record.max_restarts;
    CDDPI_TRY(cddpi_nodes_follow(nodes, &store->job->rendezvous, plan));
    nodes->ctl = cddpi_ctl_begin(nodes, record.trains);
    cddpi_ctl_look(nodes->ctl);
    return CDDP_OK;
}

static int count_there(const struct cddpi_membership *members)
{
    int count = 0;

    for (int i = 0; i < members->count; i++) {
        count += members->list[i].is_there && !members->list[i].has_left;
    }
    return count;
}

/* A signal was sent to this process: the job is asked to end, and ends. Nodes tell second requests
 * from the same one. */
static void ask_to_end(struct job_store *store, int number)
{
    store->is_asked = true;
    store->wait->is_over = false;
    store->wait->number = 0;
    CDDPI_PUBLISH(store->nodes.link, .kind = CDDPI_EVENT_SIGNAL, .node = -1, .number = number);
}

/* No node is there. Returns the exit status; -1: others may come. */
static int judge_empty(struct job_store *store)
{
    const struct cddpi_membership *members = &store->nodes.members;
    uint32_t timeout_ms = cddpi_place_timeout_ms(&store->job->options);

    if (!members->is_elastic || store->is_asked || members->asked_signal != 0) {
        cddpi_output_say(store->wait->output, "no node is left");
        return 1;
    }
    if (store->deadline_ns == CDDPI_JOB_NEVER) {
        store->deadline_ns = cddpi_deadline_ns(timeout_ms);
        cddpi_output_say(store->wait->output,
                         "no node is left: waiting for others for up to %g s (--timeout)",
                         timeout_ms / 1000.0);
    } else if (cddpi_left_ms(store->deadline_ns) == 0) {
        cddpi_output_say(store->wait->output,
                         "no node came within %g s. The job ends; started again, it goes on from "
                         "its last checkpoint",
                         timeout_ms / 1000.0);
        return CDDPI_TOO_FEW;
    }
    return -1;
}

/* Returns the exit status; -1: the job goes on. */
static int judge(struct job_store *store)
{
    const struct cddpi_membership *members = &store->nodes.members;
    int there = count_there(members);

    if (members->end.kind != CDDPI_EVENT_NONE) {
        if (store->deadline_ns == CDDPI_JOB_NEVER) {
            store->deadline_ns = cddpi_deadline_ns(LAST_MS);
        }
        return there == 0 || cddpi_left_ms(store->deadline_ns) == 0 ? members->end.exit_status : -1;
    }
    if (there == 0) {
        return judge_empty(store);
    }
    store->deadline_ns = CDDPI_JOB_NEVER;
    return -1;
}

/* Serve until the nodes have left. Returns the job's exit status. */
static int serve_on(struct job_store *store)
{
    struct cddpi_nodes *nodes = &store->nodes;
    struct cddpi_wait *wait = store->wait;
    int exit_status;

    while ((exit_status = judge(store)) < 0) {
        struct cddpi_node_event event;
        bool goes_on = cddpi_wait_for(wait, cddpi_node_link_fd(nodes->link), LOOK_MS);

        while (cddpi_node_link_next(nodes->link, &event)) {
            cddpi_nodes_take(nodes, &event, wait->output);
            cddpi_ctl_look(nodes->ctl);
            if (event.kind == CDDPI_EVENT_START) {
                cddpi_rendezvous_forget(&store->job->rendezvous, nodes->members.generation);
            }
            if (event.kind == CDDPI_EVENT_CUT) {
                return 1;
            }
        }
        if (!goes_on && wait->number == 0) {
            return 1;
        }
        if (!goes_on) {
            ask_to_end(store, wait->number);
        }
        tell_refused(store);
    }
    return exit_status;
}

/* Let the nodes read why the job cannot run. */
static int refuse(struct job_store *store, const char *why)
{
    cddpi_output_say(store->wait->output, "%s", why);
    (void)cddpi_wait_for(store->wait, -1, CDDPI_READ_MS);
    return 2;
}

int cddpi_job_store_run(struct cddpi_job *job, struct cddpi_wait *wait)
{
    struct job_store store = {.job = job,
                              .wait = wait,
                              .nodes = {.members = {.self = -1}},
                              .deadline_ns = CDDPI_JOB_NEVER};
    struct cddpi_node_plan plan = {.count = 0};
    int exit_status = 1;
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, serve(&store));
    CDDPI_TRY_GOTO(out, status, await_plan(&store, &plan));
    if (plan.refusal[0] != '\0') {
        exit_status = refuse(&store, plan.refusal);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, follow(&store, &plan));
    exit_status = serve_on(&store);
    cddpi_ctl_end(store.nodes.ctl, exit_status);
    store.nodes.ctl = NULL;

out:
    if (status != CDDP_OK) {
        cddpi_output_say(wait->output, "%s", cddp_last_error());
        exit_status = wait->number != 0 ? 128 + wait->number : status == CDDP_ERR_ARGUMENT ? 2 : 1;
    }
    cddpi_node_plan_fini(&plan);
    cddp_store_close(store.client);
    cddpi_nodes_fini(&store.nodes);
    cddpi_nodes_await_readers(&job->rendezvous, wait);
    cddpi_rendezvous_fini(&job->rendezvous);
    return exit_status;
}
