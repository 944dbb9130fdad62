/* worker.c - starts a rank: its environment, pipes, fork, and what the child does before its exec.
 * All memory is allocated before the fork, since the store's thread may hold the allocator's lock
 * at that moment. */
#include "launcher/supervise/worker.h"

#include "launcher/nodes/nodes.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/terminal.h"
#include "group/launch/launch_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_VARIABLES = 48, TEXT_BYTES = 16384 };

struct environment_list {
    char *texts[MAX_VARIABLES + 1];
    int count;
    size_t used;
    bool is_full;
    char bytes[TEXT_BYTES];
};

static void __attribute__((format(printf, 3, 4)))
add_variable(struct environment_list *list, const char *name, const char *format, ...)
{
    char *at = list->bytes + list->used;
    size_t room = sizeof list->bytes - list->used;
    int name_length = snprintf(at, room, "%s=", name);
    int length;
    va_list arguments;

    if (list->count == MAX_VARIABLES || (size_t)name_length >= room) {
        list->is_full = true;
        return;
    }
    va_start(arguments, format);
    length = vsnprintf(at + name_length, room - (size_t)name_length, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)(name_length + length) >= room) {
        list->is_full = true;
        return;
    }
    list->texts[list->count++] = at;
    list->used += (size_t)(name_length + length) + 1;
}

static void add_cddp(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    const struct cddpi_job_rendezvous *meet = &job->rendezvous;
    char inherited[1024];
    char keeps[CDDPI_RANK_MEMORY_TEXT_BYTES];
    char visible[CDDPI_MACHINE_GPUS * CDDPI_CARD_NAME_BYTES];

    cddpi_launchers_inherited(meet->store, inherited, sizeof inherited);
    add_variable(list, "CDDP_RANK", "%d", rank);
    add_variable(list, "CDDP_WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "CDDP_LOCAL_RANK", "%d", rank - job->first_rank);
    add_variable(list, "CDDP_LOCAL_WORLD_SIZE", "%d", job->local_world_size);
    if (meet->store[0] != '\0') {
        add_variable(list, "CDDP_STORE", "%s", meet->store);
        add_variable(list, "CDDP_TOKEN", "%s", meet->token);
        add_variable(list, "CDDP_JOB", "%s", meet->job);
    } else {
        add_variable(list, "CDDP_STORE", "tcp://127.0.0.1:(chosen at the start)");
        add_variable(list, "CDDP_TOKEN", "(random)");
        add_variable(list, "CDDP_JOB", "(random)");
    }
    add_variable(list, "CDDP_GENERATION", "%d", job->generation);
    if (job->nodes != NULL) { /* also the first generation's: it replaces that of an outer job */
        add_variable(list, "CDDP_GENERATION_REASON", "%s", job->nodes->members.reason);
    }
    add_variable(list, "CDDP_INHERITED", "%s", inherited);
    if (job->options.per_gpu && getenv("CDDP_DEVICE") == NULL) {
        add_variable(list, "CDDP_DEVICE", "cuda");
    }
    if (cddpi_ill_cards_visible(&job->cards, visible, sizeof visible)) {
        add_variable(list, "CUDA_VISIBLE_DEVICES", "%s", visible);
    }
    if (job->options.network_interface != NULL) {
        add_variable(list, "CDDP_SOCKET_IFNAME", "%s", job->options.network_interface);
    }
    if (job->report_fd >= 0) {
        add_variable(list, "CDDP_REPORT_FD", "%d", job->report_fd);
        add_variable(list, "CDDP_LAUNCHER_PID", "%d", (int)getpid());
    }
    if (job->memory.count > 0) {
        cddpi_rank_memory_text(&job->memory, keeps);
        add_variable(list, "CDDP_KEEP_FDS", "%s", keeps);
    }
    if (job->options.run_dir != NULL) {
        add_variable(list, "CDDP_RUN_DIR", "%s", job->options.run_dir);
    }
    if (job->options.timeout_ms[0] != '\0') {
        add_variable(list, "CDDP_TIMEOUT_MS", "%s", job->options.timeout_ms);
    }
    /* rank 0 writes to our pipe, so it cannot see that we write to a terminal */
    if (rank == 0 && job->options.tag != CDDPI_TAG_ALL && getenv("CDDP_PROGRESS") == NULL &&
        cddpi_terminal_redraws(STDERR_FILENO)) {
        add_variable(list, "CDDP_PROGRESS", "tty");
    }
}

static void add_torchrun(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    const struct cddpi_job_rendezvous *meet = &job->rendezvous;

    add_variable(list, "RANK", "%d", rank);
    add_variable(list, "WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "LOCAL_RANK", "%d", rank - job->first_rank);
    add_variable(list, "LOCAL_WORLD_SIZE", "%d", job->local_world_size);
    add_variable(list, "GROUP_RANK", "%d",
                 job->nodes != NULL ? cddpi_membership_index(&job->nodes->members) : 0);
    add_variable(list, "GROUP_WORLD_SIZE", "%d",
                 job->nodes != NULL ? job->nodes->members.nodes : 1);
    add_variable(list, "ROLE_RANK", "%d", rank);
    add_variable(list, "ROLE_WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "ROLE_NAME", "default");
    add_variable(list, "MASTER_ADDR", "%s",
                 meet->store[0] != '\0' ? meet->master_host : "127.0.0.1");
    if (meet->store[0] != '\0') {
        add_variable(list, "MASTER_PORT", "%u", meet->master_port);
    } else {
        add_variable(list, "MASTER_PORT", "(chosen at the start)");
    }
    add_variable(list, "TORCHELASTIC_RESTART_COUNT", "%d", job->generation);
    add_variable(list, "TORCHELASTIC_MAX_RESTARTS", "%d",
                 job->options.max_restarts < 0 ? INT32_MAX : job->options.max_restarts);
    add_variable(list, "TORCHELASTIC_RUN_ID", "%s",
                 meet->store[0] != '\0' ? meet->job : "(random)");
}

struct cddpi_core_share cddpi_worker_cores(const struct cddpi_job *job, int rank)
{
    int ranks = job->local_world_size;
    bool binds = job->options.bind == CDDPI_BIND_CORE ||
                 (job->options.bind == CDDPI_BIND_AUTO && job->cores.core_count >= ranks);

    return cddpi_cores_share(&job->cores, rank - job->first_rank, ranks, binds);
}

/* Limit BLAS threads. Otherwise each rank's BLAS would start as many threads as the machine has
 * cores. */
static void add_threads(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    struct cddpi_core_share share = cddpi_worker_cores(job, rank);

    if (getenv("OMP_NUM_THREADS") != NULL) {
        return; /* OpenBLAS reads it, too */
    }
    add_variable(list, "OMP_NUM_THREADS", "%d", share.threads);
    if (getenv("OPENBLAS_NUM_THREADS") == NULL) {
        add_variable(list, "OPENBLAS_NUM_THREADS", "%d", share.threads);
    }
}

/* @p rejoin_fd: CDDP_REJOIN_FD; -1: it is not set. */
static cddp_status make_environment(const struct cddpi_job *job, int rank, int rejoin_fd,
                                    char ***out)
{
    struct environment_list *list = cddpi_zalloc(sizeof *list);

    if (list == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, rank, "no memory for its environment");
    }
    add_cddp(list, job, rank);
    add_torchrun(list, job, rank);
    add_threads(list, job, rank);
    if (rejoin_fd >= 0) {
        add_variable(list, "CDDP_REJOIN_FD", "%d", rejoin_fd);
    }
    if (list->is_full) {
        cddpi_free(list);
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, rank, "its environment is longer than %d bytes",
                               TEXT_BYTES);
    }
    *out = list->texts; /* the first member, so releasing it releases the whole block */
    return CDDP_OK;
}

cddp_status cddpi_environment_own(const struct cddpi_job *job, int rank, char ***out)
{
    return make_environment(job, rank, -1, out);
}

static bool is_named_in(const char *variable, char *const *list)
{
    size_t length = strcspn(variable, "=") + 1;

    for (; *list != NULL; list++) {
        if (strncmp(variable, *list, length) == 0) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_environment_merge(char *const *own, char ***out)
{
    size_t count = 0;
    size_t used = 0;
    char **merged;

    while (environ[count] != NULL) {
        count++;
    }
    for (size_t i = 0; own[i] != NULL; i++) {
        count++;
    }
    merged = cddpi_zalloc_array(count + 1, sizeof *merged);
    CDDPI_TRY_MEMORY(merged != NULL, "no memory for an environment of %zu variables", count);
    for (size_t i = 0; environ[i] != NULL; i++) {
        if (!is_named_in(environ[i], own)) {
            merged[used++] = environ[i];
        }
    }
    for (size_t i = 0; own[i] != NULL; i++) {
        merged[used++] = own[i];
    }
    *out = merged;
    return CDDP_OK;
}

/* What the child needs, prepared before the fork. */
struct start {
    const struct cddpi_command *command;
    char **own;
    char **environment;
    cpu_set_t *cpus; /* NULL: not bound */
    size_t cpus_bytes;
    const sigset_t *unblocked;
    const struct rlimit *file_limit;
    int report_fd; /* inherited by the program; -1: none */
    /* Inherited, too. */
    const struct cddpi_rank_memory *memory;
    int out[2];
    int err[2];
    int exec[2];
    int rejoin[2]; /* the program inherits the second; -1: none */
    int null;
    pid_t parent;
};

static void release_start(struct start *start)
{
    cddpi_free(start->own);
    cddpi_free(start->environment);
    if (start->cpus != NULL) {
        CPU_FREE(start->cpus);
    }
    for (int i = 0; i < 2; i++) {
        cddpi_fd_close(&start->out[i]);
        cddpi_fd_close(&start->err[i]);
        cddpi_fd_close(&start->exec[i]);
        cddpi_fd_close(&start->rejoin[i]);
    }
    cddpi_fd_close(&start->null);
}

cddp_status cddpi_worker_mask(const struct cddpi_job *job, int rank, cpu_set_t **out,
                              size_t *out_bytes)
{
    struct cddpi_core_share share = cddpi_worker_cores(job, rank);
    int highest = 0;

    *out = NULL;
    if (!share.bound) {
        return CDDP_OK;
    }
    for (int i = job->cores.first[share.begin]; i < job->cores.first[share.end]; i++) {
        highest = job->cores.cpus[i] > highest ? job->cores.cpus[i] : highest;
    }
    *out = CPU_ALLOC((size_t)highest + 1);
    if (*out == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, rank, "no memory for an affinity mask");
    }
    *out_bytes = CPU_ALLOC_SIZE((size_t)highest + 1);
    CPU_ZERO_S(*out_bytes, *out);
    for (int i = job->cores.first[share.begin]; i < job->cores.first[share.end]; i++) {
        CPU_SET_S((size_t)job->cores.cpus[i], *out_bytes, *out);
    }
    return CDDP_OK;
}

/* If a further generation may follow, the process may stay for it. A job goes on without. */
static void open_rejoin(struct start *start, const struct cddpi_job *job)
{
    bool may_follow = job->options.max_restarts != 0 ||
                      (job->nodes != NULL && job->nodes->members.is_elastic);

    if (may_follow && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, start->rejoin) != 0) {
        start->rejoin[0] = -1;
        start->rejoin[1] = -1;
    }
}

static cddp_status prepare_start(struct start *start, const struct cddpi_job *job, int rank)
{
    open_rejoin(start, job);
    CDDPI_TRY(make_environment(job, rank, start->rejoin[1], &start->own));
    CDDPI_TRY(cddpi_environment_merge(start->own, &start->environment));
    CDDPI_TRY(cddpi_worker_mask(job, rank, &start->cpus, &start->cpus_bytes));
    start->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (start->null < 0 || pipe2(start->out, O_CLOEXEC) != 0 || pipe2(start->err, O_CLOEXEC) != 0 ||
        pipe2(start->exec, O_CLOEXEC) != 0) {
        return cddpi_fail_name(cddpi_fail_errno(CDDP_ERR_IO, errno, "making its pipes"), rank);
    }
    fcntl(start->out[0], F_SETFL, O_NONBLOCK);
    fcntl(start->err[0], F_SETFL, O_NONBLOCK);
    return CDDP_OK;
}

/* Runs in the child, so only async-signal-safe calls: the parent has threads. */
static void __attribute__((noreturn)) become_rank(const struct start *start)
{
    int error;

    setpgid(0, 0);
    if (!cddpi_child_begin(start->parent, 0)) {
        _exit(127);
    }
    if (start->cpus != NULL) {
        (void)sched_setaffinity(0, start->cpus_bytes, start->cpus); /* may fail: a cpuset may have
                                                                       shrunk */
    }
    (void)setrlimit(RLIMIT_NOFILE, start->file_limit);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGTTOU, SIG_DFL);
    sigprocmask(SIG_SETMASK, start->unblocked, NULL);
    if (start->report_fd >= 0) {
        (void)fcntl(start->report_fd, F_SETFD, 0);
    }
    if (start->rejoin[1] >= 0) {
        (void)fcntl(start->rejoin[1], F_SETFD, 0);
    }
    cddpi_rank_memory_pass(start->memory);
    if (dup2(start->null, STDIN_FILENO) >= 0 && dup2(start->out[1], STDOUT_FILENO) >= 0 &&
        dup2(start->err[1], STDERR_FILENO) >= 0) {
        execvpe(start->command->path, start->command->argv, start->environment);
    }
    error = errno;
    (void)!write(start->exec[1], &error, sizeof error);
    _exit(127);
}

cddp_status cddpi_worker_start(struct cddpi_worker *worker, const struct cddpi_job *job,
                               struct cddpi_output *output, const sigset_t *unblocked)
{
    struct start start = {.command = &job->command,
                          .unblocked = unblocked,
                          .file_limit = &job->file_limit,
                          .report_fd = job->report_fd,
                          .memory = &job->memory,
                          .out = {-1, -1},
                          .err = {-1, -1},
                          .exec = {-1, -1},
                          .rejoin = {-1, -1},
                          .null = -1,
                          .parent = getpid()};
    cddp_status status = prepare_start(&start, job, worker->rank);
    char name[32];
    pid_t pid;

    if (status != CDDP_OK) {
        release_start(&start);
        return status;
    }
    pid = fork();
    if (pid == 0) {
        become_rank(&start);
    }
    if (pid < 0) {
        snprintf(name, sizeof name, "rank %d", worker->rank);
        status = cddpi_child_fail(errno, name);
        release_start(&start);
        return status;
    }
    setpgid(pid, pid); /* the child does this, too: the group must exist before a signal is sent to
                          it */
    worker->pid = pid;
    worker->pidfd = cddpi_process_pidfd(pid);
    worker->exec_fd = start.exec[0];
    worker->rejoin_fd = start.rejoin[0];
    worker->out.fd = start.out[0];
    worker->err.fd = start.err[0];
    worker->out.output = output;
    worker->err.output = output;
    start.exec[0] = -1;
    start.rejoin[0] = -1;
    start.out[0] = -1;
    start.err[0] = -1;
    release_start(&start);
    return CDDP_OK;
}

int cddpi_worker_exec_error(struct cddpi_worker *worker)
{
    int error = 0;
    ssize_t got;

    do {
        got = read(worker->exec_fd, &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    cddpi_fd_close(&worker->exec_fd);
    return got == (ssize_t)sizeof error ? error : 0;
}

void cddpi_worker_close(struct cddpi_worker *worker)
{
    cddpi_relay_finish(&worker->out);
    cddpi_relay_finish(&worker->err);
    cddpi_fd_close(&worker->exec_fd);
    cddpi_fd_close(&worker->rejoin_fd);
    cddpi_fd_close(&worker->pidfd);
    cddpi_fd_close(&worker->log.fd);
}
