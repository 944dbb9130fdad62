/* connect.c - opens connections between hosts: finds an address of the peer that answers. The
 * handshake is in attempt_greet.c. Only the thread calls this, with the lock held.
 *
 * The lower rank of a pair tries first and the higher one shortly after, which avoids most of the
 * duplicate connections. If one direction is blocked, the other one works. */
#include "group/net/tcp/attempt.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum {
    HIGHER_RANK_MS = 20, /* how much later than the lower rank it tries */
    STAGGER_MS = 100,    /* after this, try the peer's next address in parallel */
    FIRST_PAUSE_MS = 20  /* after all addresses have failed */
};

static void sooner(int64_t *next_ns, int64_t at_ns)
{
    *next_ns = at_ns < *next_ns ? at_ns : *next_ns;
}

static struct tcp_search *search_of(struct tcp_carrier *tcp, struct tcp_pair *pair, int64_t now_ns)
{
    struct tcp_search *search = pair->search;

    if (search == NULL) {
        search = cddpi_zalloc(sizeof *search);
        if (search == NULL) {
            cddpi_tcp_pair_lost(tcp, pair, "cannot be connected: this rank has no memory for it");
            return NULL;
        }
        search->count = cddpi_tcp_offer_order(&tcp->own, pair->offer, search->order);
        search->begin_ns = now_ns;
        if (tcp->params.rank > pair->peer) {
            search->begin_ns += HIGHER_RANK_MS * INT64_C(1000000);
        }
        search->deadline_ns = now_ns + (int64_t)tcp->params.timeout_ms * 1000000;
        search->pause_ms = FIRST_PAUSE_MS;
        if (search->count == 0) {
            snprintf(search->last, sizeof search->last,
                     "none of its addresses can be reached from here");
        }
        pair->search = search;
    }
    return search;
}

/* Name the address that was tried first, if no attempt has ended: all still wait for an answer. */
static void name_silent(const struct tcp_pair *pair, struct tcp_search *search)
{
    struct sockaddr_storage address;
    char text[TCP_ADDRESS_TEXT_BYTES];

    (void)cddpi_tcp_sockaddr(&pair->offer->addresses[search->order[0]], pair->offer->port,
                             &address);
    cddpi_tcp_address_text(&address, text);
    snprintf(search->last, sizeof search->last, "%s: it does not answer", text);
}

static void fail_search(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    const struct tcp_search *search = pair->search;
    bool was_refused = search->refusal[0] != '\0';
    bool says_both = was_refused && strcmp(search->refusal, search->last) != 0;
    char why[3 * TCP_TEXT_BYTES];

    if (pair->search->last[0] == '\0' && pair->search->next > 0) {
        name_silent(pair, pair->search);
    }
    snprintf(why, sizeof why,
             "cannot be connected: %s%s%s. Nor has it connected to this host, %s; "
             "CDDP_SOCKET_IFNAME chooses the interfaces",
             search->last[0] != '\0' ? search->last : "it does not answer",
             says_both ? "; before that, " : "", says_both ? search->refusal : "", tcp->own.host);
    cddpi_tcp_pair_failed(tcp, pair, was_refused ? CDDP_ERR_AUTH : CDDP_ERR_PEER, why);
}

/* Try one address after the other, until one answers. */
static void try_addresses(struct tcp_carrier *tcp, struct tcp_pair *pair, uint32_t missing,
                          int64_t now_ns)
{
    struct tcp_search *search = pair->search;
    uint32_t data = missing & ~(1u << TCP_CONTROL_SLOT); /* a transfer waits for that */
    unsigned slot = (unsigned)__builtin_ctz(data != 0 ? data : missing);

    while (search->next < search->count &&
           (search->active == 0 || now_ns >= search->started_ns + STAGGER_MS * INT64_C(1000000))) {
        struct sockaddr_storage address;
        const struct tcp_address *offered = &pair->offer->addresses[search->order[search->next++]];

        (void)cddpi_tcp_sockaddr(offered, pair->offer->port, &address);
        search->started_ns = now_ns;
        cddpi_tcp_attempt_start(tcp, pair, slot, &address, offered->interface);
    }
    if (search->next == search->count && search->active == 0) {
        cddpi_tcp_search_pause(search, now_ns);
    }
}

/* The time for the search is over. */
static void end_search(struct tcp_carrier *tcp, struct tcp_pair *pair, uint32_t missing)
{
    const uint32_t first = 1u << TCP_CONTROL_SLOT | tcp_slots_of(tcp, CDDPI_NET_COLLECTIVES);

    if (atomic_load(&pair->left) && pair->leads && (missing & first) != 0) {
        cddpi_tcp_pair_left(tcp, pair);    /* while the group is made */
    } else if (atomic_load(&pair->left)) { /* what it sent before has arrived by now */
        pair->wanted &= pair->filled;
        pair->is_asked = true;
        cddpi_tcp_pair_show(tcp);
    } else if (missing == 1u << TCP_CONTROL_SLOT && !pair->leads) {
        pair->wanted &= pair->filled; /* other ranks, too, tell why the peer fails */
    } else {
        fail_search(tcp, pair);
    }
}

/* What is wanted later has a search, and a deadline, of its own. */
static void forget_search(struct tcp_pair *pair)
{
    if (pair->search != NULL && pair->search->active == 0) {
        cddpi_free(pair->search);
        pair->search = NULL;
    }
}

static void connect_pair(struct tcp_carrier *tcp, struct tcp_pair *pair, int64_t now_ns,
                         int64_t *next_ns)
{
    uint32_t missing = pair->wanted & ~pair->filled;
    struct tcp_search *search;

    if (missing == 0) {
        forget_search(pair);
        return;
    }
    search = search_of(tcp, pair, now_ns);
    if (search == NULL) {
        return;
    }
    if (atomic_load(&pair->left)) { /* only a connection that it made before can still arrive */
        int64_t gone_ns = now_ns + TCP_GONE_MS * INT64_C(1000000);

        search->deadline_ns = gone_ns < search->deadline_ns ? gone_ns : search->deadline_ns;
    }
    if (now_ns >= search->deadline_ns) {
        end_search(tcp, pair, missing);
        forget_search(pair);
        return;
    }
    if (now_ns >= search->begin_ns) {
        if (pair->knows_address) {
            for (unsigned slot = 0; slot < TCP_MAX_SLOTS; slot++) {
                if ((missing & ~pair->trying & 1u << slot) != 0) {
                    cddpi_tcp_attempt_start(tcp, pair, slot, &pair->address, NULL);
                }
            }
        } else {
            try_addresses(tcp, pair, missing, now_ns);
        }
    }
    sooner(next_ns, search->deadline_ns);
    if (search->begin_ns > now_ns) {
        sooner(next_ns, search->begin_ns);
    } else if (!pair->knows_address && search->next < search->count) {
        sooner(next_ns, search->started_ns + STAGGER_MS * INT64_C(1000000));
    }
}

void cddpi_tcp_pairs_connect(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns)
{
    cddpi_tcp_attempts_expire(tcp, now_ns, next_ns);
    if (atomic_load(&tcp->has_failed)) {
        return;
    }
    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        if (tcp->pairs[rank] != NULL) {
            connect_pair(tcp, tcp->pairs[rank], now_ns, next_ns);
        }
    }
}
