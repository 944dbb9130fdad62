/* stream.c - sends and receives, with or without a cipher between. Plain bytes go from and to the
 * caller's memory directly; encrypted ones are copied once by the cipher itself, except for the
 * ends of messages. */
#include "store/stream.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "store/wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LENGTH_BYTES = 4,
    RECORD_MAX_BYTES = 64 << 10, /* of ciphertext */
    FIRST_BYTES = 4096,          /* room to receive; it grows with the records that come */
    EXTRA_BYTES = crypto_secretstream_xchacha20poly1305_ABYTES,
    PLAIN_MAX_BYTES = RECORD_MAX_BYTES - EXTRA_BYTES,
    GATHER_BYTES = 8192 /* two parts of no more together become one record */
};
_Static_assert(CDDPI_CIPHER_HEADER_BYTES == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
               "a greeting has room for it");
_Static_assert(CDDPI_AUTH_BYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES,
               "a proof is as long as a key");

/* Grows as needed: most connections never see a long message. */
struct room {
    uint8_t *data;
    size_t bytes;
    size_t begin, end; /* what is in use */
};

struct cddpi_cipher {
    crypto_secretstream_xchacha20poly1305_state push, pull;
    struct room out;   /* not sent yet */
    struct room in;    /* came and was not decrypted */
    struct room plain; /* decrypted and not taken */
};

cddp_status cddpi_encryption(const char *token, bool *out)
{
    bool encrypts = cddpi_env_integer(CDDPI_ENV_ENCRYPT, 0, 1, 0) == 1;

    if (sodium_init() < 0) { /* also chooses the processor's fastest cipher */
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "libsodium does not start");
    }
    if (encrypts && token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "CDDP_ENCRYPT=1 needs a secret: CDDP_TOKEN is not set");
    }
    *out = encrypts;
    return CDDP_OK;
}

/* False with errno: no memory. */
static bool ensure(struct room *room, size_t bytes)
{
    uint8_t *data;

    if (bytes <= room->bytes) {
        return true;
    }
    data = cddpi_realloc(room->data, bytes);
    if (data == NULL) {
        errno = ENOMEM;
        return false;
    }
    room->data = data;
    room->bytes = bytes;
    return true;
}

/* The key for what @p side sends; the proofs are made with other words. */
static void make_key(const uint8_t *key, const char *side, const uint8_t *server_nonce,
                     const uint8_t *client_nonce, uint8_t out[CDDPI_AUTH_BYTES])
{
    cddpi_auth_make(key, strcmp(side, "server") == 0 ? "server's data" : "client's data",
                    server_nonce, client_nonce, out);
}

struct cddpi_cipher *cddpi_cipher_create(const uint8_t key[CDDPI_AUTH_KEY_BYTES], const char *side,
                                         const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                         const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                                         uint8_t out_header[CDDPI_CIPHER_HEADER_BYTES])
{
    struct cddpi_cipher *cipher = cddpi_zalloc(sizeof *cipher);
    uint8_t own[CDDPI_AUTH_BYTES];

    if (cipher == NULL) {
        return NULL;
    }
    make_key(key, side, server_nonce, client_nonce, own);
    crypto_secretstream_xchacha20poly1305_init_push(&cipher->push, out_header, own);
    sodium_memzero(own, sizeof own);
    return cipher;
}

bool cddpi_cipher_accept(struct cddpi_cipher *cipher, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const char *side, const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                         const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                         const uint8_t header[CDDPI_CIPHER_HEADER_BYTES])
{
    uint8_t other[CDDPI_AUTH_BYTES];
    int error;

    make_key(key, side, server_nonce, client_nonce, other);
    error = crypto_secretstream_xchacha20poly1305_init_pull(&cipher->pull, header, other);
    sodium_memzero(other, sizeof other);
    return error == 0;
}

void cddpi_cipher_destroy(struct cddpi_cipher *cipher)
{
    if (cipher != NULL) {
        sodium_memzero(&cipher->push, sizeof cipher->push);
        sodium_memzero(&cipher->pull, sizeof cipher->pull);
        cddpi_free(cipher->out.data);
        cddpi_free(cipher->in.data);
        cddpi_free(cipher->plain.data);
        cddpi_free(cipher);
    }
}

bool cddpi_stream_flush(struct cddpi_stream *stream)
{
    struct cddpi_cipher *cipher = stream->cipher;

    while (cipher != NULL && cipher->out.begin < cipher->out.end) {
        ssize_t sent = send(stream->fd, cipher->out.data + cipher->out.begin,
                            cipher->out.end - cipher->out.begin, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            cipher->out.begin += (size_t)sent;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Make a record of the first bytes of @p parts. Returns how many; -1 with errno: no memory. */
static ssize_t encrypt(struct cddpi_cipher *cipher, const struct iovec parts[2])
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
    if (!ensure(&cipher->out, LENGTH_BYTES + bytes + EXTRA_BYTES)) {
        return -1;
    }
    crypto_secretstream_xchacha20poly1305_push(&cipher->push, cipher->out.data + LENGTH_BYTES,
                                               &made, from, bytes, NULL, 0, 0);
    cddpi_put_u32(cipher->out.data, (uint32_t)made);
    cipher->out.begin = 0;
    cipher->out.end = LENGTH_BYTES + (size_t)made;
    return (ssize_t)bytes;
}

ssize_t cddpi_stream_send(struct cddpi_stream *stream, const struct iovec parts[2])
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
    if (!cddpi_stream_flush(stream)) {
        return -1;
    }
    taken = encrypt(stream->cipher, parts);
    if (taken >= 0 && !cddpi_stream_flush(stream) && errno != EAGAIN && errno != EWOULDBLOCK) {
        return -1;
    }
    return taken;
}

/* The length of the first record if all of it is there; 0: it is not; -1: there is no such record.
 */
static ssize_t first_record(const struct cddpi_cipher *cipher)
{
    size_t have = cipher->in.end - cipher->in.begin;
    uint32_t bytes;

    if (have < LENGTH_BYTES) {
        return 0;
    }
    bytes = cddpi_get_u32(cipher->in.data + cipher->in.begin);
    if (bytes <= EXTRA_BYTES || bytes > RECORD_MAX_BYTES) {
        return -1;
    }
    return have < LENGTH_BYTES + bytes ? 0 : (ssize_t)bytes;
}

/* Make room behind what came: for the rest of a long record and one more, or for a few short ones.
 */
static bool make_room(struct cddpi_cipher *cipher)
{
    struct room *in = &cipher->in;
    size_t have = in->end - in->begin;
    size_t wanted = FIRST_BYTES;

    if (have >= LENGTH_BYTES) {
        size_t record = LENGTH_BYTES + (size_t)cddpi_get_u32(in->data + in->begin);

        wanted = record > FIRST_BYTES ? 2 * record : FIRST_BYTES;
    }
    if (in->begin > 0) {
        memmove(in->data, in->data + in->begin, have);
        in->begin = 0;
        in->end = have;
    }
    return ensure(in, wanted);
}

/* Receive until there is a record. */
static ssize_t fill(struct cddpi_stream *stream)
{
    struct cddpi_cipher *cipher = stream->cipher;
    ssize_t record;

    while ((record = first_record(cipher)) == 0) {
        ssize_t got;

        if (!make_room(cipher)) {
            return -1;
        }
        got = recv(stream->fd, cipher->in.data + cipher->in.end, cipher->in.bytes - cipher->in.end,
                   MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got;
        }
        cipher->in.end += (size_t)got;
    }
    if (record < 0) {
        errno = EBADMSG;
    }
    return record;
}

static size_t take_plain(struct cddpi_cipher *cipher, const struct iovec parts[2])
{
    size_t taken = 0;

    for (int i = 0; i < 2; i++) {
        size_t left = cipher->plain.end - cipher->plain.begin;
        size_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;

        if (bytes > 0) {
            memcpy(parts[i].iov_base, cipher->plain.data + cipher->plain.begin, bytes);
            cipher->plain.begin += bytes;
            taken += bytes;
        }
    }
    return taken;
}

static ssize_t decrypt(struct cddpi_stream *stream, const struct iovec parts[2])
{
    struct cddpi_cipher *cipher = stream->cipher;
    ssize_t record = fill(stream);
    bool direct = record > 0 && parts[0].iov_len >= (size_t)record - EXTRA_BYTES;
    unsigned long long bytes = 0;
    unsigned char kind;

    if (record <= 0) {
        return record;
    }
    if (!direct && !ensure(&cipher->plain, (size_t)record)) {
        return -1;
    }
    if (crypto_secretstream_xchacha20poly1305_pull(
            &cipher->pull, direct ? parts[0].iov_base : cipher->plain.data, &bytes, &kind,
            cipher->in.data + cipher->in.begin + LENGTH_BYTES, (size_t)record, NULL, 0) != 0) {
        errno = EBADMSG;
        return -1;
    }
    cipher->in.begin += LENGTH_BYTES + (size_t)record;
    if (direct) {
        return (ssize_t)bytes;
    }
    cipher->plain.begin = 0;
    cipher->plain.end = (size_t)bytes;
    return (ssize_t)take_plain(cipher, parts);
}

ssize_t cddpi_stream_recv(struct cddpi_stream *stream, const struct iovec parts[2])
{
    struct iovec copy[2] = {parts[0], parts[1]};
    struct msghdr message = {.msg_iov = copy, .msg_iovlen = 2};
    ssize_t got;

    if (stream->cipher != NULL) {
        return stream->cipher->plain.begin < stream->cipher->plain.end
                   ? (ssize_t)take_plain(stream->cipher, parts)
                   : decrypt(stream, parts);
    }
    do {
        got = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

bool cddpi_stream_has_more(const struct cddpi_stream *stream)
{
    const struct cddpi_cipher *cipher = stream->cipher;

    return cipher != NULL && (cipher->plain.begin < cipher->plain.end || first_record(cipher) != 0);
}
