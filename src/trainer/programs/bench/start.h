/* start.h - starts the ranks when a user runs cddp-bench for several hosts: it becomes cddp-run,
 * which starts cddp-bench again as each rank. */
#ifndef CDDPI_PROGRAMS_BENCH_START_H
#define CDDPI_PROGRAMS_BENCH_START_H

#include "programs/bench/bench_options.h"

/** Replace this process by cddp-run, which starts this program with options->words on
 *  options->nproc ranks, or on the ranks of options->hosts or options->hostfile. Returns only on
 *  failure: CDDP_ERR_NOT_FOUND (there is no cddp-run), CDDP_ERR_ARGUMENT (this process is a rank
 *  already), CDDP_ERR_IO. */
CDDP_CHECKED cddp_status cddpi_bench_start(const struct cddpi_bench_options *options);

#endif
