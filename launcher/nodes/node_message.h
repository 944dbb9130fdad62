/* node_message.h - the format of everything that one cddp-run sends to another, through the job's
 * store or a pipe. For each kind of message, a table lists the members of a struct that are sent,
 * with their bounds. The encoder and the decoder follow the table. The decoder does not trust its
 * input.
 *
 *   message  magic u64, version u32, kind u32, body_bytes u64, body
 *
 * The header has the same format in every version, so that an older cddp-run can report a version
 * mismatch. In the body, a number is 8 bytes, little-endian. A text is its length, as a number,
 * followed by its bytes. A list is its number of elements, followed by the elements. */
#ifndef CDDPI_LAUNCHER_NODE_MESSAGE_H
#define CDDPI_LAUNCHER_NODE_MESSAGE_H

#include "store/store_wire.h"

#include <stddef.h>

enum { CDDPI_MESSAGE_VERSION = 1, CDDPI_MESSAGE_HEAD_BYTES = 24 };

enum cddpi_message_kind {
    CDDPI_MESSAGE_EVENT = 1, /* node_link.h */
    CDDPI_MESSAGE_RECORD,    /* node_record.h */
    CDDPI_MESSAGE_PLAN,      /* node_record.h */
    CDDPI_MESSAGE_BOARD,     /* node_place.c */
    CDDPI_MESSAGE_REFUSED,   /* refused.h */
    CDDPI_MESSAGE_PARCEL     /* parcel.h */
};

enum cddpi_field_type {
    CDDPI_FIELD_END, /* end of a table */
    CDDPI_FIELD_INT, /* or an enum */
    CDDPI_FIELD_INT64,
    CDDPI_FIELD_BOOL,
    CDDPI_FIELD_TEXT,   /* char[bytes] */
    CDDPI_FIELD_STRING, /* char *; owned after decoding */
    CDDPI_FIELD_LIST,   /* element *, owned after decoding; its length is an int */
    CDDPI_FIELD_ROWS    /* element[high]; its length is an int */
};

struct cddpi_field {
    enum cddpi_field_type type;
    size_t at;         /* offset in the struct */
    int64_t low, high; /* bounds of a number or of a list's length */
    size_t bytes;      /* TEXT, STRING: the most, including the NUL; LIST, ROWS: size of one
                          element */
    size_t length_at;  /* LIST, ROWS: offset of the length in the struct */
    const struct cddpi_field *element; /* LIST, ROWS: the table of one element, which in ROWS must
                                          own nothing */
};

#define CDDPI_FIELD_OF_INT(holder, member, least, most)                                            \
    {                                                                                              \
        .type = CDDPI_FIELD_INT, .at = offsetof(holder, member), .low = (least), .high = (most)    \
    }
#define CDDPI_FIELD_OF_INT64(holder, member, least, most)                                          \
    {                                                                                              \
        .type = CDDPI_FIELD_INT64, .at = offsetof(holder, member), .low = (least), .high = (most)  \
    }
#define CDDPI_FIELD_OF_BOOL(holder, member)                                                        \
    {                                                                                              \
        .type = CDDPI_FIELD_BOOL, .at = offsetof(holder, member), .high = 1                        \
    }
#define CDDPI_FIELD_OF_TEXT(holder, member)                                                        \
    {                                                                                              \
        .type = CDDPI_FIELD_TEXT, .at = offsetof(holder, member),                                  \
        .bytes = sizeof(((holder *)0)->member)                                                     \
    }
#define CDDPI_FIELD_OF_STRING(holder, member, most)                                                \
    {                                                                                              \
        .type = CDDPI_FIELD_STRING, .at = offsetof(holder, member), .bytes = (most)                \
    }
#define CDDPI_FIELD_OF_LIST(holder, member, length, most, table)                                   \
    {                                                                                              \
        .type = CDDPI_FIELD_LIST, .at = offsetof(holder, member), .high = (most),                  \
        .bytes = sizeof *((holder *)0)->member, .length_at = offsetof(holder, length),             \
        .element = (table)                                                                         \
    }
#define CDDPI_FIELD_OF_ROWS(holder, member, length, table)                                         \
    {                                                                                              \
        .type = CDDPI_FIELD_ROWS, .at = offsetof(holder, member),                                  \
        .high = sizeof(((holder *)0)->member) / sizeof *((holder *)0)->member,                     \
        .bytes = sizeof *((holder *)0)->member, .length_at = offsetof(holder, length),             \
        .element = (table)                                                                         \
    }

struct cddpi_message_form {
    enum cddpi_message_kind kind;
    size_t bytes;                     /* size of the struct */
    size_t most_bytes;                /* limit of the body's size */
    const struct cddpi_field *fields; /* ended by CDDPI_FIELD_END */
};

/** Append @p object to @p out, which on failure may hold a part of it.
 *  @return CDDP_ERR_NO_MEMORY; CDDP_ERR_ARGUMENT: a member is out of its bounds. */
CDDP_CHECKED cddp_status cddpi_message_encode(const struct cddpi_message_form *form,
                                              const void *object, struct cddpi_wire_buffer *out);

/** Decode a message.
 *  @param out  A struct of the form, overwritten. Release with cddpi_message_fini(), also after a
 *              failure.
 *  @return CDDP_ERR_MISMATCH: another version; CDDP_ERR_FORMAT: damaged, or of another kind;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_message_decode(const struct cddpi_message_form *form,
                                              const uint8_t *data, size_t bytes, void *out);

/** Decode only the header, to learn how many bytes of body to read from a pipe. Returns as
 *  cddpi_message_decode(). */
CDDP_CHECKED cddp_status cddpi_message_read_head(const struct cddpi_message_form *form,
                                                 const uint8_t head[CDDPI_MESSAGE_HEAD_BYTES],
                                                 size_t *out_body_bytes);

/** Release what decoding allocated for @p object. */
void cddpi_message_fini(const struct cddpi_message_form *form, void *object);

#endif
