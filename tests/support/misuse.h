/* misuse.h - shared by the tests of wrong use. Environment variables say how ranks meet, so that
 * the same cases run over every transport: CDDP_BACKEND, TEST_HOSTS, CDDP_DEVICE, and TEST_MPIRUN
 * ("all" or "some" of the variants run under mpirun). */
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
    int which;     /* the case's own variant */
    int signal[2]; /* a pipe, made before the fork */
};

int misuse_set_up(void **state);
int misuse_tear_down(void **state);

#define MISUSE_TEST(test) cmocka_unit_test_setup_teardown(test, misuse_set_up, misuse_tear_down)

/* Run @p body on @p size ranks, variant @p which. Returns how many failed. @p statuses may be
 * NULL. */
int misuse_run(struct misuse *misuse, int size, rank_fn body, int which, int *statuses);

/* In a rank: join as the environment says. */
cddp_status misuse_join(const struct misuse *misuse, int rank, int size, cddp_group **out);

/* Memory on the group's device or host, not allocated by cddp; freed when the process ends. */
void *misuse_memory(cddp_group *group, size_t bytes);
void misuse_put(cddp_group *group, void *to, const void *from, size_t bytes);
void misuse_get(cddp_group *group, void *to, const void *from, size_t bytes);

/* Whether @p status is @p expected, with a message that contains @p text. Prints what it is
 * otherwise. */
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
/* Begin a backward: the mean over ranks. The call's status. */
int misuse_begin(struct misuse_model *model);
/* Run a whole step and check its result. */
int misuse_step(struct misuse_model *model);
/* Reduce on all ranks and check the result. */
int misuse_reduce(cddp_group *group);

#endif
