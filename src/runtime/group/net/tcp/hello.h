/* hello.h - owns the handshake of every connection between hosts. Both sides prove that they know
 * the job's token, state the connection's purpose, and derive its keys. Numbers are little-endian,
 * lengths are fixed:
 *
 *   who listens    HELLO    magic, version, nonce
 *   who connects   ANSWER   magic, version, what it is for, job, offer (store/session.h)
 *   who listens    WELCOME  reply, accept (store/session.h)
 *   who connects   one byte, if it is the one to decide (see connect.c): the connection is used
 *
 * The key of the proofs is derived from the token and everything that ANSWER says about the
 * purpose. A HELLO has the same form in every version. A reply that refuses has no proof.
 */
#ifndef CDDPI_GROUP_NET_TCP_HELLO_H
#define CDDPI_GROUP_NET_TCP_HELLO_H

#include "store/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TCP_MAGIC UINT64_C(0x0a74656e70646463) /* "cddpnet\n" */
enum {
    TCP_VERSION = 3,
    TCP_JOB_BYTES = 32,
    TCP_HELLO_BYTES = 12 + CDDPI_NONCE_BYTES,
    TCP_ANSWER_BYTES = 12 + 6 * 4 + TCP_JOB_BYTES + CDDPI_OFFER_BYTES,
    TCP_WELCOME_BYTES = 4 + CDDPI_ACCEPT_BYTES,
    TCP_USED = 'Y' /* the last byte */
};

/* What a connection is for. */
struct tcp_purpose {
    uint32_t from, to; /* ranks: the connecting one, the listening one */
    uint32_t generation;
    uint32_t slot; /* see tcp.h */
    uint32_t sockets;
    uint32_t encrypts;          /* CDDP_ENCRYPT */
    uint8_t job[TCP_JOB_BYTES]; /* a hash of its id */
};

enum tcp_reply {
    TCP_WELCOME,
    TCP_HAVE_ONE, /* another connection for the same purpose was faster: this one is closed */
    TCP_WRONG_TOKEN,
    TCP_WRONG_JOB,      /* or generation, or rank */
    TCP_WRONG_SETTINGS, /* or no cipher that both can use */
    TCP_REPLIES
};

struct tcp_answer {
    struct tcp_purpose purpose;
    uint8_t offer[CDDPI_OFFER_BYTES];
};

struct tcp_welcome {
    enum tcp_reply reply;
    uint8_t accept[CDDPI_ACCEPT_BYTES]; /* zero in a refusal */
};

void cddpi_tcp_job(const char *job, uint8_t out[TCP_JOB_BYTES]);
/** The key of a connection. */
void cddpi_tcp_key(const char *token, const struct tcp_purpose *purpose,
                   uint8_t out[CDDPI_AUTH_KEY_BYTES]);

void cddpi_tcp_hello_put(const uint8_t nonce[CDDPI_NONCE_BYTES], uint8_t out[TCP_HELLO_BYTES]);
void cddpi_tcp_answer_put(const struct tcp_answer *answer, uint8_t out[TCP_ANSWER_BYTES]);
void cddpi_tcp_welcome_put(const struct tcp_welcome *welcome, uint8_t out[TCP_WELCOME_BYTES]);

/** Read a complete message that was checked. */
void cddpi_tcp_answer_get(const uint8_t from[TCP_ANSWER_BYTES], struct tcp_answer *out);
/** False: there is no such reply. */
bool cddpi_tcp_welcome_get(const uint8_t from[TCP_WELCOME_BYTES], struct tcp_welcome *out);

#endif
