/* stream.h - a connected socket as a stream of bytes, encrypted or not: what is above it need not
 * know. Non-blocking; one thread at a time. */
#ifndef CDDPI_STORE_STREAM_H
#define CDDPI_STORE_STREAM_H

#include "store/auth.h"

#include <cddp/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>
#include <sys/uio.h>

/* Encryption by libsodium's secretstream, in records of 4 bytes that tell the length of the
 * ciphertext that follows. */
enum { CDDPI_CIPHER_HEADER_BYTES = 24 };

struct cddpi_cipher;

struct cddpi_stream {
    int fd;
    struct cddpi_cipher *cipher; /* NULL: plain */
};

/** A cipher that sends what begins with the header it writes to @p out_header. @p side: who sends,
 *  as for cddpi_auth_make(). NULL: no memory. Release with cddpi_cipher_destroy(). */
struct cddpi_cipher *cddpi_cipher_create(const uint8_t key[CDDPI_AUTH_KEY_BYTES], const char *side,
                                         const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                         const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                                         uint8_t out_header[CDDPI_CIPHER_HEADER_BYTES]);
/** Receive what the other @p side sends behind its @p header. False: the header is none. */
bool cddpi_cipher_accept(struct cddpi_cipher *cipher, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const char *side, const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                         const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                         const uint8_t header[CDDPI_CIPHER_HEADER_BYTES]);
void cddpi_cipher_destroy(struct cddpi_cipher *cipher);

/** Whether CDDP_ENCRYPT asks for encryption. Also starts the library that does it.
 *  @return CDDP_ERR_ARGUMENT: it does, and @p token is no secret; CDDP_ERR_UNAVAILABLE. */
CDDP_CHECKED cddp_status cddpi_encryption(const char *token, bool *out);

/** Take bytes of two parts, first those of the first. Returns how many, or -1 with errno; EAGAIN:
 * not before the socket is writable. */
ssize_t cddpi_stream_send(struct cddpi_stream *stream, const struct iovec parts[2]);
/** Send what was taken and could not be sent. False: not all of it, errno says why. */
bool cddpi_stream_flush(struct cddpi_stream *stream);
/** Get bytes into two parts, first into the first. Returns how many, 0 at the end, or -1 with
 * errno: EAGAIN: not before the socket is readable; EBADMSG: they were not what the peer has sent.
 */
ssize_t cddpi_stream_recv(struct cddpi_stream *stream, const struct iovec parts[2]);
/** Whether there are bytes to get that the socket has given already, so that it tells nothing. */
bool cddpi_stream_has_more(const struct cddpi_stream *stream);

#endif
