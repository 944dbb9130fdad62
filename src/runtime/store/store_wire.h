/* store_wire.h - owns the TCP store's messages. All numbers are little-endian; every length is
 * bounded.
 *
 *   server: hello    magic u64, version u32, state u32 (enum cddpi_wire_state), nonce
 *   client: answer   magic u64, version u32, 0 u32, offer (session.h)
 *   server: welcome  refused u32 (0, or an enum cddpi_refused), accept (session.h)
 *
 * A hello has the same form in every version, so that two sides of different versions can say so.
 * After the welcome all is encrypted (store_stream.h). The client sends any number of requests, one
 * at a time; only a CANCEL may follow a request that waits:
 *
 *   request  body_bytes u32, id u32, op u8, flags u8, 0 u16, body
 *   reply    body_bytes u32, id u32, minus status u8, flag u8, 0 u16, body
 *
 * A key in a body is its length (u16), then its bytes. A value is its length (u32), then its bytes.
 * "keys" are any number of keys; "pairs" are any number of keys, each followed by its value. */
#ifndef CDDPI_STORE_WIRE_H
#define CDDPI_STORE_WIRE_H

#include "store/request.h"
#include "store/session.h"

#include <string.h>

#define CDDPI_WIRE_MAGIC UINT64_C(0x31726f7473706463) /* "cdpstor1" */

enum {
    CDDPI_WIRE_VERSION = 3,
    CDDPI_WIRE_HELLO_BYTES = 16 + CDDPI_NONCE_BYTES,
    CDDPI_WIRE_ANSWER_BYTES = 16 + CDDPI_OFFER_BYTES,
    CDDPI_WIRE_WELCOME_BYTES = 4 + CDDPI_ACCEPT_BYTES,
    CDDPI_WIRE_HEAD_BYTES = 12
};

enum cddpi_wire_state {
    CDDPI_WIRE_READY,
    CDDPI_WIRE_FULL /* the server can accept no more clients: try again later */
};

struct cddpi_wire_head {
    uint32_t body_bytes;
    uint32_t id;
    uint8_t code;  /* request: op; reply: minus the status */
    uint8_t flags; /* request: 1 if COMPARE_SET or LIST wants values; reply: the flag */
};

/** The key with which both sides prove that they know the token. */
static inline void cddpi_store_key(const char *token, uint8_t out[CDDPI_AUTH_KEY_BYTES])
{
    cddpi_auth_key(token, "cddp tcp store", out);
}

static inline void cddpi_put_u16(uint8_t *to, uint16_t number)
{
    to[0] = (uint8_t)number;
    to[1] = (uint8_t)(number >> 8);
}

static inline void cddpi_put_u32(uint8_t *to, uint32_t number)
{
    cddpi_put_u16(to, (uint16_t)number);
    cddpi_put_u16(to + 2, (uint16_t)(number >> 16));
}

static inline void cddpi_put_u64(uint8_t *to, uint64_t number)
{
    cddpi_put_u32(to, (uint32_t)number);
    cddpi_put_u32(to + 4, (uint32_t)(number >> 32));
}

static inline uint16_t cddpi_get_u16(const uint8_t *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t cddpi_get_u32(const uint8_t *from)
{
    return cddpi_get_u16(from) | (uint32_t)cddpi_get_u16(from + 2) << 16;
}

static inline uint64_t cddpi_get_u64(const uint8_t *from)
{
    return cddpi_get_u32(from) | (uint64_t)cddpi_get_u32(from + 4) << 32;
}

/* A growing array of bytes. Zeroed, it is empty. */
struct cddpi_wire_buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

/** Make room for @p more bytes at the end. False: out of memory. */
bool cddpi_buffer_reserve(struct cddpi_wire_buffer *buffer, size_t more);
/** Append bytes for which the caller has reserved room. */
void cddpi_buffer_append(struct cddpi_wire_buffer *buffer, const void *data, size_t bytes);
/** Remove the first @p bytes bytes. */
void cddpi_buffer_drop(struct cddpi_wire_buffer *buffer, size_t bytes);
void cddpi_buffer_fini(struct cddpi_wire_buffer *buffer);

void cddpi_wire_put_head(uint8_t to[CDDPI_WIRE_HEAD_BYTES], const struct cddpi_wire_head *head);
void cddpi_wire_get_head(const uint8_t from[CDDPI_WIRE_HEAD_BYTES], struct cddpi_wire_head *out);

/** The most bytes that the body of an @p op request may have. False: there is no such op. */
bool cddpi_wire_body_limit(uint8_t op, size_t *out);

/** Append @p request to @p buffer. False: no memory, and nothing is appended. */
bool cddpi_wire_encode(const struct cddpi_store_request *request, uint32_t id,
                       struct cddpi_wire_buffer *buffer);

/** Parse a request; @p out borrows from @p body. False: the request is malformed. */
bool cddpi_wire_decode(const struct cddpi_wire_head *head, const uint8_t *body,
                       struct cddpi_store_request *out);

/** Bytes that a key of @p key_bytes takes in "keys". */
static inline size_t cddpi_keys_bytes(size_t key_bytes)
{
    return 2 + key_bytes;
}

/** Read the key at @p cursor and move the cursor after it. False: the end, or the rest is
 * malformed.
 */
static inline bool cddpi_keys_next(struct cddpi_slice keys, size_t *cursor, struct cddpi_slice *out)
{
    size_t bytes;

    if (*cursor > keys.bytes || keys.bytes - *cursor < 2) {
        return false;
    }
    bytes = cddpi_get_u16(keys.data + *cursor);
    if (keys.bytes - *cursor - 2 < bytes) {
        return false;
    }
    out->data = keys.data + *cursor + 2;
    out->bytes = bytes;
    *cursor += 2 + bytes;
    return true;
}

/** Bytes that a key and its value take in "pairs". */
static inline size_t cddpi_pairs_bytes(size_t key_bytes, size_t value_bytes)
{
    return cddpi_keys_bytes(key_bytes) + 4 + value_bytes;
}

/** Read the pair at @p cursor and move the cursor after it. False: the end, or the rest is
 *  malformed. */
static inline bool cddpi_pairs_next(struct cddpi_slice pairs, size_t *cursor,
                                    struct cddpi_slice *out_key, struct cddpi_slice *out_value)
{
    size_t at = *cursor;
    size_t bytes;

    if (!cddpi_keys_next(pairs, &at, out_key) || pairs.bytes - at < 4) {
        return false;
    }
    bytes = cddpi_get_u32(pairs.data + at);
    if (pairs.bytes - at - 4 < bytes) {
        return false;
    }
    out_value->data = pairs.data + at + 4;
    out_value->bytes = bytes;
    *cursor = at + 4 + bytes;
    return true;
}

#endif
