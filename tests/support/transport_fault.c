/* transport_fault.c - shared by the tests of failing transports: jobs of forked ranks on a fake
 * CUDA with injected faults. */
#include "support/transport_fault.h"

int run_job(int size, rank_fn body, struct job job, bool dies)
{
    int statuses[TRANSPORT_RANKS] = {0};
    int failed = 0;

    job.world = transport_world_create(size);
    run_ranks_status(size, body, &job, statuses);
    for (int r = 0; r < size; r++) {
        failed += statuses[r] != 0 && (r != job.culprit || !dies);
    }
    transport_world_destroy(job.world);
    return failed;
}

int begin(const struct job *job, int rank, struct transport_rank *me, struct cddpi_group_op *out)
{
    return transport_begin(job->world, rank, job->transport, false, job->registered, COUNT, me,
                           out);
}

void use_devices(const char *count)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", count, 1);
}

void with(const char *name, const char *value)
{
    setenv(name, value, 1);
}

void without(const char *name)
{
    unsetenv(name);
}
