/* calls.h - private to store.c and keys.c: what all calls of a store have in common. */
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
    /* the prefix, then room for a key: complete keys are put together here */
    uint8_t key[CDDPI_STORE_FULL_KEY_BYTES];
};

/** @p key with the prefix in front, valid until the next call.
 *  @return CDDP_ERR_ARGUMENT: it has fewer than @p least bytes, or more than a key may have. */
cddp_status cddpi_store_complete_key(cddp_store *store, const char *call, const char *key,
                                     size_t least, struct cddpi_slice *out);

/** Let the backend do @p request; @p key is for the text only. With CDDP_OK, NOT_FOUND (TRY_GET)
 * and a TIMEOUT of the store itself (GET and WAIT), @p out is the answer; its data is the caller's,
 * except with NOT_FOUND. */
cddp_status cddpi_store_perform(cddp_store *store, const char *call, const char *key,
                                const struct cddpi_store_request *request, uint32_t timeout_ms,
                                struct cddpi_store_reply *out);
#endif
