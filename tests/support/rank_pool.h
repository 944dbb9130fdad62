/* rank_pool.h - ranks that stay. On a GPU each process takes half a second to make its context, and
 * the tests of several ranks would start some 400 of them. So there the same few processes run all
 * cases of a program, one after the other. Cases in which a rank dies fork their own. */
#ifndef CDDP_TESTS_SUPPORT_RANK_POOL_H
#define CDDP_TESTS_SUPPORT_RANK_POOL_H

#include "support/gpu.h"
#include "support/test.h"

#include <poll.h>
#include <sys/prctl.h>

extern char **environ;

/* $CDDP_TEST_POOL tries this without a GPU. The fake runtime reads its settings once a process:
 * then all cases of a program have those of the first. */
bool pool_is_wanted(void);

/* As run_ranks(), by ranks that stay. They get a copy of @p argument, of @p bytes, in which the
 * files at @p fd_at are theirs; what else it points at was there before the first job of the
 * program. Returns how many did not return 0; then the next job has new ranks. */
int pool_run(int size, rank_fn body, const void *argument, size_t bytes, const size_t *fd_at,
             int fd_count);

#endif
