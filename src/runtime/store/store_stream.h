/* store_stream.h - owns a connected socket as a stream of bytes. Callers need not know whether it
 * is encrypted. Non-blocking; one thread at a time. tcp_connect.c owns the way from an address to a
 * connection on which both sides have proved that they know the token. */
#ifndef CDDPI_STORE_STREAM_H
#define CDDPI_STORE_STREAM_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct cddpi_session; /* session.h */

/* Encryption (cipher.h) of both directions. A record is the length of the ciphertext (4 bytes),
 * then the ciphertext. */
struct cddpi_cipher;

struct cddpi_store_stream {
    int fd;
    struct cddpi_cipher *cipher; /* NULL: plain */
};

/** A cipher for a connection after its handshake. NULL: no memory. Release with
 *  cddpi_cipher_destroy(), which accepts NULL and overwrites the keys. */
struct cddpi_cipher *cddpi_cipher_create(const struct cddpi_session *session);
/** Prepare for long messages: use this machine's fastest implementation. */
void cddpi_cipher_bulk(struct cddpi_cipher *cipher);
void cddpi_cipher_destroy(struct cddpi_cipher *cipher);

/** Send bytes of @p parts, in order. Returns how many were accepted, or -1 with errno; EAGAIN: the
 *  socket is full. Accepted bytes may still be in memory: see cddpi_stream_flush(). */
ssize_t cddpi_stream_send(struct cddpi_store_stream *stream, const struct iovec parts[2]);
/** Send accepted bytes that are still in memory. False: some are left, and errno says why. */
bool cddpi_stream_flush(struct cddpi_store_stream *stream);
/** Receive bytes into @p parts, in order. Returns how many; 0 at the end of the stream; or -1 with
 *  errno. EAGAIN: nothing to read now. EBADMSG: the bytes are not what the peer sent. */
ssize_t cddpi_stream_recv(struct cddpi_store_stream *stream, const struct iovec parts[2]);
/** The connection will be idle: release buffers that are empty. */
void cddpi_stream_rest(struct cddpi_store_stream *stream);
/** Whether cddpi_stream_recv() can return bytes that were already read from the socket: poll and
 *  epoll do not report those. */
bool cddpi_stream_has_more(const struct cddpi_store_stream *stream);

enum { CDDPI_ADDRESS_BYTES = 272 };

struct cddpi_address {
    char host[256]; /* a name or an address, without brackets */
    uint16_t port;
};

/** Parse "host:port" or "[address]:port". CDDP_ERR_ARGUMENT: @p text is neither. */
CDDP_CHECKED cddp_status cddpi_address_parse(const char *text, struct cddpi_address *out);

/** Write @p address as "tcp://host:port". */
void cddpi_address_url(const struct cddpi_address *address, char out[CDDPI_ADDRESS_BYTES]);

/** Connect to @p address ("host:port" or "[address]:port"). Try again until @p deadline_ns if the
 *  server does not listen yet or is full.
 *  @param out  Non-blocking. The caller closes its fd and destroys its cipher. */
cddp_status cddpi_tcp_connect(const char *address, const char *token, int64_t deadline_ns,
                              struct cddpi_store_stream *out);

#endif
