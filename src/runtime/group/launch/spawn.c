/* spawn.c - owns ranks that are forks of the caller's process: their start, the wait for their end,
 * and the choice of the failure that the caller gets. */
#include "group/launch/spawn.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/types.h"
#include "store/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GRACE_MS = 10000,
    OWN_FILES = 64, /* files that the caller may open in addition to the server's connections */
    LOOK_MS = 10    /* between two checks of ranks whose end the kernel does not report */
};

struct rank {
    pid_t pid;     /* 0: not started */
    bool is_known; /* status is valid: no other code has reaped the process */
    bool has_ended;
    bool was_ended; /* this code asked it to end, before it had ended by itself */
    int status;     /* of waitpid() */
};

struct spawn {
    struct cddpi_spawn_job job;
    struct rank *ranks;
    struct pollfd *polled; /* one pidfd per rank; -1: no pidfd, or the rank has ended */
    int left;              /* number of running ranks */
    int first;             /* the first rank that failed; -1: none */
    bool is_ending;        /* the other ranks were asked to end */
    bool is_late;          /* the deadline has passed */
};

static bool has_failed(const struct spawn *spawn, int r)
{
    const struct rank *rank = &spawn->ranks[r];

    /* a program that calls exit(0) early has not done its part, whatever its status */
    return !atomic_load(&spawn->job.ends[r].returned) || spawn->job.ends[r].result != CDDP_OK ||
           (rank->is_known && rank->status != 0);
}

/* Whether rank @p r failed by itself, and not because it was asked to end. */
static bool failed_by_itself(const struct spawn *spawn, int r)
{
    const struct rank *rank = &spawn->ranks[r];

    if (!rank->has_ended || !has_failed(spawn, r)) {
        return false;
    }
    if (rank->was_ended && rank->is_known && rank->status == 0 &&
        !atomic_load(&spawn->job.ends[r].returned)) {
        return false; /* it handles SIGTERM and ends normally */
    }
    return !rank->was_ended || !rank->is_known || !WIFSIGNALED(rank->status) ||
           (WTERMSIG(rank->status) != SIGTERM && WTERMSIG(rank->status) != SIGKILL);
}

/* Choose a port for torch.distributed. Another program may take it once a rank begins:
 * torch.distributed has the same gap. */
static cddp_status choose_port(struct cddpi_spawn_job *job)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int yes = 1;

    job->master_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->master_fd < 0 ||
        setsockopt(job->master_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(job->master_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(job->master_fd, (struct sockaddr *)&address, &bytes) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "spawn: choosing a free port");
    }
    job->master_port = ntohs(address.sin_port);
    return CDDP_OK;
}

static cddp_status prepare(struct spawn *spawn)
{
    struct cddpi_spawn_job *job = &spawn->job;
    struct cddpi_store_server_options options = {
        .token = job->token, .reserved = OWN_FILES, .later = true};
    size_t count = (size_t)job->world_size;

    spawn->ranks = cddpi_zalloc_array(count, sizeof *spawn->ranks);
    spawn->polled = cddpi_zalloc_array(count, sizeof *spawn->polled);
    CDDPI_TRY_MEMORY(spawn->ranks != NULL && spawn->polled != NULL,
                     "spawn: no memory for %zu ranks", count);
    for (size_t r = 0; r < count; r++) {
        spawn->polled[r].fd = -1;
    }
    job->ends = mmap(NULL, count * sizeof *job->ends, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job->ends == MAP_FAILED) {
        job->ends = NULL;
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "spawn: %zu bytes shared with %zu ranks",
                                count * sizeof *job->ends, count);
    }
    if (pipe2(job->gate, O_CLOEXEC) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "spawn: making a pipe");
    }
    CDDPI_TRY(choose_port(job));
    cddpi_store_token(job->token);
    cddpi_store_token(job->name);
    job->name[16] = '\0'; /* 64 bits are enough to distinguish jobs; only the token is secret */
    options.reserved += 2 * job->world_size;
    return cddpi_store_server_create(&options, &job->server);
}

static void release(struct spawn *spawn)
{
    struct cddpi_spawn_job *job = &spawn->job;

    for (int r = 0; job->ends != NULL && r < job->world_size; r++) {
        cddpi_fd_close(&spawn->polled[r].fd);
    }
    cddpi_store_server_destroy(job->server);
    cddpi_fd_close(&job->gate[0]);
    cddpi_fd_close(&job->gate[1]);
    cddpi_fd_close(&job->master_fd);
    if (job->ends != NULL) {
        (void)munmap(job->ends, (size_t)job->world_size * sizeof *job->ends);
    }
    cddpi_free(spawn->ranks);
    cddpi_free(spawn->polled);
}

/* Fork all ranks; they begin together. The server's thread starts after that, so no rank inherits a
 * lock that this thread holds, such as an allocator's. On failure, the ranks that were forked end
 * without running anything. */
static cddp_status start(struct spawn *spawn)
{
    struct cddpi_spawn_job *job = &spawn->job;
    char name[32];

    fflush(NULL); /* otherwise each rank would write the buffered output again */
    for (int r = 0; r < job->world_size; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            cddpi_spawn_rank(job, r);
        }
        if (pid < 0) {
            snprintf(name, sizeof name, "rank %d", r);
            return cddpi_child_fail(errno, name);
        }
        spawn->ranks[r].pid = pid;
        spawn->polled[r] = (struct pollfd){cddpi_process_pidfd(pid), POLLIN, 0};
        spawn->left++;
    }
    return cddpi_store_server_start(job->server);
}

/* Write one byte per rank; the pipe has room for CDDP_MAX_SPAWN_RANKS. */
static cddp_status open_gate(struct spawn *spawn)
{
    char bytes[CDDP_MAX_SPAWN_RANKS] = {0};
    size_t count = (size_t)spawn->job.world_size;
    bool whole = write(spawn->job.gate[1], bytes, count) == (ssize_t)count;

    cddpi_fd_close(&spawn->job.master_fd);
    cddpi_fd_close(&spawn->job.gate[1]);
    return whole ? CDDP_OK : cddpi_fail_errno(CDDP_ERR_IO, errno, "spawn: letting the ranks begin");
}

/* Write a key for the ranks that still join, which would otherwise wait for this rank. */
static void tell(const struct spawn *spawn, const char *key, const char *text)
{
    char whole[96];

    snprintf(whole, sizeof whole, "%s/0/%s", spawn->job.name, key);
    if (cddpi_store_server_set(spawn->job.server, whole, text, strlen(text)) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "spawn: telling the ranks (%s): %s", key, cddp_last_error());
    }
}

/* Set the error text for the failure of rank @p r. */
static cddp_status word(const struct spawn *spawn, int r)
{
    const struct rank *rank = &spawn->ranks[r];
    struct cddpi_spawn_end *end = &spawn->job.ends[r];

    if (atomic_load(&end->returned) && end->result != CDDP_OK) {
        end->failure.text[sizeof end->failure.text - 1] = '\0';
        end->failure.is_fatal = 0; /* it broke what the rank had, and nothing here */
        (void)cddpi_fail_again(end->result, &end->failure);
        return cddpi_fail_name(end->result, r);
    }
    if (!rank->is_known) {
        return cddpi_fail_rank(CDDP_ERR_PEER, r,
                               "ended before its function returned, and another part of this "
                               "program took its exit status");
    }
    if (WIFSIGNALED(rank->status)) {
        int number = WTERMSIG(rank->status);

        return cddpi_fail_rank(CDDP_ERR_PEER, r, "ended by signal %d (%s)", number,
                               strsignal(number));
    }
    return cddpi_fail_rank(CDDP_ERR_PEER, r,
                           "ended with exit status %d before its function returned",
                           WEXITSTATUS(rank->status));
}

static void take_end(struct spawn *spawn, int r, bool is_known, int status)
{
    char key[32];

    spawn->ranks[r].has_ended = true;
    spawn->ranks[r].is_known = is_known;
    spawn->ranks[r].status = status;
    spawn->left--;
    cddpi_fd_close(&spawn->polled[r].fd);
    if (!has_failed(spawn, r)) {
        snprintf(key, sizeof key, "ended/%d", r);
        tell(spawn, key, "0");
    } else if (spawn->first < 0 && failed_by_itself(spawn, r)) {
        spawn->first = r;
        (void)word(spawn, r);
        tell(spawn, "failure", cddp_last_error());
    }
}

static void reap(struct spawn *spawn)
{
    for (int r = 0; r < spawn->job.world_size; r++) {
        struct rank *rank = &spawn->ranks[r];
        int status = 0;
        pid_t got;

        if (rank->pid == 0 || rank->has_ended) {
            continue;
        }
        got = waitpid(rank->pid, &status, WNOHANG);
        if (got == rank->pid) {
            take_end(spawn, r, true, status);
        } else if (got < 0 && errno == ECHILD) {
            take_end(spawn, r, false, 0);
        }
    }
}

/* Send a signal to all running ranks. First collects the ranks that have already ended: the first
 * one that was noticed may have failed because of them. */
static void signal_all(struct spawn *spawn, int number)
{
    reap(spawn);
    for (int r = 0; r < spawn->job.world_size; r++) {
        if (spawn->ranks[r].pid != 0 && !spawn->ranks[r].has_ended) {
            spawn->ranks[r].was_ended = true;
            (void)kill(spawn->ranks[r].pid, number);
        }
    }
}

static int poll_ms(const struct spawn *spawn, int64_t deadline_ns)
{
    int left = deadline_ns == INT64_MAX ? -1 : cddpi_left_ms(deadline_ns);

    for (int r = 0; r < spawn->job.world_size; r++) {
        if (spawn->ranks[r].pid != 0 && !spawn->ranks[r].has_ended && spawn->polled[r].fd < 0) {
            return left < 0 || left > LOOK_MS ? LOOK_MS : left;
        }
    }
    return left;
}

/* Wait until all ranks have ended: by themselves, on request, or killed. */
static void await(struct spawn *spawn, uint32_t timeout_ms, uint32_t grace_ms)
{
    int64_t deadline_ns = timeout_ms > 0 ? cddpi_deadline_ns(timeout_ms) : INT64_MAX;

    reap(spawn);
    while (spawn->left > 0) {
        bool is_over = deadline_ns != INT64_MAX && cddpi_left_ms(deadline_ns) == 0;

        if (spawn->is_ending && is_over) {
            signal_all(spawn, SIGKILL);
            /* no process survives SIGKILL, so wait for their end without a limit */
            deadline_ns = INT64_MAX;
        } else if (!spawn->is_ending && (spawn->first >= 0 || is_over)) {
            spawn->is_late = spawn->first < 0;
            spawn->is_ending = true;
            signal_all(spawn, SIGTERM);
            deadline_ns = cddpi_deadline_ns(grace_ms);
        }
        (void)poll(spawn->polled, (nfds_t)spawn->job.world_size, poll_ms(spawn, deadline_ns));
        reap(spawn);
    }
}

/* Find the rank whose failure caused those of the others, as far as they reported. */
static int find_culprit(const struct spawn *spawn)
{
    int r = spawn->first;

    for (int steps = 0; steps < spawn->job.world_size; steps++) {
        int next = atomic_load(&spawn->job.ends[r].returned) ? spawn->job.ends[r].failure.culprit
                                                             : -1;

        if (next < 0 || next >= spawn->job.world_size || next == r ||
            !failed_by_itself(spawn, next)) {
            break;
        }
        r = next;
    }
    return r;
}

static cddp_status word_late(const struct spawn *spawn, uint32_t timeout_ms)
{
    char names[256] = "";
    size_t used = 0;
    int count = 0;

    for (int r = 0; r < spawn->job.world_size; r++) {
        if (spawn->ranks[r].was_ended && used + 24 < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d",
                                     count > 0 ? ", " : "", r);
        }
        count += spawn->ranks[r].was_ended;
    }
    return cddpi_fail(CDDP_ERR_TIMEOUT, "%s %s%s still ran after %u ms, and %s ended",
                      count > 1 ? "ranks" : "rank", names, used + 24 < sizeof names ? "" : " ...",
                      timeout_ms, count > 1 ? "were" : "was");
}

static cddp_status run(struct spawn *spawn, const cddp_spawn_options *options)
{
    cddp_status status = start(spawn);

    if (status == CDDP_OK) {
        status = open_gate(spawn);
    }
    if (status != CDDP_OK) {
        struct cddpi_failure failure = *cddpi_last_failure();

        cddpi_fd_close(&spawn->job.gate[1]);
        spawn->is_ending = true;
        signal_all(spawn, SIGKILL);
        await(spawn, 0, 0);
        return cddpi_fail_again(status, &failure);
    }
    await(spawn, options->timeout_ms, options->grace_ms > 0 ? options->grace_ms : GRACE_MS);
    if (spawn->first >= 0 && !spawn->is_late) {
        return word(spawn, find_culprit(spawn));
    }
    return spawn->is_late ? word_late(spawn, options->timeout_ms) : CDDP_OK;
}

cddp_status cddp_spawn(int nprocs, cddp_spawn_fn fn, void *state, const cddp_spawn_options *options)
{
    cddp_spawn_options known = CDDP_SPAWN_OPTIONS_INIT;
    struct spawn spawn = {.job = {.fn = fn,
                                  .state = state,
                                  .world_size = nprocs,
                                  .parent = getpid(),
                                  .gate = {-1, -1},
                                  .master_fd = -1},
                          .first = -1};
    cddp_status status;

    if (fn == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "spawn: fn is NULL");
    }
    if (nprocs < 1 || nprocs > CDDP_MAX_SPAWN_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "spawn: %d processes: between 1 and %d", nprocs,
                          CDDP_MAX_SPAWN_RANKS);
    }
    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("spawn options", "CDDP_SPAWN_OPTIONS_INIT", options,
                                    sizeof known, &known));
    }
    status = prepare(&spawn);
    if (status == CDDP_OK) {
        status = run(&spawn, &known);
    }
    release(&spawn);
    return status;
}
