/* held_ranks.c - owns the processes of ranks between two generations. */
#include "launcher/supervise/held_ranks.h"

#include "launcher/output/output.h"
#include "launcher/supervise/job_state.h"
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

enum { LOOK_MS = 10 };

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

static bool is_there(const struct cddpi_held_rank *rank)
{
    return rank->pid > 0;
}

/* What was kept open for @p rank is not needed any more. */
static void forget(struct cddpi_held_rank *rank)
{
    if (is_there(rank)) {
        cddpi_fd_close(&rank->socket);
        cddpi_fd_close(&rank->out);
        cddpi_fd_close(&rank->err);
        cddpi_fd_close(&rank->pidfd);
    }
    rank->pid = 0;
}

static void forget_all(struct cddpi_held_ranks *held)
{
    for (int i = 0; i < held->count; i++) {
        forget(&held->list[i]);
    }
    cddpi_free(held->list);
    held->list = NULL;
    held->count = 0;
}

static int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

void cddpi_held_keep(struct cddpi_job *job, struct cddpi_worker *workers)
{
    struct cddpi_held_ranks *held = &job->held;

    forget_all(held);
    held->list = cddpi_zalloc_array((size_t)job->local_world_size, sizeof *held->list);
    held->count = held->list != NULL ? job->local_world_size : 0;
    held->memory_count = job->memory.count;
    for (int i = 0; i < held->count; i++) {
        struct cddpi_worker *worker = &workers[i];

        if (worker->is_held) {
            held->list[i] = (struct cddpi_held_rank){.pid = worker->pid,
                                                     .pidfd = take_fd(&worker->pidfd),
                                                     .socket = take_fd(&worker->rejoin_fd),
                                                     .out = take_fd(&worker->out.fd),
                                                     .err = take_fd(&worker->err.fd)};
        }
    }
}

bool cddpi_held_has(const struct cddpi_held_ranks *held, pid_t pid)
{
    for (int i = 0; held != NULL && i < held->count; i++) {
        if (is_there(&held->list[i]) && held->list[i].pid == pid) {
            return true;
        }
    }
    return false;
}

/* Move a process from @p from to the place @p to, which is empty. */
static void move(struct cddpi_held_rank *from, struct cddpi_held_rank *to)
{
    *to = *from;
    from->pid = 0;
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
        forget_all(held);
        return;
    }
    for (int i = 0; i < count && i < held->count; i++) {
        move(&held->list[i], &list[i]);
    }
    for (int i = count; i < held->count; i++) {
        while (next < count && is_there(&list[next])) {
            next++;
        }
        if (next < count && is_there(&held->list[i])) {
            move(&held->list[i], &list[next]);
        }
    }
    forget_all(held);
    held->list = list;
    held->count = count;
}

/* Bind all threads of @p pid to the cores of @p rank: those that it had as another rank may be
 * others. */
static void bind_threads(const struct cddpi_job *job, int rank, pid_t pid)
{
    cpu_set_t *cpus = NULL;
    size_t bytes = 0;
    char path[64];
    DIR *threads;
    struct dirent *entry;

    if (cddpi_worker_mask(job, rank, &cpus, &bytes) != CDDP_OK || cpus == NULL) {
        return; /* not bound */
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

/* Write what @p rank's environment has to be. Returns its bytes; 0: it cannot be written. */
static size_t write_environment(const struct cddpi_job *job, int rank, char out[CDDPI_REJOIN_BYTES])
{
    /* whether a rank has these depends on its number */
    static const char *const of_some[] = {"CDDP_PROGRESS"};
    size_t used = 0;
    char **own;

    if (cddpi_environment_own(job, rank, &own) != CDDP_OK) {
        return 0;
    }
    for (size_t i = 0; i < sizeof of_some / sizeof *of_some; i++) {
        const char *value = getenv(of_some[i]);

        used += (size_t)snprintf(out + used, CDDPI_REJOIN_BYTES - used, "%s%s%.1000s", of_some[i],
                                 value != NULL ? "=" : "", value != NULL ? value : "") +
                1;
    }
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
    bytes = write_environment(job, worker->rank, text);
    bind_threads(job, worker->rank, rank->pid);
    if (bytes == 0 ||
        send(rank->socket, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes) {
        forget(rank); /* it was killed meanwhile: another process takes its place */
        return false;
    }
    worker->pid = rank->pid;
    worker->pidfd = take_fd(&rank->pidfd);
    worker->rejoin_fd = take_fd(&rank->socket);
    worker->out.fd = take_fd(&rank->out);
    worker->err.fd = take_fd(&rank->err);
    worker->out.output = output;
    worker->err.output = output;
    rank->pid = 0;
    return true;
}

/* Pass on what arrives on @p fd until all of it has. */
static void pass_rest(int *fd, struct cddpi_sink *sink, const struct cddpi_job *job,
                      struct cddpi_output *output)
{
    struct cddpi_secret secret;
    struct cddpi_relay relay = {.fd = take_fd(fd),
                                .form = CDDPI_RELAY_LINES,
                                .output = output,
                                .secret = &secret,
                                .sink = sink};

    cddpi_secret_init(&secret, job->rendezvous.token);
    (void)cddpi_relay_read(&relay);
    *fd = take_fd(&relay.fd);
    cddpi_relay_finish(&relay);
}

/* Whether @p rank has exited, or none is there. */
static bool is_gone(const struct cddpi_held_rank *rank)
{
    siginfo_t ended = {0};

    return !is_there(rank) ||
           waitid(P_PID, (id_t)rank->pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ended.si_pid == rank->pid;
}

void cddpi_held_end(struct cddpi_job *job, struct cddpi_output *output, int64_t limit_ms)
{
    struct cddpi_held_ranks *held = &job->held;
    int64_t deadline_ns = cddpi_deadline_ns((uint32_t)limit_ms);
    int left = 0;

    for (int i = 0; i < held->count; i++) {
        if (is_there(&held->list[i])) {
            cddpi_fd_close(&held->list[i].socket);
        }
    }
    do {
        left = 0;
        for (int i = 0; i < held->count; i++) {
            struct cddpi_held_rank *rank = &held->list[i];
            bool ends = is_gone(rank);

            if (is_there(rank)) {
                pass_rest(&rank->out, output->out, job, output);
                pass_rest(&rank->err, output->err, job, output);
            }
            if (ends) {
                forget(rank);
            }
            left += !ends;
        }
        if (left > 0) {
            (void)poll(NULL, 0, LOOK_MS);
        }
    } while (left > 0 && cddpi_left_ms(deadline_ns) > 0);
    forget_all(held);
}
