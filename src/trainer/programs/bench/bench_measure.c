/* bench_measure.c - runs, times and checks the calls of one size. */
#include "programs/bench/bench_measure.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "group/join/link.h"
#include "group/on_device.h"
#include "programs/bench/pattern.h"

#include <stdlib.h>
#include <string.h>

enum {
    ITERATIONS_MIN = 10,
    ITERATIONS_MAX = 1000,
    DEVICE_BLOCKS = 10, /* a device is waited for so often in all its calls of a size */
    POISON = 0xa5
};

static const int64_t bytes_per_size = (int64_t)256 << 20;

static size_t block_bytes(const struct cddpi_bench_call *call)
{
    return call->count * cddp_type_bytes(call->type);
}

int64_t cddpi_bench_bytes(const struct cddpi_bench *bench, int64_t bytes)
{
    const struct cddpi_bench_options *options = bench->options;
    int64_t unit = (int64_t)cddp_type_bytes(options->type) *
                   cddpi_bench_blocks(options->collective, bench->world_size);

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

/* As it is where sizes say nothing: a barrier. */
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

static int64_t choose_warmup(const struct cddpi_bench *bench, int64_t iterations)
{
    if (bench->options->warmup >= 0) {
        return bench->options->warmup;
    }
    return iterations / 10 < 2 ? 2 : iterations / 10;
}

static cddp_status alloc_buffer(struct cddpi_bench *bench, void **out)
{
    if (bench->options->group_memory) {
        return cddp_group_alloc(bench->group, bench->room, out);
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
    cddp_status status = CDDP_OK;

    bench->rank = cddp_group_rank(bench->group);
    bench->world_size = cddp_group_world_size(bench->group);
    bench->device = cddpi_group_on_device(bench->group);
    if (!cddpi_bench_has_data(options->collective)) {
        return CDDP_OK;
    }
    bench->room = (size_t)cddpi_bench_bytes(bench, options->max_bytes);
    bench->chunk = cddpi_alloc_aligned(chunk);
    bench->expected = cddpi_alloc_aligned(chunk);
    if (bench->chunk == NULL || bench->expected == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu bytes", 2 * chunk);
    }
    status = alloc_buffer(bench, &bench->in);
    if (status == CDDP_OK && options->in_place) {
        bench->out = bench->in;
    } else if (status == CDDP_OK) {
        status = alloc_buffer(bench, &bench->out);
    }
    return status;
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

/* Where the buffers of a call begin: in place the narrow one lies within the wide one. */
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
                 (size_t)cddpi_bench_blocks(collective, bench->world_size),
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
    return bench->device->ops->finish(bench->device, cddp_group_timeout_ms(bench->group));
}

static cddp_status repeat(const struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                          int64_t times)
{
    cddp_status status = CDDP_OK;

    for (int64_t i = 0; i < times && status == CDDP_OK; i++) {
        status = bench->options->collective->run(call);
    }
    return status == CDDP_OK ? finish_device(bench) : status;
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

/* One call of the processor is timed at a time; a device's are timed in blocks, since waiting for
 * each would be part of it. Blocks are equally long. */
static cddp_status take_samples(struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                                int64_t *iterations, int64_t *out_count)
{
    bool is_async = cddpi_device_is_async(bench->device);
    int64_t block = is_async ? (*iterations + DEVICE_BLOCKS - 1) / DEVICE_BLOCKS : 1;
    int64_t count = (*iterations + block - 1) / block;
    cddp_status status = CDDP_OK;

    if (count > bench->sample_room) {
        double *grown = cddpi_realloc(bench->samples, (size_t)count * sizeof *grown);

        if (grown == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %lld samples", (long long)count);
        }
        bench->samples = grown;
        bench->sample_room = count;
    }
    for (int64_t i = 0; i < count && status == CDDP_OK; i++) {
        int64_t start = cddpi_now_ns();

        status = repeat(bench, call, block);
        bench->samples[i] = (double)(cddpi_now_ns() - start) / 1e3 / (double)block;
    }
    *iterations = count * block;
    *out_count = count;
    return status;
}

/* The largest of all ranks' figures. */
static cddp_status agree_on_times(const struct cddpi_bench *bench, int64_t samples,
                                  struct cddpi_bench_row *row)
{
    double times[3];
    cddp_status status;

    /* There and back. */
    double calls = bench->options->collective->source == CDDPI_BENCH_FROM_PARTNER ? 2 : 1;

    qsort(bench->samples, (size_t)samples, sizeof *bench->samples, by_value);
    times[0] = mean_of(bench->samples, samples) / calls;
    times[1] = bench->samples[0] / calls;
    times[2] = bench->samples[samples / 2] / calls;
    status = cddp_all_reduce(bench->group, times, times, 3, CDDP_F64, CDDP_OP_MAX, NULL);
    if (status == CDDP_OK) {
        row->mean_us = times[0];
        row->min_us = times[1];
        row->median_us = times[2];
        row->algorithm_gb_per_s = times[0] > 0 ? (double)row->bytes / times[0] / 1e3 : 0;
        row->bus_gb_per_s = row->algorithm_gb_per_s *
                            bench->options->collective->bus_factor(bench->world_size);
    }
    return status;
}

/* Zeros are what sums, products and means of them are, however often they are taken. */
static cddp_status clear_buffers(struct cddpi_bench *bench, int64_t bytes)
{
    const struct cddpi_device_ops *ops = bench->device->ops;
    cddp_status status;

    if (bytes == 0) {
        return CDDP_OK;
    }
    status = ops->clear(bench->device, CDDPI_STREAM_COMPUTE, bench->in, (size_t)bytes);
    if (status == CDDP_OK && bench->out != bench->in) {
        status = ops->clear(bench->device, CDDPI_STREAM_COMPUTE, bench->out, (size_t)bytes);
    }
    return status == CDDP_OK ? finish_device(bench) : status;
}

static cddp_status copy(const struct cddpi_bench *bench, void *to, const void *from, size_t bytes)
{
    cddp_status status = bench->device->ops->copy(bench->device, CDDPI_STREAM_COMPUTE, to, from,
                                                  bytes);

    return status == CDDP_OK ? finish_device(bench) : status;
}

/* What no result may be left with. */
static cddp_status poison(struct cddpi_bench *bench, void *buffer, size_t bytes)
{
    size_t step = CDDPI_BENCH_CHUNK * cddp_type_bytes(bench->options->type);
    cddp_status status = CDDP_OK;

    memset(bench->chunk, POISON, step);
    for (size_t at = 0; at < bytes && status == CDDP_OK; at += step) {
        status = copy(bench, (char *)buffer + at, bench->chunk,
                      bytes - at < step ? bytes - at : step);
    }
    return status;
}

/* This rank's elements. */
static cddp_status give(struct cddpi_bench *bench, const struct cddpi_bench_call *call)
{
    size_t element = cddp_type_bytes(call->type);
    size_t count = call->count *
                   (bench->options->collective->wide_in ? (size_t)call->world_size : 1);
    cddp_status status = CDDP_OK;

    for (size_t at = 0; at < count && status == CDDP_OK; at += CDDPI_BENCH_CHUNK) {
        size_t n = count - at < CDDPI_BENCH_CHUNK ? count - at : CDDPI_BENCH_CHUNK;

        cddpi_bench_fill(bench->chunk, (uint64_t)bench->options->seed, call->rank, at, n,
                         call->type);
        status = copy(bench, (char *)call->in + at * element, bench->chunk, n * element);
    }
    return status;
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

static cddp_status compare(struct cddpi_bench *bench,
                           const struct cddpi_bench_expectation *expectation, int64_t *out_wrong)
{
    const struct cddpi_bench_call *call = expectation->call;
    size_t element = cddp_type_bytes(call->type);
    int blocks = expectation->collective->wide_out ? call->world_size : 1;
    cddp_status status = CDDP_OK;

    for (int block = 0; block < blocks; block++) {
        const char *begin = (char *)call->out + (size_t)block * block_bytes(call);

        for (size_t at = 0; at < call->count && status == CDDP_OK; at += CDDPI_BENCH_CHUNK) {
            size_t left = call->count - at;
            size_t n = left < CDDPI_BENCH_CHUNK ? left : CDDPI_BENCH_CHUNK;

            status = copy(bench, bench->chunk, begin + at * element, n * element);
            cddpi_bench_expect(expectation, block, at, n, bench->expected);
            *out_wrong += count_wrong(bench->chunk, bench->expected, n, element);
        }
    }
    return status;
}

/* One more call, on elements that tell where they come from. */
static cddp_status check(struct cddpi_bench *bench, const struct cddpi_bench_call *call,
                         int64_t bytes, int64_t *out_wrong)
{
    struct cddpi_bench_expectation expectation = {
        bench->options->collective,     call, bench->options->in_place,
        (uint64_t)bench->options->seed, NULL, NULL};
    int64_t wrong = 0;
    cddp_status status = cddpi_bench_expectation_init(&expectation);

    if (status == CDDP_OK) {
        status = poison(bench, bench->in, (size_t)bytes);
    }
    if (status == CDDP_OK && bench->out != bench->in) {
        status = poison(bench, bench->out, (size_t)bytes);
    }
    if (status == CDDP_OK && cddpi_bench_gives(&expectation)) {
        status = give(bench, call);
    }
    if (status == CDDP_OK) {
        status = repeat(bench, call, 1);
    }
    if (status == CDDP_OK && cddpi_bench_gets_result(&expectation)) {
        status = compare(bench, &expectation, &wrong);
    }
    if (status == CDDP_OK) {
        status = cddp_all_reduce(bench->group, &wrong, &wrong, 1, CDDP_I64, CDDP_OP_SUM, NULL);
    }
    cddpi_bench_expectation_fini(&expectation);
    if (status == CDDP_OK) {
        *out_wrong = wrong;
    }
    return status;
}

cddp_status cddpi_bench_measure(struct cddpi_bench *bench, int64_t bytes,
                                struct cddpi_bench_row *out)
{
    struct cddpi_bench_call call = make_call(bench, bytes);
    struct cddpi_bench_row row = {.bytes = bytes, .count = (int64_t)call.count, .wrong = -1};
    int64_t samples = 0;
    cddp_status status = clear_buffers(bench, bytes);

    row.iterations = choose_iterations(bench, bytes);
    if (status == CDDP_OK) {
        status = repeat(bench, &call, choose_warmup(bench, row.iterations));
    }
    if (status == CDDP_OK) {
        status = cddp_barrier(bench->group, NULL);
    }
    if (status == CDDP_OK) {
        status = take_samples(bench, &call, &row.iterations, &samples);
    }
    if (status == CDDP_OK) {
        status = agree_on_times(bench, samples, &row);
    }
    if (status == CDDP_OK && bench->options->check) {
        status = check(bench, &call, bytes, &row.wrong);
    }
    if (status == CDDP_OK) {
        *out = row;
    }
    return status;
}
