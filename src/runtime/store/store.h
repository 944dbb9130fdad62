/* store.h - what the public calls of cddp/store.h do once they were let in: see store_entry.c. */
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

/** From now on, how long each request of this handle may take unless its call says so. */
void cddpi_store_set_timeout(cddp_store *store, uint32_t timeout_ms);

/** Let the server set @p key to @p value when this handle's connection has ended: closed, or its
 *  process dead. No public call has this, and only a tcp store does it.
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

/** The keys that begin with @p start, sorted by bytes, with their values: one message however many
 *  they are. No public call has this: between threads of the caller the handle is not checked.
 *  @param out  One block of memory: release with cddpi_free(). NULL for none.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE if they are more than CDDPI_STORE_LIST_BYTES in all; an
 *          error of the store. */
CDDP_CHECKED cddp_status cddpi_store_list_values(cddp_store *store, const char *start,
                                                 struct cddpi_store_pair **out, size_t *out_count);

/** From now on calls without a deadline of their own have this one, as an option of the opening. */
void cddpi_store_set_timeout(cddp_store *store, uint32_t timeout_ms);

#endif
