/* bench_measure.h - one size of a collective: how long its calls take, and whether a result is
 * right. */
#ifndef CDDPI_PROGRAMS_BENCH_MEASURE_H
#define CDDPI_PROGRAMS_BENCH_MEASURE_H

#include "programs/bench/bench_options.h"

struct cddpi_device;

/* A group and memory for the largest size; all sizes use its beginning. */
struct cddpi_bench {
    const struct cddpi_bench_options *options;
    cddp_group *group;
    struct cddpi_device *device; /* the group's, or the processor */
    int rank, world_size;
    void *in, *out;  /* out is in when in place */
    void *chunk;     /* of elements, on the processor */
    void *expected;  /* another */
    size_t room;     /* bytes of each */
    double *samples; /* of one size: microseconds of each call, or of each block of calls */
    int64_t sample_room;
};

/* A row of the table; the same on all ranks. */
struct cddpi_bench_row {
    int64_t bytes; /* what a rank has of data: of the larger buffer */
    int64_t count; /* elements of a block */
    int64_t iterations;
    /* Of a call, on the rank where it is largest. */
    double mean_us, min_us, median_us;
    double algorithm_gb_per_s, bus_gb_per_s; /* of the mean; GB are 10^9 bytes */
    int64_t wrong;                           /* elements, on all ranks; -1: not checked */
};

/** Allocate. On failure, too, release with cddpi_bench_fini(). Collective.
 *  @p bench  Has options and a group; the rest is 0. */
cddp_status cddpi_bench_init(struct cddpi_bench *bench);
void cddpi_bench_fini(struct cddpi_bench *bench);

/** The carrier of what goes between hosts, as in CDDP_CARRIER; NULL: all ranks are on one. */
const char *cddpi_bench_carrier(const struct cddpi_bench *bench);

/** How many bytes are really used for @p bytes: whole blocks of whole elements, at least one. */
int64_t cddpi_bench_bytes(const struct cddpi_bench *bench, int64_t bytes);

/** Collective. */
cddp_status cddpi_bench_measure(struct cddpi_bench *bench, int64_t bytes,
                                struct cddpi_bench_row *out);

#endif
