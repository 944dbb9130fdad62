/* store_entry.c - owns the public calls on a store. They admit one thread at a time, and only the
 * process that opened the store. */
#include "store/store.h"

#include "base/alloc.h"
#include "base/error.h"

void cddp_free(void *memory)
{
    cddpi_free(memory);
}

static cddp_status enter_store(cddp_store *store, const char *call)
{
    return cddpi_handle_enter((struct cddpi_handle *)store, CDDPI_HANDLE_STORE, call);
}

static cddp_status leave_store(cddp_store *store, cddp_status status)
{
    return cddpi_handle_leave((struct cddpi_handle *)store, status);
}

cddp_status cddp_store_set(cddp_store *store, const char *key, const void *value, size_t bytes)
{
    CDDPI_TRY(enter_store(store, "store_set"));
    return leave_store(store, cddpi_store_set(store, key, value, bytes));
}

cddp_status cddp_store_get(cddp_store *store, const char *key, uint32_t timeout_ms, void **out,
                           size_t *out_bytes)
{
    CDDPI_TRY(enter_store(store, "store_get"));
    return leave_store(store, out != NULL
                                  ? cddpi_store_get(store, key, timeout_ms, out, out_bytes)
                                  : cddpi_fail(CDDP_ERR_ARGUMENT, "store_get: out is NULL"));
}

cddp_status cddp_store_try_get(cddp_store *store, const char *key, void **out, size_t *out_bytes)
{
    CDDPI_TRY(enter_store(store, "store_try_get"));
    return leave_store(store, out != NULL
                                  ? cddpi_store_try_get(store, key, out, out_bytes)
                                  : cddpi_fail(CDDP_ERR_ARGUMENT, "store_try_get: out is NULL"));
}

cddp_status cddp_store_add(cddp_store *store, const char *key, int64_t amount, int64_t *out)
{
    CDDPI_TRY(enter_store(store, "store_add"));
    return leave_store(store, cddpi_store_add(store, key, amount, out));
}

cddp_status cddp_store_compare_set(cddp_store *store, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   bool *out_swapped, void **out, size_t *out_bytes)
{
    CDDPI_TRY(enter_store(store, "store_compare_set"));
    return leave_store(store, cddpi_store_compare_set(store, key, expected, expected_bytes, desired,
                                                      desired_bytes, out_swapped, out, out_bytes));
}

cddp_status cddp_store_delete(cddp_store *store, const char *key, bool *out_existed)
{
    CDDPI_TRY(enter_store(store, "store_delete"));
    return leave_store(store, cddpi_store_delete(store, key, out_existed));
}

cddp_status cddp_store_wait(cddp_store *store, const char *const *keys, size_t count,
                            uint32_t timeout_ms)
{
    CDDPI_TRY(enter_store(store, "store_wait"));
    return leave_store(store, keys != NULL || count == 0
                                  ? cddpi_store_wait(store, keys, count, timeout_ms)
                                  : cddpi_fail(CDDP_ERR_ARGUMENT, "store_wait: keys is NULL"));
}

cddp_status cddp_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count)
{
    CDDPI_TRY(enter_store(store, "store_list"));
    if (out == NULL || out_count == NULL) {
        return leave_store(store, cddpi_fail(CDDP_ERR_ARGUMENT, "store_list: %s is NULL",
                                             out == NULL ? "out" : "out_count"));
    }
    return leave_store(store, cddpi_store_list(store, start, out, out_count));
}
