/* own_fd.c - records which descriptors belong to this process only, and replaces them in forked
 * children. The record is a lock-free bit set, because a fork may only do what is safe in a signal
 * handler. */
#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

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
    if (extra >= 0) {
        close(extra);
    }
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
