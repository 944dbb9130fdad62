/* socket.c - owns the epoll state and the loss of data connections, and lists of transfers. Only
 * the caller's thread calls this. */
#include "group/net/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

void cddpi_tcp_list_append(struct tcp_list *list, struct cddpi_transfer *transfer)
{
    tcp_progress(transfer)->next = NULL;
    if (list->last != NULL) {
        tcp_progress(list->last)->next = transfer;
    } else {
        list->first = transfer;
    }
    list->last = transfer;
}

void cddpi_tcp_list_remove(struct tcp_list *list, struct cddpi_transfer *transfer)
{
    struct cddpi_transfer *before = NULL;

    for (struct cddpi_transfer *at = list->first; at != NULL; at = tcp_progress(at)->next) {
        if (at == transfer) {
            if (before != NULL) {
                tcp_progress(before)->next = tcp_progress(at)->next;
            } else {
                list->first = tcp_progress(at)->next;
            }
            if (list->last == at) {
                list->last = before;
            }
            return;
        }
        before = at;
    }
}

void cddpi_tcp_socket_watch(struct tcp_carrier *tcp, struct tcp_socket *socket, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = socket};

    if (events != socket->events) {
        /* a socket that waits for nothing is removed: otherwise epoll would report the end of its
         * peer forever */
        (void)epoll_ctl(tcp->data_epoll_fd,
                        events == 0           ? EPOLL_CTL_DEL
                        : socket->events == 0 ? EPOLL_CTL_ADD
                                              : EPOLL_CTL_MOD,
                        socket->stream.fd, &event);
        socket->events = events;
    }
}

bool cddpi_tcp_link_has_transfers(const struct tcp_link *link)
{
    return link->sends.first != NULL || link->recvs.first != NULL;
}

void cddpi_tcp_socket_lost(struct tcp_carrier *tcp, struct tcp_socket *socket, int error)
{
    struct tcp_pair *pair = socket->pair;

    cddpi_tcp_socket_watch(tcp, socket, 0);
    socket->is_dead = true;
    if (atomic_load(&pair->left) && !cddpi_tcp_link_has_transfers(socket->link) &&
        !tcp_sends(socket)) {
        return;
    }
    pthread_mutex_lock(&tcp->lock);
    cddpi_tcp_pair_suspect(tcp, pair,
                           error == 0         ? "it closed the connection"
                           : error == EPROTO  ? "it sent data that make no sense"
                           : error == EBADMSG ? "what came was changed on the way"
                                              : strerror(error));
    pthread_mutex_unlock(&tcp->lock);
}
