/* server_listener.c - accepts the connections of the TCP store's server. Anybody on the machine can
 * connect, so what strangers can take is bounded: a number of connections, never the descriptors
 * that the program itself needs. */
#include "store/server_listener.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS_AT_ONCE = 1024, /* then clients that were accepted have their turn */
    SILENT_MAX = 400,       /* clients whose proof should have come by now */
    NEW_MAX = 4096,         /* clients without a proof in all: many ranks may start at once */
    PROOF_MS = 300,         /* within which a rank's proof comes, unless its machine is very busy */
    CROWD_PAUSE_MS = 5,
    ACCEPT_PAUSE_MS = 50
};

/* False if there is nothing to raise. Only called when it is needed, because children inherit it
 * and some old programs cannot stand descriptors above 1023. */
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
                  "store server on port %u: the limit of %llu open files is too low for all "
                  "clients; raise it (ulimit -Hn)",
                  listener->port, (unsigned long long)limit.rlim_cur);
        listener->reported_limit = true;
    }
}

/* Say to the client behind @p fd that there is no room, and close. */
static void reject(int fd)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];
    uint8_t nonce[CDDPI_NONCE_BYTES] = {0};

    cddpi_client_hello(hello, CDDPI_WIRE_FULL, nonce);
    (void)send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
    cddpi_own_fd_close(fd);
}

/* Say to one client that there is no descriptor for it. 0, or the errno of accepting it: EAGAIN if
 * nobody is there after all (without a descriptor, the kernel does not look). */
static int reject_one(struct cddpi_listener *listener)
{
    int error;
    int fd;

    if (listener->spare_fd < 0) {
        return EMFILE;
    }
    close(listener->spare_fd);
    fd = cddpi_own_fd(accept4(listener->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        reject(fd);
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return error;
}

void cddpi_listener_watch(struct cddpi_listener *listener, struct cddpi_client_host *host, bool on)
{
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &listener->listen_fd};

    (void)epoll_ctl(host->epoll_fd, EPOLL_CTL_MOD, listener->listen_fd, &event);
}

/* Drop the client that has been there longest without a proof; one whose proof has come by now is
 * let in instead. False if there is none to drop. */
static bool drop_oldest(struct cddpi_client_host *host)
{
    while (host->authenticating.first != NULL) {
        struct cddpi_client *oldest = host->authenticating.first;

        cddpi_client_event(host, oldest, EPOLLIN);
        if (!oldest->authenticated) {
            cddpi_client_close(host, oldest); /* does nothing if it is closed already */
            return true;
        }
    }
    return false;
}

/* Whether @p fd, the lowest that was free, is one of those that are left to the program. Clients
 * may have half of the descriptors in any case. */
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

static void admit(struct cddpi_listener *listener, struct cddpi_client_host *host, int fd)
{
    while (is_reserved(listener, fd) && !raise_file_limit()) {
        int lower;

        if (!drop_oldest(host)) {
            reject(fd);
            report_limit(listener);
            return;
        }
        lower = cddpi_own_fd(
            fcntl(fd, F_DUPFD_CLOEXEC, 0)); /* a lower number, and frees this one */
        if (lower >= 0) {
            cddpi_own_fd_close(fd);
            fd = lower;
        }
    }
    cddpi_client_accept(host, fd, cddpi_deadline_ns(listener->auth_timeout_ms));
}

/* Let newcomers wait in the queue for @p ms: epoll would report them again at once. */
static void pause_accepting(struct cddpi_listener *listener, struct cddpi_client_host *host,
                            uint32_t ms)
{
    cddpi_listener_watch(listener, host, false);
    listener->listen_again_ns = cddpi_deadline_ns(ms);
}

/* When @p client, which has proved nothing, counts as silent. */
static int64_t silent_from_ns(const struct cddpi_listener *listener,
                              const struct cddpi_client *client)
{
    int64_t patience_ms = (int64_t)listener->auth_timeout_ms - PROOF_MS;

    return client->auth_deadline_ns - patience_ms * 1000000;
}

int64_t cddpi_listener_drop_silent(struct cddpi_listener *listener, struct cddpi_client_host *host)
{
    while (host->authenticating.count > SILENT_MAX) {
        int64_t from_ns = silent_from_ns(listener, host->authenticating.first);

        if (cddpi_left_ms(from_ns) > 0) {
            return from_ns;
        }
        (void)drop_oldest(host);
    }
    return INT64_MAX;
}

/* False if accepting is over for now. */
static bool survive_accept_error(struct cddpi_listener *listener, struct cddpi_client_host *host,
                                 int error)
{
    if (error == EMFILE) {
        if (raise_file_limit() || drop_oldest(host)) {
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
        pause_accepting(listener, host, ACCEPT_PAUSE_MS);
        return false;
    }
    return true; /* the connection was gone already: the next one */
}

void cddpi_listener_accept(struct cddpi_listener *listener, struct cddpi_client_host *host)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd;

        if (host->authenticating.count >= NEW_MAX) { /* they are as new: no one pushes them out */
            pause_accepting(listener, host, CROWD_PAUSE_MS);
            return;
        }
        fd = cddpi_own_fd(accept4(listener->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0) {
            admit(listener, host, fd);
        } else if (!survive_accept_error(listener, host, errno)) {
            return;
        }
    }
}
