/* message.h - owns the encoding of what processes tell each other: ranks that join, through the
 * rendezvous or a bootstrap, and cddp-runs, through the job's store or a pipe. For each kind of
 * message, a table lists the members of a struct that are sent, with their bounds. Encoding and
 * decoding follow the table. The decoder does not trust its input.
 *
 *   message  magic u64, version u32, kind u32, body_bytes u64, body
 *
 * The header has the same format in every version, so that an older cddp can report a version
 * mismatch. In the body, a number is 8 bytes, little-endian. A text is its length, as a number,
 * followed by its bytes. A list is its number of elements, followed by the elements. */
#ifndef CDDPI_STORE_MESSAGE_H
#define CDDPI_STORE_MESSAGE_H

#include "store/store_wire.h"

#include <stddef.h>

enum { CDDPI_MESSAGE_VERSION = 2, CDDPI_MESSAGE_HEAD_BYTES = 24 };

enum cddpi_message_kind {
    CDDPI_MESSAGE_EVENT = 1,    /* launcher/nodes/node_link.h */
    CDDPI_MESSAGE_RECORD,       /* launcher/nodes/node_record.h */
    CDDPI_MESSAGE_PLAN,         /* launcher/nodes/node_record.h */
    CDDPI_MESSAGE_BOARD,        /* launcher/nodes/node_place.c */
    CDDPI_MESSAGE_REFUSED,      /* launcher/nodes/refused.h */
    CDDPI_MESSAGE_PARCEL,       /* launcher/hosts/parcel.h */
    CDDPI_MESSAGE_WHO,          /* group/join/rendezvous.h */
    CDDPI_MESSAGE_REFUSAL,      /* group/join/rendezvous_news.c */
    CDDPI_MESSAGE_MEMBER,       /* group/join/members.h */
    CDDPI_MESSAGE_MEMBER_HOSTS, /* group/join/members.h */
    CDDPI_MESSAGE_SHARED_BLOCK, /* group/shm/handshake.c */
    CDDPI_MESSAGE_ARRIVAL,      /* group/join/bootstrap.c */
    CDDPI_MESSAGE_OFFER,        /* group/join/bootstrap.c */
    CDDPI_MESSAGE_CTL_REQUEST,  /* launcher/ctl/ctl_message.h */
    CDDPI_MESSAGE_CTL_ANSWER    /* launcher/ctl/ctl_message.h */
};

enum cddpi_field_type {
    CDDPI_FIELD_END,    /* end of a table */
    CDDPI_FIELD_NUMBER, /* an int, an enum, a bool or 64 bits */
    CDDPI_FIELD_BYTES,  /* uint8_t[bytes] or a struct of that size, as it is */
    CDDPI_FIELD_TEXT,   /* char[bytes] */
    CDDPI_FIELD_STRING, /* char *; owned after decoding */
    CDDPI_FIELD_LIST,   /* element *, owned after decoding; its length is an int */
    CDDPI_FIELD_ROWS    /* element[high]; its length is an int */
};

struct cddpi_field {
    enum cddpi_field_type type;
    size_t at;         /* offset in the struct */
    int64_t low, high; /* bounds of a number or of a list's length */
    size_t bytes; /* NUMBER, BYTES: its size; TEXT, STRING: the most, including the NUL; LIST, ROWS:
                     size of one element */
    size_t length_at;                  /* LIST, ROWS: offset of the length in the struct */
    const struct cddpi_field *element; /* LIST, ROWS: the table of one element, which in ROWS must
                                          own nothing */
};

#define CDDPI_MEMBER(kind, holder, member, ...)                                                    \
    {                                                                                              \
        .type = CDDPI_FIELD_##kind, .at = offsetof(holder, member), __VA_ARGS__                    \
    }
#define CDDPI_MEMBER_BYTES(holder, member) sizeof(((holder *)0)->member)
#define CDDPI_MEMBER_OF_ALL(kind, holder, member)                                                  \
    CDDPI_MEMBER(kind, holder, member, .bytes = CDDPI_MEMBER_BYTES(holder, member))

/* A number from @p least to @p most. A bool is from 0 to 1. */
#define CDDPI_NUMBER(holder, member, least, most)                                                  \
    CDDPI_MEMBER(NUMBER, holder, member, .low = (least), .high = (most),                           \
                 .bytes = CDDPI_MEMBER_BYTES(holder, member))
#define CDDPI_U64(holder, member) CDDPI_NUMBER(holder, member, INT64_MIN, INT64_MAX)
#define CDDPI_BYTES(holder, member) CDDPI_MEMBER_OF_ALL(BYTES, holder, member)
#define CDDPI_TEXT(holder, member) CDDPI_MEMBER_OF_ALL(TEXT, holder, member)
#define CDDPI_STRING(holder, member, most) CDDPI_MEMBER(STRING, holder, member, .bytes = (most))
#define CDDPI_LIST(holder, member, length, most, table)                                            \
    CDDPI_MEMBER(LIST, holder, member, .high = (most),                                             \
                 .bytes = CDDPI_MEMBER_BYTES(holder, member[0]),                                   \
                 .length_at = offsetof(holder, length), .element = (table))
#define CDDPI_ROWS(holder, member, length, table)                                                  \
    CDDPI_MEMBER(ROWS, holder, member,                                                             \
                 .high = CDDPI_MEMBER_BYTES(holder, member) /                                      \
                         CDDPI_MEMBER_BYTES(holder, member[0]),                                    \
                 .bytes = CDDPI_MEMBER_BYTES(holder, member[0]),                                   \
                 .length_at = offsetof(holder, length), .element = (table))

struct cddpi_message_form {
    enum cddpi_message_kind kind;
    size_t bytes;                     /* size of the struct */
    size_t most_bytes;                /* limit of the body's size */
    const struct cddpi_field *fields; /* ended by CDDPI_FIELD_END */
};

/* Define the form @p name of messages that are @p holder, with a body of at most @p most bytes. The
 * members follow. */
#define CDDPI_MESSAGE_FORM(name, kind, holder, most, ...)                                          \
    static const struct cddpi_field name##_members[] = {__VA_ARGS__, {.type = CDDPI_FIELD_END}};   \
    const struct cddpi_message_form name = {CDDPI_MESSAGE_##kind, sizeof(holder), most,            \
                                            name##_members}

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

/** Encode @p object at the begin of a block of @p bytes bytes, the rest of which is zeroed, for an
 *  exchange of blocks of one size; and decode it. Return as the functions above. */
CDDP_CHECKED cddp_status cddpi_message_pack(const struct cddpi_message_form *form,
                                            const void *object, void *block, size_t bytes);
CDDP_CHECKED cddp_status cddpi_message_unpack(const struct cddpi_message_form *form,
                                              const void *block, size_t bytes, void *out);

/** Decode only the header, to learn how many bytes of body to read from a pipe. Returns as
 *  cddpi_message_decode(). */
CDDP_CHECKED cddp_status cddpi_message_read_head(const struct cddpi_message_form *form,
                                                 const uint8_t head[CDDPI_MESSAGE_HEAD_BYTES],
                                                 size_t *out_body_bytes);

/** Whether @p data is a message of this form's kind, of any version, complete or not. */
bool cddpi_message_is(const struct cddpi_message_form *form, const uint8_t *data, size_t bytes);

/** Encode @p object and set @p key of @p store to it. */
CDDP_CHECKED cddp_status cddpi_message_set(cddp_store *store, const char *key,
                                           const struct cddpi_message_form *form,
                                           const void *object);

/** The same if @p key has no value yet.
 *  @param out_value  The value afterwards, as from cddp_store_compare_set(); may be NULL. */
CDDP_CHECKED cddp_status cddpi_message_set_first(cddp_store *store, const char *key,
                                                 const struct cddpi_message_form *form,
                                                 const void *object, bool *out_is_first,
                                                 void **out_value, size_t *out_bytes);

/** Release what decoding allocated for @p object. */
void cddpi_message_fini(const struct cddpi_message_form *form, void *object);

#endif
