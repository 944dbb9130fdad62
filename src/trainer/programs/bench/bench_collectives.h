/* bench_collectives.h - owns the table of cddp-bench's collectives. A row describes the buffers,
 * where the result comes from, and how much data crosses a bus. For --check, elements depend only
 * on (seed, rank, index), so each rank knows all of them, and the expected result. */
#ifndef CDDPI_PROGRAMS_BENCH_COLLECTIVES_H
#define CDDPI_PROGRAMS_BENCH_COLLECTIVES_H

#include "programs/bench/bench_collectives.h"

#include <cddp/group.h>

/* One call. A collective ignores the members that it does not need. */
struct cddpi_bench_call {
    cddp_group *group;
    int rank, world_size;
    void *in, *out; /* in place: the same memory, or one inside the other */
    size_t count;   /* per block */
    cddp_type type;
    cddp_op op;
    int root;
};

/* Where the elements of a block of the result come from. */
enum cddpi_bench_source {
    CDDPI_BENCH_FROM_ALL, /* the reduction over all ranks */
    CDDPI_BENCH_FROM_ROOT,
    CDDPI_BENCH_FROM_EACH, /* block r comes from rank r */
    CDDPI_BENCH_FROM_PARTNER,
    CDDPI_BENCH_FROM_NOBODY /* no data */
};

enum cddpi_bench_in_place {
    CDDPI_BENCH_IN_PLACE_NEVER,
    CDDPI_BENCH_IN_PLACE_ASKED,
    CDDPI_BENCH_IN_PLACE_ALWAYS
};

struct cddpi_bench_collective {
    const char *name;
    const char *text; /* a sentence for --help */
    cddp_status (*run)(const struct cddpi_bench_call *call);
    enum cddpi_bench_source source;
    enum cddpi_bench_in_place in_place;
    bool wide_in, wide_out; /* the buffer has a block for each rank, else one block */
    bool takes_own_block;   /* rank r's result is made of block r of each `in` */
    bool has_root;          /* --root is allowed */
    bool root_only;         /* only the root gets a result */
    /* Bus bandwidth divided by algorithm bandwidth, as in nccl-tests: how many times the size the
     * busiest link must carry. */
    double (*bus_factor)(int world_size);
};

extern const struct cddpi_bench_collective cddpi_bench_collectives[];
enum { CDDPI_BENCH_COLLECTIVES = 10 };

static inline bool cddpi_bench_reduces(const struct cddpi_bench_collective *collective)
{
    return collective->source == CDDPI_BENCH_FROM_ALL;
}

static inline bool cddpi_bench_has_data(const struct cddpi_bench_collective *collective)
{
    return collective->source != CDDPI_BENCH_FROM_NOBODY;
}

enum { CDDPI_BENCH_CHUNK = 4096 }; /* elements made at a time */

/** Make elements [@p first, @p first + @p count) of @p rank. Floating point values have a magnitude
 *  of 0.25 to 2 and either sign, so that sums round and nothing overflows; integers have random
 *  bits, and bools are 0 or 1. */
void cddpi_bench_fill(void *out, uint64_t seed, int rank, size_t first, size_t count,
                      cddp_type type);

/* The expected result of a rank. */
struct cddpi_bench_expectation {
    const struct cddpi_bench_collective *collective;
    const struct cddpi_bench_call *call;
    bool in_place;
    uint64_t seed;
    void *sources; /* room for a chunk of every rank's elements */
    const void **pointers;
};

/** @return CDDP_OK; CDDP_ERR_NO_MEMORY; CDDP_ERR_ARGUMENT: more ranks than can be checked. Release
 *  @p expectation with cddpi_bench_expectation_fini(), also after a failure. */
cddp_status cddpi_bench_expectation_init(struct cddpi_bench_expectation *expectation);
void cddpi_bench_expectation_fini(struct cddpi_bench_expectation *expectation);

/** Whether this rank gets a result at all. */
bool cddpi_bench_gets_result(const struct cddpi_bench_expectation *expectation);
/** Whether this rank's input matters; if not, its memory may hold anything. */
bool cddpi_bench_gives(const struct cddpi_bench_expectation *expectation);

/** Calculate the expected elements [@p first, @p first + @p count) of block @p block of this rank's
 *  result. @p count is at most CDDPI_BENCH_CHUNK. */
void cddpi_bench_expect(const struct cddpi_bench_expectation *expectation, int block, size_t first,
                        size_t count, void *out);

#endif
