/* rank_pool.c - a pool of rank processes. */
#include "support/rank_pool.h"

enum { POOL_RANKS = 7, POOL_BYTES = 16384, POOL_FDS = 2 };

/* A job for a rank: run the body on a copy of the argument. The rank gets its own descriptors of
 * the argument's files. */
struct pool_job {
    rank_fn body;
    int rank, size;
    size_t bytes;
    int fd_count;
    size_t fd_at[POOL_FDS]; /* offsets of the file descriptors in the argument */
    unsigned char argument[POOL_BYTES];
    char environment[POOL_BYTES]; /* NAME=VALUE of CDDP_*, each ended by a NUL */
};

static struct {
    int count;
    pid_t pids[POOL_RANKS];
    int fds[POOL_RANKS];
} pool;

bool pool_is_wanted(void)
{
    return gpu_is_real() || getenv("CDDP_TEST_POOL") != NULL;
}

static void pool_pack_environment(char *out, size_t bytes)
{
    size_t used = 0;

    for (char **at = environ; *at != NULL; at++) {
        size_t length = strlen(*at) + 1;

        if (strncmp(*at, "CDDP_", 5) == 0 && used + length < bytes) {
            memcpy(out + used, *at, length);
            used += length;
        }
    }
    out[used] = '\0';
}

/* In a rank: set the variables that the parent has now. */
static void pool_take_environment(const char *in)
{
    char name[128];

    for (char **at = environ; *at != NULL;) {
        size_t length = strcspn(*at, "=");

        if (strncmp(*at, "CDDP_", 5) == 0 && length < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)length, *at);
            unsetenv(name);
            at = environ; /* its entries have moved */
        } else {
            at++;
        }
    }
    for (; *in != '\0'; in += strlen(in) + 1) {
        size_t length = strcspn(in, "=");

        snprintf(name, sizeof name, "%.*s", (int)length, in);
        setenv(name, in + length + 1, 1);
    }
}

static bool pool_send(int fd, const struct pool_job *job)
{
    struct iovec part = {(void *)(uintptr_t)job, sizeof *job};
    union {
        char bytes[CMSG_SPACE(POOL_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (job->fd_count > 0) {
        struct cmsghdr *files;

        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)job->fd_count * sizeof(int));
        files = CMSG_FIRSTHDR(&message);
        files->cmsg_level = SOL_SOCKET;
        files->cmsg_type = SCM_RIGHTS;
        files->cmsg_len = CMSG_LEN((size_t)job->fd_count * sizeof(int));
        for (int i = 0; i < job->fd_count; i++) {
            memcpy(CMSG_DATA(files) + (size_t)i * sizeof(int), job->argument + job->fd_at[i],
                   sizeof(int));
        }
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *job;
}

/* Receive a job, and put its file descriptors into the argument. */
static bool pool_receive(int fd, struct pool_job *job)
{
    struct iovec part = {job, sizeof *job};
    union {
        char bytes[CMSG_SPACE(POOL_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *files;

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *job) {
        return false;
    }
    files = CMSG_FIRSTHDR(&message);
    for (int i = 0; files != NULL && i < job->fd_count; i++) {
        memcpy(job->argument + job->fd_at[i], CMSG_DATA(files) + (size_t)i * sizeof(int),
               sizeof(int));
    }
    return true;
}

static void pool_rank(int fd)
{
    static struct pool_job job;

    while (pool_receive(fd, &job)) {
        int result;

        pool_take_environment(job.environment);
        result = job.body(job.rank, job.size, job.argument);
        fflush(NULL);
        for (int i = 0; i < job.fd_count; i++) {
            int file;

            memcpy(&file, job.argument + job.fd_at[i], sizeof file);
            close(file);
        }
        if (send(fd, &result, sizeof result, MSG_NOSIGNAL) != (ssize_t)sizeof result) {
            break;
        }
    }
    _exit(0);
}

/* End the pool. Ranks that wait for a job end by themselves; after a failure a rank may hang, so
 * all are killed. */
static void pool_end(bool killed)
{
    for (int i = 0; i < pool.count; i++) {
        if (killed) {
            kill(pool.pids[i], SIGKILL);
        }
        close(pool.fds[i]);
    }
    for (int i = 0; i < pool.count; i++) {
        (void)waitpid(pool.pids[i], NULL, 0);
    }
    pool.count = 0;
}

static void pool_end_at_exit(void)
{
    pool_end(false);
}

static bool pool_begin(int size)
{
    static bool registered;
    pid_t parent = getpid();

    if (!registered) {
        registered = atexit(pool_end_at_exit) == 0;
    }
    fflush(NULL);
    while (pool.count < size) {
        int ends[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
            return false;
        }
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) {
                _exit(1);
            }
            close(ends[0]);
            for (int i = 0; i < pool.count; i++) {
                close(pool.fds[i]);
            }
            pool_rank(ends[1]);
        }
        close(ends[1]);
        if (pid < 0) {
            close(ends[0]);
            return false;
        }
        pool.pids[pool.count] = pid;
        pool.fds[pool.count++] = ends[0];
    }
    return true;
}

/* Wait for the answers of @p size ranks. Returns how many did not return 0, died or are not
 * done. */
static int pool_collect(int size)
{
    int failed = 0;
    time_t end = time(NULL) + SUPPORT_LIMIT_S;

    for (int rank = 0; rank < size; rank++) {
        struct pollfd answer = {pool.fds[rank], POLLIN, 0};
        int result = 1;
        int ready;

        do {
            time_t left = end - time(NULL);

            ready = poll(&answer, 1, left > 0 ? (int)left * 1000 : 0);
        } while (ready < 0 && errno == EINTR);
        if (ready == 0) {
            fprintf(stderr, "rank %d has not answered after %d s\n", rank, SUPPORT_LIMIT_S);
        } else if (ready > 0 && recv(pool.fds[rank], &result, sizeof result, 0) != sizeof result) {
            fprintf(stderr, "rank %d has died\n", rank);
            result = 1;
        }
        failed += result != 0;
    }
    return failed;
}

int pool_run(int size, rank_fn body, const void *argument, size_t bytes, const size_t *fd_at,
             int fd_count)
{
    static struct pool_job job;
    int sent = 0;
    int failed;

    if (size > POOL_RANKS || bytes > POOL_BYTES || fd_count > POOL_FDS || !pool_begin(size)) {
        fprintf(stderr, "a job of %d ranks and %zu bytes cannot be started\n", size, bytes);
        return size;
    }
    job.body = body;
    job.size = size;
    job.bytes = bytes;
    job.fd_count = fd_count;
    memcpy(job.argument, argument, bytes);
    for (int i = 0; i < fd_count; i++) {
        job.fd_at[i] = fd_at[i];
    }
    pool_pack_environment(job.environment, sizeof job.environment);
    for (job.rank = 0; job.rank < size; job.rank++) {
        sent += pool_send(pool.fds[job.rank], &job);
    }
    failed = sent == size ? pool_collect(size) : size;
    if (failed > 0) {
        pool_end(true);
    }
    return failed;
}
