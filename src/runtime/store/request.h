/* request.h - owns what an operation on the store is, independent of where it is carried out. The
 * handle (store.c) makes requests, a backend (store_tcp.c, store_file.c) passes them on, and the
 * table (store_table.c) carries them out. */
#ifndef CDDPI_STORE_REQUEST_H
#define CDDPI_STORE_REQUEST_H

#include <cddp/store.h>

/* A handle's prefix and a key each have at most CDDP_STORE_KEY_BYTES bytes. */
enum { CDDPI_STORE_FULL_KEY_BYTES = 2 * CDDP_STORE_KEY_BYTES };

/* Most bytes of the keys of a WAIT, and of the answer to a LIST. */
enum { CDDPI_STORE_KEYS_BYTES = 16 << 20, CDDPI_STORE_LIST_BYTES = 64 << 20 };

enum { CDDPI_STORE_LAST_WORD_BYTES = 256 }; /* most bytes of a LAST_WORD's value */

/* Borrowed bytes. */
struct cddpi_slice {
    const uint8_t *data;
    size_t bytes;
};

/* These numbers are part of the wire protocol. */
enum cddpi_store_op {
    CDDPI_STORE_SET = 1,
    CDDPI_STORE_GET = 2, /* waits */
    CDDPI_STORE_TRY_GET = 3,
    CDDPI_STORE_ADD = 4,
    CDDPI_STORE_COMPARE_SET = 5,
    CDDPI_STORE_WAIT = 6, /* waits */
    CDDPI_STORE_DELETE = 7,
    CDDPI_STORE_LIST = 8,
    CDDPI_STORE_CANCEL = 9,    /* wire only: cancel the waiting request that has the same id */
    CDDPI_STORE_LAST_WORD = 10 /* TCP only: the server sets the key when the connection ends */
};

/* All memory is borrowed. Keys are complete: they begin with the handle's prefix. */
struct cddpi_store_request {
    enum cddpi_store_op op;
    bool want_value;             /* COMPARE_SET: reply with the value; LIST: reply with the values,
                                    too */
    struct cddpi_slice key;      /* LIST: the beginning of the keys */
    struct cddpi_slice value;    /* SET, COMPARE_SET, LAST_WORD: the new value; WAIT: keys, see
                                    store_wire.h */
    struct cddpi_slice expected; /* COMPARE_SET */
    int64_t amount;              /* ADD */
};

/* status is the result of the operation itself: OK, NOT_FOUND, FORMAT, ARGUMENT, UNAVAILABLE (the
 * list is too long), NO_MEMORY, or TIMEOUT (a key did not appear).
 * data is the value; for ADD, the sum as text; for LIST, keys or pairs (store_wire.h); for a WAIT
 * that timed out, what cddpi_table_missing() returns. It is new memory that ends with a NUL, and
 * the receiver releases it. It may be NULL if bytes is 0. */
struct cddpi_store_reply {
    cddp_status status;
    bool flag; /* COMPARE_SET: swapped; DELETE: existed */
    uint8_t *data;
    size_t bytes;
};

struct cddpi_store_backend;

/* The functions of a backend (TCP, file). One thread at a time calls them. */
struct cddpi_store_ops {
    /* CDDP_OK if the store answered, whatever the answer. Otherwise it is unknown whether the
     * operation took effect, the error text says why, and @p out is untouched. GET and WAIT wait
     * until @p deadline_ns; no operation takes much longer than that. */
    cddp_status (*perform)(struct cddpi_store_backend *backend,
                           const struct cddpi_store_request *request, int64_t deadline_ns,
                           struct cddpi_store_reply *out);
    /* @p forked: this process inherited the handle from its parent, so closing must not disturb
     * what the two share (connection, locks, file). */
    void (*close)(struct cddpi_store_backend *backend, bool forked);
};

/* The first member of each backend's struct. */
struct cddpi_store_backend {
    const struct cddpi_store_ops *ops;
};

/** Connect to the TCP store at @p address ("host:port" or "[address]:port"). tcp_connect.c words
 *  failures. */
cddp_status cddpi_store_open_tcp(const char *address, const char *token, int64_t deadline_ns,
                                 struct cddpi_store_backend **out);

/** Open or create the file at @p path. */
cddp_status cddpi_store_open_file(const char *path, const char *token, int64_t deadline_ns,
                                  struct cddpi_store_backend **out);

#endif
