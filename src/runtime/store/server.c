/* server.c - owns the TCP store's server: it binds, accepts, and runs the one thread that serves
 * all clients. server_client.c has the connections. */
#include "store/server.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interface.h"
#include "base/log.h"
#include "store/auth.h"
#include "store/server_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 256,
    AUTH_TIMEOUT_MS = 20000,
    QUEUE = 1 << 14 /* listen() backlog; the kernel limits it to net.core.somaxconn */
};

struct cddpi_store_server {
    struct cddpi_client_host host;
    pthread_mutex_t lock; /* guards host: the thread releases it only while it waits for events */
    pthread_t thread;
    bool running;
    bool everywhere; /* listens on all interfaces */
    pid_t owner;     /* the process that has the thread; a forked process does not */
    struct cddpi_server_listener listener;
    int stop_fd; /* eventfd: a write ends the thread */
};

/* Bind @p fd, listen, and get the port. Returns 0 or an errno. */
static int bind_and_listen(int fd, const struct addrinfo *address, uint16_t *out_port)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    int on = 1;
    int off = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, QUEUE) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        return errno;
    }
    *out_port = ntohs(bound.ss_family == AF_INET6
                          ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                          : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    return 0;
}

/* Even on loopback a token is required: all users of the machine can connect to it. */
static cddp_status check_token(const struct addrinfo *address, const char *host, const char *token)
{
    char what[300];

    if (token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "store server: listening at %s needs a token: other users and other "
                          "machines may connect",
                          host);
    }
    snprintf(what, sizeof what, "store server: address %s", host);
    return cddpi_address_is_loopback(address->ai_addr) ? CDDP_OK : cddpi_token_check(token, what);
}

/* Listen on the first of @p addresses that works. Returns 0 or the last address's errno. */
static int listen_on(struct cddpi_store_server *server, const struct addrinfo *addresses)
{
    int error = EADDRNOTAVAIL;

    for (const struct addrinfo *a = addresses; a != NULL && error != 0; a = a->ai_next) {
        int fd = cddpi_own_fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

        error = fd < 0 ? errno : bind_and_listen(fd, a, &server->listener.base.port);
        if (error == 0) {
            server->listener.base.listen_fd = fd;
        } else {
            cddpi_own_fd_close(fd);
        }
    }
    return error;
}

/* Listen on "::", which accepts IPv4, too; on 0.0.0.0 if the kernel has no IPv6. */
static int listen_everywhere(struct cddpi_store_server *server, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct addrinfo second = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)(void *)&v4, .ai_addrlen = sizeof v4};
    struct addrinfo first = {.ai_family = AF_INET6,
                             .ai_addr = (struct sockaddr *)(void *)&v6,
                             .ai_addrlen = sizeof v6,
                             .ai_next = &second};

    server->everywhere = true;
    return listen_on(server, &first);
}

/* Why clients on other hosts could not reach this server if it bound @p host; NULL if they could.
 * @p error: of getaddrinfo(). */
static const char *unreachable(const char *host, const struct addrinfo *addresses, int error)
{
    struct in6_addr numeric;

    if (inet_pton(AF_INET, host, &numeric) == 1 || inet_pton(AF_INET6, host, &numeric) == 1) {
        return NULL; /* an explicit address is bound as it is */
    }
    if (error != 0) {
        return gai_strerror(error);
    }
    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        if (!cddpi_address_is_loopback(a->ai_addr)) {
            return NULL;
        }
    }
    return "here it means this machine's loopback";
}

static cddp_status bind_host(struct cddpi_store_server *server,
                             const struct cddpi_store_server_options *options, const char *host,
                             const char *token, const struct addrinfo *addresses)
{
    int error;

    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        CDDPI_TRY(check_token(a, host, token));
    }
    error = strcmp(host, "::") == 0 ? listen_everywhere(server, options->port)
                                    : listen_on(server, addresses);
    if (error == EADDRNOTAVAIL && options->other_hosts &&
        cddpi_token_check(token, "store server: all addresses") == CDDP_OK) {
        /* for example the address of a Kubernetes service that forwards to this machine */
        cddpi_log(CDDPI_LOG_WARN,
                  "store server: %s is not an address of this machine, so it listens on all "
                  "interfaces, port %u",
                  host, options->port);
        error = listen_everywhere(server, options->port);
    }
    return error == 0 ? CDDP_OK
                      : cddpi_fail_errno(CDDP_ERR_IO, error, "store server: listen on %s port %u",
                                         host, options->port);
}

static cddp_status bind_everywhere(struct cddpi_store_server *server, const char *host,
                                   uint16_t port, const char *token, const char *why)
{
    char what[600];
    int error;

    snprintf(what, sizeof what, "store server: clients on other hosts come to %s (%s)", host, why);
    CDDPI_TRY(cddpi_token_check(token, what));
    cddpi_log(CDDPI_LOG_WARN, "store server: %s: %s, so it listens on all interfaces, port %u",
              host, why, port);
    error = listen_everywhere(server, port);
    return error == 0 ? CDDP_OK
                      : cddpi_fail_errno(CDDP_ERR_IO, error,
                                         "store server: listen on all interfaces, port %u", port);
}

static cddp_status start_listening(struct cddpi_store_server *server,
                                   const struct cddpi_store_server_options *options,
                                   const char *host, const char *token)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    const char *why = NULL;
    char service[8];
    int error;
    cddp_status status;

    snprintf(service, sizeof service, "%u", options->port);
    error = getaddrinfo(host, service, &hints, &addresses);
    if (options->other_hosts) {
        why = unreachable(host, addresses, error);
    }
    if (why != NULL) {
        status = bind_everywhere(server, host, options->port, token, why);
    } else if (error != 0) {
        status = cddpi_fail(CDDP_ERR_IO, "store server: address %s: %s", host, gai_strerror(error));
    } else {
        status = bind_host(server, options, host, token, addresses);
    }
    if (error == 0) {
        freeaddrinfo(addresses);
    }
    return status;
}

/* Drop clients that did not prove the token in time. Returns the milliseconds until the next
 * deadline; -1: there is no deadline. */
static int handle_clocks(struct cddpi_store_server *server)
{
    int64_t next = cddpi_listener_tick(&server->listener.base);

    while (server->host.authenticating.first != NULL) {
        struct cddpi_client *oldest = server->host.authenticating.first;

        if (cddpi_left_ms(oldest->auth_deadline_ns) > 0) {
            next = oldest->auth_deadline_ns < next ? oldest->auth_deadline_ns : next;
            break;
        }
        cddpi_client_close(&server->host, oldest);
    }
    return next == INT64_MAX ? -1 : cddpi_left_ms(next);
}

static void *serve(void *argument)
{
    struct cddpi_store_server *server = argument;
    struct epoll_event events[EVENTS];

    pthread_mutex_lock(&server->lock);
    for (;;) {
        int timeout_ms = handle_clocks(server);
        bool has_callers = false;
        int count;

        cddpi_client_reap(&server->host);
        pthread_mutex_unlock(&server->lock);
        count = epoll_wait(server->host.epoll_fd, events, EVENTS, timeout_ms);
        pthread_mutex_lock(&server->lock);
        /* events may be for a client that cddpi_store_server_set() has closed meanwhile: it still
         * exists, since only this thread frees clients */
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &server->stop_fd) {
                pthread_mutex_unlock(&server->lock);
                return NULL;
            }
            if (events[i].data.ptr == &server->listener.base.listen_fd) {
                has_callers = true;
            } else {
                cddpi_client_event(&server->host, events[i].data.ptr, events[i].events);
            }
        }
        if (has_callers) { /* last: accepting may drop a client that has an event in this batch */
            cddpi_listener_accept(&server->listener.base);
        }
    }
}

static cddp_status make_loop(struct cddpi_store_server *server)
{
    struct epoll_event listen_event = {.events = EPOLLIN,
                                       .data.ptr = &server->listener.base.listen_fd};
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &server->stop_fd};

    server->host.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listener.base.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->host.epoll_fd < 0 || server->stop_fd < 0 || server->listener.base.spare_fd < 0 ||
        epoll_ctl(server->host.epoll_fd, EPOLL_CTL_ADD, server->listener.base.listen_fd,
                  &listen_event) != 0 ||
        epoll_ctl(server->host.epoll_fd, EPOLL_CTL_ADD, server->stop_fd, &stop) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "store server: event loop");
    }
    return CDDP_OK;
}

/* Start the thread with all signals blocked: they are for the program's own threads. */
cddp_status cddpi_store_server_start(struct cddpi_store_server *server)
{
    sigset_t all;
    sigset_t before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, error, "store server: thread");
    }
    (void)pthread_setname_np(server->thread, "cddp-store");
    server->running = true;
    return CDDP_OK;
}

cddp_status cddpi_store_server_create(const struct cddpi_store_server_options *options,
                                      struct cddpi_store_server **out)
{
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    const char *token = options->token != NULL ? options->token : "";
    struct cddpi_store_server *server = cddpi_zalloc(sizeof *server);
    bool encrypts_data;
    cddp_status status;

    CDDPI_TRY_MEMORY(server != NULL, "store server: no memory");
    (void)pthread_mutex_init(&server->lock, NULL); /* cannot fail: no attributes */
    server->owner = getpid();
    server->stop_fd = -1;
    server->host.epoll_fd = -1;
    cddpi_server_listener_init(&server->listener, &server->host,
                               options->auth_timeout_ms > 0 ? options->auth_timeout_ms
                                                            : AUTH_TIMEOUT_MS,
                               options->reserved);
    status = cddpi_encryption(token, &encrypts_data);
    if (status == CDDP_OK) {
        status = cddpi_ciphers(&server->host.ciphers);
    }
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status, "store server");
        goto fail;
    }
    cddpi_store_key(token, server->host.key);
    server->host.table = cddpi_table_create();
    if (server->host.table == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "store server: no memory");
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, start_listening(server, options, host, token));
    CDDPI_TRY_GOTO(fail, status, make_loop(server));
    if (!options->later) {
        CDDPI_TRY_GOTO(fail, status, cddpi_store_server_start(server));
    }
    *out = server;
    return CDDP_OK;

fail:
    cddpi_store_server_destroy(server);
    return status;
}

void cddpi_store_server_destroy(struct cddpi_store_server *server)
{
    bool forked;

    if (server == NULL) {
        return;
    }
    forked = server->owner != getpid();
    if (!forked) {
        if (server->running) {
            uint64_t one = 1;

            (void)!write(server->stop_fd, &one, sizeof one);
            pthread_join(server->thread, NULL);
        }
        /* ends connections in the backlog, even if a forked process has a copy of the descriptor */
        if (server->listener.base.listen_fd >= 0) {
            (void)shutdown(server->listener.base.listen_fd, SHUT_RDWR);
        }
        while (server->host.authenticating.first != NULL) {
            cddpi_client_close(&server->host, server->host.authenticating.first);
        }
        while (server->host.authenticated.first != NULL) {
            cddpi_client_close(&server->host, server->host.authenticated.first);
        }
        cddpi_client_reap(&server->host);
        cddpi_table_destroy(server->host.table);
    }
    /* A forked process leaks the clients and the table: fork may have copied them half changed. */
    cddpi_own_fd_close(server->listener.base.listen_fd);
    cddpi_own_fd_close(server->stop_fd);
    cddpi_own_fd_close(server->listener.base.spare_fd);
    cddpi_own_fd_close(server->host.epoll_fd);
    if (!forked) {
        pthread_mutex_destroy(&server->lock);
        sodium_memzero(server->host.key, sizeof server->host.key);
        cddpi_free(server);
    }
}

cddp_status cddpi_store_server_set(struct cddpi_store_server *server, const char *key,
                                   const void *value, size_t bytes)
{
    struct cddpi_slice whole = {(const uint8_t *)key, strlen(key)};
    bool done;

    if (whole.bytes == 0 || whole.bytes > CDDPI_STORE_FULL_KEY_BYTES ||
        bytes > CDDP_STORE_VALUE_BYTES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "store server: set of a key of %zu bytes and a value of %zu; at most %d "
                          "and %d",
                          whole.bytes, bytes, CDDPI_STORE_FULL_KEY_BYTES, CDDP_STORE_VALUE_BYTES);
    }
    if (server->owner != getpid()) {
        return cddpi_fail(CDDP_ERR_STATE, "store server: set in process %d; it is process %d's",
                          (int)getpid(), (int)server->owner);
    }
    pthread_mutex_lock(&server->lock);
    done = cddpi_client_set(&server->host, whole, (struct cddpi_slice){value, bytes});
    pthread_mutex_unlock(&server->lock);
    return done ? CDDP_OK
                : cddpi_fail(CDDP_ERR_NO_MEMORY, "store server: no memory for \"%s\"", key);
}

void cddpi_store_server_forget(struct cddpi_store_server *server, const char *start)
{
    pthread_mutex_lock(&server->lock);
    cddpi_table_forget(server->host.table,
                       (struct cddpi_slice){(const uint8_t *)start, strlen(start)});
    pthread_mutex_unlock(&server->lock);
}

void cddpi_store_server_reserve(struct cddpi_store_server *server, int descriptors)
{
    pthread_mutex_lock(&server->lock);
    while (descriptors > server->listener.base.reserved &&
           server->host.authenticating.first != NULL) {
        cddpi_client_close(&server->host, server->host.authenticating.first);
    }
    server->listener.base.reserved = descriptors;
    pthread_mutex_unlock(&server->lock);
}

void cddpi_store_server_served(struct cddpi_store_server *server, struct cddpi_store_served *out)
{
    pthread_mutex_lock(&server->lock);
    *out = server->host.served;
    pthread_mutex_unlock(&server->lock);
}

bool cddpi_store_server_has_clients(struct cddpi_store_server *server)
{
    bool has;

    pthread_mutex_lock(&server->lock);
    has = server->host.authenticated.first != NULL;
    pthread_mutex_unlock(&server->lock);
    return has;
}

int cddpi_store_server_refusals(struct cddpi_store_server *server,
                                struct cddpi_store_refusal out[CDDPI_STORE_REFUSALS])
{
    int count;

    pthread_mutex_lock(&server->lock);
    count = server->host.refusals.count;
    memcpy(out, server->host.refusals.rows, (size_t)count * sizeof *out);
    pthread_mutex_unlock(&server->lock);
    return count;
}

bool cddpi_store_server_is_everywhere(const struct cddpi_store_server *server)
{
    return server->everywhere;
}

uint16_t cddpi_store_server_port(const struct cddpi_store_server *server)
{
    return server->listener.base.port;
}
