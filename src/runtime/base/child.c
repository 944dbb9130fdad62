/* child.c - ends forked processes when their parent ends or a deadline passes. It also records
 * which descriptors belong to this process only, and replaces them in forked children. The record
 * is a lock-free bit set, because a fork may only do what is safe in a signal handler. */
#include "base/child.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Runs after a fork of a multi-threaded process, so it calls only async-signal-safe functions. */
static void say_refused(int error_number)
{
    static const char begin[] = "cddp: prctl(PR_SET_PDEATHSIG): ";
    static const char end[] =
        ": a process that may outlive its parent is not started (does a seccomp "
        "filter refuse prctl?)\n";
    const char *why = strerrordesc_np(error_number);

    (void)!write(STDERR_FILENO, begin, sizeof begin - 1);
    if (why != NULL) {
        (void)!write(STDERR_FILENO, why, strlen(why));
    }
    (void)!write(STDERR_FILENO, end, sizeof end - 1);
}

bool cddpi_child_begin(pid_t parent, unsigned seconds)
{
    sigset_t alarms;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        say_refused(errno);
        return false;
    }
    /* If the parent died before prctl(), no signal would ever come. */
    if (getppid() != parent) {
        return false;
    }
    if (seconds > 0) {
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        signal(SIGALRM, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &alarms, NULL);
        alarm(seconds);
    }
    return true;
}

cddp_status cddpi_child_fail(int error_number, const char *what)
{
    cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, error_number, "starting %s", what);

    return error_number == EAGAIN
               ? cddpi_fail(status,
                            "%s (too many processes and threads of this user for ulimit -u, "
                            "or of this control group)",
                            cddp_last_error())
               : status;
}

enum {
    WORD_BITS = 64,
    WORDS = (1 << 20) / WORD_BITS /* the most that Linux allows by default (fs.nr_open) */
};

static _Atomic uint64_t own[WORDS]; /* unused pages cost nothing */
static _Atomic int used_words;      /* words from here on have no bit set */

static int open_placeholder(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Runs in the child before fork() returns there. */
static void replace_all(void)
{
    int error = errno;
    int placeholder = open_placeholder();
    int extra = placeholder;

    for (int word = 0; word < atomic_load(&used_words); word++) {
        uint64_t bits = atomic_exchange(&own[word], 0);

        for (; bits != 0; bits &= bits - 1) {
            int fd = word * WORD_BITS + __builtin_ctzll(bits);

            if (placeholder >= 0) {
                (void)dup3(placeholder, fd, O_CLOEXEC);
            } else { /* no descriptor was free before; now that of fd is */
                close(fd);
                placeholder = open_placeholder();
            }
        }
    }
    cddpi_fd_close(&extra);
    errno = error;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, replace_all); /* if memory runs out, children keep them */
}

int cddpi_own_fd(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int word = fd / WORD_BITS;
    int used = atomic_load(&used_words);

    if (fd < 0 || word >= WORDS) {
        return fd;
    }
    (void)pthread_once(&once, watch_forks);
    while (used <= word && !atomic_compare_exchange_weak(&used_words, &used, word + 1)) {
        continue;
    }
    atomic_fetch_or(&own[word], UINT64_C(1) << fd % WORD_BITS);
    return fd;
}

void cddpi_own_fd_close(int fd)
{
    if (fd < 0) {
        return;
    }
    /* clear the bit first: after close() another thread may get the number */
    if (fd / WORD_BITS < WORDS) {
        atomic_fetch_and(&own[fd / WORD_BITS], ~(UINT64_C(1) << fd % WORD_BITS));
    }
    close(fd);
}
