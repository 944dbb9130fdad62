/* frame.h - what goes over a connection that has proved the token: on data connections pieces of
 * messages, each behind a head; on control connections aborts and the goodbye. Numbers
 * are little-endian. */
#ifndef CDDPI_GROUP_NET_TCP_FRAME_H
#define CDDPI_GROUP_NET_TCP_FRAME_H

#include "base/error.h"
#include "store/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tcp_frame_kind { TCP_FRAME_PIECE = 1, TCP_FRAME_GOODBYE = 2 };

enum {
    TCP_SIGNATURE_KEY_BYTES = 16,
    TCP_SIGNATURE_BYTES = 16,
    TCP_FRAME_BYTES = 32 + TCP_SIGNATURE_BYTES
};
#define TCP_MESSAGE_MAX (UINT64_C(1) << 48)

/* The head of a piece; a goodbye has nothing but its kind. */
struct tcp_frame {
    enum tcp_frame_kind kind;
    uint32_t tag;
    uint32_t number; /* counts the messages of a channel in one direction, so that of two with one
                        tag, on different connections, the first is taken first */
    uint64_t total;  /* bytes of the message */
    uint64_t offset, bytes; /* which part of it follows */
};

/* One direction of a data connection: its heads are signed, also where the data are plain, so that
 * nobody on the way can put in messages or a goodbye, leave one out, or send one again. (What plain
 * data are he can change, which CDDP_ENCRYPT=1 prevents.) */
struct tcp_signature {
    uint8_t key[TCP_SIGNATURE_KEY_BYTES];
    uint64_t count; /* of heads so far */
};

/** For what this side, or the other, sends. */
void cddpi_tcp_signature_init(struct tcp_signature *signature, const struct cddpi_session *session,
                              bool is_own);

/** Sign the next head, which is all of a frame's but the signature. */
void cddpi_tcp_head_sign(const uint8_t *head, struct tcp_signature *signature,
                         uint8_t out[TCP_SIGNATURE_BYTES]);

/** Write the next head. */
void cddpi_tcp_frame_put(const struct tcp_frame *frame, struct tcp_signature *signature,
                         uint8_t out[TCP_FRAME_BYTES]);
/** Read the next head. @return 0, or what the connection is lost for: EBADMSG, it is not what the
 *  peer has sent; EPROTO, it makes no sense. */
int cddpi_tcp_frame_get(const uint8_t from[TCP_FRAME_BYTES], struct tcp_signature *signature,
                        struct tcp_frame *out);

/* Control messages: a byte that says which, and behind TCP_CONTROL_ABORT a failure. */
enum { TCP_CONTROL_ABORT = 'a', TCP_CONTROL_GOODBYE = 'g' };

enum {
    TCP_FAILURE_HEAD_BYTES = 28,
    TCP_CONTROL_MAX_BYTES = 1 + TCP_FAILURE_HEAD_BYTES + CDDPI_FAILURE_OPERATION_BYTES +
                            CDDPI_FAILURE_TEXT_BYTES
};

/** Write an abort. @return its bytes. */
size_t cddpi_tcp_abort_put(const struct cddpi_failure *failure, uint8_t out[TCP_CONTROL_MAX_BYTES]);

/** The length of the control message that begins with these @p bytes bytes; 0: more of it must come
 *  to tell; -1: it is none. Never above TCP_CONTROL_MAX_BYTES. */
int cddpi_tcp_control_bytes(const uint8_t *data, size_t bytes);

/** Read an abort of whose length the function above was sure. False: it makes no sense. */
bool cddpi_tcp_abort_get(const uint8_t *data, struct cddpi_failure *out);

#endif
