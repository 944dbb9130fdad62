/* probe.c - opens the CUDA module, and runs a probe of it in a child process, for a limited time.
 */
#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/module_loader.h"
#include "device/device_module.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 65536, PAUSE_NS = 5000000, KILL_MS = 2000 };

static struct cddpi_module_file file = {
    .title = "CUDA",
    .file = "libcddp-cuda.so",
    .at = CDDPI_ENV_CUDA_MODULE,
    .symbol = CDDPI_MODULE_SYMBOL,
    .built_in = "runtime/device/cuda/",
    .build_with = "-Dcuda=enabled",
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

cddp_status cddpi_module_open(const struct cddpi_module **out)
{
    const void *table;

    CDDPI_TRY(cddpi_module_file_open(&file, &table));
    *out = table;
    return CDDP_OK;
}

/* --- the child process --- */

static void child(void (*probe)(int fd, const void *context), const void *context, int fd,
                  pid_t parent, uint32_t timeout_ms)
{
    if (!cddpi_child_begin(parent, (timeout_ms + KILL_MS) / 1000 + 1)) {
        _exit(1);
    }
    probe(fd, context);
    _exit(0);
}

/* Read until end of file, also what has no room: else the child would die of SIGPIPE, as if it had
 * crashed. False: the deadline passed first. */
static bool read_answer(int fd, char *answer, int64_t deadline_ns, bool *out_fits)
{
    size_t length = 0;
    char rest;

    *out_fits = true;
    for (;;) {
        size_t room = ANSWER_BYTES - 1 - length;
        struct pollfd event = {fd, POLLIN, 0};
        int ready = poll(&event, 1, cddpi_left_ms(deadline_ns));
        ssize_t got;

        if (ready == 0) {
            return false;
        }
        got = ready < 0 ? -1 : read(fd, room > 0 ? answer + length : &rest, room > 0 ? room : 1);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            break;
        }
        *out_fits = *out_fits && !(got > 0 && room == 0);
        length += got > 0 && room > 0 ? (size_t)got : 0;
    }
    answer[length] = '\0';
    return true;
}

/* Wait for the process until @p deadline_ns, then kill it and wait a little longer. A process that
 * hangs inside a driver may not even die; then it is left behind, possibly as a zombie. */
static bool await_end(pid_t pid, int64_t deadline_ns, int *state)
{
    struct timespec pause = {0, PAUSE_NS};
    bool killed = false;

    for (;;) {
        pid_t ended = waitpid(pid, state, WNOHANG);

        if (ended == pid || (ended < 0 && errno != EINTR)) {
            return ended == pid && !killed;
        }
        if (cddpi_now_ns() >= deadline_ns) {
            if (killed) {
                return false;
            }
            kill(pid, SIGKILL);
            killed = true;
            deadline_ns = cddpi_deadline_ns(KILL_MS);
        }
        nanosleep(&pause, NULL);
    }
}

char *cddpi_probe_child(void (*probe)(int fd, const void *context), const void *context,
                        uint32_t timeout_ms)
{
    char *answer = cddpi_zalloc(ANSWER_BYTES);
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    int ends[2];
    int state = 0;
    int error;
    bool in_time;
    bool fits = true;
    pid_t self = getpid();
    pid_t pid;

    if (answer == NULL) {
        cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d bytes", ANSWER_BYTES);
        return NULL;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        cddpi_fail_errno(CDDP_ERR_IO, errno, "a pipe to a child process");
        cddpi_free(answer);
        return NULL;
    }
    pid = fork();
    error = errno;
    if (pid == 0) {
        close(ends[0]);
        child(probe, context, ends[1], self, timeout_ms);
    }
    close(ends[1]);
    in_time = pid > 0 && read_answer(ends[0], answer, deadline_ns, &fits);
    close(ends[0]);
    /* without a complete answer the child is killed at once */
    in_time = pid > 0 && await_end(pid, in_time ? deadline_ns : 0, &state) && in_time;
    if (in_time && fits && WIFEXITED(state) && WEXITSTATUS(state) == 0) {
        return answer;
    }
    cddpi_free(answer);
    if (pid < 0) {
        cddpi_child_fail(error, "a process that asks CUDA");
    } else if (!in_time) {
        cddpi_fail(CDDP_ERR_TIMEOUT, "CUDA did not answer within %u ms", timeout_ms);
    } else if (!fits) {
        cddpi_fail(CDDP_ERR_DEVICE, "CUDA's answer has more than %d bytes", ANSWER_BYTES - 1);
    } else if (WIFSIGNALED(state)) {
        cddpi_fail(CDDP_ERR_DEVICE, "CUDA crashed when it was asked: %s",
                   strsignal(WTERMSIG(state)));
    } else {
        cddpi_fail(CDDP_ERR_DEVICE, "CUDA ended the process that asked it with status %d",
                   WEXITSTATUS(state));
    }
    return NULL;
}
