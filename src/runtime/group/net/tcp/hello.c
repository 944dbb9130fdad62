/* hello.c - encodes and decodes the handshake of a connection between hosts; no I/O. */
#include "group/net/tcp/hello.h"

#include "store/store_wire.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

void cddpi_tcp_job(const char *job, uint8_t out[TCP_JOB_BYTES])
{
    cddpi_auth_key(job, "cddp net job", out);
}

void cddpi_tcp_key(const char *token, const struct tcp_purpose *purpose,
                   uint8_t out[CDDPI_AUTH_KEY_BYTES])
{
    char job[2 * TCP_JOB_BYTES + 1];
    char text[256];

    sodium_bin2hex(job, sizeof job, purpose->job, sizeof purpose->job);
    snprintf(text, sizeof text,
             "cddp net %d from %u to %u generation %u slot %u sockets %u encrypts %u job %s",
             TCP_VERSION, purpose->from, purpose->to, purpose->generation, purpose->slot,
             purpose->sockets, purpose->encrypts, job);
    cddpi_auth_key(token, text, out);
}

void cddpi_tcp_hello_put(const uint8_t nonce[CDDPI_NONCE_BYTES], uint8_t out[TCP_HELLO_BYTES])
{
    cddpi_greeting_put(TCP_MAGIC, TCP_VERSION, out);
    memcpy(out + 12, nonce, CDDPI_NONCE_BYTES);
}

void cddpi_tcp_answer_put(const struct tcp_answer *answer, uint8_t out[TCP_ANSWER_BYTES])
{
    const struct tcp_purpose *purpose = &answer->purpose;

    cddpi_greeting_put(TCP_MAGIC, TCP_VERSION, out);
    cddpi_put_u32(out + 12, purpose->from);
    cddpi_put_u32(out + 16, purpose->to);
    cddpi_put_u32(out + 20, purpose->generation);
    cddpi_put_u32(out + 24, purpose->slot);
    cddpi_put_u32(out + 28, purpose->sockets);
    cddpi_put_u32(out + 32, purpose->encrypts);
    out += 36;
    memcpy(out, purpose->job, TCP_JOB_BYTES);
    out += TCP_JOB_BYTES;
    memcpy(out, answer->offer, CDDPI_OFFER_BYTES);
}

void cddpi_tcp_welcome_put(const struct tcp_welcome *welcome, uint8_t out[TCP_WELCOME_BYTES])
{
    cddpi_put_u32(out, welcome->reply);
    memcpy(out + 4, welcome->accept, CDDPI_ACCEPT_BYTES);
}

void cddpi_tcp_answer_get(const uint8_t from[TCP_ANSWER_BYTES], struct tcp_answer *out)
{
    struct tcp_purpose *purpose = &out->purpose;

    purpose->from = cddpi_get_u32(from + 12);
    purpose->to = cddpi_get_u32(from + 16);
    purpose->generation = cddpi_get_u32(from + 20);
    purpose->slot = cddpi_get_u32(from + 24);
    purpose->sockets = cddpi_get_u32(from + 28);
    purpose->encrypts = cddpi_get_u32(from + 32);
    from += 36;
    memcpy(purpose->job, from, TCP_JOB_BYTES);
    from += TCP_JOB_BYTES;
    memcpy(out->offer, from, CDDPI_OFFER_BYTES);
}

bool cddpi_tcp_welcome_get(const uint8_t from[TCP_WELCOME_BYTES], struct tcp_welcome *out)
{
    uint32_t reply = cddpi_get_u32(from);

    if (reply >= TCP_REPLIES) {
        return false;
    }
    out->reply = (enum tcp_reply)reply;
    memcpy(out->accept, from + 4, CDDPI_ACCEPT_BYTES);
    return true;
}
