/* supervise.c - owns the event loop: one epoll for signals, ends of ranks, their output and our
 * readers. epoll returns events in the order in which they happened, so if several ranks have died,
 * the rank that died first is seen first. */
#include "launcher/supervise/supervision.h"

#include "launcher/ctl/ctl.h"
#include "launcher/nodes/nodes.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/replace_card.h"
#include "launcher/supervise/replace_rank.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rejoin_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 64, DRAIN_READS = 4, KILL_TIMEOUT_MS = 30000, LEAVING_MS = 100 };

/* Read what a rank wrote before it ended. The amount is bounded, since processes that the rank
 * started may keep writing. */
static void drain_output(struct cddpi_worker *worker)
{
    for (int i = 0; i < DRAIN_READS; i++) {
        bool more = cddpi_relay_read(&worker->out);

        if (!cddpi_relay_read(&worker->err) && !more) {
            return;
        }
    }
}

/* The 16-bit number at offset @p at of the report. */
static int number_at(const struct cddpi_supervision *run, size_t at)
{
    return run->report[at] | run->report[at + 1] << 8;
}

/* The length of the report being received, or of the part whose length is known. */
static size_t report_length(const struct cddpi_supervision *run)
{
    switch (run->report[0]) {
    case CDDPI_REPORT_CULPRIT:
        return CDDPI_REPORT_CULPRIT_BYTES;
    case CDDPI_REPORT_LEAVES:
        return CDDPI_REPORT_LEAVES_BYTES;
    case CDDPI_REPORT_FAILURE:
        return run->report_bytes < CDDPI_REPORT_FAILURE_BYTES
                   ? CDDPI_REPORT_FAILURE_BYTES
                   : CDDPI_REPORT_FAILURE_BYTES + (size_t)number_at(run, 5);
    case CDDPI_REPORT_CARD:
        return run->report_bytes < CDDPI_REPORT_CARD_BYTES
                   ? CDDPI_REPORT_CARD_BYTES
                   : CDDPI_REPORT_CARD_BYTES + (size_t)number_at(run, 5);
    case CDDPI_REPORT_SLOW:
        return run->report_bytes < CDDPI_REPORT_SLOW_BYTES
                   ? CDDPI_REPORT_SLOW_BYTES
                   : CDDPI_REPORT_SLOW_BYTES +
                         (size_t)number_at(run, 1) * CDDPI_REPORT_SLOW_RANK_BYTES;
    case CDDPI_REPORT_FOLDER:
        return run->report_bytes < CDDPI_REPORT_FOLDER_BYTES
                   ? CDDPI_REPORT_FOLDER_BYTES
                   : CDDPI_REPORT_FOLDER_BYTES + (size_t)number_at(run, 1);
    default:
        return 1;
    }
}

/* @p worker was asked to leave. @p may_be_ours: perhaps its parent has passed on a signal of ours,
 * if we have sent one. */
static void take_leave(struct cddpi_supervision *run, struct cddpi_worker *worker, bool may_be_ours)
{
    if (!worker->has_left && (!may_be_ours || run->state.phase < CDDPI_JOB_ASKED)) {
        worker->has_left = true;
        CDDPI_MEMBERS_FEED(run->job->nodes, .kind = CDDPI_MEMBERS_RANK_LEAVES,
                           .number = worker->rank);
    }
}

/* Process a report about the run's folder and checkpoints: cddp-ctl shows them. */
static void take_report_of_run(struct cddpi_supervision *run)
{
    struct cddpi_ctl *ctl = run->job->nodes->ctl;

    switch (run->report[0]) {
    case CDDPI_REPORT_SAVED:
    case CDDPI_REPORT_UNSAVED:
        cddpi_ctl_take_saved(ctl, run->report[0] == CDDPI_REPORT_SAVED);
        break;
    case CDDPI_REPORT_FOLDER: {
        char dir[CDDPI_REPORT_BYTES];

        snprintf(dir, sizeof dir, "%.*s", number_at(run, 1),
                 (const char *)run->report + CDDPI_REPORT_FOLDER_BYTES);
        cddpi_ctl_take_folder(ctl, dir);
        break;
    }
    default:
        break;
    }
}

/* Whether reports of this kind also come while a rank trains. All others come from a rank that was
 * asked to end, or fails, and is still busy. */
static bool comes_while_it_trains(int kind)
{
    return kind == CDDPI_REPORT_SLOW || kind == CDDPI_REPORT_FOLDER || kind == CDDPI_REPORT_KEPT ||
           kind == CDDPI_REPORT_CARD;
}

/* Process a complete report. Any program may write to the pipe, so nothing in the report is
 * trusted. */
static void take_report(struct cddpi_supervision *run)
{
    int rank = number_at(run, 1);
    int second = number_at(run, 3);

    if (!comes_while_it_trains(run->report[0])) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_SAVING);
    }
    if (run->report[0] == CDDPI_REPORT_SAVED) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_SAVED);
    }
    if (run->report[0] == CDDPI_REPORT_KEPT) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_KEPT);
    }
    take_report_of_run(run);
    if (run->report[0] == CDDPI_REPORT_SLOW) {
        cddpi_supervision_take_slow(run);
        return;
    }
    if (cddpi_supervision_worker(run, rank) == NULL) {
        return;
    }
    if (run->report[0] == CDDPI_REPORT_CULPRIT && second < run->job->world_size && rank != second) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_BLAMED, .rank = rank, .culprit = second);
    }
    if (run->report[0] == CDDPI_REPORT_CARD) {
        cddpi_supervision_take_card(run);
    }
    if (run->report[0] == CDDPI_REPORT_LEAVES) {
        take_leave(run, cddpi_supervision_worker(run, rank), run->report[3] != 0);
    }
    if (run->report[0] == CDDPI_REPORT_FAILURE) {
        cddpi_deduplicator_report(&run->deduplicator, rank - run->job->first_rank,
                                  (const char *)run->report + CDDPI_REPORT_FAILURE_BYTES,
                                  run->report_bytes - CDDPI_REPORT_FAILURE_BYTES, (size_t)second);
    }
}

static void take_byte(struct cddpi_supervision *run, char byte)
{
    size_t length;

    run->report[run->report_bytes++] = (unsigned char)byte;
    length = report_length(run);
    if (length > sizeof run->report) {
        run->report_bytes = 0; /* not one of our reports */
    } else if (run->report_bytes == length) {
        take_report(run);
        run->report_bytes = 0;
    }
}

static void read_reports(void *context)
{
    struct cddpi_supervision *run = context;
    char reports[256];
    ssize_t got;

    while (run->reports >= 0 && (got = read(run->reports, reports, sizeof reports)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            take_byte(run, reports[i]);
        }
    }
}

/* Reap @p worker if it has ended. */
static void reap_worker(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    int status;

    if (worker->is_held && waitpid(worker->pid, &status, WNOHANG) != 0) {
        worker->is_held = false; /* it was killed while others of the generation still end */
        cddpi_fd_close(&worker->pidfd);
        cddpi_fd_close(&worker->rejoin_fd);
    }
    if (worker->has_ended || waitpid(worker->pid, &status, WNOHANG) != worker->pid) {
        return;
    }
    worker->status = status;
    worker->has_ended = true;
    cddpi_fd_close(&worker->pidfd); /* which also removes it from the epoll set */
    drain_output(worker);
    read_reports(run);
    CDDPI_FEED(run, .kind = CDDPI_JOB_ENDED, .rank = worker->rank,
               .exit_status = cddpi_exit_status(status));
}

/* @p worker asks to stay for the next generation: count that as its end. A process that is refused
 * sees the end of the socket, and exits. */
static void hold_worker(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    unsigned char exit_status = 0;
    ssize_t got = recv(worker->rejoin_fd, &exit_status, 1, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got == 1 && exit_status == CDDPI_REJOIN_READY) {
        if (worker->late_signal != 0 && !worker->has_ended) {
            kill(worker->pid, worker->late_signal);
        }
        worker->awaits_ready = false;
        return;
    }
    read_reports(run);
    if (got != 1 || exit_status == 0 || worker->has_ended || worker->has_left || worker->must_go ||
        run->job->cards.count > 0 || /* it may have an ill card, and would keep it */
        !cddpi_held_may_stay(&run->state) ||
        !cddpi_held_runs(worker->pid, run->job->command.path)) {
        cddpi_fd_close(&worker->rejoin_fd);
        return;
    }
    drain_output(worker);
    epoll_ctl(run->epoll, EPOLL_CTL_DEL, worker->rejoin_fd, NULL);
    worker->status = exit_status << 8; /* as waitpid() would give it */
    worker->has_ended = true;
    worker->is_held = true;
    CDDPI_FEED(run, .kind = CDDPI_JOB_ENDED, .rank = worker->rank, .exit_status = exit_status);
}

static struct cddpi_worker *find_worker(struct cddpi_supervision *run, pid_t pid)
{
    for (int i = 0; i < run->job->local_world_size; i++) {
        if (run->workers[i].pid == pid && (!run->workers[i].has_ended || run->workers[i].is_held)) {
            return &run->workers[i];
        }
    }
    return NULL;
}

/* Reap orphans that became our children. Stops at a rank that has ended: its pidfd event is pending
 * or will come, in the order of the ends, and the next sweep continues. */
static void sweep_orphans(struct cddpi_supervision *run)
{
    for (;;) {
        siginfo_t ended = {0};
        struct cddpi_worker *worker;
        int status;

        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) {
            return;
        }
        worker = find_worker(run, ended.si_pid);
        if (worker == NULL) {
            if (waitpid(ended.si_pid, &status, WNOHANG) == ended.si_pid) {
                cddpi_ctl_take_child(run->job->nodes->ctl, ended.si_pid, status);
            }
        } else if (worker->pidfd < 0) {
            reap_worker(run, worker);
        } else {
            return;
        }
    }
}

static void read_signals(struct cddpi_supervision *run)
{
    struct signalfd_siginfo signals[8];
    ssize_t got = read(run->signal_fd, signals, sizeof signals);
    int64_t now_ns = cddpi_now_ns(); /* one time for all signals: they arrived while we were busy */

    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof signals[0]; i++) {
        struct cddpi_worker *worker;

        if (signals[i].ssi_signo != SIGCHLD) {
            CDDPI_MEMBERS_FEED(run->job->nodes, .kind = CDDPI_MEMBERS_SIGNALLED,
                               .number = (int)signals[i].ssi_signo, .now_ns = now_ns);
            continue;
        }
        /* if several children end in a row, the signal names the first */
        worker = find_worker(run, (pid_t)signals[i].ssi_pid);
        if (worker != NULL && worker->pidfd < 0) {
            reap_worker(run, worker);
        }
    }
}

/* The process that started us is gone; @p fd has shown that. */
static void lose_parent(struct cddpi_supervision *run, int fd, const char *what)
{
    cddpi_output_say(run->output, "%s: ending all ranks", what);
    epoll_ctl(run->epoll, EPOLL_CTL_DEL, fd, NULL);
    CDDPI_MEMBERS_FEED(run->job->nodes, .kind = CDDPI_MEMBERS_ORPHANED);
    CDDPI_FEED(run, .kind = CDDPI_JOB_ORPHANED, .text = what);
}

static void handle_event(struct cddpi_supervision *run, uint64_t number)
{
    struct cddpi_worker *worker = &run->workers[(uint32_t)number];

    switch ((enum cddpi_event_source)(number >> 32)) {
    case CDDPI_FROM_SIGNALS:
        read_signals(run);
        break;
    case CDDPI_FROM_MONITOR:
        lose_parent(run, run->monitor->lifeline, "the launcher was killed");
        break;
    case CDDPI_FROM_HEAD:
        if (cddpi_head_is_gone(run->job->head_fd)) {
            lose_parent(run, run->job->head_fd,
                        "the connection to the cddp-run that started this one is gone");
        }
        break;
    case CDDPI_FROM_NODES:
        cddpi_nodes_hear(run->job->nodes);
        break;
    case CDDPI_FROM_CTL:
        cddpi_ctl_serve(run->job->nodes->ctl);
        break;
    case CDDPI_FROM_REPORTS:
        read_reports(run);
        break;
    case CDDPI_FROM_SINK:
        cddpi_sink_flush(&run->output->sinks[(uint32_t)number]);
        break;
    case CDDPI_FROM_WORKER:
        reap_worker(run, worker);
        break;
    case CDDPI_FROM_REJOIN:
        hold_worker(run, worker);
        break;
    case CDDPI_FROM_EXEC:
        cddpi_supervision_executed(run, worker);
        break;
    case CDDPI_FROM_STDOUT:
        (void)cddpi_relay_read(&worker->out);
        break;
    case CDDPI_FROM_STDERR:
        (void)cddpi_relay_read(&worker->err);
        break;
    }
}

/* Stop reading the ranks' output (@p paused), or resume. */
static void pause_reading(struct cddpi_supervision *run, bool paused)
{
    for (int i = 0; i < run->job->local_world_size; i++) {
        struct cddpi_relay *relays[] = {&run->workers[i].out, &run->workers[i].err};

        for (int k = 0; k < 2; k++) {
            if (relays[k]->fd < 0) {
                continue;
            }
            if (paused) {
                epoll_ctl(run->epoll, EPOLL_CTL_DEL, relays[k]->fd, NULL);
            } else {
                cddpi_supervision_watch(run, relays[k]->fd, EPOLLIN,
                                        k == 0 ? CDDPI_FROM_STDOUT : CDDPI_FROM_STDERR, i);
            }
        }
    }
    run->is_paused = paused;
}

/* If our readers are slow and too much output is queued, stop reading from the ranks, which then
 * block as if they wrote to that reader themselves. */
static void follow_readers(struct cddpi_supervision *run)
{
    size_t queued = 0;

    for (int i = 0; i < 2; i++) {
        struct cddpi_sink *sink = &run->output->sinks[i];
        bool is_waiting = cddpi_sink_queued(sink) > 0;

        queued += cddpi_sink_queued(sink);
        if (is_waiting && !run->is_sink_watched[i]) {
            cddpi_supervision_watch(run, sink->fd, EPOLLOUT, CDDPI_FROM_SINK, i);
        } else if (!is_waiting && run->is_sink_watched[i]) {
            epoll_ctl(run->epoll, EPOLL_CTL_DEL, sink->fd, NULL);
        }
        run->is_sink_watched[i] = is_waiting;
    }
    if (run->is_paused ? queued < CDDPI_OUTPUT_FULL / 2 : queued > CDDPI_OUTPUT_FULL) {
        pause_reading(run, !run->is_paused);
    }
}

static void turn_once(struct cddpi_supervision *run)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int64_t members_ns = run->job->nodes->members.deadline_ns;
    int64_t deadline_ns = run->state.deadline_ns < members_ns ? run->state.deadline_ns : members_ns;
    int timeout = deadline_ns == CDDPI_JOB_NEVER ? -1 : cddpi_left_ms(deadline_ns);
    int count;

    if (cddpi_held_look(run->job) && (timeout < 0 || timeout > LEAVING_MS)) {
        timeout = LEAVING_MS;
    }
    count = epoll_wait(run->epoll, events, EVENTS_AT_ONCE, timeout);

    for (int i = 0; i < count; i++) {
        handle_event(run, events[i].data.u64);
    }
    if (count >= 0) { /* not after an interruption: pending events are in the order of the ends, a
                         sweep is not */
        sweep_orphans(run);
    }
    CDDPI_FEED(run, .kind = CDDPI_JOB_TIME);
    CDDPI_MEMBERS_FEED(run->job->nodes, .kind = CDDPI_MEMBERS_TIME);
    cddpi_ctl_look(run->job->nodes->ctl);
    follow_readers(run);
}

/* All ranks have ended: kill the processes that they left, and relay the last output. */
static void finish_generation(struct cddpi_supervision *run)
{
    const struct cddpi_held_ranks *held;
    int number = 0;

    cddpi_held_keep(run->job, run->workers);
    held = run->job->held.count > 0 ? &run->job->held : NULL;
    if (!cddpi_reaper_kill_all(run->state.has_unkillable ? 0 : KILL_TIMEOUT_MS, held,
                               &run->monitor->ending, &number)) {
        cddpi_output_say(run->output, "some processes of the job cannot be killed");
    }
    (void)cddpi_held_look(run->job); /* none of these is left: others may get their numbers */
    if (number != 0) { /* the ranks' machine forbids a restart, the members' ends the job */
        CDDPI_FEED(run, .kind = CDDPI_JOB_SIGNALLED, .number = number, .node = -1);
        CDDPI_MEMBERS_FEED(run->job->nodes, .kind = CDDPI_MEMBERS_SIGNALLED, .number = number);
    }
    /* reserve the descriptors that are closed now for the next generation, before a client of the
     * store takes them */
    cddpi_rendezvous_leave_room(&run->job->rendezvous, run->job->local_world_size);
    for (int i = 0; i < run->job->local_world_size; i++) {
        if (!run->workers[i].is_held) {
            drain_output(&run->workers[i]);
        }
        cddpi_worker_close(&run->workers[i]);
    }
    if (run->deduplicator.ranks > 0) {
        cddpi_output_say(run->output, "%d other rank%s printed the same (--tag-output shows all)",
                         run->deduplicator.ranks, run->deduplicator.ranks == 1 ? "" : "s");
    }
}

/* Open the pipe through which ranks report, in the first generation: processes may keep their end.
 * Without it, ranks cannot ask for more time. */
static void open_reports(struct cddpi_supervision *run)
{
    struct cddpi_job *job = run->job;
    int ends[2];

    if (job->report_fd < 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
        job->reports = ends[0];
        job->report_fd = ends[1];
    }
    if (job->report_fd >= 0) {
        run->reports = job->reports;
        (void)cddpi_supervision_watch(run, run->reports, EPOLLIN, CDDPI_FROM_REPORTS, 0);
    }
}

/* Watch for requests of cddp-ctl and, with several machines, for events from the other nodes. */
static bool watch_nodes(struct cddpi_supervision *run)
{
    const struct cddpi_job *job = run->job;
    int ctl = cddpi_ctl_fd(job->nodes->ctl);

    if (ctl >= 0 && !cddpi_supervision_watch(run, ctl, EPOLLIN, CDDPI_FROM_CTL, 0)) {
        return false;
    }
    return job->nodes->link == NULL ||
           (cddpi_supervision_watch(run, cddpi_node_link_fd(job->nodes->link), EPOLLIN,
                                    CDDPI_FROM_NODES, 0) &&
            (job->head_fd < 0 ||
             cddpi_supervision_watch(run, job->head_fd, EPOLLIN, CDDPI_FROM_HEAD, 0)));
}

/* The ranks here cannot be started: tell the other nodes, whose ranks would wait for them. */
static void tell_unprepared(const struct cddpi_job *job)
{
    if (job->nodes->link != NULL) {
        CDDPI_PUBLISH(job->nodes->link, .kind = CDDPI_EVENT_FAILURE, .generation = job->generation,
                      .node = job->nodes->members.self, .exit_status = 1,
                      .text = "its ranks cannot be started");
    }
}

/* Set the initial state of the state machine. */
static bool init_state(struct cddpi_supervision *run)
{
    struct cddpi_job_state *state = &run->state;
    const struct cddpi_job *job = run->job;

    state->count = job->local_world_size;
    state->first_rank = job->first_rank;
    state->grace_ms = job->options.grace_ms;
    state->has_nodes = job->nodes->link != NULL;
    state->is_silent = job->nodes->members.is_silent;
    state->ranks = cddpi_zalloc_array((size_t)state->count, sizeof *state->ranks);
    if (state->ranks == NULL) {
        return false;
    }
    cddpi_job_state_begin(state);
    return true;
}

static bool prepare_generation(struct cddpi_supervision *run)
{
    if (cddpi_deduplicator_init(run->job->local_world_size, &run->deduplicator) != CDDP_OK) {
        cddpi_output_say(run->output, "%s", cddp_last_error());
        return false;
    }
    run->deduplicator.poll_reports = read_reports;
    run->deduplicator.context = run;
    run->workers = cddpi_zalloc_array((size_t)run->job->local_world_size, sizeof *run->workers);
    if (run->workers == NULL || !init_state(run)) {
        errno = ENOMEM;
    } else {
        run->epoll = epoll_create1(EPOLL_CLOEXEC);
    }
    if (run->epoll < 0 ||
        !cddpi_supervision_watch(run, run->signal_fd, EPOLLIN, CDDPI_FROM_SIGNALS, 0) ||
        !cddpi_supervision_watch(run, run->monitor->lifeline, EPOLLIN, CDDPI_FROM_MONITOR, 0) ||
        !watch_nodes(run)) {
        cddpi_output_say(run->output, "preparing for %d ranks: %s", run->job->local_world_size,
                         strerror(errno));
        return false;
    }
    open_reports(run);
    return true;
}

struct cddpi_generation_outcome cddpi_supervise(struct cddpi_job *job,
                                                const struct cddpi_monitor *monitor, int signal_fd,
                                                struct cddpi_output *output)
{
    struct cddpi_supervision run = {.job = job,
                                    .monitor = monitor,
                                    .output = output,
                                    .signal_fd = signal_fd,
                                    .epoll = -1,
                                    .reports = -1,
                                    .state.outcome.exit_status = 1};

    cddpi_memory_kills(&run.kills);
    cddpi_slow_ranks_begin(&job->nodes->slow);
    if (prepare_generation(&run)) {
        cddpi_supervision_start(&run);
        job->nodes->run = &run;
        if (run.state.phase == CDDPI_JOB_RUNS) {
            cddpi_nodes_catch_up(job->nodes);
        }
        while (run.state.phase != CDDPI_JOB_OVER) {
            turn_once(&run);
        }
        finish_generation(&run);
    } else {
        tell_unprepared(job);
    }
    job->nodes->run = NULL;
    read_reports(&run);
    cddpi_deduplicator_fini(&run.deduplicator);
    cddpi_free(run.workers);
    cddpi_free(run.state.ranks);
    cddpi_fd_close(&run.epoll);
    return run.state.outcome;
}
