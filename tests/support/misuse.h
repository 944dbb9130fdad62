/* misuse.h - what the tests of wrong use share: ranks that meet as the environment says, so that
 * the same cases run over every transport (CDDP_BACKEND, TEST_HOSTS, CDDP_DEVICE; TEST_MPIRUN: by
 * mpirun, "all" or "some" of the variants). */
#ifndef CDDP_TESTS_SUPPORT_MISUSE_H
#define CDDP_TESTS_SUPPORT_MISUSE_H

#include "support/test.h"

#include <cddp/cddp.h>
#include <stdbool.h>

/* One run of a case. */
struct misuse {
    char folder[4096];
    char job[64];
    uint32_t timeout_ms;
    int which;     /* variant of the case */
    int signal[2]; /* a pipe, from before the fork */
};

int misuse_set_up(void **state);
int misuse_tear_down(void **state);

#define MISUSE_TEST(test) cmocka_unit_test_setup_teardown(test, misuse_set_up, misuse_tear_down)

/* Run @p body on @p size ranks, variant @p which; returns how many failed. statuses may be NULL. */
int misuse_run(struct misuse *misuse, int size, rank_fn body, int which, int *statuses);

/* In a rank: join as the environment says. */
cddp_status misuse_join(const struct misuse *misuse, int rank, int size, cddp_group **out);

/* Memory where the group is, not cddp's; released by the end of the process. */
void *misuse_memory(cddp_group *group, size_t bytes);
void misuse_put(cddp_group *group, void *to, const void *from, size_t bytes);
void misuse_get(cddp_group *group, void *to, const void *from, size_t bytes);

/* Whether @p status is @p expected, with a sentence in which @p text stands. Says what is instead.
 */
bool misuse_gives(cddp_status status, cddp_status expected, const char *text);

/* A model of two parameters with a handle. */
enum { MISUSE_PARAMS = 2, MISUSE_COUNT = 50 };
struct misuse_model {
    cddp_group *group;
    cddp_param params[MISUSE_PARAMS];
    cddp_ddp *ddp;
};
cddp_status misuse_watch(struct misuse_model *out, cddp_group *group,
                         const cddp_ddp_options *options);
/* A whole step, whose result is checked. */
int misuse_step(struct misuse_model *model);
/* All ranks reduce, and the result is right. */
int misuse_reduce(cddp_group *group);

#endif
