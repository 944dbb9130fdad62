/* store.h - owns the struct of a store, what all calls on it share (store.c, keys.c), and the calls
 * that only cddp itself makes. */
#ifndef CDDPI_STORE_STORE_H
#define CDDPI_STORE_STORE_H

#include "base/handle.h"
#include "store/request.h"

#include <cddp/store.h>

/** Have the server set @p key to @p value when this handle's connection ends, because the handle is
 *  closed or its process is dead. Not in the public API; only a TCP store can do it.
 *  @param bytes  At most CDDPI_STORE_LAST_WORD_BYTES.
 *  @return As cddp_store_set(). */
CDDP_CHECKED cddp_status cddpi_store_last_word(cddp_store *store, const char *key,
                                               const void *value, size_t bytes);

/** Whether nothing listens at the TCP store @p url: its addresses refuse connections. False also if
 *  that is not known at the deadline. */
bool cddpi_store_is_refused(const char *url, int64_t deadline_ns);

/* A key, without the handle's prefix, and its value; both end with a NUL. */
struct cddpi_store_pair {
    const char *key;
    const char *value;
    size_t bytes; /* of the value */
};

/** Get the keys that begin with @p start, sorted by bytes, and their values, in one request however
 *  many there are. Not in the public API, so there is no check that only one thread uses the
 * handle.
 *  @param out  One block of memory: release with cddpi_free(). NULL if there are no such keys.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE if they take more than CDDPI_STORE_LIST_BYTES in all; an
 *          error of the store. */
CDDP_CHECKED cddp_status cddpi_store_list_values(cddp_store *store, const char *start,
                                                 struct cddpi_store_pair **out, size_t *out_count);

/** Like the timeout_ms of the options for opening the store, but for later calls only. */
void cddpi_store_set_timeout(cddp_store *store, uint32_t timeout_ms);

struct cddp_store {
    struct cddpi_handle handle;
    struct cddpi_store_backend *backend;
    char *url;
    size_t prefix_bytes;
    uint32_t timeout_ms;
    /* the prefix (prefix_bytes), then room for one key: each complete key is built here */
    uint8_t key[CDDPI_STORE_FULL_KEY_BYTES];
};

/* Begin the public call @p call on @p store in this function: see base/handle.h. */
#define ENTER_STORE(store, call)                                                                   \
    CDDPI_ENTER(&(store)->handle,                                                                  \
                cddpi_handle_enter((struct cddpi_handle *)(store), CDDPI_HANDLE_STORE, call))

/** Write to @p out the prefix followed by @p key. The bytes are valid until the next call.
 *  @return CDDP_ERR_ARGUMENT: @p key has fewer than @p least bytes, or more than a key may have. */
cddp_status cddpi_store_complete_key(cddp_store *store, const char *call, const char *key,
                                     size_t least, struct cddpi_slice *out);

/** Have the backend do @p request. @p key is only for error texts. @p out is the store's answer if
 *  the result is CDDP_OK, NOT_FOUND (TRY_GET only), or a TIMEOUT that the store itself reported
 *  (GET and WAIT). The caller releases the answer's data; with NOT_FOUND there is no data. */
cddp_status cddpi_store_perform(cddp_store *store, const char *call, const char *key,
                                const struct cddpi_store_request *request, uint32_t timeout_ms,
                                struct cddpi_store_reply *out);

#endif
