/* store_entry.c - the public calls on a store: lets one thread of the process that opened it in. */
#include "store/store.h"

#include "base/alloc.h"
#include "base/error.h"

void cddp_free(void *memory)
{
    cddpi_free(memory);
}

static cddp_status enter(cddp_store *store, const char *call)
{
    return cddpi_handle_enter((struct cddpi_handle *)store, CDDPI_HANDLE_STORE, call);
}

static cddp_status leave(cddp_store *store, cddp_status status)
{
    return cddpi_handle_leave((struct cddpi_handle *)store, status);
}

cddp_status cddp_store_set(cddp_store *store, const char *key, const void *value, size_t bytes)
{
    cddp_status status = enter(store, "store_set");

    return status == CDDP_OK ? leave(store, cddpi_store_set(store, key, value, bytes)) : status;
}

cddp_status cddp_store_get(cddp_store *store, const char *key, uint32_t timeout_ms, void **out,
                           size_t *out_bytes)
{
    cddp_status status = enter(store, "store_get");

    if (status == CDDP_OK && out == NULL) {
        return leave(store, cddpi_fail(CDDP_ERR_ARGUMENT, "store_get: out is NULL"));
    }
    return status == CDDP_OK ? leave(store, cddpi_store_get(store, key, timeout_ms, out, out_bytes))
                             : status;
}

cddp_status cddp_store_try_get(cddp_store *store, const char *key, void **out, size_t *out_bytes)
{
    cddp_status status = enter(store, "store_try_get");

    if (status == CDDP_OK && out == NULL) {
        return leave(store, cddpi_fail(CDDP_ERR_ARGUMENT, "store_try_get: out is NULL"));
    }
    return status == CDDP_OK ? leave(store, cddpi_store_try_get(store, key, out, out_bytes))
                             : status;
}

cddp_status cddp_store_add(cddp_store *store, const char *key, int64_t amount, int64_t *out)
{
    cddp_status status = enter(store, "store_add");

    return status == CDDP_OK ? leave(store, cddpi_store_add(store, key, amount, out)) : status;
}

cddp_status cddp_store_compare_set(cddp_store *store, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   bool *out_swapped, void **out, size_t *out_bytes)
{
    cddp_status status = enter(store, "store_compare_set");

    return status == CDDP_OK
               ? leave(store, cddpi_store_compare_set(store, key, expected, expected_bytes, desired,
                                                      desired_bytes, out_swapped, out, out_bytes))
               : status;
}

cddp_status cddp_store_delete(cddp_store *store, const char *key, bool *out_existed)
{
    cddp_status status = enter(store, "store_delete");

    return status == CDDP_OK ? leave(store, cddpi_store_delete(store, key, out_existed)) : status;
}

cddp_status cddp_store_wait(cddp_store *store, const char *const *keys, size_t count,
                            uint32_t timeout_ms)
{
    cddp_status status = enter(store, "store_wait");

    if (status == CDDP_OK && keys == NULL && count > 0) {
        return leave(store, cddpi_fail(CDDP_ERR_ARGUMENT, "store_wait: keys is NULL"));
    }
    return status == CDDP_OK ? leave(store, cddpi_store_wait(store, keys, count, timeout_ms))
                             : status;
}

cddp_status cddp_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count)
{
    cddp_status status = enter(store, "store_list");

    if (status == CDDP_OK && (out == NULL || out_count == NULL)) {
        return leave(store, cddpi_fail(CDDP_ERR_ARGUMENT, "store_list: %s is NULL",
                                       out == NULL ? "out" : "out_count"));
    }
    return status == CDDP_OK ? leave(store, cddpi_store_list(store, start, out, out_count))
                             : status;
}
