/* calls.h - owns what all calls on a store share. Private to store.c and keys.c. */
#ifndef CDDPI_STORE_CALLS_H
#define CDDPI_STORE_CALLS_H

#include "store/request.h"
#include "store/store.h"

struct cddp_store {
    struct cddpi_handle handle;
    struct cddpi_store_backend *backend;
    char *url;
    size_t prefix_bytes;
    uint32_t timeout_ms;
    /* the prefix (prefix_bytes), then room for one key: each complete key is built here */
    uint8_t key[CDDPI_STORE_FULL_KEY_BYTES];
};

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
