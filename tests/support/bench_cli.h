/* bench_cli.h - runs the real cddp-bench under the real cddp-run. */
#ifndef CDDP_TESTS_SUPPORT_BENCH_CLI_H
#define CDDP_TESTS_SUPPORT_BENCH_CLI_H

#include "support/launcher.h"

const char *bench_path(void);

/* Run @p ranks ranks of cddp-bench with @p arguments, ended by NULL. All runs of a job use the same
 * folder. */
void bench_run(struct launched *job, int ranks, const char *const *arguments);

#define BENCH(job, ranks, ...) bench_run((job), (ranks), (const char *const[]){__VA_ARGS__, NULL})

/* Assert that the run succeeded and reported no wrong result. */
void bench_found_nothing_wrong(const struct launched *job, const char *what);

#endif
