/* store.h - declares what the public calls of cddp/store.h do after store_entry.c has admitted them
 * (one thread at a time), and the calls that only cddp itself makes. */
#ifndef CDDPI_STORE_STORE_H
#define CDDPI_STORE_STORE_H

#include "base/handle.h"

#include <cddp/store.h>

cddp_status cddpi_store_set(cddp_store *store, const char *key, const void *value, size_t bytes);
cddp_status cddpi_store_get(cddp_store *store, const char *key, uint32_t timeout_ms, void **out,
                            size_t *out_bytes);
cddp_status cddpi_store_try_get(cddp_store *store, const char *key, void **out, size_t *out_bytes);
cddp_status cddpi_store_add(cddp_store *store, const char *key, int64_t amount, int64_t *out);
cddp_status cddpi_store_compare_set(cddp_store *store, const char *key, const void *expected,
                                    size_t expected_bytes, const void *desired,
                                    size_t desired_bytes, bool *out_swapped, void **out,
                                    size_t *out_bytes);
cddp_status cddpi_store_delete(cddp_store *store, const char *key, bool *out_existed);
cddp_status cddpi_store_wait(cddp_store *store, const char *const *keys, size_t count,
                             uint32_t timeout_ms);
cddp_status cddpi_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count);

/** Set the timeout of later calls that have no timeout of their own. */
void cddpi_store_set_timeout(cddp_store *store, uint32_t timeout_ms);

/** Have the server set @p key to @p value when this handle's connection ends, because the handle is
 *  closed or its process is dead. Not in the public API; only a TCP store can do it.
 *  @param bytes  At most CDDPI_STORE_LAST_WORD_BYTES.
 *  @return As cddp_store_set(). */
CDDP_CHECKED cddp_status cddpi_store_last_word(cddp_store *store, const char *key,
                                               const void *value, size_t bytes);

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

#endif
