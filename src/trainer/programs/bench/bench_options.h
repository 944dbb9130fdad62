/* bench_options.h - owns cddp-bench's command line. */
#ifndef CDDPI_PROGRAMS_BENCH_OPTIONS_H
#define CDDPI_PROGRAMS_BENCH_OPTIONS_H

#include "programs/bench/bench_collectives.h"
#include "programs/program.h"

enum { CDDPI_BENCH_WORDS = 64 }; /* the most words of a command line */

struct cddpi_bench_options {
    const struct cddpi_bench_collective *collective;
    cddp_type type;
    cddp_op op;
    int64_t root;
    int64_t min_bytes, max_bytes, factor;
    int64_t iterations; /* 0: chosen by size */
    int64_t warmup;     /* -1: chosen from the iterations */
    int64_t seed;
    const char *backend, *device; /* NULL: as the environment says */
    bool group_memory; /* buffers by cddp_group_alloc(), else plain memory of the device */
    bool in_place;
    bool check;
    const char *json;    /* a file, or "-"; NULL: none */
    char transport[24];  /* the backend part of --transport, which `backend` points to */
    const char *carrier; /* replaces CDDP_CARRIER; NULL: as the environment says */

    /* To start ranks: where to, and the words of each rank's command line after the program. */
    const char *hosts, *hostfile, *ssh, *nproc; /* NULL: not given */
    const char *words[CDDPI_BENCH_WORDS];
    int word_count; /* 0: this process is a rank */
};

/** Read the command line. Strings point into it, or into @p out, which must not be copied.
 *  @return CDDP_OK or CDDP_ERR_ARGUMENT. */
cddp_status cddpi_bench_options_parse(const char *const *values, char **words, int count,
                                      struct cddpi_bench_options *out);

/** Its run is cddpi_bench_run(). */
extern const struct cddpi_program cddpi_bench_program;

/** bench_main.c: measure, or start ranks that measure. Returns the exit status. */
int cddpi_bench_run(const char *const *values, char **words, int count);

#endif
