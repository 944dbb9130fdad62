/* control.c - owns the control connections. They carry only aborts and goodbyes. While those
 * between leaders are idle, the kernels' keepalive probes show whether the hosts are alive. A host
 * that does not answer for CDDP_HEARTBEAT_MS is lost (base/silence.h); a stopped or slow process on
 * a host that answers is not. Everything is called with the lock held.
 *
 * A failure spreads faster than its consequences: a rank whose group fails tells all ranks that it
 * is connected to before it closes anything, and whoever sees a connection end first reads what
 * was told. */
#include "group/net/tcp/tcp.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GOODBYE_MS = 200 };

static void watch(struct tcp_carrier *tcp, struct tcp_control *control, int how, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = control};

    (void)epoll_ctl(tcp->net_epoll_fd, how, control->stream.fd, &event);
}

static void close_control(struct tcp_carrier *tcp, struct tcp_control *control)
{
    if (control->is_open) {
        control->is_open = false;
        (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_DEL, control->stream.fd, NULL);
        /* a forked child may have a copy of the descriptor */
        (void)shutdown(control->stream.fd, SHUT_RDWR);
        cddpi_own_fd_close(control->stream.fd);
    }
}

/* Send the waiting data. Errors are noticed when receiving. */
static void flush(struct tcp_carrier *tcp, struct tcp_control *control)
{
    bool blocked = false;

    while (control->out_begin < control->out_end && !blocked) {
        struct iovec parts[2] = {
            {control->out->data + control->out_begin, control->out_end - control->out_begin},
            {NULL, 0}};
        ssize_t sent = cddpi_stream_send(&control->stream, parts);

        if (sent > 0) {
            control->out_begin += (size_t)sent;
        } else {
            blocked = true;
        }
    }
    blocked = !cddpi_stream_flush(&control->stream) || blocked;
    blocked = blocked && (errno == EAGAIN || errno == EWOULDBLOCK);
    watch(tcp, control, EPOLL_CTL_MOD, EPOLLIN | (blocked ? EPOLLOUT : 0));
    if (control->out_begin == control->out_end) {
        control->out_begin = control->out_end = 0;
        cddpi_tcp_buffer_put(&tcp->control_buffers, &control->out);
    }
    cddpi_stream_rest(&control->stream);
}

/* Send a message completely or, if the peer has taken nothing for long or there is no memory, not
 * at all. */
static void say(struct tcp_carrier *tcp, struct tcp_control *control, const uint8_t *data,
                size_t bytes)
{
    if (!control->is_open ||
        cddpi_tcp_buffer_take(&tcp->control_buffers, &control->out) != CDDP_OK) {
        return;
    }
    memmove(control->out->data, control->out->data + control->out_begin,
            control->out_end - control->out_begin);
    control->out_end -= control->out_begin;
    control->out_begin = 0;
    if (bytes <= sizeof control->out->data - control->out_end) {
        memcpy(control->out->data + control->out_end, data, bytes);
        control->out_end += bytes;
    }
    flush(tcp, control);
}

/* The next pair from @p rank on that has a control connection; NULL: there are no more. */
static struct tcp_pair *next_pair(const struct tcp_carrier *tcp, int *rank)
{
    while (*rank < tcp->params.world_size) {
        struct tcp_pair *pair = tcp->pairs[(*rank)++];

        if (pair != NULL && pair->control != NULL) {
            return pair;
        }
    }
    return NULL;
}

static void send_abort(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    uint8_t message[TCP_CONTROL_MAX_BYTES];

    say(tcp, pair->control, message, cddpi_tcp_abort_put(&tcp->own_abort, message));
}

/* Pass another host's abort on to those that may not know it, and would otherwise see this rank end
 * first. A leader has told all leaders. */
static void pass_on(struct tcp_carrier *tcp, const struct tcp_pair *from)
{
    struct tcp_pair *pair;

    tcp->own_abort = tcp->abort_failure;
    tcp->has_own_abort = true;
    for (int rank = 0; (pair = next_pair(tcp, &rank)) != NULL;) {
        if (pair != from && !(from->leads && pair->leads)) {
            send_abort(tcp, pair);
        }
    }
}

static void get_abort(struct tcp_carrier *tcp, struct tcp_pair *pair, const uint8_t *data)
{
    struct cddpi_failure failure;

    if (!cddpi_tcp_abort_get(data, &failure)) {
        cddpi_tcp_pair_lost(tcp, pair, "sent a failure that makes no sense");
        return;
    }
    if (!atomic_load(&tcp->is_aborted)) {
        tcp->abort_failure = failure;
        atomic_store(&tcp->is_aborted, true);
        tcp->needs_wake = true;
        if (!tcp->has_own_abort) {
            pass_on(tcp, pair);
        }
    }
}

/* Handle the complete messages. */
static void parse(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    struct tcp_control *control = pair->control;
    size_t at = 0;

    for (;;) {
        const uint8_t *message = control->in->data + at;
        int bytes = cddpi_tcp_control_bytes(message, control->in_bytes - at);

        if (bytes < 0) {
            cddpi_tcp_pair_lost(tcp, pair, "sent what is no control message");
            close_control(tcp, control);
            return;
        }
        if (bytes == 0 || (size_t)bytes > control->in_bytes - at) {
            break;
        }
        if (message[0] == TCP_CONTROL_ABORT) {
            get_abort(tcp, pair, message);
        } else if (message[0] == TCP_CONTROL_GOODBYE) {
            atomic_store(&pair->left, true);
        }
        at += (size_t)bytes;
    }
    memmove(control->in->data, control->in->data + at, control->in_bytes - at);
    control->in_bytes -= at;
}

static void host_is_lost(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    cddpi_tcp_pair_lost(tcp, pair,
                        "cannot be reached any more: its host has not answered for %.1f s, and may "
                        "be silent for %g s (CDDP_HEARTBEAT_MS)",
                        cddpi_silence_seconds(pair->control->stream.fd), tcp->limit_ms / 1000.0);
}

/* A peer has ended without a word. If it is not its host's leader, the leader knows how it ended,
 * and soon tells. */
static void ended(struct tcp_carrier *tcp, struct tcp_pair *pair, int error)
{
    cddpi_tcp_pair_suspect(tcp, pair, "");
    snprintf(pair->suspicion, sizeof pair->suspicion,
             "has ended without leaving the group: the connection was %s",
             error == 0 ? "closed" : "reset");
    if (pair->leads) {
        cddpi_tcp_pair_lost(tcp, pair, "%s", pair->suspicion);
    }
}

static void end_of_stream(struct tcp_carrier *tcp, struct tcp_pair *pair, int error)
{
    if (atomic_load(&pair->left)) {
        close_control(tcp, pair->control);
        return;
    }
    if (error == 0 || error == ECONNRESET || error == EPIPE) {
        ended(tcp, pair, error);
    } else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
        host_is_lost(tcp, pair);
    } else {
        cddpi_tcp_pair_lost(tcp, pair, "is lost: %s",
                            error == EBADMSG ? "what came was changed on the way"
                                             : strerror(error));
    }
    close_control(tcp, pair->control);
}

/* Receive what has arrived. False: there is no more for now. */
static bool receive(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    struct tcp_control *control = pair->control;
    struct iovec parts[2] = {{NULL, 0}, {NULL, 0}};
    ssize_t got;

    if (cddpi_tcp_buffer_take(&tcp->control_buffers, &control->in) != CDDP_OK) {
        cddpi_tcp_pair_failed(tcp, pair, CDDP_ERR_NO_MEMORY,
                              "there is no memory for what it tells");
        close_control(tcp, control);
        return false;
    }
    parts[0].iov_base = control->in->data + control->in_bytes;
    parts[0].iov_len = TCP_CONTROL_MAX_BYTES - control->in_bytes;
    got = cddpi_stream_recv(&control->stream, parts);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return false;
    }
    if (got <= 0) {
        end_of_stream(tcp, pair, got < 0 ? errno : 0);
        return false;
    }
    control->in_bytes += (size_t)got;
    atomic_store(&pair->heard_ns, cddpi_now_ns());
    parse(tcp, pair);
    return true;
}

void cddpi_tcp_control_event(struct tcp_carrier *tcp, struct tcp_pair *pair, uint32_t events)
{
    struct tcp_control *control = pair->control;

    if (control->is_open && (events & EPOLLOUT) != 0) {
        flush(tcp, control);
    }
    while (control->is_open && receive(tcp, pair)) {
        continue;
    }
    if (control->in_bytes == 0) {
        cddpi_tcp_buffer_put(&tcp->control_buffers, &control->in);
    }
    cddpi_stream_rest(&control->stream); /* keeps the cost per host low: see tcp_buffer */
}

static void watch_for_ends(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    int fd = pair->control->stream.fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = pair->control};
    int priority = 6; /* ahead of data, in queues that support it */

    cddpi_silence_repeat(fd, CDDPI_SILENCE_MOST_MS);
    if (pair->leads) {
        cddpi_silence_watch(fd, tcp->limit_ms);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
    (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

bool cddpi_tcp_control_open(struct tcp_carrier *tcp, struct tcp_pair *pair,
                            const struct cddpi_store_stream *stream)
{
    struct tcp_control *control = cddpi_zalloc(sizeof *control);

    if (control == NULL) {
        return false;
    }
    control->watched = TCP_WATCHED_CONTROL;
    control->pair = pair;
    control->stream = *stream;
    control->is_open = true;
    pair->control = control;
    watch_for_ends(tcp, pair);
    if (tcp->has_own_abort) {
        send_abort(tcp, pair);
    }
    return true;
}

/* Check whether a peer's host answers. A peer that has left, or is known to be lost, is not
 * checked. */
static void look_at(struct tcp_carrier *tcp, struct tcp_pair *pair, int64_t now_ns)
{
    struct tcp_control *control = pair->control;

    if (pair->leads && control->is_open && !atomic_load(&pair->left) &&
        cddpi_silence_look_at(&control->silence, control->stream.fd, tcp->limit_ms, now_ns)) {
        host_is_lost(tcp, pair);
        close_control(tcp, control);
    }
}

/* Read what has been told and not been read, since this thread may come late. */
static void hear_all(struct tcp_carrier *tcp)
{
    struct tcp_pair *pair;

    for (int rank = 0; (pair = next_pair(tcp, &rank)) != NULL;) {
        cddpi_tcp_control_event(tcp, pair, 0);
    }
}

static int64_t due_ns(const struct tcp_pair *pair)
{
    return pair->suspected_ns +
           (atomic_load(&pair->left) ? TCP_GONE_MS : TCP_WHY_MS) * INT64_C(1000000);
}

/* After a connection broke, declare the peer lost, unless the reason arrives first. */
static void judge_suspicion(struct tcp_carrier *tcp, struct tcp_pair *pair, int64_t now_ns,
                            int64_t *next_ns)
{
    if (now_ns >= due_ns(pair)) {
        hear_all(tcp); /* a goodbye gives it more time */
    }
    if (now_ns < due_ns(pair)) {
        *next_ns = due_ns(pair) < *next_ns ? due_ns(pair) : *next_ns;
        return;
    }
    pair->suspected_ns = 0;
    if (atomic_load(&pair->left)) {
        pair->is_asked = true;
        cddpi_tcp_pair_show(tcp);
    } else {
        cddpi_tcp_pair_lost(tcp, pair, "%s", pair->suspicion);
    }
}

static const uint8_t goodbye = TCP_CONTROL_GOODBYE;

void cddpi_tcp_control_abort(struct tcp_carrier *tcp, const struct cddpi_failure *failure)
{
    struct tcp_pair *pair;

    tcp->own_abort = *failure;
    tcp->has_own_abort = true;
    for (int rank = 0; (pair = next_pair(tcp, &rank)) != NULL;) {
        send_abort(tcp, pair);
    }
}

/* Another rank of this host may have failed without a connection of its own. */
static void tell_of_host(struct tcp_carrier *tcp)
{
    struct cddpi_failure kept = *cddpi_last_failure();
    struct cddpi_failure failure;

    if (tcp->params.host_failed != NULL &&
        tcp->params.host_failed(tcp->params.wake_context, &failure)) {
        cddpi_tcp_control_abort(tcp, &failure);
    }
    (void)cddpi_fail_again((cddp_status)kept.status, &kept);
}

/* The program exits: hand the goodbyes to the kernel before it does. */
static void say_goodbye(struct tcp_carrier *tcp)
{
    struct tcp_pair *pair;

    tell_of_host(tcp);
    for (int rank = 0; (pair = next_pair(tcp, &rank)) != NULL;) {
        say(tcp, pair->control, &goodbye, 1);
    }
    atomic_store(&tcp->has_said_goodbye, true);
}

void cddpi_tcp_control_tick(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns)
{
    bool is_due = tcp->leads && now_ns >= tcp->next_look_ns;

    if (is_due) {
        tell_of_host(tcp);
    }
    if (atomic_load(&tcp->must_say_goodbye) && !atomic_load(&tcp->has_said_goodbye)) {
        say_goodbye(tcp);
    }
    if (is_due) {
        tcp->next_look_ns = now_ns + cddpi_silence_look_ms(tcp->limit_ms) * INT64_C(1000000);
    }
    if (tcp->leads && tcp->next_look_ns < *next_ns) {
        *next_ns = tcp->next_look_ns;
    }
    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        struct tcp_pair *pair = tcp->pairs[rank];

        if (is_due && pair != NULL && pair->control != NULL) {
            look_at(tcp, pair, now_ns);
        }
        if (pair != NULL && pair->is_missed) {
            cddpi_tcp_pair_left(tcp, pair);
        }
        if (pair != NULL && pair->suspected_ns != 0) {
            judge_suspicion(tcp, pair, now_ns, next_ns);
        }
    }
}

/* Wait briefly until the kernel has sent the messages. */
static void drain(struct tcp_control *control, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = control->stream.fd, .events = POLLOUT};

    for (;;) {
        size_t left = control->out_end - control->out_begin;
        struct iovec parts[2] = {{left > 0 ? control->out->data + control->out_begin : NULL, left},
                                 {NULL, 0}};
        ssize_t sent = parts[0].iov_len > 0 ? cddpi_stream_send(&control->stream, parts) : 0;

        if (sent > 0) {
            control->out_begin += (size_t)sent;
        } else if ((sent == 0 && cddpi_stream_flush(&control->stream)) ||
                   (errno != EAGAIN && errno != EWOULDBLOCK) ||
                   poll(&entry, 1, cddpi_left_ms(deadline_ns)) <= 0) {
            return;
        }
    }
}

void cddpi_tcp_control_goodbye(struct tcp_carrier *tcp)
{
    int64_t deadline_ns = cddpi_deadline_ns(GOODBYE_MS);
    struct tcp_pair *pair;

    tell_of_host(tcp);
    for (int rank = 0; (pair = next_pair(tcp, &rank)) != NULL;) {
        if (pair->control->is_open) {
            say(tcp, pair->control, &goodbye, 1);
            drain(pair->control, deadline_ns);
            (void)shutdown(pair->control->stream.fd, SHUT_WR);
        }
    }
}
