/* group_device.c - shared by the tests of collectives on device memory. */
#include "support/group_device.h"

int drift_rank(int rank, int n, void *argument)
{
    enum { TURNS = CDDPI_CALLS + 300 };
    float *there;
    float value = 0;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof(float));
    if (rank == n - 1) {
        support_sleep_ms(50);
    }
    for (int i = 0; i < TURNS; i++) {
        value = rank == 0 ? (float)i : -1;
        CHECK(put_there(group, there, &value, sizeof value) == 0);
        CHECK(cddp_broadcast(group, there, 1, CDDP_F32, 0, NULL) == CDDP_OK);
    }
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(value == TURNS - 1);
    CHECK(cddpi_group_healthy(group) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

int split_rank(int rank, int n, void *argument)
{
    float value = (float)(rank + 1);
    float *there;
    cddp_group *group;
    cddp_group *part;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, rank == 0 ? 0 : 1, -rank, &part) == CDDP_OK);
    CHECK(cddpi_group_on_device(part) == cddpi_group_on_device(group));
    there = on_device(group, sizeof value);
    CHECK(put_there(group, there, &value, sizeof value) == 0);
    CHECK(cddp_all_reduce(part, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(value == 1 + (n == 2 ? 2 : n == 3 ? 2 * 5 : 0));
    cddp_group_destroy(group); /* the split group remains, and so does the device */
    CHECK(put_there(part, there, &value, sizeof value) == 0);
    CHECK(cddp_broadcast(part, there, 1, CDDP_F32, 0, NULL) == CDDP_OK);
    CHECK(fetch(part, &value, there, sizeof value) == 0);
    cddp_group_destroy(part);
    return 0;
}
