/* ctl_clients.c - owns connections of cddp-ctl: accepts them, reads their requests, drops those
 * that are silent or send something else. */
#include "launcher/ctl/ctl_clients.h"

#include "launcher/ctl/ctl_folder.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The numbers of the epoll set: of a client its index. */
enum { FROM_SOCKET = CDDPI_CTL_CLIENTS, FROM_TIMER, AGAIN_MS = 1000 };

static bool watch(struct cddpi_ctl_clients *clients, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};

    return epoll_ctl(clients->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool cddpi_ctl_clients_init(struct cddpi_ctl_clients *clients, cddpi_ctl_take_fn take,
                            void *context)
{
    *clients = (struct cddpi_ctl_clients){
        .socket = {.fd = -1, .folder = -1}, .take = take, .context = context};
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        clients->list[i].fd = -1;
    }
    clients->epoll = epoll_create1(EPOLL_CLOEXEC);
    clients->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (clients->epoll >= 0 && clients->timer >= 0 && watch(clients, clients->timer, FROM_TIMER)) {
        return true;
    }
    cddpi_fd_close(&clients->epoll);
    cddpi_fd_close(&clients->timer);
    return false;
}

void cddpi_ctl_clients_fini(struct cddpi_ctl_clients *clients)
{
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        cddpi_fd_close(&clients->list[i].fd);
    }
    cddpi_ctl_folder_close(&clients->socket);
    cddpi_fd_close(&clients->timer);
    cddpi_fd_close(&clients->epoll);
}

cddp_status cddpi_ctl_clients_listen(struct cddpi_ctl_clients *clients, const char *dir,
                                     bool is_locked)
{
    if (clients->socket.fd >= 0 && !clients->is_full) { /* it may be closed now */
        (void)epoll_ctl(clients->epoll, EPOLL_CTL_DEL, clients->socket.fd, NULL);
    }
    clients->is_full = false;
    CDDPI_TRY(cddpi_ctl_folder_listen(dir, is_locked, &clients->socket));
    if (!watch(clients, clients->socket.fd, FROM_SOCKET)) {
        cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, errno, "watching a socket");

        cddpi_ctl_folder_close(&clients->socket);
        return status;
    }
    return CDDP_OK;
}

/* Take no more connections, or (@p is_full false) take them again. They wait meanwhile. */
static void set_full(struct cddpi_ctl_clients *clients, bool is_full)
{
    if (clients->is_full == is_full || clients->socket.fd < 0) {
        return;
    }
    clients->is_full = is_full;
    if (is_full) {
        (void)epoll_ctl(clients->epoll, EPOLL_CTL_DEL, clients->socket.fd, NULL);
    } else {
        (void)watch(clients, clients->socket.fd, FROM_SOCKET);
    }
}

static void drop(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client)
{
    cddpi_fd_close(&client->fd);
    client->waits = false;
    set_full(clients, false);
}

void cddpi_ctl_client_answer(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client,
                             const struct cddpi_ctl_answer *answer)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};

    if (cddpi_message_encode(&cddpi_ctl_answer_form, answer, &message) == CDDP_OK) {
        /* the first packet of this connection: there is room for it */
        (void)!send(client->fd, message.data, message.bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    cddpi_buffer_fini(&message);
    drop(clients, client);
}

bool cddpi_ctl_client_await(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client)
{
    int waiting = 0;

    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        waiting += clients->list[i].fd >= 0 && clients->list[i].waits;
    }
    client->waits = waiting < CDDPI_CTL_WAITING;
    return client->waits;
}

/* Tell a client that its request cannot be read. Without memory it is just dropped. */
static void refuse(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client,
                   const char *why)
{
    struct cddpi_ctl_answer *answer = cddpi_zalloc(sizeof *answer);

    if (answer == NULL) {
        drop(clients, client);
        return;
    }
    snprintf(answer->text, sizeof answer->text, "the request: %.900s", why);
    cddpi_ctl_client_answer(clients, client, answer);
    cddpi_free(answer);
}

static void read_client(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client)
{
    uint8_t data[CDDPI_CTL_REQUEST_BYTES + CDDPI_MESSAGE_HEAD_BYTES];
    ssize_t got = recv(client->fd, data, sizeof data, MSG_DONTWAIT | MSG_TRUNC);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0 || client->waits) { /* it has gone, or sends more than a request */
        drop(clients, client);
    } else if ((size_t)got > sizeof data) {
        refuse(clients, client, "it is too long");
    } else if (cddpi_message_decode(&cddpi_ctl_request_form, data, (size_t)got, &client->request) !=
               CDDP_OK) {
        refuse(clients, client, cddp_last_error());
    } else {
        clients->take(clients->context, client);
    }
}

static struct cddpi_ctl_client *free_slot(struct cddpi_ctl_clients *clients)
{
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        if (clients->list[i].fd < 0) {
            return &clients->list[i];
        }
    }
    return NULL;
}

/* The system has no descriptor or memory for a client that waits: do not try without a pause. */
static void pause_accepting(struct cddpi_ctl_clients *clients)
{
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        set_full(clients, true);
        clients->again_ns = cddpi_deadline_ns(AGAIN_MS);
    }
}

static void accept_clients(struct cddpi_ctl_clients *clients)
{
    for (;;) {
        struct cddpi_ctl_client *client = free_slot(clients);
        int fd;

        if (client == NULL) {
            set_full(clients, true);
            return;
        }
        fd = accept4(clients->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            pause_accepting(clients);
            return;
        }
        if (!cddpi_ctl_socket_is_own(fd) ||
            !watch(clients, fd, (uint32_t)(client - clients->list))) {
            close(fd);
            continue;
        }
        *client = (struct cddpi_ctl_client){.fd = fd,
                                            .deadline_ns = cddpi_deadline_ns(CDDPI_CTL_REQUEST_MS)};
    }
}

/* Drop clients that are late, and let the timer end at the next deadline. */
static void keep_deadlines(struct cddpi_ctl_clients *clients)
{
    int64_t now_ns = cddpi_now_ns();
    int64_t next_ns = 0;
    struct itimerspec when = {.it_value = {0, 0}};

    if (clients->again_ns != 0 && clients->again_ns <= now_ns) {
        clients->again_ns = 0;
        set_full(clients, false);
    }
    next_ns = clients->again_ns;
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        struct cddpi_ctl_client *client = &clients->list[i];

        if (client->fd < 0 || client->waits) {
            continue;
        }
        if (client->deadline_ns <= now_ns) {
            drop(clients, client);
        } else if (next_ns == 0 || client->deadline_ns < next_ns) {
            next_ns = client->deadline_ns;
        }
    }
    when.it_value.tv_sec = next_ns / 1000000000;
    when.it_value.tv_nsec = next_ns % 1000000000;
    (void)timerfd_settime(clients->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void cddpi_ctl_clients_serve(struct cddpi_ctl_clients *clients)
{
    struct epoll_event events[CDDPI_CTL_CLIENTS + 2];
    int count = epoll_wait(clients->epoll, events, CDDPI_CTL_CLIENTS + 2, 0);

    for (int i = 0; i < count; i++) {
        uint32_t number = events[i].data.u32;

        if (number < CDDPI_CTL_CLIENTS && clients->list[number].fd >= 0) {
            read_client(clients, &clients->list[number]);
        } else if (number == FROM_SOCKET) {
            accept_clients(clients);
        }
    }
    if (count > 0) {
        keep_deadlines(clients);
    }
}
