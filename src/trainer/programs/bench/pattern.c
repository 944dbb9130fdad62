/* pattern.c - makes elements from (seed, rank, index), and the expected results. */
#include "programs/bench/pattern.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

/* The finalizer of SplitMix64: every bit of the result depends on every bit of @p x. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* A floating point number with a magnitude of 0.25 to 2, in a format with @p fraction_bits and an
 * exponent bias of @p bias. */
static uint64_t float_bits(uint64_t random, int fraction_bits, uint64_t bias, int bits)
{
    uint64_t sign = random >> 63;
    uint64_t exponent = bias - (random >> 60 & 7) % 3;
    uint64_t fraction = random & (((uint64_t)1 << fraction_bits) - 1);

    return sign << (bits - 1) | exponent << fraction_bits | fraction;
}

static uint64_t element_bits(uint64_t random, cddp_type type)
{
    switch (type) {
    case CDDP_F32:
        return float_bits(random, 23, 127, 32);
    case CDDP_F64:
        return float_bits(random, 52, 1023, 64);
    case CDDP_F16:
        return float_bits(random, 10, 15, 16);
    case CDDP_BF16:
        return float_bits(random, 7, 127, 16);
    case CDDP_BOOL:
        return random & 1;
    default:
        return random;
    }
}

static void put(void *out, size_t index, uint64_t bits, size_t bytes)
{
    switch (bytes) {
    case 8:
        ((uint64_t *)out)[index] = bits;
        break;
    case 4:
        ((uint32_t *)out)[index] = (uint32_t)bits;
        break;
    case 2:
        ((uint16_t *)out)[index] = (uint16_t)bits;
        break;
    default:
        ((unsigned char *)out)[index] = (unsigned char)bits;
    }
}

void cddpi_bench_fill(void *out, uint64_t seed, int rank, size_t first, size_t count,
                      cddp_type type)
{
    uint64_t key = mix(seed ^ mix((uint64_t)rank + 0x9e3779b97f4a7c15));
    size_t bytes = cddp_type_bytes(type);

    for (size_t i = 0; i < count; i++) {
        uint64_t random = mix(key + (first + i + 1) * 0x9e3779b97f4a7c15);

        put(out, i, element_bits(random, type), bytes);
    }
}

cddp_status cddpi_bench_expectation_init(struct cddpi_bench_expectation *expectation)
{
    const struct cddpi_bench_call *call = expectation->call;
    size_t ranks = (size_t)call->world_size;
    size_t chunk = CDDPI_BENCH_CHUNK * cddp_type_bytes(call->type);

    if (!cddpi_bench_reduces(expectation->collective)) {
        return CDDP_OK;
    }
    if (call->world_size > CDDPI_REDUCE_MAX_SOURCES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--check reduces the elements of at most %d ranks",
                          CDDPI_REDUCE_MAX_SOURCES);
    }
    expectation->sources = cddpi_zalloc_array(ranks, chunk);
    expectation->pointers = cddpi_zalloc_array(ranks, sizeof *expectation->pointers);
    if (expectation->sources == NULL || expectation->pointers == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "--check: no memory for %zu bytes", ranks * chunk);
    }
    for (size_t r = 0; r < ranks; r++) {
        expectation->pointers[r] = (char *)expectation->sources + r * chunk;
    }
    return CDDP_OK;
}

void cddpi_bench_expectation_fini(struct cddpi_bench_expectation *expectation)
{
    cddpi_free(expectation->sources);
    cddpi_free((void *)expectation->pointers);
    expectation->sources = NULL;
    expectation->pointers = NULL;
}

bool cddpi_bench_gets_result(const struct cddpi_bench_expectation *expectation)
{
    const struct cddpi_bench_call *call = expectation->call;

    if (expectation->collective->source == CDDPI_BENCH_FROM_PARTNER) {
        return cddpi_bench_partner(call->rank, call->world_size) >= 0;
    }
    return !expectation->collective->root_only || call->rank == call->root;
}

bool cddpi_bench_gives(const struct cddpi_bench_expectation *expectation)
{
    const struct cddpi_bench_call *call = expectation->call;

    return expectation->collective->source != CDDPI_BENCH_FROM_ROOT || call->rank == call->root;
}

/* Calculate the reduction over all ranks of their elements from @p first on. */
static void expect_reduction(const struct cddpi_bench_expectation *expectation, size_t first,
                             size_t count, void *out)
{
    const struct cddpi_bench_call *call = expectation->call;
    const struct cddpi_reduce how = {
        .type = call->type, .op = call->op, .sources = call->world_size, .destinations = 1};
    size_t chunk = CDDPI_BENCH_CHUNK * cddp_type_bytes(call->type);

    for (int r = 0; r < call->world_size; r++) {
        cddpi_bench_fill((char *)expectation->sources + (size_t)r * chunk, expectation->seed, r,
                         first, count, call->type);
    }
    cddpi_reduce(&how, &out, expectation->pointers, count);
}

void cddpi_bench_expect(const struct cddpi_bench_expectation *expectation, int block, size_t first,
                        size_t count, void *out)
{
    const struct cddpi_bench_call *call = expectation->call;
    int rank = block;

    if (expectation->collective->takes_own_block) {
        first += (size_t)call->rank * call->count;
    }
    switch (expectation->collective->source) {
    case CDDPI_BENCH_FROM_ALL:
        expect_reduction(expectation, first, count, out);
        return;
    case CDDPI_BENCH_FROM_ROOT:
        rank = call->root;
        break;
    case CDDPI_BENCH_FROM_PARTNER:
        rank = cddpi_bench_partner(call->rank, call->world_size);
        break;
    case CDDPI_BENCH_FROM_EACH:
    case CDDPI_BENCH_FROM_NOBODY:
        break;
    }
    cddpi_bench_fill(out, expectation->seed, rank, first, count, call->type);
}
