/* frame.h - owns the format of data on a connection after both sides have proved the token. Data
 * connections carry pieces of messages, each after a head; control connections carry aborts and the
 * goodbye. Numbers are little-endian. */
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

/* The head of a piece; a goodbye has only its kind. */
struct tcp_frame {
    enum tcp_frame_kind kind;
    uint32_t tag;
    uint32_t number; /* counts the messages of a channel in one direction, so that two messages with
                        the same tag on different connections are received in order */
    uint64_t total;  /* bytes of the message */
    uint64_t offset, bytes; /* the part of the message that follows */
};

/* The signature state of one direction of a data connection. Heads are signed even if the data is
 * not encrypted, so that an attacker on the path cannot insert, drop or replay messages or a
 * goodbye. (He can change unencrypted data; CDDP_ENCRYPT=1 prevents that.) */
struct tcp_signature {
    uint8_t key[TCP_SIGNATURE_KEY_BYTES];
    uint64_t count; /* number of heads so far */
};

/** Initialise it for the data that this side, or the other side, sends. */
void cddpi_tcp_signature_init(struct tcp_signature *signature, const struct cddpi_session *session,
                              bool is_own);

/** Sign the next head, which is everything of a frame's head except the signature. */
void cddpi_tcp_head_sign(const uint8_t *head, struct tcp_signature *signature,
                         uint8_t out[TCP_SIGNATURE_BYTES]);

/** Write the next head. */
void cddpi_tcp_frame_put(const struct tcp_frame *frame, struct tcp_signature *signature,
                         uint8_t out[TCP_FRAME_BYTES]);
/** Read the next head. @return 0, or the error for which the connection is lost: EBADMSG: the peer
 *  did not send this head; EPROTO: it is invalid. */
int cddpi_tcp_frame_get(const uint8_t from[TCP_FRAME_BYTES], struct tcp_signature *signature,
                        struct tcp_frame *out);

/* Control messages: one byte for the kind; after TCP_CONTROL_ABORT, a failure. */
enum { TCP_CONTROL_ABORT = 'a', TCP_CONTROL_GOODBYE = 'g' };

enum {
    TCP_FAILURE_HEAD_BYTES = 28,
    TCP_CONTROL_MAX_BYTES = 1 + TCP_FAILURE_HEAD_BYTES + CDDPI_FAILURE_OPERATION_BYTES +
                            CDDPI_FAILURE_TEXT_BYTES
};

/** Write an abort. @return Its size in bytes. */
size_t cddpi_tcp_abort_put(const struct cddpi_failure *failure, uint8_t out[TCP_CONTROL_MAX_BYTES]);

/** The length of the control message that begins with these @p bytes bytes; 0: more bytes are
 *  needed to tell; -1: it is not a control message. Never above TCP_CONTROL_MAX_BYTES. */
int cddpi_tcp_control_bytes(const uint8_t *data, size_t bytes);

/** Read an abort whose length the function above returned. False: it is invalid. */
bool cddpi_tcp_abort_get(const uint8_t *data, struct cddpi_failure *out);

#endif
