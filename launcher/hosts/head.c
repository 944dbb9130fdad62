/* head.c - owns the cddp-run that starts others on a list of hosts: the event loop over their
 * output and their events. head_end.c decides how the job ends. This process has no ranks. */
#include "launcher/hosts/head.h"

#include "launcher/nodes/node_place.h"

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

enum { FIXED_FDS = 5, AGENT_FDS = 3, STORE_MS = 5000 };

static void read_signals(struct cddpi_head *head)
{
    struct signalfd_siginfo got;

    while (read(head->signal_fd, &got, sizeof got) == (ssize_t)sizeof got) {
        if (got.ssi_signo != SIGCHLD) {
            cddpi_head_take_signal(head, (int)got.ssi_signo);
        }
    }
}

/* Reap agents that have ended, after relaying their output. Whether the end of an agent was
 * expected is known once the event that we publish here comes back to us: by then we have received
 * all earlier events, possibly the job's END. */
static void reap_agents(struct cddpi_head *head)
{
    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];

        if (agent->pid == 0 || agent->has_ended ||
            waitpid(agent->pid, &agent->status, WNOHANG) != agent->pid) {
            continue;
        }
        agent->has_ended = true;
        agent->due_ns = INT64_MAX; /* what follows is planned once its end is explained */
        head->alive--;             /* its input stays open until the reason of its end is known */
        (void)cddpi_relay_read(&agent->out);
        if (!agent->is_held) {
            (void)cddpi_relay_read(&agent->err);
        }
        if (head->nodes.link == NULL) {
            cddpi_head_explain_agent(head, i);
            continue;
        }
        head->unexplained++;
        CDDPI_PUBLISH(head->nodes.link, .kind = CDDPI_EVENT_BYE, .node = -1, .number = i,
                      .exit_status = 1);
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
            if (head->agents[i].pid == ended.si_pid && !head->agents[i].has_ended) {
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
        of[1] = (struct pollfd){is_full || agent->is_held ? -1 : agent->err.fd, POLLIN, 0};
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

static void take_event(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    if (head->is_elastic) {
        cddpi_head_follow(head, event);
    } else {
        cddpi_head_take_event(head, event);
    }
}

/* Returns false once the monitor is gone or no more events can arrive. */
static bool turn_once(struct cddpi_head *head, struct pollfd *polls)
{
    int64_t next_ns = head->is_elastic ? cddpi_head_tend_ns(head) : cddpi_head_next_ns(head);
    int timeout = next_ns == INT64_MAX ? -1 : cddpi_left_ms(next_ns);
    int64_t due_ns = timeout < 0 ? INT64_MAX : cddpi_now_ns() + timeout * INT64_C(1000000);
    struct cddpi_node_event event;

    fill_polls(head, polls);
    if (poll(polls, (nfds_t)(FIXED_FDS + AGENT_FDS * head->hosts.count), timeout) > 0) {
        if (polls[1].revents != 0) {
            return false;
        }
        while (polls[2].revents != 0 && cddpi_node_link_next(head->nodes.link, &event)) {
            take_event(head, &event);
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
    if (head->is_elastic) {
        cddpi_head_note_turn(head, due_ns);
        cddpi_head_tend(head);
    } else if (head->alive == 0) {
        cddpi_head_await_last(head);
    }
    if (!cddpi_head_is_overdue(head)) {
        if (!head->is_elastic) {
            cddpi_head_await(head);
        }
        return true;
    }
    return head->alive > 0 && cddpi_head_end_agents(head);
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
    if (head->is_elastic) {
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

    return head->is_elastic ? cddpi_place_open_store(rendezvous->store, rendezvous->token, STORE_MS,
                                                     &head->client)
                            : cddpi_node_link_open(&link, &head->nodes.link);
}

static cddp_status name_nodes(struct cddpi_head *head)
{
    struct cddpi_nodes *nodes = &head->nodes;

    CDDPI_TRY(
        cddpi_nodes_init(-1, head->hosts.count + (head->is_elastic ? CDDPI_MAX_JOINS : 0), nodes));
    head->agents = cddpi_zalloc_array((size_t)head->hosts.count, sizeof *head->agents);
    CDDPI_TRY_MEMORY(head->agents != NULL, "no memory for %d hosts", head->hosts.count);
    nodes->members.is_silent = true;
    for (int i = 0; i < head->hosts.count; i++) {
        if (!head->is_elastic) {
            (void)cddpi_membership_add(&nodes->members, i, head->hosts.hosts[i].name, 1);
        }
        cddpi_head_init_agent(head, i);
    }
    return CDDP_OK;
}

static cddp_status start_agents(struct cddpi_head *head)
{
    CDDPI_TRY(name_nodes(head));
    CDDPI_TRY(serve(head));
    CDDPI_TRY(open_store(head));
    for (int i = 0; i < head->hosts.count; i++) {
        CDDPI_TRY(cddpi_head_start(head, i));
    }
    return CDDP_OK;
}

static void release_agents(struct cddpi_head *head)
{
    for (int i = 0; head->agents != NULL && i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];

        cddpi_head_close_input(agent);
        cddpi_relay_finish(&agent->out);
        cddpi_relay_finish(&agent->err);
        cddpi_buffer_fini(&agent->parcel);
        cddpi_head_free_words(agent->argv);
        cddpi_free(agent->said);
    }
    cddp_store_close(head->client);
    cddpi_nodes_fini(&head->nodes);
    cddpi_rendezvous_fini(&head->rendezvous);
    cddpi_free(head->agents);
    head->agents = NULL;
}

int cddpi_head_supervise(struct cddpi_head *head)
{
    struct pollfd *polls = cddpi_zalloc_array((size_t)(FIXED_FDS + AGENT_FDS * head->hosts.count),
                                              sizeof *polls);
    int exit_status = 1;

    cddpi_head_begin_waiting(head);
    if (polls == NULL) {
        cddpi_output_say(head->output, "no memory for %d hosts", head->hosts.count);
    } else if (start_agents(head) != CDDP_OK) {
        cddpi_output_say(head->output, "%s", cddp_last_error());
        head->exit_status = 1;
        if (head->agents != NULL) {
            (void)cddpi_head_end_agents(head);
        }
    }
    while (polls != NULL && cddpi_head_goes_on(head) && turn_once(head, polls)) {
    }
    if (polls != NULL) {
        bool has_begun = head->nodes.link != NULL || head->client != NULL;

        for (int i = 0; i < head->hosts.count && has_begun; i++) {
            cddpi_relay_finish(&head->agents[i].out);
            cddpi_relay_finish(&head->agents[i].err);
        }
        exit_status = has_begun ? cddpi_head_report(head) : 1;
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
    head->is_elastic = options->least > 0;
    head->least = options->least;
    head->most = options->nnodes < head->hosts.count ? options->nnodes : head->hosts.count;
    if (head->least > head->hosts.count) {
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
