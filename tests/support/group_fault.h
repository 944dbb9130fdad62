/* group_fault.h - support for tests of ranks of which one fails: the job runs in several sizes,
 * with and without the comm thread. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_FAULT_H
#define CDDP_TESTS_SUPPORT_GROUP_FAULT_H

#include "support/group.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdbool.h>

/* SOON_MS is far from slow machines, and TIMEOUT_MS farther: who waits for that one fails. */
enum { TIMEOUT_MS = SUPPORT_TIMEOUT_MS, SOON_MS = TIMEOUT_MS / 2 };

struct fault {
    struct group_seed seed;
    int which;   /* variant of the test */
    int culprit; /* the rank that does it */
    bool async;
    uint32_t timeout_ms;
    atomic_bool *done;   /* shared by the ranks: the culprit has done it */
    atomic_int *started; /* shared by the ranks: how many others have begun what will fail */
};

/* Run @p body with a rank more or less, with and without the comm thread, and with a thread where
 * there is a wire; @p culprit may be lost.
 * Returns how many other ranks fail. */
int try_fault(rank_fn body, struct fault fault, bool culprit_dies);

/* The same; asserts that no other rank fails. */
void run_fault(rank_fn body, struct fault fault, bool culprit_dies);

/* An all_reduce that is waited for in the way of this run. */
cddp_status reduce(cddp_group *group, const struct fault *fault, float *data, size_t count);

#endif
