/* attempt.h - one connection that is being greeted, and the search of which it may be a part. */
#ifndef CDDPI_GROUP_NET_TCP_ATTEMPT_H
#define CDDPI_GROUP_NET_TCP_ATTEMPT_H

#include "group/net/tcp/tcp.h"

/* Looking for an address of a peer. */
struct tcp_search {
    int order[TCP_MAX_ADDRESSES];
    int count, next; /* which one is tried next */
    int active;      /* attempts under way */
    int64_t begin_ns, started_ns, deadline_ns;
    uint32_t pause_ms;
    char last[TCP_TEXT_BYTES];    /* how the last attempt failed */
    char refusal[TCP_TEXT_BYTES]; /* "", or how somebody refused this rank last. It may have been
                                     anybody, so the search goes on */
};

enum tcp_attempt_state {
    TCP_CONNECTING,
    TCP_AWAITS_HELLO,
    TCP_AWAITS_WELCOME,
    TCP_AWAITS_ANSWER, /* the others are of who listens */
    TCP_AWAITS_USE
};

struct tcp_attempt {
    enum tcp_watched watched;
    enum tcp_attempt_state state;
    bool is_closed; /* and freed as soon as no event can point here */
    bool came_in;
    int fd;
    struct tcp_pair *pair; /* NULL: a stranger */
    unsigned slot;
    int64_t deadline_ns;
    struct sockaddr_storage address; /* of the other side */
    char interface[TCP_INTERFACE_BYTES];
    struct tcp_purpose purpose;
    uint8_t server_nonce[CDDPI_NONCE_BYTES]; /* of who listens, if that is this rank */
    struct cddpi_session session;
    struct cddpi_cipher *cipher; /* NULL: what follows is plain, but for the heads of frames */
    size_t have;
    uint8_t data[TCP_ANSWER_BYTES];
    struct tcp_attempt *next;
};

/* attempt.c */
/** @p interface: of the address, where it is not known yet whether it answers; else NULL. */
void cddpi_tcp_attempt_start(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                             const struct sockaddr_storage *address, const char *interface);
/** Greet who has just connected. */
void cddpi_tcp_attempt_accept(struct tcp_carrier *tcp, int fd,
                              const struct sockaddr_storage *address);
/** End those that take too long, and free those that have ended. */
void cddpi_tcp_attempts_expire(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
/** Since when the stranger is here that has been here longest; INT64_MAX: there is none. */
int64_t cddpi_tcp_attempts_oldest_ns(const struct tcp_carrier *tcp);
/** Make room: that stranger has to go, unless its proof has come. False: there is none to go. */
bool cddpi_tcp_attempts_drop_oldest(struct tcp_carrier *tcp);

/** Close it; @p why: NULL if nothing is to be said, as it ended well or for a good reason. */
void cddpi_tcp_attempt_end(struct tcp_carrier *tcp, struct tcp_attempt *attempt, const char *why,
                           bool is_refusal);

/** An attempt of the pair's search has failed. */
void cddpi_tcp_search_failed(struct tcp_pair *pair, const struct tcp_attempt *attempt,
                             const char *why, bool is_refusal);

/** All that was tried has failed: pause before it is tried again. */
void cddpi_tcp_search_pause(struct tcp_search *search, int64_t now_ns);

/* attempt_greet.c */
/** A greeting can go on. */
void cddpi_tcp_attempt_event(struct tcp_carrier *tcp, struct tcp_attempt *attempt);

#endif
