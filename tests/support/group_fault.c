/* group_fault.c - support for tests of ranks of which one fails. */
#include "support/group_fault.h"

int try_fault(rank_fn body, struct fault fault, bool culprit_dies)
{
    static const int sizes[] = {2, 3, 7};
    int failed = 0;

    for (int i = 0; i < 6; i++) {
        int statuses[8] = {0};

        setenv("CDDP_COMM_THREAD", i % 3 == 0 ? "0" : "1", 1);
        if (i % 3 == 2) {
            unsetenv("CDDP_COMM_THREAD");
        }
        fault.async = i % 2 == 1;
        assert_int_equal(group_seed_create(sizes[i / 2], &fault.seed), CDDP_OK);
        run_ranks_status(sizes[i / 2], body, &fault, statuses);
        for (int r = 0; r < sizes[i / 2]; r++) {
            failed += statuses[r] != 0 && (r != fault.culprit || !culprit_dies);
        }
        close(fault.seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
    return failed;
}

void run_fault(rank_fn body, struct fault fault, bool culprit_dies)
{
    assert_int_equal(try_fault(body, fault, culprit_dies), 0);
}

cddp_status reduce(cddp_group *group, const struct fault *fault, float *data, size_t count)
{
    cddp_work *work;
    cddp_status status;

    if (!fault->async) {
        return cddp_all_reduce(group, data, data, count, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    status = cddp_all_reduce(group, data, data, count, CDDP_F32, CDDP_OP_SUM, &work);
    if (status == CDDP_OK) {
        status = cddp_work_wait(work);
        cddp_work_destroy(work);
    }
    return status;
}
