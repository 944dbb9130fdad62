/* plane_fault_support.h - what tests of planes that fail have in common: jobs of forked ranks on a
 * fake CUDA that is as wrong as the test wants. */
#ifndef CDDP_TESTS_PLANE_FAULT_SUPPORT_H
#define CDDP_TESTS_PLANE_FAULT_SUPPORT_H

#include "plane_support.h"

enum { COUNT = 20000 };

/* What ranks are started with. */
struct job {
    struct plane_world *world;
    const char *plane;
    const char *text; /* of the error */
    int culprit;
    bool registered;
};

/* Run @body; the culprit may end as it likes if it @dies. Returns how many others fail. */
static inline int run_job(int size, rank_fn body, struct job job, bool dies)
{
    int statuses[PLANE_RANKS] = {0};
    int failed = 0;

    job.world = plane_world_create(size);
    run_ranks_status(size, body, &job, statuses);
    for (int r = 0; r < size; r++) {
        failed += statuses[r] != 0 && (r != job.culprit || !dies);
    }
    plane_world_destroy(job.world);
    return failed;
}

/* A rank of @job with a sum to be run. */
static inline int begin(const struct job *job, int rank, struct plane_rank *me,
                        struct cddpi_group_op *out)
{
    return plane_begin(job->world, rank, job->plane, false, job->registered, COUNT, me, out);
}

static inline void use_devices(const char *count)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", count, 1);
}

/* An environment variable of one test. */
static inline void with(const char *name, const char *value)
{
    setenv(name, value, 1);
}

static inline void without(const char *name)
{
    unsetenv(name);
}

#endif
