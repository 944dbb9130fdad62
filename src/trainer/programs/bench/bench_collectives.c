/* bench_collectives.c - owns cddp-bench's table of collectives. For --check it makes elements from
 * (seed, rank, index), and the expected results. */
#include "programs/bench/bench_collectives.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/reduce.h"

/* The rank that @p rank plays ping-pong with: ranks of the first half play with ranks of the
 * second, so that messages cross hosts. -1: no partner, for the last rank of an odd number. */
static int partner_of(int rank, int world_size)
{
    int half = world_size / 2;

    return rank >= 2 * half ? -1 : rank < half ? rank + half : rank - half;
}

static cddp_status run_all_reduce(const struct cddpi_bench_call *call)
{
    return cddp_all_reduce(call->group, call->in, call->out, call->count, call->type, call->op,
                           NULL);
}

static cddp_status run_reduce(const struct cddpi_bench_call *call)
{
    return cddp_reduce(call->group, call->in, call->out, call->count, call->type, call->op,
                       call->root, NULL);
}

static cddp_status run_broadcast(const struct cddpi_bench_call *call)
{
    return cddp_broadcast(call->group, call->out, call->count, call->type, call->root, NULL);
}

static cddp_status run_all_gather(const struct cddpi_bench_call *call)
{
    return cddp_all_gather(call->group, call->in, call->out, call->count, call->type, NULL);
}

static cddp_status run_reduce_scatter(const struct cddpi_bench_call *call)
{
    return cddp_reduce_scatter(call->group, call->in, call->out, call->count, call->type, call->op,
                               NULL);
}

static cddp_status run_gather(const struct cddpi_bench_call *call)
{
    return cddp_gather(call->group, call->in, call->out, call->count, call->type, call->root, NULL);
}

static cddp_status run_scatter(const struct cddpi_bench_call *call)
{
    return cddp_scatter(call->group, call->in, call->out, call->count, call->type, call->root,
                        NULL);
}

static cddp_status run_all_to_all(const struct cddpi_bench_call *call)
{
    return cddp_all_to_all(call->group, call->in, call->out, call->count, call->type, NULL);
}

static cddp_status send_block(const struct cddpi_bench_call *call, int partner)
{
    return cddp_send(call->group, call->in, call->count, call->type, partner, NULL);
}

static cddp_status receive_block(const struct cddpi_bench_call *call, int partner)
{
    return cddp_recv(call->group, call->out, call->count, call->type, partner, NULL);
}

/* The lower rank sends first, and then receives. */
static cddp_status run_send_recv(const struct cddpi_bench_call *call)
{
    int partner = partner_of(call->rank, call->world_size);
    bool begins = call->rank < partner;

    if (partner < 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(begins ? send_block(call, partner) : receive_block(call, partner));
    return begins ? receive_block(call, partner) : send_block(call, partner);
}

static cddp_status run_barrier(const struct cddpi_bench_call *call)
{
    return cddp_barrier(call->group, NULL);
}

static double as_large(int world_size)
{
    (void)world_size;
    return 1;
}

static double all_but_own(int world_size)
{
    return (double)(world_size - 1) / world_size;
}

static double there_and_back(int world_size)
{
    return 2 * all_but_own(world_size);
}

const struct cddpi_bench_collective cddpi_bench_collectives[CDDPI_BENCH_COLLECTIVES] = {
    {.name = "all_reduce",
     .text = "every rank gets the reduction over all",
     .run = run_all_reduce,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .bus_factor = there_and_back},
    {.name = "broadcast",
     .text = "every rank gets the root's elements; always in place",
     .run = run_broadcast,
     .source = CDDPI_BENCH_FROM_ROOT,
     .in_place = CDDPI_BENCH_IN_PLACE_ALWAYS,
     .has_root = true,
     .bus_factor = as_large},
    {.name = "reduce",
     .text = "the root gets the reduction over all",
     .run = run_reduce,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .has_root = true,
     .root_only = true,
     .bus_factor = as_large},
    {.name = "all_gather",
     .text = "every rank gets every rank's block",
     .run = run_all_gather,
     .source = CDDPI_BENCH_FROM_EACH,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_out = true,
     .bus_factor = all_but_own},
    {.name = "reduce_scatter",
     .text = "every rank gets its block of the reduction",
     .run = run_reduce_scatter,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_in = true,
     .takes_own_block = true,
     .bus_factor = all_but_own},
    {.name = "gather",
     .text = "the root gets every rank's block",
     .run = run_gather,
     .source = CDDPI_BENCH_FROM_EACH,
     .wide_out = true,
     .has_root = true,
     .root_only = true,
     .bus_factor = all_but_own},
    {.name = "scatter",
     .text = "every rank gets its block of the root's elements",
     .run = run_scatter,
     .source = CDDPI_BENCH_FROM_ROOT,
     .wide_in = true,
     .takes_own_block = true,
     .has_root = true,
     .bus_factor = all_but_own},
    {.name = "all_to_all",
     .text = "every rank gets a block from every rank",
     .run = run_all_to_all,
     .source = CDDPI_BENCH_FROM_EACH,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_in = true,
     .wide_out = true,
     .takes_own_block = true,
     .bus_factor = all_but_own},
    {.name = "send_recv",
     .text = "ping-pong between ranks r and r + N/2; the time is half a round trip",
     .run = run_send_recv,
     .source = CDDPI_BENCH_FROM_PARTNER,
     .bus_factor = as_large},
    {.name = "barrier",
     .text = "every rank waits for all others; no data are sent",
     .run = run_barrier,
     .source = CDDPI_BENCH_FROM_NOBODY,
     .bus_factor = as_large},
};

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
    CDDPI_TRY_MEMORY(expectation->sources != NULL && expectation->pointers != NULL,
                     "--check: no memory for %zu bytes", ranks * chunk);
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
        return partner_of(call->rank, call->world_size) >= 0;
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
        rank = partner_of(call->rank, call->world_size);
        break;
    case CDDPI_BENCH_FROM_EACH:
    case CDDPI_BENCH_FROM_NOBODY:
        break;
    }
    cddpi_bench_fill(out, expectation->seed, rank, first, count, call->type);
}
