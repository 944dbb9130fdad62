/* bench_options.h - cddp-bench's command line. */
#ifndef CDDPI_PROGRAMS_BENCH_OPTIONS_H
#define CDDPI_PROGRAMS_BENCH_OPTIONS_H

#include "programs/bench/bench_collectives.h"

#include <stdio.h>

enum cddpi_bench_mode {
    CDDPI_BENCH_RUN,
    CDDPI_BENCH_START, /* the ranks, which then run */
    CDDPI_BENCH_HELP,
    CDDPI_BENCH_VERSION
};

enum { CDDPI_BENCH_WORDS = 64 }; /* of a command line, at most */

struct cddpi_bench_options {
    enum cddpi_bench_mode mode;
    const struct cddpi_bench_collective *collective;
    cddp_type type;
    cddp_op op;
    int64_t root;
    int64_t min_bytes, max_bytes, factor;
    int64_t iterations; /* 0: by size */
    int64_t warmup;     /* -1: by the iterations */
    int64_t seed;
    const char *backend, *device; /* NULL: the environment's */
    bool group_memory;            /* of cddp_group_alloc(), else plain memory of the device */
    bool in_place;
    bool check;
    const char *json;    /* a file, or "-"; NULL: none */
    char transport[24];  /* of --transport: the backend, which `backend` points to */
    const char *carrier; /* instead of CDDP_CARRIER's; NULL: the environment's */

    /* To start: where, and each rank's command line behind the program's name. */
    const char *hosts, *hostfile, *ssh, *nproc; /* NULL: not given */
    const char *words[CDDPI_BENCH_WORDS];
    int word_count;
};

/** Read the command line; texts are borrowed from it, or in @p out, which does not move.
 *  @return CDDP_OK or CDDP_ERR_ARGUMENT. */
cddp_status cddpi_bench_options_parse(int argc, char **argv, struct cddpi_bench_options *out);
void cddpi_bench_options_help(FILE *to);

#endif
