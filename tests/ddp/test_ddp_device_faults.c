/* test_ddp_device_faults.c - failing ddp steps on a device: memory in the wrong place, missing
 * gradients, ranks that die. */
#include "support/ddp_device.h"
#include "support/failure.h"

static int misplaced_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    float host[4] = {0};
    cddp_param param = {.name = "w", .dims = 1, .shape = {4}, .data = host};
    cddp_group *group;
    cddp_ddp *ddp;

    CHECK(stage_enter(&play->stage, rank, n, &group) == CDDP_OK);
    param.grad = host;
    CHECK(failure_is(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp), CDDP_ERR_ARGUMENT, 0,
                     0, ""));
    CHECK(last_error_has("the gradient of parameter 0 (w) does not lie in the memory of "
                         "device deferred 0"));
    param.grad = NULL;
    options.shard = true;
    CHECK(failure_is(cddp_ddp_create(group, &param, 1, NULL, 0, &options, &ddp), CDDP_ERR_ARGUMENT,
                     0, 0, ""));
    CHECK(last_error_has("the data of parameter 0 (w) does not lie"));
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_OK);
    cddp_ddp_destroy(ddp);
    if (n > 1) {
        param.data = rank == 0 ? on_device(group, sizeof host) : host;
        CHECK(failure_is(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp), CDDP_ERR_MISMATCH,
                         -1, -1, ""));
        CHECK(last_error_has("w f32 [4] on the device"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void memory_in_the_wrong_place_is_an_error_that_names_the_parameter(void **state)
{
    (void)state;
    assert_int_equal(play_all(misplaced_rank, (struct scene){.memory = OWNED}, 1), 0);
}

/* A parameter without a gradient fails the very step, by name, on all ranks; the group lives on. */
static int missing_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(begin_mean(world.ddp, 0) == 0);
    for (size_t p = SIZES; p-- > 1;) {
        CHECK(cddp_ddp_grad_ready(world.ddp, p) == CDDP_OK);
    }
    if (rank > 0) {
        CHECK(cddp_ddp_grad_ready(world.ddp, 0) == CDDP_OK);
    }
    CHECK(failure_is(cddp_ddp_wait(world.ddp), CDDP_ERR_INCOMPLETE, 0, 0, NULL));
    cddp_ddp_destroy(world.ddp);
    CHECK(cddp_ddp_create(world.group, world.model.params, SIZES, NULL, 0, &world.model.options,
                          &world.ddp) == CDDP_OK);
    CHECK(run_step(&world, &play->scene, rank, 1) == 0);
    return close_world(&world);
}

static void a_missing_gradient_is_told_in_its_step(void **state)
{
    (void)state;
    assert_int_equal(play_all(missing_rank, (struct scene){.bucket_bytes = 2000}, 1), 0);
}

/* Rank 1 dies in the middle of a backward. */
static int dying_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_status status = CDDP_OK;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(run_step(&world, &play->scene, rank, 0) == 0);
    CHECK(begin_mean(world.ddp, 1) == 0);
    for (size_t p = SIZES; p-- > 0 && status == CDDP_OK;) {
        status = cddp_ddp_grad_ready(world.ddp, p);
        if (rank == 1 && p == 5) {
            raise(SIGKILL);
        }
    }
    status = status == CDDP_OK ? cddp_ddp_wait(world.ddp) : status;
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, 1, NULL));
    CHECK(failure_is(cddp_ddp_wait(world.ddp), CDDP_ERR_BROKEN, ANY_RANK, 1, NULL));
    return close_world(&world);
}

static void a_rank_that_dies_in_a_step_fails_it_everywhere(void **state)
{
    (void)state;
    /* of 2 and of 3 ranks one, three times each */
    assert_int_equal(play_all(dying_rank, (struct scene){.bucket_bytes = 2000}, 2), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_in_the_wrong_place_is_an_error_that_names_the_parameter),
        cmocka_unit_test(a_missing_gradient_is_told_in_its_step),
        cmocka_unit_test(a_rank_that_dies_in_a_step_fails_it_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
