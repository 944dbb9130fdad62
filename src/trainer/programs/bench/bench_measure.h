/* bench_measure.h - measures one size of a collective: how long its calls take, and whether a
 * result is right. */
#ifndef CDDPI_PROGRAMS_BENCH_MEASURE_H
#define CDDPI_PROGRAMS_BENCH_MEASURE_H

#include "programs/bench/bench_options.h"

struct cddpi_device;

/* A group, and memory for the largest size; smaller sizes use the beginning of the buffers. */
struct cddpi_bench {
    const struct cddpi_bench_options *options;
    cddp_group *group;
    struct cddpi_device *device; /* the group's, or the processor */
    int rank, world_size;
    void *in, *out;  /* in place: both are the same */
    void *chunk;     /* a chunk of elements in host memory */
    void *expected;  /* another chunk */
    size_t room;     /* bytes of `in`, and also of `out` */
    double *samples; /* microseconds of each call, or each block of calls, of one size */
    int64_t sample_room;
};

/* A row of the table; the same on all ranks. */
struct cddpi_bench_row {
    int64_t bytes; /* the larger of a rank's buffers */
    int64_t count; /* elements per block */
    int64_t iterations;
    /* The time of a call, on the slowest rank. */
    double mean_us, min_us, median_us;
    double algorithm_gb_per_s, bus_gb_per_s; /* from the mean; a GB is 10^9 bytes */
    int64_t wrong;                           /* wrong elements on all ranks; -1: not checked */
};

/** Allocate. Release with cddpi_bench_fini(), also after a failure. Collective.
 *  @param bench  Has options and a group; the rest is 0. */
cddp_status cddpi_bench_init(struct cddpi_bench *bench);
void cddpi_bench_fini(struct cddpi_bench *bench);

/** The name of the carrier between hosts, as in CDDP_CARRIER; NULL: all ranks are on one host. */
const char *cddpi_bench_carrier(const struct cddpi_bench *bench);

/** Round @p bytes down to whole blocks of whole elements, but at least one element a block. */
int64_t cddpi_bench_bytes(const struct cddpi_bench *bench, int64_t bytes);

/** Time the calls of one size, and check a result if the options say so. Collective. */
cddp_status cddpi_bench_measure(struct cddpi_bench *bench, int64_t bytes,
                                struct cddpi_bench_row *out);

#endif
