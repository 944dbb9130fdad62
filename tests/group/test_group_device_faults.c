/* test_group_device_faults.c - collectives on device memory that cannot finish: failures name the
 * rank and the operation, and no rank keeps waiting. */
#include "support/failure.h"
#include "support/group_device.h"

static cddp_status disagree(cddp_group *group, int which, float *there)
{
    switch (which) {
    case 0:
        return cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_MAX, NULL);
    case 1:
        return cddp_all_reduce(group, there, there, COUNT - 1, CDDP_F32, CDDP_OP_SUM, NULL);
    default:
        return cddp_broadcast(group, there, COUNT, CDDP_F32, 1, NULL);
    }
}

static int disagree_rank(int rank, int n, void *argument)
{
    static const char *const calls[] = {"rank 1: all_reduce max f32 x 1000",
                                        "rank 1: all_reduce sum f32 x 999",
                                        "rank 1: broadcast f32 x 1000 from 1"};
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    status = rank == 1 ? disagree(group, stage->which, there)
                       : cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL);
    CHECK((status != CDDP_OK ? status : await_failure(group)) == CDDP_ERR_MISMATCH);
    CHECK(last_error_has("ranks disagree at operation #2 on their devices"));
    CHECK(last_error_has(calls[stage->which]));
    CHECK(last_error_has("all_reduce sum f32 x 1000"));
    CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, -1, -1, ""));
    CHECK(last_error_has(calls[stage->which]));
    CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) ==
          CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_disagree_are_all_told_who_called_what(void **state)
{
    struct stage stage = plain;

    (void)state;
    for (stage.which = 0; stage.which < 3; stage.which++) {
        assert_int_equal(stage_run(disagree_rank, stage, 2, 3, -1), 0);
    }
}

/* The comm thread has seen the failure at an operation that nobody has asked for yet. */
static int unasked_rank(int rank, int n, void *argument)
{
    int64_t deadline = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);
    cddp_work *barrier = NULL;
    cddp_group *group;
    cddp_status status;
    float *there;

    setenv("CDDP_COMM_THREAD", "1", 1);
    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    CHECK(rank == 0 || cddp_barrier(group, &barrier) == CDDP_OK); /* it does not end */
    status = cddp_all_reduce(group, there, there, rank == 1 ? COUNT - 1 : COUNT, CDDP_F32,
                             CDDP_OP_SUM, NULL);
    CHECK(status == CDDP_OK || status == CDDP_ERR_MISMATCH);
    while (rank != 0 && !atomic_load(&group->broken)) {
        CHECK(cddpi_now_ns() < deadline);
        usleep(1000);
    }
    CHECK((status != CDDP_OK ? status : await_failure(group)) == CDDP_ERR_MISMATCH);
    CHECK(last_error_has("rank 1: all_reduce sum f32 x 999"));
    CHECK(cddp_barrier(group, NULL) == CDDP_ERR_BROKEN);
    CHECK(rank == 0 || cddp_work_wait(barrier) == CDDP_ERR_MISMATCH); /* its own status */
    cddp_work_destroy(barrier);
    cddp_group_destroy(group);
    return 0;
}

static void a_failure_that_only_threads_have_seen_is_told_at_the_next_call(void **state)
{
    (void)state;
    assert_int_equal(stage_run(unasked_rank, plain, 2, 3, -1), 0);
}

/* Rank 1 is gone before the third operation, or in the middle of it. */
static int gone_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_work *work;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    for (int i = 0; i < 2; i++) {
        CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    }
    if (stage->which > 0) { /* those two are over on all ranks */
        CHECK(fetch(group, &(float){0}, there, sizeof(float)) == 0);
        CHECK(cddpi_group_verify(group) == CDDP_OK);
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    }
    if (rank == 1) {
        if (stage->which == 0) {
            cddp_group_destroy(group); /* which finishes them */
            return 0;
        }
        if (stage->which == 2) {
            deferred_of(cddpi_group_on_device(group))->held = true;
            CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) ==
                  CDDP_OK);
            support_sleep_ms(20);
        }
        raise(SIGKILL);
    }
    cddpi_group_label(group, "bucket 7 of 9");
    status = cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, &work);
    if (status == CDDP_OK) { /* unless a third rank was told before it came here */
        CHECK(await_failure(group) == CDDP_ERR_PEER);
        status = cddp_work_wait(work);
        cddp_work_destroy(work);
    }
    /* broken if an earlier one was not seen to end here before */
    CHECK(status == CDDP_ERR_PEER || status == CDDP_ERR_BROKEN);
    CHECK(failure_is(status, status, ANY_RANK, 1, "all_reduce sum f32 x 1000, #"));
    /* (a transport that looks for itself may see it while earlier ones are looked after) */
    CHECK((stage->which == 0 && stage->module_transport != NULL) ||
          last_error_has("#3 on the device, bucket 7 of 9: rank 1 "));
    CHECK(last_error_has(stage->which == 0 ? "has left the group" : "died"));
    CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, &work) ==
          CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_left_or_died_is_named_with_the_operation(void **state)
{
    struct stage stage = plain;

    (void)state;
    for (stage.which = 0; stage.which < 3; stage.which++) {
        assert_int_equal(stage_run(gone_rank, stage, 2, 3, 1), 0);
    }
}

static void the_emulated_module_is_watched_likewise(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        struct stage stage = on_module(transport);

        assert_int_equal(stage_run(drift_rank, stage, 1, 1, -1), 0);
        assert_int_equal(stage_run(split_rank, stage, 1, 2, -1), 0);
        for (stage.which = 0; stage.which < 3; stage.which++) {
            assert_int_equal(stage_run(disagree_rank, stage, 2, 1, -1), 0);
        }
        for (stage.which = 0; stage.which < 2; stage.which++) {
            assert_int_equal(stage_run(gone_rank, stage, 2, 2, 1), 0);
        }
    }
}

#define FIRST "all_reduce sum f32 x 1, #1 on the device"

static int late_rank(int rank, int n, void *argument)
{
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof(float));
    if (rank != 1) {
        CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    }
    status = await_failure(group);
    CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER);
    CHECK(failure_is(status, status, ANY_RANK, ANY_RANK, FIRST));
    CHECK(last_error_has(": waited ") && last_error_has("ms for rank 1 (pid"));
    cddp_group_destroy(group);
    return 0;
}

static void a_late_rank_is_named_when_the_deadline_passes(void **state)
{
    struct stage stage = plain;

    (void)state;
    stage.timeout_ms = 5000; /* of joining, too */
    assert_int_equal(stage_run(late_rank, stage, 2, 1, -1), 0);
}

/* The watchdog ends the group, while the rank itself waits in an operation of the processor. */
static int waiting_rank(int rank, int n, void *argument)
{
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof(float));
    if (rank != 1) {
        CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
        support_sleep_ms(1000); /* so that the deadline of what comes now is later */
        status = cddp_barrier(group, NULL);
    } else {
        status = await_failure(group);
    }
    CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER);
    CHECK(failure_is(status, status, ANY_RANK, ANY_RANK, FIRST));
    CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, ANY_RANK, ANY_RANK, FIRST));
    cddp_group_destroy(group);
    return 0;
}

static void who_waits_elsewhere_when_the_deadline_passes_hears_of_it_as_the_first(void **state)
{
    struct stage stage = plain;

    (void)state;
    stage.timeout_ms = 5000;
    assert_int_equal(stage_run(waiting_rank, stage, 2, 1, -1), 0);
}

/* The first operation may have to connect the ranks: then its call waits for one that never comes,
 * because it is late (0) or dead (1). */
static int first_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof(float));
    if (rank == 1 && stage->which == 1) {
        raise(SIGKILL);
    }
    if (rank != 1) {
        status = cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL);
        status = status == CDDP_OK ? await_failure(group) : status;
        CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER);
        CHECK(failure_is(status, status, ANY_RANK, stage->which == 1 ? 1 : ANY_RANK, FIRST));
        CHECK(stage->which == 1 || last_error_has("ms for rank 1 (pid"));
    } else {
        CHECK(await_failure(group) == CDDP_ERR_PEER);
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_misses_the_first_operation_is_named(void **state)
{
    struct stage stage = on_module(2);

    (void)state;
    need_emulated_module();
    assert_string_equal(stage.module_transport, "nccl");
    stage.timeout_ms = 5000;
    assert_int_equal(stage_run(first_rank, stage, 2, 1, -1), 0);
    stage.timeout_ms = SUPPORT_TIMEOUT_MS;
    stage.which = 1;
    assert_int_equal(stage_run(first_rank, stage, 2, 1, 1), 0);
}

static int stuck_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    struct deferred *device;
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    device = deferred_of(cddpi_group_on_device(group));
    there = on_device(group, sizeof(float));
    device->held = rank == 0;
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* all have called it */
    if (stage->which == 1 && rank == 0) {
        device->fails = true; /* first, or the operation could end well in between */
        device->held = false;
    }
    if (stage->which == 2 && rank == n - 1) {
        support_sleep_ms(20);
        cddp_group_abort(group, "the coffee is cold");
    }
    status = await_failure(group);
    CHECK(status != CDDP_OK);
    if (stage->which == 0) {
        CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER);
        CHECK(last_error_has("for the devices: all ranks have called it"));
    } else if (stage->which == 1) {
        CHECK(failure_is(status, rank == 0 ? CDDP_ERR_DEVICE : CDDP_ERR_PEER, 0, 0, NULL));
        CHECK(last_error_has(FIRST ": deferred device: it was told to fail"));
    } else {
        CHECK(
            failure_is(status, rank == n - 1 ? CDDP_ERR_BROKEN : CDDP_ERR_PEER, n - 1, n - 1, ""));
        CHECK(last_error_has("the coffee is cold"));
    }
    device->held = false;
    device->fails = false;
    cddp_group_destroy(group); /* the transport was ended, so its stream runs dry */
    return 0;
}

static void devices_that_stand_still_or_fail_end_the_group(void **state)
{
    struct stage stage = plain;

    (void)state;
    stage.timeout_ms = 5000; /* of joining, too */
    assert_int_equal(stage_run(stuck_rank, stage, 2, 1, -1), 0);
    stage.timeout_ms = SUPPORT_TIMEOUT_MS;
    for (stage.which = 1; stage.which < 3; stage.which++) {
        assert_int_equal(stage_run(stuck_rank, stage, 2, 2, -1), 0);
    }
}

/* What @p rank says it has done of its first collective, or of its first message from @p peer. */
static uint64_t ended_by(const cddp_group *group, int rank, int peer, bool is_message)
{
    const struct cddpi_group_device *dev = group->device;
    size_t channel = (size_t)rank * (size_t)group->world_size + (size_t)peer;

    return is_message ? atomic_load(&dev->p2p_calls[2 * channel + 1].ended)
                      : atomic_load(&dev->calls[rank].ended);
}

/* Rank 1 ends by exit() as soon as it has its data, which is before its watchdog looks again. */
static int exiting_rank(int rank, int n, void *argument)
{
    int64_t deadline = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);
    const struct stage *stage = argument;
    bool is_message = stage->which == 1;
    cddp_work *work = NULL;
    cddp_group *group;
    float *there;
    float value = 7;
    bool done;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof value);
    CHECK(put_there(group, there, &value, sizeof value) == 0);
    if (!is_message) {
        CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_MAX, NULL) == CDDP_OK);
    } else if (rank == 0) {
        CHECK(cddp_send(group, there, 1, CDDP_F32, 1, &work) == CDDP_OK);
    } else if (rank == 1) {
        CHECK(cddp_recv(group, there, 1, CDDP_F32, 0, NULL) == CDDP_OK);
    }
    if (rank == 1) {
        CHECK(fetch(group, &value, there, sizeof value) == 0);
        exit(0);
    }
    while (atomic_load(&group->device->calls[1].end) == CDDPI_PEER_HERE) {
        CHECK(cddpi_now_ns() < deadline);
        usleep(100);
    }
    CHECK(ended_by(group, 1, 0, is_message) == 1);
    CHECK(work == NULL || cddp_work_wait_host(work, SUPPORT_TIMEOUT_MS, &done) == CDDP_OK);
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(cddpi_group_verify(group) == CDDP_OK && value == 7);
    cddp_work_destroy(work);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_exits_is_not_missed_for_what_its_device_has_done(void **state)
{
    (void)state;
    assert_int_equal(stage_run(exiting_rank, plain, 2, 3, 1), 0);
    need_emulated_module();
    for (int t = 0; t < MODULE_TRANSPORTS; t++) {
        struct stage stage = on_module(t);

        for (stage.which = 0; stage.which < 2; stage.which++) {
            assert_int_equal(stage_run(exiting_rank, stage, 2, 3, 1), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_disagree_are_all_told_who_called_what),
        cmocka_unit_test(a_failure_that_only_threads_have_seen_is_told_at_the_next_call),
        cmocka_unit_test(a_rank_that_left_or_died_is_named_with_the_operation),
        cmocka_unit_test(the_emulated_module_is_watched_likewise),
        cmocka_unit_test(a_rank_that_exits_is_not_missed_for_what_its_device_has_done),
        cmocka_unit_test(a_late_rank_is_named_when_the_deadline_passes),
        cmocka_unit_test(who_waits_elsewhere_when_the_deadline_passes_hears_of_it_as_the_first),
        cmocka_unit_test(a_rank_that_misses_the_first_operation_is_named),
        cmocka_unit_test(devices_that_stand_still_or_fail_end_the_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
