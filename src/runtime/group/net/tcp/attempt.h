/* attempt.h - owns a connection during its handshake, and the search for a peer's address of which
 * it may be a part. */
#ifndef CDDPI_GROUP_NET_TCP_ATTEMPT_H
#define CDDPI_GROUP_NET_TCP_ATTEMPT_H

#include "group/net/tcp/tcp.h"

/* The search for an address at which a peer answers. */
struct tcp_search {
    int order[TCP_MAX_ADDRESSES];
    int count, next; /* index of the next address to try */
    int active;      /* attempts in progress */
    int64_t begin_ns, started_ns, deadline_ns;
    uint32_t pause_ms;
    char last[TCP_TEXT_BYTES];    /* how the last attempt failed */
    char refusal[TCP_TEXT_BYTES]; /* how this rank was refused last; "": it was not. Anyone may have
                                     refused it, so the search continues */
};

enum tcp_attempt_state {
    TCP_CONNECTING,
    TCP_AWAITS_HELLO,
    TCP_AWAITS_WELCOME,
    TCP_AWAITS_ANSWER, /* the states below are those of the listening side */
    TCP_AWAITS_USE
};

struct tcp_attempt {
    enum tcp_watched watched;
    enum tcp_attempt_state state;
    bool is_closed; /* it is freed once no event can refer to it */
    bool came_in;
    int fd;
    struct tcp_pair *pair; /* NULL: an unknown peer */
    unsigned slot;
    int64_t deadline_ns;
    struct sockaddr_storage address; /* address of the other side */
    char interface[TCP_INTERFACE_BYTES];
    struct tcp_purpose purpose;
    uint8_t server_nonce[CDDPI_NONCE_BYTES]; /* nonce of the listening side, if that is this rank */
    struct cddpi_session session;
    /* NULL: data is not encrypted, except that frame heads are signed */
    struct cddpi_cipher *cipher;
    size_t have;
    uint8_t data[TCP_ANSWER_BYTES];
    struct tcp_attempt *next;
};

/* attempt.c */
/** @p interface: the address's interface, if it is not known yet whether the address answers; else
 *  NULL. */
void cddpi_tcp_attempt_start(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                             const struct sockaddr_storage *address, const char *interface);
/** Start the handshake with a peer that has just connected. */
void cddpi_tcp_attempt_accept(struct tcp_carrier *tcp, int fd,
                              const struct sockaddr_storage *address);
/** End attempts that take too long, and free those that have ended. */
void cddpi_tcp_attempts_expire(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
/** When the oldest connection of an unknown peer was accepted; INT64_MAX: there is none. */
int64_t cddpi_tcp_attempts_oldest_ns(const struct tcp_carrier *tcp);
/** Make room by closing that oldest connection, unless its proof has arrived. False: none can be
 *  closed. */
bool cddpi_tcp_attempts_drop_oldest(struct tcp_carrier *tcp);

/** Close the attempt; @p why: for the log; NULL: nothing to log, since it ended well or for a good
 *  reason. */
void cddpi_tcp_attempt_end(struct tcp_carrier *tcp, struct tcp_attempt *attempt, const char *why,
                           bool is_refusal);

/** An attempt of the pair's search has failed. */
void cddpi_tcp_search_failed(struct tcp_pair *pair, const struct tcp_attempt *attempt,
                             const char *why, bool is_refusal);

/** All addresses have failed: pause before they are tried again. */
void cddpi_tcp_search_pause(struct tcp_search *search, int64_t now_ns);

/* attempt_greet.c */
/** Continue the handshake, since its socket is ready. */
void cddpi_tcp_attempt_event(struct tcp_carrier *tcp, struct tcp_attempt *attempt);

#endif
