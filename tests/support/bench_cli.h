/* bench_cli.h - run the real cddp-bench under the real cddp-run. */
#ifndef CDDP_TESTS_SUPPORT_BENCH_CLI_H
#define CDDP_TESTS_SUPPORT_BENCH_CLI_H

#include "support/launcher.h"

const char *bench_path(void);

/* Run @p ranks ranks of it with @p arguments, which NULL ends. The folder stays from run to run. */
void bench_run(struct launched *job, int ranks, const char *const *arguments);

#define BENCH(job, ranks, ...) bench_run((job), (ranks), (const char *const[]){__VA_ARGS__, NULL})

/* The run went well, and nothing was wrong. */
void bench_found_nothing_wrong(const struct launched *job, const char *what);

#endif
