/* request.h - what an operation on the store is, independent of where it is done: the handle
 * (store.c) makes requests, a backend (store_tcp.c, store_file.c) has them done, the table
 * (store_table.c) does them.
 */
#ifndef CDDPI_STORE_REQUEST_H
#define CDDPI_STORE_REQUEST_H

#include <cddp/store.h>

/* A handle's prefix and a key each have at most CDDP_STORE_KEY_BYTES bytes. */
enum { CDDPI_STORE_FULL_KEY_BYTES = 2 * CDDP_STORE_KEY_BYTES };

/* Most bytes of a block of keys (struct cddpi_store_request, WAIT), and of a list. */
enum { CDDPI_STORE_KEYS_BYTES = 16 << 20, CDDPI_STORE_LIST_BYTES = 64 << 20 };

enum { CDDPI_STORE_LAST_WORD_BYTES = 256 }; /* of its value, at most */

/* Borrowed bytes. */
struct cddpi_slice {
    const uint8_t *data;
    size_t bytes;
};

/* The numbers go over the wire. */
enum cddpi_store_op {
    CDDPI_STORE_SET = 1,
    CDDPI_STORE_GET = 2, /* waits */
    CDDPI_STORE_TRY_GET = 3,
    CDDPI_STORE_ADD = 4,
    CDDPI_STORE_COMPARE_SET = 5,
    CDDPI_STORE_WAIT = 6, /* waits */
    CDDPI_STORE_DELETE = 7,
    CDDPI_STORE_LIST = 8,
    CDDPI_STORE_CANCEL = 9,    /* wire only: give up the waiting request of the same id */
    CDDPI_STORE_LAST_WORD = 10 /* TCP only: set when the connection has ended, however it does */
};

/* Everything is borrowed. Keys are complete: the handle's prefix is in front. */
struct cddpi_store_request {
    enum cddpi_store_op op;
    bool want_value;             /* COMPARE_SET: whether the reply shall hold the value; LIST: the
                                    values, too */
    struct cddpi_slice key;      /* LIST: what the keys begin with */
    struct cddpi_slice value;    /* SET, COMPARE_SET, LAST_WORD: the new value; WAIT: keys, see
                                    store_wire.h */
    struct cddpi_slice expected; /* COMPARE_SET */
    int64_t amount;              /* ADD */
};

/* status is the operation's own result: OK, NOT_FOUND, FORMAT, ARGUMENT, UNAVAILABLE (the list is
 * too long), NO_MEMORY, or TIMEOUT for a key that did not appear.
 * data: the value; ADD: the sum as text; LIST: keys or pairs (store_wire.h); WAIT that timed out:
 * as cddpi_table_missing(). New memory that ends with a NUL, which the receiver releases; may be
 * NULL if bytes is 0. */
struct cddpi_store_reply {
    cddp_status status;
    bool flag; /* COMPARE_SET: swapped; DELETE: existed */
    uint8_t *data;
    size_t bytes;
};

struct cddpi_store_backend;

/* What each form of the store (TCP, file) does for a handle. Called by one thread at a time. */
struct cddpi_store_ops {
    /* CDDP_OK if the store answered, whatever its answer; else nothing is known about the
     * operation's effect, the text says why, and @p out is untouched. GET and WAIT wait until
     * @p deadline_ns; nothing takes much longer. */
    cddp_status (*perform)(struct cddpi_store_backend *backend,
                           const struct cddpi_store_request *request, int64_t deadline_ns,
                           struct cddpi_store_reply *out);
    /* @p forked: this process inherited the handle, so what it shares with its maker must stay. */
    void (*close)(struct cddpi_store_backend *backend, bool forked);
};

/* Each backend begins with this. */
struct cddpi_store_backend {
    const struct cddpi_store_ops *ops;
};

/** Connect to @p address ("host:port" or "[address]:port"); tcp_connect.c words its failures. */
cddp_status cddpi_store_open_tcp(const char *address, const char *token, int64_t deadline_ns,
                                 struct cddpi_store_backend **out);

/** Open or create the file at @p path. */
cddp_status cddpi_store_open_file(const char *path, const char *token, int64_t deadline_ns,
                                  struct cddpi_store_backend **out);

#endif
