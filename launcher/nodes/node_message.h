/* node_message.h - the one form of all that a cddp-run tells another one, through the job's store
 * or through a pipe. A table for each kind of message says which members of a struct are in it and
 * within which bounds; encoder and decoder follow the table. Who reads trusts nothing.
 *
 *   message  magic u64, version u32, kind u32, body_bytes u64, body
 *
 * The head keeps its form in every version, so that an older cddp-run can say what is wrong. In the
 * body a number has 8 bytes, the lowest first; a text is its length, as a number, and its bytes;
 * a list is the number of its elements, and the elements. */
#ifndef CDDPI_LAUNCHER_NODE_MESSAGE_H
#define CDDPI_LAUNCHER_NODE_MESSAGE_H

#include "store/store_wire.h"

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_MESSAGE_VERSION = 1, CDDPI_MESSAGE_HEAD_BYTES = 24 };

enum cddpi_message_kind {
    CDDPI_MESSAGE_EVENT = 1, /* node_event.h */
    CDDPI_MESSAGE_RECORD,    /* node_record.h */
    CDDPI_MESSAGE_PLAN,      /* node_record.h */
    CDDPI_MESSAGE_BOARD,     /* node_place.c */
    CDDPI_MESSAGE_REFUSED,   /* refused.h */
    CDDPI_MESSAGE_PARCEL     /* parcel.h */
};

enum cddpi_field_type {
    CDDPI_FIELD_END, /* of a table */
    CDDPI_FIELD_INT, /* or an enum */
    CDDPI_FIELD_INT64,
    CDDPI_FIELD_BOOL,
    CDDPI_FIELD_TEXT,   /* char[bytes] */
    CDDPI_FIELD_STRING, /* char *: owned once it was decoded */
    CDDPI_FIELD_LIST,   /* element *, owned once it was decoded; its length is an int */
    CDDPI_FIELD_ROWS    /* element[high]; so is its length */
};

struct cddpi_field {
    enum cddpi_field_type type;
    size_t at;         /* in the struct */
    int64_t low, high; /* of a number, or of the length of a list */
    size_t bytes;      /* TEXT, STRING: at most, with its NUL; LIST, ROWS: of an element */
    size_t length_at;  /* LIST, ROWS: where the length is in the struct */
    const struct cddpi_field *element; /* LIST, ROWS: the table of an element; it owns nothing in
                                          ROWS */
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
    size_t bytes;                     /* of the struct */
    size_t most_bytes;                /* of the body */
    const struct cddpi_field *fields; /* ended by CDDPI_FIELD_END */
};

/** Append @p object to @p out.
 *  @return CDDP_ERR_NO_MEMORY; CDDP_ERR_ARGUMENT: a member is out of its bounds. @p out then
 *          has a part of it. */
CDDP_CHECKED cddp_status cddpi_message_encode(const struct cddpi_message_form *form,
                                              const void *object, struct cddpi_wire_buffer *out);

/** Read a message.
 *  @param out  A struct of the form, overwritten. Release with cddpi_message_fini(), also after a
 *              failure.
 *  @return CDDP_ERR_MISMATCH: it is of another version; CDDP_ERR_FORMAT: it is damaged, or of
 * another kind; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_message_decode(const struct cddpi_message_form *form,
                                              const uint8_t *data, size_t bytes, void *out);

/** Read the head alone, to know how many bytes to read from a pipe; as cddpi_message_decode(). */
CDDP_CHECKED cddp_status cddpi_message_read_head(const struct cddpi_message_form *form,
                                                 const uint8_t head[CDDPI_MESSAGE_HEAD_BYTES],
                                                 size_t *out_body_bytes);

/** Release what was decoded to @p object. */
void cddpi_message_fini(const struct cddpi_message_form *form, void *object);

#endif
