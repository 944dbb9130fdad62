/* held_ranks.c - owns the processes of ranks between two generations. */
#include "launcher/supervise/held_ranks.h"

#include "launcher/output/relay.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/worker.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rejoin_wire.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    LOOK_MS = 10,
    KILL_MS = 30000,
    LEAST_LEAVE_MS = 1000, /* how long a process that is let go may take, if --grace is shorter */
    CPUS = 8192            /* most processors that an affinity mask has here */
};

struct cddpi_held_rank {
    struct cddpi_worker worker; /* pid 0: the place is empty */
    struct cddpi_secret secret;
    int64_t due_ns; /* when it is killed, once it was let go */
};

bool cddpi_held_may_stay(const struct cddpi_job_state *state)
{
    switch (state->phase) {
    case CDDPI_JOB_RUNS:
    case CDDPI_JOB_HEARS:
    case CDDPI_JOB_AWAITS:
        return true;
    case CDDPI_JOB_ASKED:
    case CDDPI_JOB_OBEYED:
        return state->is_change && !state->is_asked;
    case CDDPI_JOB_FAILED:
        return state->outcome.may_restart;
    default:
        return false;
    }
}

bool cddpi_held_runs(pid_t pid, const char *path)
{
    char link[64];
    struct stat runs, program;

    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    return stat(link, &runs) == 0 && stat(path, &program) == 0 && runs.st_ino == program.st_ino &&
           runs.st_dev == program.st_dev;
}

static int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

static bool is_there(const struct cddpi_held_rank *rank)
{
    return rank->worker.pid > 0;
}

/* Whether @p rank has exited. Our children's numbers are not given away until we reap them. */
static bool is_gone(const struct cddpi_held_rank *rank)
{
    siginfo_t ended = {0};

    return waitid(P_PID, (id_t)rank->worker.pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ended.si_pid == rank->worker.pid;
}

/* Set what points into the struct, whose place has changed. Last lines, and what other ranks have
 * reported, are things of the generation that is over. */
static void point_to_itself(struct cddpi_held_rank *rank)
{
    struct cddpi_relay *relays[] = {&rank->worker.out, &rank->worker.err};

    for (int i = 0; i < 2; i++) {
        relays[i]->secret = &rank->secret;
        relays[i]->log = &rank->worker.log;
        relays[i]->tail = NULL;
        relays[i]->deduplicator = NULL;
    }
}

/* Move a process from @p from to the place @p to, which is empty. */
static void move(struct cddpi_held_rank *from, struct cddpi_held_rank *to)
{
    *to = *from;
    point_to_itself(to);
    from->worker.pid = 0;
}

/* Pass on what has arrived. */
static void pass_output(struct cddpi_held_rank *rank)
{
    struct cddpi_relay *relays[] = {&rank->worker.out, &rank->worker.err};

    for (int i = 0; i < 2; i++) {
        if (relays[i]->fd >= 0) {
            (void)cddpi_relay_read(relays[i]);
        }
    }
}

/* @p rank is gone, or a worker now. */
static void close_rank(struct cddpi_held_rank *rank)
{
    if (is_there(rank)) {
        cddpi_worker_close(&rank->worker);
    }
    rank->worker.pid = 0;
}

/* Let @p rank go: without memory for that, kill it. */
static void let_go(struct cddpi_job *job, struct cddpi_held_rank *rank)
{
    struct cddpi_held_ranks *held = &job->held;
    int64_t grace_ms = job->options.grace_ms;
    struct cddpi_held_rank *longer;

    if (!is_there(rank)) {
        return;
    }
    cddpi_fd_close(&rank->worker.rejoin_fd);
    longer = cddpi_realloc(held->leaving, (size_t)(held->leaving_count + 1) * sizeof *longer);
    if (longer == NULL) {
        kill(rank->worker.pid, SIGKILL);
        close_rank(rank);
        return;
    }
    held->leaving = longer;
    rank->due_ns = cddpi_deadline_ns(
        (uint32_t)(grace_ms > LEAST_LEAVE_MS ? grace_ms : LEAST_LEAVE_MS));
    move(rank, &longer[held->leaving_count++]);
    for (int i = 0; i < held->leaving_count; i++) {
        point_to_itself(&longer[i]);
    }
}

static void let_all_go(struct cddpi_job *job)
{
    struct cddpi_held_ranks *held = &job->held;

    for (int i = 0; i < held->count; i++) {
        let_go(job, &held->list[i]);
    }
    cddpi_free(held->list);
    held->list = NULL;
    held->count = 0;
}

/* Take the process of @p worker, with its descriptors. */
static void take(struct cddpi_held_rank *rank, struct cddpi_worker *worker, const char *token)
{
    rank->worker = *worker;
    cddpi_secret_init(&rank->secret, token);
    point_to_itself(rank);
    worker->pidfd = worker->rejoin_fd = worker->log.fd = -1;
    worker->out = (struct cddpi_relay){.fd = -1};
    worker->err = (struct cddpi_relay){.fd = -1};
}

void cddpi_held_keep(struct cddpi_job *job, struct cddpi_worker *workers)
{
    struct cddpi_held_ranks *held = &job->held;

    let_all_go(job);
    held->list = cddpi_zalloc_array((size_t)job->local_world_size, sizeof *held->list);
    held->count = held->list != NULL ? job->local_world_size : 0;
    held->memory_count = job->memory.count;
    for (int i = 0; i < held->count; i++) {
        if (workers[i].is_held) {
            take(&held->list[i], &workers[i], job->rendezvous.token);
        }
    }
}

bool cddpi_held_has(const struct cddpi_held_ranks *held, pid_t pid)
{
    for (int i = 0; held != NULL && i < held->count; i++) {
        if (is_there(&held->list[i]) && held->list[i].worker.pid == pid) {
            return true;
        }
    }
    return false;
}

void cddpi_held_place(struct cddpi_job *job)
{
    struct cddpi_held_ranks *held = &job->held;
    int count = job->local_world_size;
    struct cddpi_held_rank *list;
    int next = 0;

    /* they have descriptors of the memories that were there when they were started */
    if (held->count == 0 || held->memory_count != job->memory.count ||
        (list = cddpi_zalloc_array((size_t)count, sizeof *list)) == NULL) {
        let_all_go(job);
        return;
    }
    for (int i = 0; i < count && i < held->count; i++) {
        if (is_there(&held->list[i])) {
            move(&held->list[i], &list[i]);
        }
    }
    for (int i = count; i < held->count; i++) {
        while (next < count && is_there(&list[next])) {
            next++;
        }
        if (next < count && is_there(&held->list[i])) {
            move(&held->list[i], &list[next]);
        }
    }
    let_all_go(job);
    held->list = list;
    held->count = count;
}

/* The cores of @p rank; if it is not bound, those of this process, as a new one would inherit. */
static cpu_set_t *find_mask(const struct cddpi_job *job, int rank, size_t *out_bytes)
{
    cpu_set_t *cpus = NULL;

    if (cddpi_worker_mask(job, rank, &cpus, out_bytes) != CDDP_OK || cpus != NULL) {
        return cpus;
    }
    cpus = CPU_ALLOC(CPUS);
    *out_bytes = CPU_ALLOC_SIZE(CPUS);
    if (cpus != NULL && sched_getaffinity(0, *out_bytes, cpus) != 0) {
        CPU_FREE(cpus);
        cpus = NULL;
    }
    return cpus;
}

/* Bind all threads of @p pid to the cores of @p rank: those that it had as another rank may be
 * others. */
static void bind_threads(const struct cddpi_job *job, int rank, pid_t pid)
{
    size_t bytes = 0;
    cpu_set_t *cpus = find_mask(job, rank, &bytes);
    char path[64];
    DIR *threads;
    struct dirent *entry;

    if (cpus == NULL) {
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)atol(entry->d_name);

        if (thread > 0) {
            (void)sched_setaffinity(thread, bytes, cpus); /* may fail: as in worker.c */
        }
    }
    if (threads != NULL) {
        closedir(threads);
    }
    CPU_FREE(cpus);
}

/* Write the answer to @p rank. Returns its bytes; 0: it cannot be written. */
static size_t write_answer(const struct cddpi_job *job, int rank, char out[CDDPI_REJOIN_BYTES])
{
    /* only rank 0 has it of us, so it is what we have, until `own` says otherwise */
    const char *progress = getenv("CDDP_PROGRESS");
    size_t used = 0;
    char **own;

    if (cddpi_environment_own(job, rank, &own) != CDDP_OK) {
        return 0;
    }
    used += (size_t)snprintf(out + used, 1024, "CDDP_PROGRESS%s%.1000s",
                             progress != NULL ? "=" : "", progress != NULL ? progress : "") +
            1;
    for (size_t i = 0; own[i] != NULL; i++) {
        size_t bytes = strlen(own[i]) + 1;

        if (bytes > CDDPI_REJOIN_BYTES - used) {
            used = 0;
            break;
        }
        memcpy(out + used, own[i], bytes);
        used += bytes;
    }
    cddpi_free(own);
    return used;
}

bool cddpi_held_start(struct cddpi_job *job, struct cddpi_worker *worker,
                      struct cddpi_output *output)
{
    struct cddpi_held_ranks *held = &job->held;
    int place = worker->rank - job->first_rank;
    struct cddpi_held_rank *rank = place < held->count ? &held->list[place] : NULL;
    static char text[CDDPI_REJOIN_BYTES];
    size_t bytes;

    if (rank == NULL || !is_there(rank)) {
        return false;
    }
    if (is_gone(rank)) { /* it was killed meanwhile: another process takes its place */
        pass_output(rank);
        close_rank(rank);
        return false;
    }
    bind_threads(job, worker->rank, rank->worker.pid);
    bytes = write_answer(job, worker->rank, text);
    if (bytes == 0 ||
        send(rank->worker.rejoin_fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes) {
        let_go(job, rank);
        return false;
    }
    worker->pid = rank->worker.pid;
    worker->awaits_ready = true;
    worker->pidfd = take_fd(&rank->worker.pidfd);
    worker->rejoin_fd = take_fd(&rank->worker.rejoin_fd);
    worker->out.fd = take_fd(&rank->worker.out.fd);
    worker->err.fd = take_fd(&rank->worker.err.fd);
    worker->out.output = output;
    worker->err.output = output;
    close_rank(rank); /* which passes on its unfinished line */
    return true;
}

bool cddpi_held_look(struct cddpi_job *job)
{
    struct cddpi_held_ranks *held = &job->held;
    int left = 0;

    for (int i = 0; i < held->leaving_count; i++) {
        struct cddpi_held_rank *rank = &held->leaving[i];
        bool ends = is_gone(rank);

        pass_output(rank);
        if (ends) {
            close_rank(rank);
            continue;
        }
        if (cddpi_left_ms(rank->due_ns) == 0) {
            kill(rank->worker.pid, SIGKILL);
        }
        if (left != i) {
            move(rank, &held->leaving[left]);
        }
        left++;
    }
    held->leaving_count = left;
    if (left == 0) {
        cddpi_free(held->leaving);
        held->leaving = NULL;
    }
    return left > 0;
}

void cddpi_held_end(struct cddpi_job *job, struct cddpi_wait *wait)
{
    bool was_over = wait->is_over;
    int number = 0;

    let_all_go(job);
    if (job->held.leaving_count == 0) {
        return;
    }
    while (cddpi_held_look(job) && (was_over || !wait->is_over)) {
        if (was_over) {
            (void)poll(NULL, 0, LOOK_MS);
        } else {
            (void)cddpi_wait_for(wait, -1, LOOK_MS); /* a second signal ends them at once */
        }
    }
    if (!cddpi_reaper_kill_all(KILL_MS, NULL, &wait->monitor->ending, &number)) {
        cddpi_output_say(wait->output, "some processes of the job cannot be killed");
    }
    (void)cddpi_held_look(job);
}
