/* server_listener.c - owns the functions with which base/listener.h handles the store's clients,
 * and the list of clients that the server has refused. Clients that have not proved the token are
 * strangers. */
#include "store/server_client.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    SILENT_MAX = 400, /* most clients whose proof is overdue */
    NEW_MAX = 4096    /* most clients without a proof */
};

static int count(void *context)
{
    const struct cddpi_server_listener *listener = context;

    return (int)listener->host->authenticating.count;
}

static int64_t oldest_ns(void *context)
{
    const struct cddpi_server_listener *listener = context;

    return listener->host->authenticating.first->auth_deadline_ns -
           listener->auth_timeout_ms * INT64_C(1000000);
}

static bool drop_oldest(void *context)
{
    struct cddpi_client_host *host = ((struct cddpi_server_listener *)context)->host;

    while (host->authenticating.first != NULL) {
        struct cddpi_client *oldest = host->authenticating.first;

        cddpi_client_event(host, oldest, EPOLLIN);
        if (!oldest->authenticated) {
            cddpi_client_close(host, oldest); /* no effect if already closed */
            return true;
        }
    }
    return false;
}

static void take(void *context, int fd, const struct sockaddr_storage *address)
{
    struct cddpi_server_listener *listener = context;

    (void)address;
    cddpi_client_accept(listener->host, fd, cddpi_deadline_ns(listener->auth_timeout_ms));
}

static void reject(void *context, int fd)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];
    uint8_t nonce[CDDPI_NONCE_BYTES] = {0};

    (void)context;
    cddpi_client_hello(hello, CDDPI_WIRE_FULL, nonce);
    (void)send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
    cddpi_own_fd_close(fd);
}

static void watch(void *context, bool on)
{
    struct cddpi_server_listener *listener = context;
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &listener->base.listen_fd};

    (void)epoll_ctl(listener->host->epoll_fd, EPOLL_CTL_MOD, listener->base.listen_fd, &event);
}

static const struct cddpi_listener_ops ops = {count, oldest_ns, drop_oldest, take, reject, watch};

void cddpi_server_listener_init(struct cddpi_server_listener *listener,
                                struct cddpi_client_host *host, uint32_t auth_timeout_ms,
                                int reserved)
{
    *listener = (struct cddpi_server_listener){.base = {.ops = &ops,
                                                        .context = listener,
                                                        .what = "store server",
                                                        .listen_fd = -1,
                                                        .spare_fd = -1,
                                                        .silent_max = SILENT_MAX,
                                                        .new_max = NEW_MAX,
                                                        .reserved = reserved},
                                               .host = host,
                                               .auth_timeout_ms = auth_timeout_ms};
}

enum { LOGGED = 20 };

static const char *const texts[] = {
    [CDDPI_REFUSED_TOKEN] = "it does not know the job's token",
    [CDDPI_REFUSED_VERSION] = "it speaks another version of the protocol",
    [CDDPI_REFUSED_CIPHER] = "CDDP_CIPHER leaves no cipher that both sides can use",
};

const char *cddpi_refused_text(enum cddpi_refused why)
{
    return texts[why];
}

/* Get the client's address without the port, which differs with each connection. */
static void get_address(int fd, char *out, size_t bytes)
{
    static const char of_v4[] = "::ffff:";
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;

    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0 ||
        getnameinfo((struct sockaddr *)&address, length, out, (socklen_t)bytes, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        snprintf(out, bytes, "unknown address");
    } else if (strncmp(out, of_v4, strlen(of_v4)) == 0) {
        memmove(out, out + strlen(of_v4), strlen(out) + 1 - strlen(of_v4));
    }
}

void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why)
{
    struct cddpi_store_refusal row = {.why = why, .count = 1, .last_ns = cddpi_now_ns()};
    int at = 0;

    get_address(fd, row.address, sizeof row.address);
    while (at < refusals->count && (refusals->rows[at].why != why ||
                                    strcmp(refusals->rows[at].address, row.address) != 0)) {
        at++;
    }
    if (at < refusals->count) {
        row.count += refusals->rows[at].count;
    } else {
        if (refusals->logged++ < LOGGED) {
            cddpi_log(CDDPI_LOG_WARN, "store server: refused a client from %s: %s", row.address,
                      texts[why]);
        }
        if (refusals->count < CDDPI_STORE_REFUSALS) {
            refusals->count++;
        } else {
            at--; /* replace the oldest row */
        }
    }
    memmove(&refusals->rows[1], &refusals->rows[0], (size_t)at * sizeof refusals->rows[0]);
    refusals->rows[0] = row;
}
