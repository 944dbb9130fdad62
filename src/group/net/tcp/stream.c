/* stream.c - sends and receives, with or without a cipher between. Plain bytes go from and to the
 * caller's memory directly; encrypted ones are copied once by the cipher itself, except for the
 * ends of messages. */
#include "group/net/tcp/stream.h"

#include "base/alloc.h"
#include "store/wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LENGTH_BYTES = 4,
    EXTRA_BYTES = crypto_secretstream_xchacha20poly1305_ABYTES,
    PLAIN_MAX_BYTES = TCP_RECORD_MAX_BYTES - EXTRA_BYTES,
    GATHER_BYTES = 8192 /* two parts of no more together become one record */
};
_Static_assert(TCP_CIPHER_HEADER_BYTES == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
               "a greeting has room for it");
_Static_assert(CDDPI_AUTH_BYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES,
               "a proof is as long as a key");

struct tcp_cipher {
    crypto_secretstream_xchacha20poly1305_state push, pull;
    size_t out_begin, out_end;     /* of `out`: not sent yet */
    size_t in_begin, in_end;       /* of `in`: came and was not decrypted */
    size_t plain_begin, plain_end; /* of `plain`: decrypted and not taken */
    uint8_t out[LENGTH_BYTES + TCP_RECORD_MAX_BYTES];
    uint8_t in[2 * (LENGTH_BYTES + TCP_RECORD_MAX_BYTES)];
    uint8_t plain[PLAIN_MAX_BYTES];
};

/* The key for what @p side sends; the proofs are made with other words. */
static void make_key(const uint8_t *key, const char *side, const uint8_t *server_nonce,
                     const uint8_t *client_nonce, uint8_t out[CDDPI_AUTH_BYTES])
{
    cddpi_auth_make(key, strcmp(side, "server") == 0 ? "server's data" : "client's data",
                    server_nonce, client_nonce, out);
}

struct tcp_cipher *cddpi_tcp_cipher_create(const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                                           const char *side,
                                           const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                           const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                                           uint8_t out_header[TCP_CIPHER_HEADER_BYTES])
{
    struct tcp_cipher *cipher = cddpi_zalloc(sizeof *cipher);
    uint8_t own[CDDPI_AUTH_BYTES];

    if (cipher == NULL) {
        return NULL;
    }
    make_key(key, side, server_nonce, client_nonce, own);
    crypto_secretstream_xchacha20poly1305_init_push(&cipher->push, out_header, own);
    sodium_memzero(own, sizeof own);
    return cipher;
}

bool cddpi_tcp_cipher_accept(struct tcp_cipher *cipher, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                             const char *side, const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                             const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                             const uint8_t header[TCP_CIPHER_HEADER_BYTES])
{
    uint8_t other[CDDPI_AUTH_BYTES];
    int error;

    make_key(key, side, server_nonce, client_nonce, other);
    error = crypto_secretstream_xchacha20poly1305_init_pull(&cipher->pull, header, other);
    sodium_memzero(other, sizeof other);
    return error == 0;
}

void cddpi_tcp_cipher_destroy(struct tcp_cipher *cipher)
{
    if (cipher != NULL) {
        sodium_memzero(&cipher->push, sizeof cipher->push);
        sodium_memzero(&cipher->pull, sizeof cipher->pull);
        cddpi_free(cipher);
    }
}

bool cddpi_tcp_stream_flush(struct tcp_stream *stream)
{
    struct tcp_cipher *cipher = stream->cipher;

    while (cipher != NULL && cipher->out_begin < cipher->out_end) {
        ssize_t sent = send(stream->fd, cipher->out + cipher->out_begin,
                            cipher->out_end - cipher->out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            cipher->out_begin += (size_t)sent;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Make a record of the first bytes of @p parts. Returns how many. */
static size_t encrypt(struct tcp_cipher *cipher, const struct iovec parts[2])
{
    const uint8_t *from = parts[0].iov_len > 0 ? parts[0].iov_base : parts[1].iov_base;
    size_t bytes = parts[0].iov_len > 0 ? parts[0].iov_len : parts[1].iov_len;
    uint8_t gathered[GATHER_BYTES];
    unsigned long long made;

    if (parts[0].iov_len > 0 && parts[1].iov_len > 0 &&
        parts[0].iov_len + parts[1].iov_len <= sizeof gathered) {
        memcpy(gathered, parts[0].iov_base, parts[0].iov_len);
        memcpy(gathered + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
        from = gathered;
        bytes += parts[1].iov_len;
    }
    bytes = bytes < PLAIN_MAX_BYTES ? bytes : PLAIN_MAX_BYTES;
    crypto_secretstream_xchacha20poly1305_push(&cipher->push, cipher->out + LENGTH_BYTES, &made,
                                               from, bytes, NULL, 0, 0);
    cddpi_put_u32(cipher->out, (uint32_t)made);
    cipher->out_begin = 0;
    cipher->out_end = LENGTH_BYTES + (size_t)made;
    return bytes;
}

ssize_t cddpi_tcp_stream_send(struct tcp_stream *stream, const struct iovec parts[2])
{
    struct iovec copy[2] = {parts[0], parts[1]};
    struct msghdr message = {.msg_iov = copy, .msg_iovlen = parts[1].iov_len > 0 ? 2 : 1};
    ssize_t taken;

    if (stream->cipher == NULL) {
        do {
            taken = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (taken < 0 && errno == EINTR);
        return taken;
    }
    if (!cddpi_tcp_stream_flush(stream)) {
        return -1;
    }
    taken = (ssize_t)encrypt(stream->cipher, parts);
    if (!cddpi_tcp_stream_flush(stream) && errno != EAGAIN && errno != EWOULDBLOCK) {
        return -1;
    }
    return taken;
}

/* The length of the first record if all of it is there; 0: it is not; -1: there is no such record.
 */
static ssize_t first_record(const struct tcp_cipher *cipher)
{
    size_t have = cipher->in_end - cipher->in_begin;
    uint32_t bytes;

    if (have < LENGTH_BYTES) {
        return 0;
    }
    bytes = cddpi_get_u32(cipher->in + cipher->in_begin);
    if (bytes <= EXTRA_BYTES || bytes > TCP_RECORD_MAX_BYTES) {
        return -1;
    }
    return have < LENGTH_BYTES + bytes ? 0 : (ssize_t)bytes;
}

/* Receive until there is a record. */
static ssize_t fill(struct tcp_stream *stream)
{
    struct tcp_cipher *cipher = stream->cipher;
    ssize_t record;

    while ((record = first_record(cipher)) == 0) {
        ssize_t got;

        if (cipher->in_begin > 0) {
            memmove(cipher->in, cipher->in + cipher->in_begin, cipher->in_end - cipher->in_begin);
            cipher->in_end -= cipher->in_begin;
            cipher->in_begin = 0;
        }
        got = recv(stream->fd, cipher->in + cipher->in_end, sizeof cipher->in - cipher->in_end,
                   MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got;
        }
        cipher->in_end += (size_t)got;
    }
    if (record < 0) {
        errno = EBADMSG;
    }
    return record;
}

static size_t take_plain(struct tcp_cipher *cipher, const struct iovec parts[2])
{
    size_t taken = 0;

    for (int i = 0; i < 2; i++) {
        size_t left = cipher->plain_end - cipher->plain_begin;
        size_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;

        if (bytes > 0) {
            memcpy(parts[i].iov_base, cipher->plain + cipher->plain_begin, bytes);
            cipher->plain_begin += bytes;
            taken += bytes;
        }
    }
    return taken;
}

static ssize_t decrypt(struct tcp_stream *stream, const struct iovec parts[2])
{
    struct tcp_cipher *cipher = stream->cipher;
    ssize_t record = fill(stream);
    bool direct = record > 0 && parts[0].iov_len >= (size_t)record - EXTRA_BYTES;
    unsigned long long bytes = 0;
    unsigned char kind;

    if (record <= 0) {
        return record;
    }
    if (crypto_secretstream_xchacha20poly1305_pull(
            &cipher->pull, direct ? parts[0].iov_base : cipher->plain, &bytes, &kind,
            cipher->in + cipher->in_begin + LENGTH_BYTES, (size_t)record, NULL, 0) != 0) {
        errno = EBADMSG;
        return -1;
    }
    cipher->in_begin += LENGTH_BYTES + (size_t)record;
    if (direct) {
        return (ssize_t)bytes;
    }
    cipher->plain_begin = 0;
    cipher->plain_end = (size_t)bytes;
    return (ssize_t)take_plain(cipher, parts);
}

ssize_t cddpi_tcp_stream_recv(struct tcp_stream *stream, const struct iovec parts[2])
{
    struct iovec copy[2] = {parts[0], parts[1]};
    struct msghdr message = {.msg_iov = copy, .msg_iovlen = 2};
    ssize_t got;

    if (stream->cipher != NULL) {
        return stream->cipher->plain_begin < stream->cipher->plain_end
                   ? (ssize_t)take_plain(stream->cipher, parts)
                   : decrypt(stream, parts);
    }
    do {
        got = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}
