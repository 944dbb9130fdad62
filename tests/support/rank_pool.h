/* rank_pool.h - a pool of rank processes. On a GPU, each process takes half a second to create its
 * context, and the tests of several ranks would start some 400 processes. So there, the same few
 * processes run all cases of a program, one after the other. Cases in which a rank dies fork their
 * own ranks. */
#ifndef CDDP_TESTS_SUPPORT_RANK_POOL_H
#define CDDP_TESTS_SUPPORT_RANK_POOL_H

#include "support/gpu.h"
#include "support/test.h"

#include <poll.h>
#include <sys/prctl.h>

extern char **environ;

/* Whether to use the pool: on a GPU, or if $CDDP_TEST_POOL is set to try it without one. The fake
 * runtime reads its settings once per process, so all cases of a program then use those of the
 * first. */
bool pool_is_wanted(void);

/* As run_ranks(), but the pool's ranks run @p body. They get a copy of @p argument, of @p bytes, in
 * which the file descriptors at the offsets @p fd_at are replaced with theirs. Everything else that
 * it points to must have existed before the program's first job. Returns how many ranks did not
 * return 0; if any, the next job gets new ranks. */
int pool_run(int size, rank_fn body, const void *argument, size_t bytes, const size_t *fd_at,
             int fd_count);

#endif
