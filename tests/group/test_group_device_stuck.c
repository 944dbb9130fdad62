/* test_group_device_stuck.c - a rank whose launch queue is full because a peer has died or is late:
 * the driver blocks all other threads meanwhile, and still the rank ends in time. And a rank whose
 * own card has failed while it waits for others. */
#include "support/device_stage.h"
#include "support/failure.h"

enum { COUNT = 1000, MANY = 200000 };

/* More than any queue holds. */
static cddp_status put_many(cddp_group *group, float *there)
{
    struct cddpi_device *device = cddpi_group_on_device(group);
    cddp_status status = CDDP_OK;

    for (int i = 0; i < MANY && status == CDDP_OK; i++) {
        status = device->ops->clear(device, CDDPI_STREAM_COMPUTE, there, COUNT * sizeof(float));
        if (status == CDDP_OK && i % 100 == 99) {
            status = cddpi_group_healthy(group);
        }
    }
    return status;
}

/* Rank 1 does not come to the second operation: it has died (0, 2), or is only late (1). That is a
 * message from it (2), or a reduction. */
static int stuck_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    CHECK(cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &(float){0}, there, sizeof(float)) == 0);
    CHECK(cddpi_group_verify(group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 1) {
        if (stage->which != 1) {
            support_sleep_ms(
                300); /* the others should be stuck by now; if not, they are told, too */
            raise(SIGKILL);
        }
        while (cddpi_group_healthy(group) == CDDP_OK) {
            support_sleep_ms(5);
        }
        cddp_group_destroy(group);
        return 0;
    }
    status = stage->which == 2
                 ? cddp_recv(group, there, COUNT, CDDP_F32, 1, NULL)
                 : cddp_all_reduce(group, there, there, COUNT, CDDP_F32, CDDP_OP_SUM, NULL);
    status = status == CDDP_OK ? put_many(group, there) : status;
    /* (a third rank may have been told before it came to the operation) */
    CHECK(status == CDDP_ERR_PEER || status == CDDP_ERR_TIMEOUT);
    CHECK(failure_is(status, status, ANY_RANK, stage->which == 1 ? ANY_RANK : 1,
                     stage->which == 2 ? "recv f32 x 1000 from rank 1, message #1"
                                       : "all_reduce sum f32 x 1000, #2 on the device"));
    CHECK(stage->which != 1 || (last_error_has("waited") && last_error_has("rank 1 ")));
    cddp_group_destroy(group);
    return 0;
}

static void launches_without_room_do_not_hide_a_peer_that_died_or_is_late(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        struct stage stage = {.timeout_ms = SUPPORT_TIMEOUT_MS,
                              .module_transport = module_transports[transport]};

        assert_int_equal(stage_run(stuck_rank, stage, 2, 1, 1), 0);
        stage.which = 2;
        assert_int_equal(stage_run(stuck_rank, stage, 2, 1, 1), 0);
        if (transport == 0) {
            stage.timeout_ms = 5000; /* of joining, too */
            stage.which = 1;
            assert_int_equal(stage_run(stuck_rank, stage, 2, 1, -1), 0);
        }
    }
}

static char heard[1024];

static void hear(void *state, const cddp_log_record *record)
{
    (void)state;
    if (strstr(record->line, "NVML") != NULL) {
        snprintf(heard, sizeof heard, "%s", record->line);
    }
}

/* The operation fails for another reason, and the driver tells of rank 0's card only. */
static int failed_card_rank(int rank, int n, void *argument)
{
    static const char text[] = "rank 0: cuda:0 (GPU-cacacaca-caca-caca-caca-cacacacaca00): NVML "
                               "reports Xid 74 (NVLink), NVLink 17 down";
    cddp_group *group;
    cddp_status status;
    float *there;

    (void)n;
    cddp_log_set_sink(hear, NULL);
    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    status = cddp_all_reduce(group, there, there, rank == 1 ? COUNT - 1 : COUNT, CDDP_F32,
                             CDDP_OP_SUM, NULL);
    CHECK((status != CDDP_OK ? status : await_failure(group)) == CDDP_ERR_MISMATCH);
    cddp_group_destroy(group);
    CHECK(strcmp(heard, rank == 0 ? text : "") == 0);
    return 0;
}

static void a_rank_that_fails_tells_of_its_own_card(void **state)
{
    struct stage stage = {.timeout_ms = SUPPORT_TIMEOUT_MS, .module_transport = "nccl"};

    (void)state;
    need_emulated_module();
    setenv("CDDP_FAKE_CUDA_DEVICES", "3", 1); /* a pool of ranks would keep other settings */
    setenv("CDDP_FAKE_NVML_CARD", "0", 1);
    setenv("CDDP_FAKE_NVML_XIDS", "74", 1);
    setenv("CDDP_FAKE_NVML_LINKS", "18:17", 1);
    assert_int_equal(stage_run(failed_card_rank, stage, 2, 1, 3), 0);
    unsetenv("CDDP_FAKE_CUDA_DEVICES");
    unsetenv("CDDP_FAKE_NVML_CARD");
    unsetenv("CDDP_FAKE_NVML_XIDS");
    unsetenv("CDDP_FAKE_NVML_LINKS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_without_room_do_not_hide_a_peer_that_died_or_is_late),
        cmocka_unit_test(a_rank_that_fails_tells_of_its_own_card),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
