/* parallel.c - scatter, replicate, parallel_apply and gather over the devices of one process. */
#include "device/parallel.h"

#include "base/alloc.h"
#include "base/error.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static cddp_status check_count(const char *call, const cddp_devices *devices, int count)
{
    CDDPI_TRY(cddpi_devices_check(devices, call));
    if (count < 1 || count > devices->count) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the first %d of %d devices", call, count,
                          devices->count);
    }
    return CDDP_OK;
}

cddp_status cddp_parallel_scatter(const cddp_devices *devices, void *in, size_t rows,
                                  size_t row_bytes, cddp_chunk *out, int *out_count)
{
    size_t each;
    int count = 0;

    CDDPI_TRY(cddpi_devices_check(devices, "parallel_scatter"));
    if (in == NULL || out == NULL || out_count == NULL || rows == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "scatter: %zu rows at %p over %d devices", rows, in,
                          cddp_devices_count(devices));
    }
    if (row_bytes != 0 && rows > CDDPI_BYTES_MAX / row_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "scatter: %zu rows of %zu bytes", rows, row_bytes);
    }
    each = (rows - 1) / (size_t)devices->count + 1;
    for (size_t row = 0; row < rows; row += each) {
        out[count].data = (char *)in + row * row_bytes;
        out[count].rows = rows - row < each ? rows - row : each;
        count++;
    }
    *out_count = count;
    return CDDP_OK;
}

/* Bytes of one replica, with each parameter aligned. 0: too many, or a count or pointer is
 * missing. */
static size_t replica_bytes(float *const *params, const size_t *counts, size_t n)
{
    size_t bytes = CDDPI_ALIGNMENT; /* so that zero parameters are not an error */

    for (size_t i = 0; i < n; i++) {
        size_t own = counts[i];

        if (params[i] == NULL || own > (SIZE_MAX - CDDPI_ALIGNMENT) / 2 / sizeof(float)) {
            return 0;
        }
        own = cddpi_align(own * sizeof(float));
        if (bytes > SIZE_MAX / 2 - own) {
            return 0;
        }
        bytes += own;
    }
    return bytes;
}

cddp_status cddp_parallel_replicate(const cddp_devices *devices, int replicas, float *const *params,
                                    const size_t *counts, size_t n, float ***out)
{
    size_t bytes;
    size_t table;
    float **made;
    char *at;

    CDDPI_TRY(check_count("parallel_replicate", devices, replicas));
    if (out == NULL || (n > 0 && (params == NULL || counts == NULL))) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "replicate: %s is NULL",
                          out == NULL      ? "out"
                          : params == NULL ? "params"
                                           : "counts");
    }
    if (n > SIZE_MAX / 2 / CDDP_MAX_PARALLEL_DEVICES / sizeof *made) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "replicate: %zu parameters are too many", n);
    }
    bytes = replica_bytes(params, counts, n);
    if (bytes == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "replicate: one of %zu parameters is NULL, or they are too large", n);
    }
    table = cddpi_align((size_t)replicas * n * sizeof *made);
    made = bytes <= (SIZE_MAX - table) / (size_t)replicas
               ? cddpi_alloc_aligned(table + bytes * (size_t)(replicas - 1) + CDDPI_ALIGNMENT)
               : NULL;
    CDDPI_TRY_MEMORY(made != NULL, "replicate: no memory for %d copies of %zu bytes", replicas - 1,
                     bytes);
    at = (char *)made + table;
    for (int d = 0; d < replicas; d++) {
        for (size_t i = 0; i < n; i++) {
            made[(size_t)d * n + i] = d == 0 ? params[i] : (float *)(void *)at;
            if (d > 0) {
                memcpy(at, params[i], counts[i] * sizeof(float));
                at += cddpi_align(counts[i] * sizeof(float));
            }
        }
    }
    *out = made;
    return CDDP_OK;
}

/* The thread of one device in cddp_parallel_apply(). */
struct apply {
    cddp_parallel_fn fn;
    void *state;
    int device;
    const struct cddpi_core *core;
    bool has_returned;
    cddp_status result;
    struct cddpi_failure failure;
    pthread_t thread;
};

static void *run_device(void *argument)
{
    struct apply *apply = argument;

    apply->result = cddpi_core_bind(apply->core);
    if (apply->result == CDDP_OK) {
        apply->result = apply->fn(apply->state, apply->device);
    }
    if (apply->result != CDDP_OK) {
        apply->result = cddpi_fail_returned(apply->result, CDDP_ERR_DEVICE);
        apply->failure = *cddpi_last_failure();
    }
    apply->has_returned = true;
    return NULL;
}

static cddp_status word(const struct apply *apply, const char *name)
{
    if (!apply->has_returned) {
        return cddpi_fail(CDDP_ERR_DEVICE,
                          "%s: its function ended its thread by pthread_exit(): it has to return",
                          name);
    }
    (void)cddpi_fail_again(apply->result, &apply->failure);
    return cddpi_fail_prefix(apply->result, "%s", name);
}

static cddp_status apply_all(const cddp_devices *devices, int count, cddp_parallel_fn fn,
                             void *state)
{
    cddp_status status = CDDP_OK;
    struct apply *all;
    int started = 0;

    CDDPI_TRY(check_count("parallel_apply", devices, count));
    if (fn == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "parallel_apply: fn is NULL");
    }
    all = cddpi_zalloc_array((size_t)count, sizeof *all);
    CDDPI_TRY_MEMORY(all != NULL, "parallel_apply: no memory for %d threads", count);
    for (; started < count && status == CDDP_OK; started++) {
        struct apply *apply = &all[started];
        int error;

        *apply = (struct apply){
            .fn = fn, .state = state, .device = started, .core = &devices->cores[started]};
        error = pthread_create(&apply->thread, NULL, run_device, apply);
        if (error != 0) {
            status = cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error,
                                      "parallel_apply: a thread for device %d, %s", started,
                                      devices->cores[started].name);
            break;
        }
    }
    for (int d = 0; d < started; d++) {
        (void)pthread_join(all[d].thread, NULL);
    }
    for (int d = 0; d < started && status == CDDP_OK; d++) {
        if (!all[d].has_returned || all[d].result != CDDP_OK) {
            status = word(&all[d], devices->cores[d].name);
        }
    }
    cddpi_free(all);
    return status;
}

cddp_status cddp_parallel_apply(const cddp_devices *devices, int count, cddp_parallel_fn fn,
                                void *state)
{
    cddp_status status = cddpi_devices_enter(devices, "parallel_apply");

    if (status == CDDP_OK) {
        status = apply_all(devices, count, fn, state);
        cddpi_devices_leave(devices);
    }
    return status;
}

cddp_status cddp_parallel_gather(const cddp_chunk *chunks, int count, size_t row_bytes, void *out,
                                 size_t rows)
{
    size_t total = 0;
    char *at = out;

    if (chunks == NULL || out == NULL || count < 1 || count > CDDP_MAX_PARALLEL_DEVICES ||
        (row_bytes != 0 && rows > CDDPI_BYTES_MAX / row_bytes)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "gather: %d chunks at %p to %zu rows of %zu bytes at %p", count,
                          (const void *)chunks, rows, row_bytes, out);
    }
    for (int d = 0; d < count; d++) {
        if (chunks[d].rows > rows - total || (chunks[d].data == NULL && chunks[d].rows > 0)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "gather: chunk %d has %zu rows, where %zu of %zu are left", d,
                              chunks[d].rows, rows - total, rows);
        }
        total += chunks[d].rows;
    }
    if (total != rows) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "gather: %d chunks have %zu rows, not %zu", count,
                          total, rows);
    }
    for (int d = 0; d < count; d++) {
        if (chunks[d].data != at && chunks[d].rows > 0) {
            memmove(at, chunks[d].data, chunks[d].rows * row_bytes);
        }
        at += chunks[d].rows * row_bytes;
    }
    return CDDP_OK;
}
