/* test_group_device_capture.c - collectives that are captured once and replayed: they give the
 * right results, and ranks that capture or replay different ones are told. */
#include "support/device_stage.h"
#include "support/failure.h"

enum { COUNT = 1000 };

/* Two sums over ranks, recorded once and done four times. */
static int recorded_rank(int rank, int n, void *argument)
{
    struct cddpi_device *device;
    struct cddpi_group_capture captured = {NULL, 0};
    float value = (float)rank + 1;
    float expected = 0;
    float *there;
    cddp_group *group;
    cddp_work *work;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    device = cddpi_group_on_device(group);
    there = on_device(group, sizeof value);
    CHECK(put_there(group, there, &value, sizeof value) == 0);
    if (!group->device->transport->ops->can_capture(group->device->transport)) {
        CHECK(failure_is(cddpi_group_capture_begin(group), CDDP_ERR_UNAVAILABLE, ANY_RANK, ANY_RANK,
                         NULL));
        cddp_group_destroy(group);
        return 0;
    }
    CHECK(cddpi_group_capture_begin(group) == CDDP_OK);
    CHECK(cddpi_group_is_capturing(group));
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, &work) == CDDP_OK);
    CHECK(cddp_work_wait(work) == CDDP_OK);
    cddp_work_destroy(work);
    CHECK(cddpi_group_capture_end(group, &captured) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        expected += (float)(r + 1);
    }
    expected *= (float)n;
    for (int turn = 0; turn < 4; turn++) {
        expected *= turn > 0 ? (float)(n * n) : 1;
        CHECK(cddpi_group_replay(group, &captured) == CDDP_OK);
    }
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_MAX, NULL) == CDDP_OK);
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(value == expected);
    CHECK(cddpi_group_verify(group) == CDDP_OK);
    device->ops->graph_destroy(device, captured.work);
    cddp_group_destroy(group);
    return 0;
}

/* A capture that fails on one rank harms nobody; then ranks replay different ones. */
static int odd_recording_rank(int rank, int n, void *argument)
{
    struct cddpi_device *device;
    struct cddpi_group_capture captured = {NULL, 0};
    float pageable[COUNT];
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    device = cddpi_group_on_device(group);
    there = on_device(group, COUNT * sizeof(float));
    if (cddpi_group_can_capture(group) == CDDP_ERR_UNAVAILABLE) {
        cddp_group_destroy(group);
        return 0;
    }
    CHECK(cddpi_group_capture_begin(group) == CDDP_OK);
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    if (rank == 1) { /* which cannot be captured */
        CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, pageable, there, sizeof pageable) ==
              CDDP_ERR_UNAVAILABLE);
    }
    status = cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL);
    CHECK(status == CDDP_OK || rank == 1);
    CHECK((cddpi_group_capture_end(group, &captured) == CDDP_OK) == (rank != 1));
    device->ops->graph_destroy(device, captured.work);
    CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(device->ops->finish(device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    CHECK(cddpi_group_verify(group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);

    captured = (struct cddpi_group_capture){NULL, 0};
    CHECK(cddpi_group_capture_begin(group) == CDDP_OK);
    CHECK(cddp_all_reduce(group, there, there, rank == 1 ? 2 : 1, CDDP_F32, CDDP_OP_SUM, NULL) ==
          CDDP_OK);
    CHECK(cddpi_group_capture_end(group, &captured) == CDDP_OK);
    status = cddpi_group_replay(group, &captured);
    CHECK((status != CDDP_OK ? status : await_failure(group)) == CDDP_ERR_MISMATCH);
    CHECK(last_error_has("rank 1: replay of captured graph "));
    device->ops->graph_destroy(device, captured.work);
    cddp_group_destroy(group);
    return 0;
}

static void recordings_that_fail_or_differ_are_told(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        assert_int_equal(stage_run(odd_recording_rank, on_module(transport), 2, 2, -1), 0);
    }
}

static void operations_are_recorded_where_the_transport_can(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        assert_int_equal(stage_run(recorded_rank, on_module(transport), 1, 3, -1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_recorded_where_the_transport_can),
        cmocka_unit_test(recordings_that_fail_or_differ_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
