/* pattern.h - makes the elements that ranks pass to a checked collective, and the expected result.
 * An element depends only on (seed, rank, index), so each rank knows all of them. */
#ifndef CDDPI_PROGRAMS_BENCH_PATTERN_H
#define CDDPI_PROGRAMS_BENCH_PATTERN_H

#include "programs/bench/bench_collectives.h"

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
