/* head.c - owns the cddp-run that starts others on a list of hosts: the event loop over their
 * output and their events. head_state.h decides what follows. This process has no ranks. */
#include "launcher/hosts/head.h"

#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_place.h"
#include "launcher/nodes/node_record.h"
#include "launcher/supervise/monitor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/streams.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIXED_FDS = 5, AGENT_FDS = 3, STORE_MS = 5000, LOOK_MS = 500 };

static void read_signals(struct cddpi_head *head)
{
    struct signalfd_siginfo got;

    while (read(head->signal_fd, &got, sizeof got) == (ssize_t)sizeof got) {
        if (got.ssi_signo != SIGCHLD) {
            CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_SIGNALLED, .number = (int)got.ssi_signo);
        }
    }
}

/* Reap agents that have ended, after relaying their output. */
static void reap_agents(struct cddpi_head *head)
{
    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];

        if (agent->pid == 0 || agent->is_reaped ||
            waitpid(agent->pid, &agent->status, WNOHANG) != agent->pid) {
            continue;
        }
        agent->is_reaped = true;
        (void)cddpi_relay_read(&agent->out);
        if (!head->state.hosts[i].is_held) {
            (void)cddpi_relay_read(&agent->err);
        }
        CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_ENDED, .host = i,
                        .number = cddpi_exit_status(agent->status));
    }
}

/* Reap what agents on this machine, or commands such as ssh, have left behind: as a child subreaper
 * this process is its parent. Stops at an agent that has ended meanwhile: the next turn goes on. */
static void reap_orphans(const struct cddpi_head *head)
{
    for (;;) {
        siginfo_t ended = {0};
        int status;

        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) {
            return;
        }
        for (int i = 0; i < head->hosts.count; i++) {
            if (head->agents[i].pid == ended.si_pid && !head->agents[i].is_reaped) {
                return;
            }
        }
        (void)waitpid(ended.si_pid, &status, WNOHANG);
    }
}

/* Write the rest of the parcel. */
static void feed_parcel(struct cddpi_agent *agent)
{
    struct cddpi_wire_buffer *buffer = &agent->parcel;
    ssize_t written = write(agent->input, buffer->data + agent->sent, buffer->bytes - agent->sent);

    if (written > 0) {
        agent->sent += (size_t)written;
    }
    if (agent->sent == buffer->bytes ||
        (written < 0 && errno != EAGAIN &&
         errno != EINTR)) { /* an agent that ends without its parcel prints why */
        cddpi_buffer_fini(buffer);
        memset(buffer, 0, sizeof *buffer);
        agent->sent = 0;
    }
}

static void fill_polls(struct cddpi_head *head, struct pollfd *polls)
{
    polls[0] = (struct pollfd){head->signal_fd, POLLIN, 0};
    polls[1] = (struct pollfd){head->monitor->lifeline, POLLIN, 0};
    polls[2] = (struct pollfd){head->nodes.link != NULL ? cddpi_node_link_fd(head->nodes.link) : -1,
                               POLLIN, 0};
    for (int i = 0; i < 2; i++) {
        struct cddpi_sink *sink = &head->output->sinks[i];

        polls[3 + i] = (struct pollfd){cddpi_sink_queued(sink) > 0 ? sink->fd : -1, POLLOUT, 0};
    }
    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];
        struct pollfd *of = polls + FIXED_FDS + AGENT_FDS * i;
        bool is_full = cddpi_sink_queued(&head->output->sinks[0]) +
                           cddpi_sink_queued(&head->output->sinks[1]) >
                       CDDPI_OUTPUT_FULL;

        of[0] = (struct pollfd){is_full ? -1 : agent->out.fd, POLLIN, 0};
        of[1] = (struct pollfd){is_full || head->state.hosts[i].is_held ? -1 : agent->err.fd,
                                POLLIN, 0};
        of[2] = (struct pollfd){agent->parcel.bytes > 0 ? agent->input : -1, POLLOUT, 0};
    }
}

static void handle_agents(struct cddpi_head *head, const struct pollfd *polls)
{
    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];
        const struct pollfd *of = polls + FIXED_FDS + AGENT_FDS * i;

        if (of[0].revents != 0) {
            (void)cddpi_relay_read(&agent->out);
        }
        if (of[1].revents != 0) {
            (void)cddpi_relay_read(&agent->err);
        }
        if (of[2].revents != 0 && agent->input >= 0) {
            feed_parcel(agent);
        }
    }
}

/* When to take the next turn. While hosts are awaited, clients that the store has refused are
 * published. */
static int64_t next_ns(const struct cddpi_head *head)
{
    int64_t look_ns = cddpi_deadline_ns(LOOK_MS);

    return head->state.begin_ns != CDDPI_HEAD_NEVER && look_ns < head->state.due_ns
               ? look_ns
               : head->state.due_ns;
}

/* Returns false once the monitor is gone. */
static bool turn_once(struct cddpi_head *head, struct pollfd *polls)
{
    int64_t due_ns = next_ns(head);
    int timeout = due_ns == CDDPI_HEAD_NEVER ? -1 : cddpi_left_ms(due_ns);
    struct cddpi_node_event event;

    fill_polls(head, polls);
    if (poll(polls, (nfds_t)(FIXED_FDS + AGENT_FDS * head->hosts.count), timeout) > 0) {
        if (polls[1].revents != 0) {
            return false;
        }
        while (polls[2].revents != 0 && cddpi_node_link_next(head->nodes.link, &event)) {
            CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_HEARD, .heard = &event);
        }
        if (polls[0].revents != 0) { /* what a signal means depends on what has happened before */
            read_signals(head);
        }
        for (int i = 0; i < 2; i++) {
            if (polls[3 + i].revents != 0) {
                cddpi_sink_flush(&head->output->sinks[i]);
            }
        }
        handle_agents(head, polls);
    }
    reap_agents(head);
    reap_orphans(head);
    if (head->state.begin_ns != CDDPI_HEAD_NEVER) {
        cddpi_refused_publish(&head->rendezvous, &head->refused);
    }
    CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_TIME);
    return true;
}

/* Serve the store in which the agents meet. */
static cddp_status serve(struct cddpi_head *head)
{
    struct cddpi_job_rendezvous *rendezvous = &head->rendezvous;
    bool is_alone = true; /* no other machine has to reach the store */
    uint16_t port;

    for (int i = 0; i < head->hosts.count; i++) {
        is_alone = is_alone && cddpi_address_is_local(head->hosts.hosts[i].name, false);
    }
    CDDPI_TRY(
        cddpi_rendezvous_serve(is_alone ? "127.0.0.1" : NULL, 0, head->hosts.count, rendezvous));
    if (head->state.is_elastic) {
        CDDPI_TRY(cddpi_store_server_set(rendezvous->server, CDDPI_PLACE_OUTSIDE_KEY, "1", 1));
    }
    CDDPI_TRY(cddpi_store_server_set(rendezvous->server, CDDPI_PLACE_JOB_KEY, rendezvous->job,
                                     strlen(rendezvous->job)));
    port = cddpi_store_server_port(rendezvous->server);
    snprintf(rendezvous->store, sizeof rendezvous->store, "tcp://127.0.0.1:%u", port);
    if (is_alone) {
        snprintf(head->url, sizeof head->url, "%s", rendezvous->store);
    } else {
        cddpi_address_own(head->options->network_interface, port, head->url);
    }
    cddpi_secret_init(&head->secret, rendezvous->token);
    return CDDP_OK;
}

/* Connect to the own store. */
static cddp_status open_store(struct cddpi_head *head)
{
    const struct cddpi_job_rendezvous *rendezvous = &head->rendezvous;
    struct cddpi_node_link_options link = {.store = rendezvous->store,
                                           .token = rendezvous->token,
                                           .job = rendezvous->job,
                                           .self = -1,
                                           .count = head->hosts.count};

    return head->state.is_elastic ? cddpi_place_open_store(rendezvous->store, rendezvous->token,
                                                           STORE_MS, &head->client)
                                  : cddpi_node_link_open(&link, &head->nodes.link);
}

static cddp_status name_nodes(struct cddpi_head *head)
{
    struct cddpi_nodes *nodes = &head->nodes;
    struct cddpi_head_state *state = &head->state;
    int count = head->hosts.count;

    CDDPI_TRY(cddpi_nodes_init(-1, count + (state->is_elastic ? CDDPI_MAX_JOINS : 0), nodes));
    state->count = count;
    state->members = &nodes->members;
    state->member_actions = nodes->actions;
    state->action_room = cddpi_head_action_room(count);
    state->hosts = cddpi_zalloc_array((size_t)count, sizeof *state->hosts);
    state->actions = cddpi_zalloc_array((size_t)state->action_room, sizeof *state->actions);
    head->agents = cddpi_zalloc_array((size_t)count, sizeof *head->agents);
    for (int i = 0; head->agents != NULL && i < count; i++) {
        cddpi_head_init_agent(head, i); /* which are released after a failure, too */
    }
    CDDPI_TRY_MEMORY(state->hosts != NULL && state->actions != NULL && head->agents != NULL,
                     "no memory for %d hosts", count);
    nodes->members.is_silent = true;
    CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_BEGINS);
    for (int i = 0; i < count; i++) {
        if (!state->is_elastic) {
            (void)cddpi_membership_add(&nodes->members, i, head->hosts.hosts[i].name, 1);
        }
    }
    return CDDP_OK;
}

static cddp_status start_agents(struct cddpi_head *head)
{
    CDDPI_TRY(serve(head));
    CDDPI_TRY(open_store(head));
    for (int i = 0; i < head->hosts.count; i++) {
        CDDPI_TRY(cddpi_head_start(head, i));
        CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_STARTED, .host = i);
    }
    return CDDP_OK;
}

static void release_agents(struct cddpi_head *head)
{
    for (int i = 0; head->agents != NULL && i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];

        cddpi_fd_close(&agent->input);
        cddpi_head_finish_agent(agent);
        cddpi_head_free_words(agent->argv);
        cddpi_free(agent->said);
    }
    cddp_store_close(head->client);
    cddpi_nodes_fini(&head->nodes);
    cddpi_rendezvous_fini(&head->rendezvous);
    cddpi_free(head->agents);
    cddpi_free(head->state.hosts);
    cddpi_free(head->state.actions);
    head->agents = NULL;
    head->state.hosts = NULL;
    head->state.actions = NULL;
}

/* The agents have ended, or were given up. Returns the exit status. */
static int finish(struct cddpi_head *head)
{
    if (head->nodes.link == NULL && head->client == NULL) {
        return 1; /* none was started */
    }
    for (int i = 0; i < head->hosts.count; i++) {
        cddpi_relay_finish(&head->agents[i].out);
        cddpi_relay_finish(&head->agents[i].err);
    }
    cddpi_head_say_first_failure(head);
    return cddpi_head_exit_status(&head->state);
}

int cddpi_head_supervise(struct cddpi_head *head)
{
    struct pollfd *polls = cddpi_zalloc_array((size_t)(FIXED_FDS + AGENT_FDS * head->hosts.count),
                                              sizeof *polls);
    int exit_status = 1;

    head->state.timeout_ms = cddpi_place_timeout_ms(head->options);
    head->state.settle_ns = cddpi_node_settle_ns();
    if (polls == NULL) {
        cddpi_output_say(head->output, "no memory for %d hosts", head->hosts.count);
    } else if (name_nodes(head) != CDDP_OK) {
        cddpi_output_say(head->output, "%s", cddp_last_error());
    } else {
        if (start_agents(head) != CDDP_OK) {
            cddpi_output_say(head->output, "%s", cddp_last_error());
            CDDPI_HEAD_FEED(head, .kind = CDDPI_HEAD_REFUSES, .number = 1);
        }
        while (!head->state.is_over && turn_once(head, polls)) {
        }
        exit_status = finish(head);
    }
    release_agents(head);
    cddpi_free(polls);
    return exit_status;
}

int cddpi_head_dry_run(const struct cddpi_head *head)
{
    int first = 0;

    for (int i = 0; i < head->hosts.count; i++) {
        const struct cddpi_host *host = &head->hosts.hosts[i];
        int nproc = host->slots > 0 ? host->slots : head->options->nproc;
        char **words = NULL;

        if (cddpi_head_words(head, i, "tcp://(chosen at the start)", &words) != CDDP_OK) {
            fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
            cddpi_head_free_words(words);
            return 1;
        }
        cddpi_say(stdout, "node %d: %s, ", i, host->name);
        if (nproc > 0 && first >= 0) {
            printf("%d rank%s: %d to %d", nproc, nproc == 1 ? "" : "s", first, first + nproc - 1);
            first += nproc;
        } else {
            printf("as many ranks as --nproc %s gives there",
                   head->options->per_gpu ? "gpu" : "auto");
            first = -1;
        }
        printf(":");
        for (char **word = words; *word != NULL; word++) {
            cddpi_say(stdout, " %s", *word);
        }
        putchar('\n');
        cddpi_head_free_words(words);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

cddp_status cddpi_head_init(struct cddpi_head *head, const struct cddpi_launch_options *options)
{
    *head = (struct cddpi_head){.options = options, .nodes = {.members = {.self = -1}}};
    cddpi_rendezvous_clear(&head->rendezvous);
    CDDPI_TRY(options->hosts != NULL ? cddpi_hosts_parse_list(options->hosts, &head->hosts)
                                     : cddpi_hosts_read(options->hostfile, &head->hosts));
    head->state.is_elastic = options->least > 0;
    head->state.least = options->least;
    head->state.most = options->nnodes < head->hosts.count ? options->nnodes : head->hosts.count;
    head->state.grace_ms = options->grace_ms;
    if (head->state.least > head->hosts.count) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--nnodes %d:%d: the job needs at least %d hosts, and the list has %d",
                          options->least, options->nnodes, options->least, head->hosts.count);
    }
    return CDDP_OK;
}

void cddpi_head_fini(struct cddpi_head *head)
{
    cddpi_hosts_fini(&head->hosts);
}
