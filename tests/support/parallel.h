/* parallel.h - runs test cases that mostly wait, all at the same time. */
#ifndef CDDP_TESTS_SUPPORT_PARALLEL_H
#define CDDP_TESTS_SUPPORT_PARALLEL_H

#include "support/test.h"

/* As cmocka_run_group_tests() without setup and teardown, but each case runs in its own process,
 * and all start at once. The output of a case is shown if it fails. */
#define run_in_parallel(tests) run_all_in_parallel(#tests, (tests), sizeof(tests) / sizeof *(tests))

int run_all_in_parallel(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
