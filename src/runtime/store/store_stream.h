/* store_stream.h - a connected socket as a stream of bytes, encrypted or not: what is above it need
 * not know. Non-blocking; one thread at a time. */
#ifndef CDDPI_STORE_STREAM_H
#define CDDPI_STORE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>
#include <sys/uio.h>

struct cddpi_session; /* session.h */

/* Encryption (cipher.h), in records of 4 bytes that tell the length of the ciphertext that follows.
 */
struct cddpi_cipher;

struct cddpi_store_stream {
    int fd;
    struct cddpi_cipher *cipher; /* NULL: plain */
};

/** A cipher for a connection whose greeting is done. NULL: no memory. Release with
 *  cddpi_cipher_destroy(), which accepts NULL, and forgets its keys. */
struct cddpi_cipher *cddpi_cipher_create(const struct cddpi_session *session);
/** Long messages will go by it: be as fast as this machine can. */
void cddpi_cipher_bulk(struct cddpi_cipher *cipher);
void cddpi_cipher_destroy(struct cddpi_cipher *cipher);

/** Take bytes of two parts, first those of the first. Returns how many, or -1 with errno; EAGAIN:
 * not before the socket is writable. */
ssize_t cddpi_stream_send(struct cddpi_store_stream *stream, const struct iovec parts[2]);
/** Send what was taken and could not be sent. False: not all of it, errno says why. */
bool cddpi_stream_flush(struct cddpi_store_stream *stream);
/** Get bytes into two parts, first into the first. Returns how many, 0 at the end, or -1 with
 * errno: EAGAIN: not before the socket is readable; EBADMSG: they were not what the peer has sent.
 */
ssize_t cddpi_stream_recv(struct cddpi_store_stream *stream, const struct iovec parts[2]);
/** Nothing more is expected for now: give memory back that messages took. */
void cddpi_stream_rest(struct cddpi_store_stream *stream);
/** Whether there are bytes to get that the socket has given already, so that it tells nothing. */
bool cddpi_stream_has_more(const struct cddpi_store_stream *stream);

#endif
