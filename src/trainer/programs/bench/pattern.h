/* pattern.h - the elements that ranks give to a collective that is checked, and those that must
 * come out of it. An element is a function of (seed, rank, index) alone, so that each rank knows
 * all. */
#ifndef CDDPI_PROGRAMS_BENCH_PATTERN_H
#define CDDPI_PROGRAMS_BENCH_PATTERN_H

#include "programs/bench/bench_collectives.h"

enum { CDDPI_BENCH_CHUNK = 4096 }; /* elements made at a time */

/** Elements [@p first, @p first + @p count) of @p rank: floating ones of 0.25 to 2 and any sign, so
 *  that sums round and nothing overflows; whole ones of any bits, and bool's 0 and 1. */
void cddpi_bench_fill(void *out, uint64_t seed, int rank, size_t first, size_t count,
                      cddp_type type);

/* What the result of a rank must be. */
struct cddpi_bench_expectation {
    const struct cddpi_bench_collective *collective;
    const struct cddpi_bench_call *call;
    bool in_place;
    uint64_t seed;
    void *sources; /* room for a chunk of every rank's elements */
    const void **pointers;
};

/** @return CDDP_OK; CDDP_ERR_NO_MEMORY; CDDP_ERR_ARGUMENT: more ranks than can be checked.
 *  Release what is in @p expectation, also after a failure, with cddpi_bench_expectation_fini(). */
cddp_status cddpi_bench_expectation_init(struct cddpi_bench_expectation *expectation);
void cddpi_bench_expectation_fini(struct cddpi_bench_expectation *expectation);

/** Whether this rank gets a result at all. */
bool cddpi_bench_gets_result(const struct cddpi_bench_expectation *expectation);
/** Whether this rank's input matters; else its memory may hold anything. */
bool cddpi_bench_gives(const struct cddpi_bench_expectation *expectation);

/** What elements [@p first, @p first + @p count) of block @p block of this rank's result must be.
 *  @p count is at most CDDPI_BENCH_CHUNK. */
void cddpi_bench_expect(const struct cddpi_bench_expectation *expectation, int block, size_t first,
                        size_t count, void *out);

#endif
