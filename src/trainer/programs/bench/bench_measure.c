/* bench_measure.c - runs, times and checks the calls of one size. */
#include "programs/bench/bench_measure.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "group/group_info.h"
#include "group/join/link.h"
#include "group/on_device.h"
#include "programs/bench/bench_collectives.h"

#include <stdlib.h>
#include <string.h>

enum {
    ITERATIONS_MIN = 10,
    ITERATIONS_MAX = 1000,
    DEVICE_BLOCKS = 10, /* calls on a device are timed in this many blocks */
    POISON = 0xa5
};

static const int64_t bytes_per_size = (int64_t)256 << 20;

static size_t block_bytes(const struct cddpi_bench_call *call)
{
    return call->count * cddp_type_bytes(call->type);
}

/* How many blocks the larger of the two buffers has. */
static int blocks_of(const struct cddpi_bench_collective *collective, int world_size)
{
    return collective->wide_in || collective->wide_out ? world_size : 1;
}

int64_t cddpi_bench_bytes(const struct cddpi_bench *bench, int64_t bytes)
{
    const struct cddpi_bench_options *options = bench->options;
    int64_t unit = (int64_t)cddp_type_bytes(options->type) *
                   blocks_of(options->collective, bench->world_size);

    if (!cddpi_bench_has_data(options->collective)) {
        return 0;
    }
    return bytes < unit ? unit : bytes / unit * unit;
}

const char *cddpi_bench_carrier(const struct cddpi_bench *bench)
{
    struct cddpi_group_link link;

    return cddpi_group_link(bench->group, CDDP_F32, &link) && link.hosts > 1 ? link.carrier : NULL;
}

/* The number of iterations for one size. A barrier, which has no size, gets the most. */
static int64_t choose_iterations(const struct cddpi_bench *bench, int64_t bytes)
{
    int64_t wanted = bytes > 0 ? bytes_per_size / bytes : ITERATIONS_MAX;

    if (bench->options->iterations > 0) {
        return bench->options->iterations;
    }
    return wanted < ITERATIONS_MIN   ? ITERATIONS_MIN
           : wanted > ITERATIONS_MAX ? ITERATIONS_MAX
                                     : wanted;
}

static cddp_status alloc_buffer(struct cddpi_bench *bench, void **out)
{
    if (bench->options->group_memory) {
        return cddp_group_alloc(bench->group, bench->room, 0, out);
    }
    return bench->device->ops->alloc(bench->device, bench->room, "cddp-bench's buffers", out);
}

static void free_buffer(struct cddpi_bench *bench, void *buffer)
{
    if (bench->options->group_memory) {
        cddp_group_free(bench->group, buffer);
    } else {
        bench->device->ops->release(bench->device, buffer);
    }
}

cddp_status cddpi_bench_init(struct cddpi_bench *bench)
{
    const struct cddpi_bench_options *options = bench->options;
    size_t chunk = CDDPI_BENCH_CHUNK * cddp_type_bytes(options->type);

    bench->rank = cddp_group_rank(bench->group);
    bench->world_size = cddp_group_world_size(bench->group);
    bench->device = cddpi_group_on_device(bench->group);
    if (!cddpi_bench_has_data(options->collective)) {
        return CDDP_OK;
    }
    bench->room = (size_t)cddpi_bench_bytes(bench, options->max_bytes);
    bench->chunk = cddpi_alloc_aligned(chunk);
    bench->expected = cddpi_alloc_aligned(chunk);
    CDDPI_TRY_MEMORY(bench->chunk != NULL && bench->expected != NULL, "no memory for %zu bytes",
                     2 * chunk);
    CDDPI_TRY(alloc_buffer(bench, &bench->in));
    if (options->in_place) {
        bench->out = bench->in;
        return CDDP_OK;
    }
    return alloc_buffer(bench, &bench->out);
}

void cddpi_bench_fini(struct cddpi_bench *bench)
{
    if (bench->in != NULL) {
        free_buffer(bench, bench->in);
    }
    if (bench->out != NULL && bench->out != bench->in) {
        free_buffer(bench, bench->out);
    }
    cddpi_free(bench->chunk);
    cddpi_free(bench->expected);
    cddpi_free(bench->samples);
    bench->in = bench->out = bench->chunk = bench->expected = bench->samples = NULL;
}

/* Make a call with its buffers. In place, the narrow buffer is a part of the wide one. */
static struct cddpi_bench_call make_call(const struct cddpi_bench *bench, int64_t bytes)
{
    const struct cddpi_bench_options *options = bench->options;
    const struct cddpi_bench_collective *collective = options->collective;
    struct cddpi_bench_call call = {
        .group = bench->group,
        .rank = bench->rank,
        .world_size = bench->world_size,
        .in = bench->in,
        .out = bench->out,
        .count = (size_t)bytes / cddp_type_bytes(options->type) /
                 (size_t)blocks_of(collective, bench->world_size),
        .type = options->type,
        .op = options->op,
        .root = (int)options->root,
    };

    if (options->in_place && collective->wide_out && !collective->wide_in) {
        call.in = (char *)bench->out + (size_t)bench->rank * block_bytes(&call);
    } else if (options->in_place && collective->wide_in && !collective->wide_out) {
        call.out = (char *)bench->in + (size_t)bench->rank * block_bytes(&call);
    }
    return call;
}

static cddp_status finish_device(const struct cddpi_bench *bench)
{
    return bench->device->ops->finish(bench->device, cddpi_group_timeout_ms(bench->group));
}

static cddp_status repeat_call(const struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                               int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        CDDPI_TRY(bench->options->collective->run(call));
    }
    return finish_device(bench);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double mean_of(const double *samples, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++) {
        sum += samples[i];
    }
    return sum / (double)count;
}

/* Time each call on the processor. Calls on a device are timed in blocks of equal length, since
 * waiting for each call would add to its time. */
static cddp_status take_samples(struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                                int64_t *iterations, int64_t *out_count)
{
    bool is_async = cddpi_device_is_async(bench->device);
    int64_t block = is_async ? (*iterations + DEVICE_BLOCKS - 1) / DEVICE_BLOCKS : 1;
    int64_t count = (*iterations + block - 1) / block;

    if (count > bench->sample_room) {
        double *grown = cddpi_realloc(bench->samples, (size_t)count * sizeof *grown);

        CDDPI_TRY_MEMORY(grown != NULL, "no memory for %lld samples", (long long)count);
        bench->samples = grown;
        bench->sample_room = count;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t start = cddpi_now_ns();

        CDDPI_TRY(repeat_call(bench, call, block));
        bench->samples[i] = (double)(cddpi_now_ns() - start) / 1e3 / (double)block;
    }
    *iterations = count * block;
    *out_count = count;
    return CDDP_OK;
}

/* Reduce the times to the largest of all ranks. */
static cddp_status agree_on_times(const struct cddpi_bench *bench, int64_t samples,
                                  struct cddpi_bench_row *row)
{
    double times[3];
    /* A ping-pong counts as two calls, there and back. */
    double calls = bench->options->collective->source == CDDPI_BENCH_FROM_PARTNER ? 2 : 1;

    qsort(bench->samples, (size_t)samples, sizeof *bench->samples, by_value);
    times[0] = mean_of(bench->samples, samples) / calls;
    times[1] = bench->samples[0] / calls;
    times[2] = bench->samples[samples / 2] / calls;
    CDDPI_TRY(cddp_all_reduce(bench->group, times, times, 3, CDDP_F64, CDDP_OP_MAX, NULL));
    row->mean_us = times[0];
    row->min_us = times[1];
    row->median_us = times[2];
    row->algorithm_gb_per_s = times[0] > 0 ? (double)row->bytes / times[0] / 1e3 : 0;
    row->bus_gb_per_s = row->algorithm_gb_per_s *
                        bench->options->collective->bus_factor(bench->world_size);
    return CDDP_OK;
}

/* Zero the buffers: zeros stay zeros in every sum, product and mean, however often a call repeats
 * it. */
static cddp_status clear_buffers(struct cddpi_bench *bench, int64_t bytes)
{
    const struct cddpi_device_ops *ops = bench->device->ops;

    if (bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(ops->clear(bench->device, CDDPI_STREAM_COMPUTE, bench->in, (size_t)bytes));
    if (bench->out != bench->in) {
        CDDPI_TRY(ops->clear(bench->device, CDDPI_STREAM_COMPUTE, bench->out, (size_t)bytes));
    }
    return finish_device(bench);
}

static cddp_status copy_bytes(const struct cddpi_bench *bench, void *to, const void *from,
                              size_t bytes)
{
    CDDPI_TRY(bench->device->ops->copy(bench->device, CDDPI_STREAM_COMPUTE, to, from, bytes));
    return finish_device(bench);
}

/* Fill @p buffer with a pattern that no correct result contains. */
static cddp_status poison_buffer(struct cddpi_bench *bench, void *buffer, size_t bytes)
{
    size_t step = CDDPI_BENCH_CHUNK * cddp_type_bytes(bench->options->type);

    memset(bench->chunk, POISON, step);
    for (size_t at = 0; at < bytes; at += step) {
        CDDPI_TRY(copy_bytes(bench, (char *)buffer + at, bench->chunk,
                             bytes - at < step ? bytes - at : step));
    }
    return CDDP_OK;
}

/* Write this rank's elements to the call's buffer. */
static cddp_status fill_input(struct cddpi_bench *bench, const struct cddpi_bench_call *call)
{
    size_t element = cddp_type_bytes(call->type);
    size_t count = call->count *
                   (bench->options->collective->wide_in ? (size_t)call->world_size : 1);

    for (size_t at = 0; at < count; at += CDDPI_BENCH_CHUNK) {
        size_t n = count - at < CDDPI_BENCH_CHUNK ? count - at : CDDPI_BENCH_CHUNK;

        cddpi_bench_fill(bench->chunk, (uint64_t)bench->options->seed, call->rank, at, n,
                         call->type);
        CDDPI_TRY(copy_bytes(bench, (char *)call->in + at * element, bench->chunk, n * element));
    }
    return CDDP_OK;
}

static int64_t count_wrong(const char *got, const char *wanted, size_t count, size_t element)
{
    int64_t wrong = 0;

    if (memcmp(got, wanted, count * element) == 0) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        wrong += memcmp(got + i * element, wanted + i * element, element) != 0;
    }
    return wrong;
}

static cddp_status compare_result(struct cddpi_bench *bench,
                                  const struct cddpi_bench_expectation *expectation,
                                  int64_t *out_wrong)
{
    const struct cddpi_bench_call *call = expectation->call;
    size_t element = cddp_type_bytes(call->type);
    int blocks = expectation->collective->wide_out ? call->world_size : 1;

    for (int block = 0; block < blocks; block++) {
        const char *begin = (char *)call->out + (size_t)block * block_bytes(call);

        for (size_t at = 0; at < call->count; at += CDDPI_BENCH_CHUNK) {
            size_t left = call->count - at;
            size_t n = left < CDDPI_BENCH_CHUNK ? left : CDDPI_BENCH_CHUNK;

            CDDPI_TRY(copy_bytes(bench, bench->chunk, begin + at * element, n * element));
            cddpi_bench_expect(expectation, block, at, n, bench->expected);
            *out_wrong += count_wrong(bench->chunk, bench->expected, n, element);
        }
    }
    return CDDP_OK;
}

/* Run one more call, with elements that differ by rank and index, and count the wrong ones. */
static cddp_status check_call(struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                              int64_t bytes, int64_t *out_wrong)
{
    struct cddpi_bench_expectation expectation = {
        bench->options->collective,     call, bench->options->in_place,
        (uint64_t)bench->options->seed, NULL, NULL};
    int64_t wrong = 0;
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, cddpi_bench_expectation_init(&expectation));
    CDDPI_TRY_GOTO(out, status, poison_buffer(bench, bench->in, (size_t)bytes));
    if (bench->out != bench->in) {
        CDDPI_TRY_GOTO(out, status, poison_buffer(bench, bench->out, (size_t)bytes));
    }
    if (cddpi_bench_gives(&expectation)) {
        CDDPI_TRY_GOTO(out, status, fill_input(bench, call));
    }
    CDDPI_TRY_GOTO(out, status, repeat_call(bench, call, 1));
    if (cddpi_bench_gets_result(&expectation)) {
        CDDPI_TRY_GOTO(out, status, compare_result(bench, &expectation, &wrong));
    }
    CDDPI_TRY_GOTO(out, status,
                   cddp_all_reduce(bench->group, &wrong, &wrong, 1, CDDP_I64, CDDP_OP_SUM, NULL));
    *out_wrong = wrong;
out:
    cddpi_bench_expectation_fini(&expectation);
    return status;
}

cddp_status cddpi_bench_measure(struct cddpi_bench *bench, int64_t bytes,
                                struct cddpi_bench_row *out)
{
    struct cddpi_bench_call call = make_call(bench, bytes);
    struct cddpi_bench_row row = {.bytes = bytes, .count = (int64_t)call.count, .wrong = -1};
    int64_t warmup = bench->options->warmup;
    int64_t samples = 0;

    row.iterations = choose_iterations(bench, bytes);
    if (warmup < 0) {
        warmup = row.iterations / 10 < 2 ? 2 : row.iterations / 10;
    }
    CDDPI_TRY(clear_buffers(bench, bytes));
    CDDPI_TRY(repeat_call(bench, &call, warmup));
    CDDPI_TRY(cddp_barrier(bench->group, NULL));
    CDDPI_TRY(take_samples(bench, &call, &row.iterations, &samples));
    CDDPI_TRY(agree_on_times(bench, samples, &row));
    if (bench->options->check) {
        CDDPI_TRY(check_call(bench, &call, bytes, &row.wrong));
    }
    *out = row;
    return CDDP_OK;
}
