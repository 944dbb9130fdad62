/* data_parallel.c - DataParallel within one process: runs the steps of parallel.c one after
 * another, and sums the devices' gradients. */
#include "device/parallel.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/types.h"

#include <stdint.h>
#include <string.h>

/* What the threads of the devices share. */
struct data_parallel_job {
    const cddp_data_parallel_options *options;
    cddp_replica_fn fn;
    void *state;
    cddp_chunk *chunks; /* the chunks of the input */
    int count;
    float **params; /* count x param_count */
    float **grads;  /* count x param_count; NULL: no gradients */
};

static size_t first_row(const struct data_parallel_job *job, int device)
{
    return (size_t)device * job->chunks[0].rows; /* only the last chunk is shorter */
}

/* The part of the batch that @p device computes. */
static cddp_replica replica_of(const struct data_parallel_job *job, int device)
{
    const cddp_data_parallel_options *options = job->options;
    size_t first = (size_t)device * options->param_count;
    cddp_replica replica = {.device = device,
                            .device_count = job->count,
                            .in = job->chunks[device].data,
                            .rows = job->chunks[device].rows,
                            .first_row = first_row(job, device),
                            .params = job->params + first,
                            .grads = job->grads != NULL ? job->grads + first : NULL};

    if (options->out != NULL) { /* in place, so nothing needs to be gathered */
        replica.out = (char *)options->out + replica.first_row * options->out_row_bytes;
    }
    return replica;
}

static cddp_status run_replica(void *state, int device)
{
    const struct data_parallel_job *job = state;
    cddp_replica replica = replica_of(job, device);

    for (size_t i = 0; replica.grads != NULL && i < job->options->param_count; i++) {
        memset(replica.grads[i], 0, job->options->counts[i] * sizeof(float));
    }
    return job->fn(job->state, &replica);
}

static cddp_status run_loss(void *state, int device)
{
    const struct data_parallel_job *job = state;
    const cddp_data_parallel_options *options = job->options;

    return device == options->output_device
               ? options->loss(job->state, device, options->out, options->rows, options->out_grads)
               : CDDP_OK;
}

static cddp_status run_backward(void *state, int device)
{
    const struct data_parallel_job *job = state;
    const cddp_data_parallel_options *options = job->options;
    cddp_replica replica = replica_of(job, device);

    replica.out_grads = (const char *)options->out_grads +
                        replica.first_row * options->out_row_bytes;
    return options->backward(job->state, &replica);
}

/* Allocate gradients for all devices. Device 0 gets its own, too, since the caller's gradients may
 * already hold a sum. */
static cddp_status make_grads(struct data_parallel_job *job, float **out_block)
{
    const cddp_data_parallel_options *options = job->options;
    size_t table = cddpi_align((size_t)job->count * options->param_count * sizeof *job->grads);
    size_t each = 0;
    char *at;

    for (size_t i = 0; i < options->param_count; i++) {
        if (options->grads[i] == NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "data_parallel: gradient %zu is NULL", i);
        }
        /* replicate() has checked that the sum fits */
        each += cddpi_align(options->counts[i] * sizeof(float));
    }
    if (each > (SIZE_MAX - table) / (size_t)job->count ||
        (at = cddpi_alloc_aligned(table + each * (size_t)job->count + CDDPI_ALIGNMENT)) == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "data_parallel: no memory for gradients of %zu bytes on %d devices", each,
                          job->count);
    }
    job->grads = (float **)(void *)at;
    *out_block = (float *)(void *)at;
    at += table;
    for (size_t i = 0; i < (size_t)job->count * options->param_count; i++) {
        job->grads[i] = (float *)(void *)at;
        at += cddpi_align(options->counts[i % options->param_count] * sizeof(float));
    }
    return CDDP_OK;
}

/* Runs on the first device's CPU. Adds in the order of the devices, so that the sum is
 * reproducible. */
static cddp_status add_grads(void *state, int device)
{
    const struct data_parallel_job *job = state;
    size_t n = job->options->param_count;

    (void)device;
    for (size_t i = 0; i < n; i++) {
        float *restrict sum = job->grads[i];

        for (int d = 1; d < job->count; d++) {
            const float *restrict own = job->grads[(size_t)d * n + i];

            for (size_t k = 0; k < job->options->counts[i]; k++) {
                sum[k] += own[k];
            }
        }
        for (size_t k = 0; k < job->options->counts[i]; k++) {
            job->options->grads[i][k] += sum[k];
        }
    }
    return CDDP_OK;
}

static cddp_status run(const cddp_devices *devices, struct data_parallel_job *job)
{
    const cddp_data_parallel_options *options = job->options;
    float *block = NULL;
    cddp_status status;

    CDDPI_TRY_GOTO(done, status,
                   cddp_parallel_scatter(devices, options->in, options->rows, options->in_row_bytes,
                                         job->chunks, &job->count));
    CDDPI_TRY_GOTO(done, status,
                   cddp_parallel_replicate(devices, job->count, options->params, options->counts,
                                           options->param_count, &job->params));
    if (options->grads != NULL) {
        CDDPI_TRY_GOTO(done, status, make_grads(job, &block));
    }
    CDDPI_TRY_GOTO(done, status, cddp_parallel_apply(devices, job->count, run_replica, job));
    if (options->loss != NULL) {
        CDDPI_TRY_GOTO(done, status,
                       cddp_parallel_apply(devices, options->output_device + 1, run_loss, job));
    }
    if (options->backward != NULL) {
        CDDPI_TRY_GOTO(done, status, cddp_parallel_apply(devices, job->count, run_backward, job));
    }
    if (options->grads != NULL) {
        CDDPI_TRY_GOTO(done, status, cddp_parallel_apply(devices, 1, add_grads, job));
    }

done:
    cddpi_free(block);
    cddpi_free(job->params);
    return status;
}

static cddp_status check_loss(const cddp_devices *devices,
                              const cddp_data_parallel_options *options)
{
    const char *wrong = options->loss != NULL && options->out == NULL ? "loss without out"
                        : options->loss == NULL && options->out_grads != NULL
                            ? "out_grads without loss"
                        : (options->backward != NULL) != (options->out_grads != NULL)
                            ? "one of backward and out_grads without the other"
                            : NULL;

    if (wrong != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "data_parallel: %s", wrong);
    }
    return options->output_device >= 0 && options->output_device < devices->count
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "data_parallel: output_device %d of %d devices",
                            options->output_device, devices->count);
}

static cddp_status data_parallel(const cddp_devices *devices,
                                 const cddp_data_parallel_options *options, cddp_replica_fn fn,
                                 void *state)
{
    cddp_data_parallel_options known = CDDP_DATA_PARALLEL_OPTIONS_INIT;
    struct data_parallel_job job = {.options = &known, .fn = fn, .state = state};
    cddp_status status;

    if (options == NULL || fn == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "data_parallel: %s is NULL",
                          fn == NULL ? "fn" : "options");
    }
    CDDPI_TRY(cddpi_struct_read("data_parallel options", "CDDP_DATA_PARALLEL_OPTIONS_INIT", options,
                                sizeof known, &known));
    CDDPI_TRY(
        cddpi_reserved_check("data_parallel options", &known.reserved, sizeof known.reserved));
    if (known.out != NULL && known.out_row_bytes != 0 &&
        known.rows > SIZE_MAX / known.out_row_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "data_parallel: %zu rows of %zu bytes", known.rows,
                          known.out_row_bytes);
    }
    CDDPI_TRY(check_loss(devices, &known));
    job.chunks = cddpi_zalloc_array((size_t)devices->count, sizeof *job.chunks);
    CDDPI_TRY_MEMORY(job.chunks != NULL, "data_parallel: no memory for %d chunks", devices->count);
    status = run(devices, &job);
    cddpi_free(job.chunks);
    return status;
}

cddp_status cddp_data_parallel(const cddp_devices *devices,
                               const cddp_data_parallel_options *options, cddp_replica_fn fn,
                               void *state)
{
    cddp_status status = cddpi_devices_enter(devices, "data_parallel");

    if (status == CDDP_OK) {
        status = data_parallel(devices, options, fn, state);
        cddpi_devices_leave(devices);
    }
    return status;
}
