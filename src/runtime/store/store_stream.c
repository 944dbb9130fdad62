/* store_stream.c - owns sending and receiving on a socket, with or without encryption. Without it,
 * bytes go directly from and to the caller's memory. With it, the cipher reads or writes the
 * caller's memory, so there is one copy; only the ends of messages are copied twice. */
#include "store/store_stream.h"

#include "base/alloc.h"
#include "store/cipher.h"
#include "store/session.h"
#include "store/store_wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LENGTH_BYTES = 4,
    RECORD_MAX_BYTES = 64 << 10, /* ciphertext of a record */
    FIRST_BYTES = 4096,          /* initial room to receive; it grows with the records */
    EXTRA_BYTES = CDDPI_CIPHER_TAG_BYTES,
    PLAIN_MAX_BYTES = RECORD_MAX_BYTES - EXTRA_BYTES,
    GATHER_BYTES = 8192 /* two parts that are together no longer than this become one record */
};

/* A buffer that grows as needed: most connections never carry a long message. */
struct room {
    uint8_t *data;
    size_t bytes;
    size_t begin, end; /* the part in use */
};

struct cddpi_cipher {
    struct cddpi_seal push, pull;
    struct room out;   /* encrypted, not sent yet */
    struct room in;    /* received, not decrypted yet */
    struct room plain; /* decrypted, not handed to the caller yet */
};

/* Make @p room at least @p bytes large. False, with errno: no memory. */
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

static void begin_seal(struct cddpi_seal *seal, const struct cddpi_session *session, bool is_own)
{
    uint8_t key[CDDPI_CIPHER_KEY_BYTES];

    cddpi_session_key(session, is_own, "records", key);
    cddpi_seal_init(seal, (enum cddpi_cipher_kind)session->cipher, key);
    sodium_memzero(key, sizeof key);
}

struct cddpi_cipher *cddpi_cipher_create(const struct cddpi_session *session)
{
    struct cddpi_cipher *cipher = cddpi_zalloc(sizeof *cipher);

    if (cipher != NULL) {
        begin_seal(&cipher->push, session, true);
        begin_seal(&cipher->pull, session, false);
    }
    return cipher;
}

void cddpi_cipher_bulk(struct cddpi_cipher *cipher)
{
    cddpi_seal_bulk(&cipher->push, true);
    cddpi_seal_bulk(&cipher->pull, false);
}

static void release(struct room *room)
{
    if (room->data != NULL) {
        sodium_memzero(room->data, room->bytes); /* it may contain decrypted data */
    }
    cddpi_free(room->data);
    memset(room, 0, sizeof *room);
}

void cddpi_cipher_destroy(struct cddpi_cipher *cipher)
{
    if (cipher != NULL) {
        release(&cipher->out);
        release(&cipher->in);
        release(&cipher->plain);
        cddpi_seal_fini(&cipher->push);
        cddpi_seal_fini(&cipher->pull);
        cddpi_free(cipher);
    }
}

static void rest(struct room *room)
{
    if (room->begin == room->end) {
        release(room);
    }
}

void cddpi_stream_rest(struct cddpi_store_stream *stream)
{
    if (stream->cipher != NULL) {
        rest(&stream->cipher->out);
        rest(&stream->cipher->in);
        rest(&stream->cipher->plain);
    }
}

bool cddpi_stream_flush(struct cddpi_store_stream *stream)
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

/* Encrypt the first bytes of @p parts as one record. Returns how many bytes; -1, with errno: no
 * memory. */
static ssize_t encrypt(struct cddpi_cipher *cipher, const struct iovec parts[2])
{
    const uint8_t *from = parts[0].iov_len > 0 ? parts[0].iov_base : parts[1].iov_base;
    size_t bytes = parts[0].iov_len > 0 ? parts[0].iov_len : parts[1].iov_len;
    uint8_t gathered[GATHER_BYTES];

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
    cddpi_seal_put(&cipher->push, from, bytes, cipher->out.data + LENGTH_BYTES);
    cddpi_put_u32(cipher->out.data, (uint32_t)(bytes + EXTRA_BYTES));
    cipher->out.begin = 0;
    cipher->out.end = LENGTH_BYTES + bytes + EXTRA_BYTES;
    return (ssize_t)bytes;
}

ssize_t cddpi_stream_send(struct cddpi_store_stream *stream, const struct iovec parts[2])
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

/* The ciphertext length of the first received record. 0: the record is not complete yet; -1: its
 * length is invalid. */
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

/* Make room after the received bytes: enough for the rest of a long record and one more of that
 * length, or for a few short records. */
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

/* Receive until the first record is complete. Returns its ciphertext length; 0: end of the stream;
 * -1, with errno. */
static ssize_t fill(struct cddpi_store_stream *stream)
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

static ssize_t decrypt(struct cddpi_store_stream *stream, const struct iovec parts[2])
{
    struct cddpi_cipher *cipher = stream->cipher;
    ssize_t record = fill(stream);
    bool direct = record > 0 && parts[0].iov_len >= (size_t)record - EXTRA_BYTES;
    size_t bytes;

    if (record <= 0) {
        return record;
    }
    bytes = (size_t)record - EXTRA_BYTES;
    if (!direct && !ensure(&cipher->plain, (size_t)record)) {
        return -1;
    }
    if (!cddpi_seal_get(&cipher->pull, cipher->in.data + cipher->in.begin + LENGTH_BYTES,
                        (size_t)record, direct ? parts[0].iov_base : cipher->plain.data)) {
        errno = EBADMSG;
        return -1;
    }
    cipher->in.begin += LENGTH_BYTES + (size_t)record;
    if (direct) {
        return (ssize_t)bytes;
    }
    cipher->plain.begin = 0;
    cipher->plain.end = bytes;
    return (ssize_t)take_plain(cipher, parts);
}

ssize_t cddpi_stream_recv(struct cddpi_store_stream *stream, const struct iovec parts[2])
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

bool cddpi_stream_has_more(const struct cddpi_store_stream *stream)
{
    const struct cddpi_cipher *cipher = stream->cipher;

    return cipher != NULL && (cipher->plain.begin < cipher->plain.end || first_record(cipher) != 0);
}
