/* listener.c - accepts connections, most of which may come from strangers: anybody who reaches the
 * port can connect. The listener therefore limits the number of connections that strangers hold,
 * and never gives them the descriptors that the program itself needs. */
#include "base/listener.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ACCEPTS_AT_ONCE = 1024, /* then connections that are already accepted get a turn */
    PROOF_MS = 300, /* a rank proves itself within this time, unless its machine is very busy */
    CROWD_PAUSE_MS = 5,
    ACCEPT_PAUSE_MS = 50
};

/* Raise the soft limit of open files. False: it is already the hard limit. Called only when
 * necessary, because children inherit the limit, and some old programs fail with descriptors above
 * 1023. */
static bool raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) {
        return false;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static void report_limit(struct cddpi_listener *listener)
{
    struct rlimit limit = {0};

    if (!listener->reported_limit) {
        (void)getrlimit(RLIMIT_NOFILE, &limit);
        cddpi_log(CDDPI_LOG_WARN,
                  "%s on port %u: the limit of %llu open files is too low for all clients; raise "
                  "it (ulimit -Hn)",
                  listener->what, listener->port, (unsigned long long)limit.rlim_cur);
        listener->reported_limit = true;
    }
}

/* Accept one connection and tell it that no descriptor is left. Returns 0 or the errno of accept():
 * EAGAIN if no connection is waiting (without a free descriptor, the kernel does not look). */
static int reject_one(struct cddpi_listener *listener)
{
    int error;
    int fd;

    if (listener->spare_fd < 0 || listener->ops->reject == NULL) {
        return EMFILE;
    }
    close(listener->spare_fd);
    fd = cddpi_own_fd(accept4(listener->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        listener->ops->reject(listener->context, fd);
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return error;
}

/* Whether @p fd, the lowest free number, is one of the descriptors reserved for the program.
 * Strangers and clients may use at least half of all descriptors. */
static bool is_reserved(const struct cddpi_listener *listener, int fd)
{
    struct rlimit limit;
    rlim_t reserved = listener->reserved > 0 ? (rlim_t)listener->reserved : 0;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return false;
    }
    reserved = reserved < limit.rlim_cur / 2 ? reserved : limit.rlim_cur / 2;
    return reserved > 0 && (rlim_t)fd + reserved >= limit.rlim_cur;
}

static void admit(struct cddpi_listener *listener, int fd, const struct sockaddr_storage *address)
{
    while (is_reserved(listener, fd) && !raise_file_limit()) {
        int lower;

        if (!listener->ops->drop_oldest(listener->context)) {
            if (listener->ops->reject == NULL) {
                break;
            }
            listener->ops->reject(listener->context, fd);
            report_limit(listener);
            return;
        }
        lower = cddpi_own_fd(
            fcntl(fd, F_DUPFD_CLOEXEC, 0)); /* gets a lower number and frees this one */
        if (lower >= 0) {
            cddpi_own_fd_close(fd);
            fd = lower;
        }
    }
    listener->ops->take(listener->context, fd, address);
}

/* Let new connections wait in the kernel's queue for @p ms. epoll must not watch the socket
 * meanwhile, since it would report them again at once. */
static void pause_accepting(struct cddpi_listener *listener, uint32_t ms)
{
    listener->ops->watch(listener->context, false);
    listener->listen_again_ns = cddpi_deadline_ns(ms);
}

static int64_t drop_silent(struct cddpi_listener *listener)
{
    while (listener->ops->count(listener->context) > listener->silent_max) {
        int64_t from_ns = listener->ops->oldest_ns(listener->context) + PROOF_MS * INT64_C(1000000);

        if (cddpi_left_ms(from_ns) > 0) {
            return from_ns;
        }
        if (!listener->ops->drop_oldest(listener->context)) {
            break;
        }
    }
    return INT64_MAX;
}

int64_t cddpi_listener_tick(struct cddpi_listener *listener)
{
    int64_t next_ns = drop_silent(listener);

    if (listener->listen_again_ns != 0 && cddpi_left_ms(listener->listen_again_ns) == 0) {
        listener->listen_again_ns = 0;
        listener->ops->watch(listener->context, true);
    } else if (listener->listen_again_ns != 0 && listener->listen_again_ns < next_ns) {
        next_ns = listener->listen_again_ns;
    }
    return next_ns;
}

/* False: stop accepting for now. */
static bool survive_accept_error(struct cddpi_listener *listener, int error)
{
    if (error == EMFILE) {
        if (raise_file_limit() || listener->ops->drop_oldest(listener->context)) {
            return true;
        }
        error = reject_one(listener);
        if (error == 0) {
            report_limit(listener);
            return true;
        }
    }
    if (error == EAGAIN || error == EWOULDBLOCK) {
        return false;
    }
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        pause_accepting(listener, ACCEPT_PAUSE_MS);
        return false;
    }
    return true; /* the connection is already gone: accept the next one */
}

void cddpi_listener_accept(struct cddpi_listener *listener)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage address = {0};
        socklen_t bytes = sizeof address;
        int fd;

        /* The present strangers are just as new, so none of them is dropped for a newcomer. */
        if (listener->ops->count(listener->context) >= listener->new_max) {
            pause_accepting(listener, CROWD_PAUSE_MS);
            return;
        }
        fd = cddpi_own_fd(accept4(listener->listen_fd, (struct sockaddr *)&address, &bytes,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0) {
            admit(listener, fd, &address);
        } else if (!survive_accept_error(listener, errno)) {
            return;
        }
    }
}
