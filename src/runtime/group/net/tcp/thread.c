/* thread.c - owns the thread "cddp-net", which listens, and sleeps until there is work. All its
 * work is short and never waits, so other threads may take the lock at any time. */
#include "group/net/tcp/attempt.h"

#include "base/child.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    SILENT_MAX = 256,     /* maximum connections whose proof is overdue */
    STRANGERS_MAX = 1024, /* maximum connections without a proof: all leaders may connect at once */
    OWN_FILES = 64, /* descriptors that are left for the program, for example for checkpoints */
    STACK_BYTES = 256 << 10
};

/* Count the connections without a proof, for the listener, which the store uses, too. */
static int count_strangers(void *context)
{
    return ((const struct tcp_carrier *)context)->strangers;
}

static int64_t oldest_ns(void *context)
{
    return cddpi_tcp_attempts_oldest_ns(context);
}

static bool drop_oldest(void *context)
{
    return cddpi_tcp_attempts_drop_oldest(context);
}

static void take(void *context, int fd, const struct sockaddr_storage *address)
{
    struct tcp_carrier *tcp = context;
    struct sockaddr_storage local = {0};
    socklen_t bytes = sizeof local;

    if (getsockname(fd, (struct sockaddr *)&local, &bytes) != 0 ||
        cddpi_tcp_offer_find(&tcp->own, &local) == NULL) {
        cddpi_own_fd_close(fd); /* it came through an interface that CDDP_SOCKET_IFNAME excludes */
        return;
    }
    cddpi_tcp_attempt_accept(tcp, fd, address);
}

static void watch_listener(void *context, bool on)
{
    struct tcp_carrier *tcp = context;
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &tcp->watched_listener};

    (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_MOD, tcp->listener.listen_fd, &event);
}

/* Without "reject": peers that reconnect must be accepted in any case. */
static const struct cddpi_listener_ops listener_ops = {
    count_strangers, oldest_ns, drop_oldest, take, NULL, watch_listener};

void cddpi_tcp_listener_init(struct tcp_carrier *tcp)
{
    tcp->listener = (struct cddpi_listener){.ops = &listener_ops,
                                            .context = tcp,
                                            .what = "tcp",
                                            .listen_fd = -1,
                                            .spare_fd = -1,
                                            .silent_max = SILENT_MAX,
                                            .new_max = STRANGERS_MAX,
                                            .reserved = OWN_FILES};
}

/* Do what timers require. Returns the time until the next timer. With many hosts this takes a
 * while, so not every event is a reason to check all timers. */
static int handle_clocks(struct tcp_carrier *tcp)
{
    int64_t now_ns = cddpi_now_ns();
    int64_t next_ns = INT64_MAX;

    if (!tcp->has_news && now_ns < tcp->clocks_ns) {
        return tcp->clocks_ns == INT64_MAX ? -1 : cddpi_left_ms(tcp->clocks_ns);
    }
    tcp->has_news = false;
    next_ns = cddpi_listener_tick(&tcp->listener);
    cddpi_tcp_control_tick(tcp, now_ns, &next_ns);
    cddpi_tcp_pairs_connect(tcp, now_ns, &next_ns);
    tcp->clocks_ns = next_ns;
    return next_ns == INT64_MAX ? -1 : cddpi_left_ms(next_ns);
}

static void handle_event(struct tcp_carrier *tcp, const struct epoll_event *event)
{
    eventfd_t count;

    tcp->has_news = tcp->has_news || *(enum tcp_watched *)event->data.ptr != TCP_WATCHED_CONTROL;
    switch (*(enum tcp_watched *)event->data.ptr) {
    case TCP_WATCHED_WAKE:
        (void)eventfd_read(tcp->net_wake_fd, &count);
        break;
    case TCP_WATCHED_LISTENER:
        cddpi_listener_accept(&tcp->listener);
        break;
    case TCP_WATCHED_ATTEMPT:
        cddpi_tcp_attempt_event(tcp, event->data.ptr);
        break;
    case TCP_WATCHED_CONTROL:
        cddpi_tcp_control_event(tcp, ((struct tcp_control *)event->data.ptr)->pair, event->events);
        break;
    }
}

static void *run(void *argument)
{
    struct tcp_carrier *tcp = argument;
    struct epoll_event events[EVENTS];

    pthread_mutex_lock(&tcp->lock);
    while (!tcp->is_closing) {
        int timeout_ms = handle_clocks(tcp);
        bool needs_wake = tcp->needs_wake;
        int count;

        tcp->needs_wake = false;
        pthread_mutex_unlock(&tcp->lock);
        if (needs_wake) {
            tcp->params.wake(tcp->params.wake_context);
        }
        count = epoll_wait(tcp->net_epoll_fd, events, EVENTS, timeout_ms);
        pthread_mutex_lock(&tcp->lock);
        for (int i = 0; i < count && !tcp->is_closing; i++) {
            handle_event(tcp, &events[i]);
        }
    }
    pthread_mutex_unlock(&tcp->lock);
    return NULL;
}

static cddp_status add_to_epoll(struct tcp_carrier *tcp, int fd, enum tcp_watched *watched)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watched};

    if (epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: epoll");
    }
    return CDDP_OK;
}

/* The thread blocks all signals, which are for the program's own threads. */
static cddp_status create_thread(struct tcp_carrier *tcp)
{
    sigset_t all;
    sigset_t before;
    pthread_attr_t attributes;
    size_t stack = STACK_BYTES > PTHREAD_STACK_MIN ? STACK_BYTES : (size_t)PTHREAD_STACK_MIN;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, stack);
    error = pthread_create(&tcp->thread, &attributes, run, tcp);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, error, "tcp: start a thread");
    }
    (void)pthread_setname_np(tcp->thread, "cddp-net");
    tcp->has_thread = true;
    return CDDP_OK;
}

cddp_status cddpi_tcp_thread_start(struct tcp_carrier *tcp)
{
    tcp->watched_wake = TCP_WATCHED_WAKE;
    tcp->watched_listener = TCP_WATCHED_LISTENER;
    CDDPI_TRY(add_to_epoll(tcp, tcp->net_wake_fd, &tcp->watched_wake));
    CDDPI_TRY(add_to_epoll(tcp, tcp->listener.listen_fd, &tcp->watched_listener));
    return create_thread(tcp);
}

void cddpi_tcp_thread_stop(struct tcp_carrier *tcp)
{
    if (!tcp->has_thread) {
        return;
    }
    pthread_mutex_lock(&tcp->lock);
    tcp->is_closing = true;
    pthread_mutex_unlock(&tcp->lock);
    cddpi_tcp_wake(tcp);
    pthread_join(tcp->thread, NULL);
    tcp->has_thread = false;
}
