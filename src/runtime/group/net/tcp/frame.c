/* frame.c - encodes and decodes the data on an open connection; no I/O. */
#include "group/net/tcp/frame.h"

#include "group/net/carrier.h"
#include "store/store_wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

_Static_assert(TCP_SIGNATURE_KEY_BYTES == crypto_shorthash_siphashx24_KEYBYTES &&
                   TCP_SIGNATURE_BYTES == crypto_shorthash_siphashx24_BYTES,
               "SipHash-2-4 of 128 bits");

enum { HEAD_BYTES = TCP_FRAME_BYTES - TCP_SIGNATURE_BYTES };
enum { FAILURE_STOPPED = 1, FAILURE_LEFT = 2 }; /* bits for what is known about the culprit */

void cddpi_tcp_signature_init(struct tcp_signature *signature, const struct cddpi_session *session,
                              bool is_own)
{
    uint8_t key[CDDPI_CIPHER_KEY_BYTES];

    cddpi_session_key(session, is_own, "heads", key);
    memcpy(signature->key, key, sizeof signature->key);
    signature->count = 0;
    sodium_memzero(key, sizeof key);
}

/* Includes the head's number, so that heads cannot be reordered. */
void cddpi_tcp_head_sign(const uint8_t *head, struct tcp_signature *signature,
                         uint8_t out[TCP_SIGNATURE_BYTES])
{
    uint8_t text[HEAD_BYTES + 8];

    memcpy(text, head, HEAD_BYTES);
    cddpi_put_u64(text + HEAD_BYTES, signature->count++);
    crypto_shorthash_siphashx24(out, text, sizeof text, signature->key);
}

void cddpi_tcp_frame_put(const struct tcp_frame *frame, struct tcp_signature *signature,
                         uint8_t out[TCP_FRAME_BYTES])
{
    cddpi_put_u32(out, (uint32_t)frame->kind << CDDPI_NET_TAG_BITS | frame->tag);
    cddpi_put_u32(out + 4, frame->number);
    cddpi_put_u64(out + 8, frame->total);
    cddpi_put_u64(out + 16, frame->offset);
    cddpi_put_u64(out + 24, frame->bytes);
    cddpi_tcp_head_sign(out, signature, out + HEAD_BYTES);
}

int cddpi_tcp_frame_get(const uint8_t from[TCP_FRAME_BYTES], struct tcp_signature *signature,
                        struct tcp_frame *out)
{
    uint32_t first = cddpi_get_u32(from);
    struct tcp_frame frame = {.tag = first & ((1u << CDDPI_NET_TAG_BITS) - 1),
                              .number = cddpi_get_u32(from + 4),
                              .total = cddpi_get_u64(from + 8),
                              .offset = cddpi_get_u64(from + 16),
                              .bytes = cddpi_get_u64(from + 24)};
    uint8_t wanted[TCP_SIGNATURE_BYTES];

    cddpi_tcp_head_sign(from, signature, wanted);
    if (!cddpi_auth_equal(wanted, from + HEAD_BYTES, sizeof wanted)) {
        return EBADMSG;
    }
    if (first >> CDDPI_NET_TAG_BITS == TCP_FRAME_GOODBYE) {
        frame.kind = TCP_FRAME_GOODBYE;
    } else if (first >> CDDPI_NET_TAG_BITS == TCP_FRAME_PIECE && frame.total <= TCP_MESSAGE_MAX &&
               frame.offset <= frame.total && frame.bytes <= frame.total - frame.offset &&
               (frame.bytes > 0 || frame.total == 0)) {
        frame.kind = TCP_FRAME_PIECE;
    } else {
        return EPROTO;
    }
    *out = frame;
    return 0;
}

size_t cddpi_tcp_abort_put(const struct cddpi_failure *failure, uint8_t out[TCP_CONTROL_MAX_BYTES])
{
    size_t operation_bytes = strnlen(failure->operation, sizeof failure->operation - 1);
    size_t text_bytes = strnlen(failure->text, sizeof failure->text - 1);
    uint8_t *at = out;

    *at++ = TCP_CONTROL_ABORT;
    cddpi_put_u32(at, (uint32_t)failure->status);
    cddpi_put_u32(at + 4, (uint32_t)failure->rank);
    cddpi_put_u32(at + 8, (uint32_t)failure->culprit);
    cddpi_put_u32(at + 12, (uint32_t)failure->error_number);
    cddpi_put_u32(at + 16, (failure->is_stopped != 0 ? FAILURE_STOPPED : 0) |
                               (failure->has_left != 0 ? FAILURE_LEFT : 0));
    cddpi_put_u32(at + 20, failure->unnamed);
    cddpi_put_u16(at + 24, (uint16_t)operation_bytes);
    cddpi_put_u16(at + 26, (uint16_t)text_bytes);
    at += TCP_FAILURE_HEAD_BYTES;
    memcpy(at, failure->operation, operation_bytes);
    memcpy(at + operation_bytes, failure->text, text_bytes);
    return (size_t)(at - out) + operation_bytes + text_bytes;
}

int cddpi_tcp_control_bytes(const uint8_t *data, size_t bytes)
{
    unsigned operation_bytes;
    unsigned text_bytes;

    if (bytes == 0) {
        return 0;
    }
    if (data[0] == TCP_CONTROL_GOODBYE) {
        return 1;
    }
    if (data[0] != TCP_CONTROL_ABORT) {
        return -1;
    }
    if (bytes < 1 + TCP_FAILURE_HEAD_BYTES) {
        return 0;
    }
    operation_bytes = cddpi_get_u16(data + 1 + 24);
    text_bytes = cddpi_get_u16(data + 1 + 26);
    if (operation_bytes >= CDDPI_FAILURE_OPERATION_BYTES ||
        text_bytes >= CDDPI_FAILURE_TEXT_BYTES) {
        return -1;
    }
    return (int)(1 + TCP_FAILURE_HEAD_BYTES + operation_bytes + text_bytes);
}

/* Copy text for display from an untrusted sender: without escape sequences and line breaks. */
static void get_text(const uint8_t *from, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (char)(from[i] < 0x20 || from[i] == 0x7f ? (from[i] == '\n' ? '\n' : '?')
                                                          : from[i]);
    }
    out[bytes] = '\0';
}

bool cddpi_tcp_abort_get(const uint8_t *data, struct cddpi_failure *out)
{
    const uint8_t *at = data + 1;
    unsigned operation_bytes = cddpi_get_u16(at + 24);
    unsigned text_bytes = cddpi_get_u16(at + 26);
    struct cddpi_failure failure = {.status = (int32_t)cddpi_get_u32(at),
                                    .rank = (int32_t)cddpi_get_u32(at + 4),
                                    .culprit = (int32_t)cddpi_get_u32(at + 8),
                                    .error_number = (int32_t)cddpi_get_u32(at + 12),
                                    .is_stopped = (cddpi_get_u32(at + 16) & FAILURE_STOPPED) != 0,
                                    .has_left = (cddpi_get_u32(at + 16) & FAILURE_LEFT) != 0,
                                    .unnamed = cddpi_get_u32(at + 20)};

    if (!cddpi_is_error(failure.status) || failure.rank < -1 || failure.culprit < -1 ||
        failure.error_number < 0 || failure.unnamed > text_bytes) {
        return false;
    }
    at += TCP_FAILURE_HEAD_BYTES;
    get_text(at, operation_bytes, failure.operation);
    get_text(at + operation_bytes, text_bytes, failure.text);
    *out = failure;
    return true;
}
