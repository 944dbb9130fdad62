/* tcp_health.c - answers questions about peers, and notifies them when this rank fails. Any
 * thread. */
#include "group/net/tcp/tcp.h"

#include "base/clock.h"
#include "group/net/tcp/attempt.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWERS_S = 2, /* the host is probed once per second */
    EXIT_MS = 100  /* how long exit() waits until the goodbyes are sent */
};

cddp_status cddpi_tcp_check(struct cddpi_carrier *carrier)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    if (!atomic_load(&tcp->has_failed)) {
        return CDDP_OK;
    }
    return cddpi_fail_again((cddp_status)tcp->failure.status, &tcp->failure);
}

/* Only for a leader of a host is this known. */
static void describe_host(const struct tcp_pair *pair, char *out, size_t bytes)
{
    double silent_s;

    if (!pair->leads || pair->control == NULL || !pair->control->is_open) {
        return;
    }
    silent_s = cddpi_silence_seconds(pair->control->stream.fd);
    if (silent_s < ANSWERS_S) {
        snprintf(out, bytes, "; its host answers");
    } else {
        snprintf(out, bytes, "; its host has not answered for %.1f s", silent_s);
    }
}

void cddpi_tcp_describe(struct cddpi_carrier *carrier, int peer, char *out, size_t bytes)
{
    struct tcp_carrier *tcp = tcp_of(carrier);
    const struct tcp_pair *pair;
    char name[TCP_TEXT_BYTES];
    size_t length = strlen(out);

    out += length;
    bytes -= length;
    pthread_mutex_lock(&tcp->lock);
    pair = tcp->pairs[peer];
    if (pair == NULL || pair->filled == 0) {
        snprintf(out, bytes, "rank %d on host %s is not connected%s%s", peer,
                 tcp->offers[peer].host, pair != NULL && pair->search != NULL ? " yet: " : "",
                 pair != NULL && pair->search != NULL ? pair->search->last : "");
    } else {
        cddpi_tcp_pair_name(pair, name, sizeof name);
        snprintf(out, bytes, "%s, last heard of %.1f s ago", name,
                 (double)(cddpi_now_ns() - atomic_load(&pair->heard_ns)) * 1e-9);
        describe_host(pair, out + strlen(out), bytes - strlen(out));
    }
    pthread_mutex_unlock(&tcp->lock);
}

void cddpi_tcp_abort(struct cddpi_carrier *carrier, const struct cddpi_failure *failure)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    if (tcp->owner != getpid()) {
        return; /* a forked child: the group belongs to its parent */
    }
    pthread_mutex_lock(&tcp->lock);
    cddpi_tcp_control_abort(tcp, failure);
    pthread_mutex_unlock(&tcp->lock);
}

bool cddpi_tcp_aborted(struct cddpi_carrier *carrier, struct cddpi_failure *out)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    if (!atomic_load(&tcp->is_aborted)) {
        return false;
    }
    *out = tcp->abort_failure;
    return true;
}

/* Does not lock: exit() may be called anywhere, even with the lock held. */
void cddpi_tcp_exits(struct cddpi_carrier *carrier)
{
    struct tcp_carrier *tcp = tcp_of(carrier);
    int64_t deadline_ns = cddpi_deadline_ns(EXIT_MS);
    const struct timespec moment = {0, 200000};

    if (!tcp->has_thread || tcp->owner != getpid()) {
        return;
    }
    atomic_store(&tcp->must_say_goodbye, true);
    cddpi_tcp_wake(tcp);
    while (!atomic_load(&tcp->has_said_goodbye) && cddpi_now_ns() < deadline_ns) {
        (void)nanosleep(&moment, NULL);
    }
}

/* Find it from this host's end of a connection to another leader. */
static const struct tcp_address *find_way(const struct tcp_carrier *tcp)
{
    const struct tcp_address *found = NULL;

    for (int peer = 0; peer < tcp->params.world_size && found == NULL; peer++) {
        const struct tcp_pair *pair = tcp->pairs[peer];
        struct sockaddr_storage local;
        socklen_t bytes = sizeof local;

        if (pair != NULL && pair->control != NULL && pair->control->is_open &&
            getsockname(pair->control->stream.fd, (void *)&local, &bytes) == 0) {
            found = cddpi_tcp_offer_find(&tcp->own, &local);
        }
    }
    return found;
}

static bool leads_to_all(const struct tcp_carrier *tcp, const struct tcp_address *address)
{
    for (int peer = 0; peer < tcp->params.world_size; peer++) {
        if (tcp->pairs[peer] != NULL && !cddpi_tcp_offer_is_near(&tcp->offers[peer], address)) {
            return false;
        }
    }
    return true;
}

/* Add a name to the list "eth0,eth1", unless it is there, or has no room. */
static void add_interface(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);
    size_t length = strlen(name);

    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')) {
            return;
        }
    }
    if (used + 1 + length < bytes) {
        snprintf(list + used, bytes - used, "%s%s", used > 0 ? "," : "", name);
    }
}

/* The way that is used comes first, then others that are as fast: a host may have several. */
bool cddpi_tcp_interfaces(struct cddpi_carrier *carrier, char *out, size_t bytes)
{
    struct tcp_carrier *tcp = tcp_of(carrier);
    const struct tcp_address *way;

    pthread_mutex_lock(&tcp->lock);
    way = find_way(tcp);
    out[0] = '\0';
    if (way != NULL) {
        add_interface(out, bytes, way->interface);
    }
    for (int i = 0; i < tcp->own.count && way != NULL; i++) {
        const struct tcp_address *other = &tcp->own.addresses[i];

        if (other->speed >= way->speed && leads_to_all(tcp, other)) {
            add_interface(out, bytes, other->interface);
        }
    }
    pthread_mutex_unlock(&tcp->lock);
    return way != NULL;
}
