/* stream.h - a connected socket as a stream of bytes, encrypted or not: what is above it need not
 * know. Non-blocking; one thread at a time. */
#ifndef CDDPI_GROUP_NET_TCP_STREAM_H
#define CDDPI_GROUP_NET_TCP_STREAM_H

#include "group/net/tcp/hello.h"

#include <sys/types.h>
#include <sys/uio.h>

/* Encryption by libsodium's secretstream, in records of 4 bytes that tell the length of the
 * ciphertext that follows. */
enum { TCP_RECORD_MAX_BYTES = 64 << 10 }; /* of ciphertext */

struct tcp_cipher;

struct tcp_stream {
    int fd;
    struct tcp_cipher *cipher; /* NULL: plain */
};

/** A cipher that sends what begins with the header it writes to @p out_header. @p side: who sends,
 *  as for cddpi_auth_make(). NULL: no memory. Release with cddpi_tcp_cipher_destroy(). */
struct tcp_cipher *cddpi_tcp_cipher_create(const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                                           const char *side,
                                           const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                           const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                                           uint8_t out_header[TCP_CIPHER_HEADER_BYTES]);
/** Receive what the other @p side sends behind its @p header. False: the header is none. */
bool cddpi_tcp_cipher_accept(struct tcp_cipher *cipher, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                             const char *side, const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                             const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                             const uint8_t header[TCP_CIPHER_HEADER_BYTES]);
void cddpi_tcp_cipher_destroy(struct tcp_cipher *cipher);

/** Take bytes of two parts, first those of the first. Returns how many, or -1 with errno; EAGAIN:
 * not before the socket is writable. */
ssize_t cddpi_tcp_stream_send(struct tcp_stream *stream, const struct iovec parts[2]);
/** Send what was taken and could not be sent. False: not all of it, errno says why. */
bool cddpi_tcp_stream_flush(struct tcp_stream *stream);
/** Get bytes into two parts, first into the first. Returns how many, 0 at the end, or -1 with
 * errno: EAGAIN: not before the socket is readable; EBADMSG: they were not what the peer has sent.
 */
ssize_t cddpi_tcp_stream_recv(struct tcp_stream *stream, const struct iovec parts[2]);

#endif
