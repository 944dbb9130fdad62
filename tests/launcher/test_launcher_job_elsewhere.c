/* test_launcher_job_elsewhere.c - cddp-run's decisions about its ranks when something happens on
 * other machines, or members of the job change, in histories without real processes. */
#include "launcher/job_world.h"

/* A job of ranks 2 to 1 + @p count that runs. */
static void run(struct world *world, const char *history, int count, bool has_nodes)
{
    world_begin(world, history, count, GRACE_MS, has_nodes);
    world_start(world);
    assert_int_equal(world->state.phase, CDDPI_JOB_RUNS);
}

static void a_failure_elsewhere_ends_the_ranks_here_with_its_status(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_FAILED_THERE, .exit_status = 6, .may_restart = true);
    assert_true(world_sends(&world, SIGTERM));
    FEED(&world, .kind = CDDPI_JOB_FAILED_THERE, .exit_status = 8);
    world_end_rank(&world, 2, 1);
    world_end_rank(&world, 3, 1);
    assert_int_equal(world.named, -1);
    assert_int_equal(world.published, 0);
    assert_int_equal(world.state.outcome.exit_status, 6);
    assert_true(world.state.outcome.may_restart);
}

static void a_rank_here_that_follows_one_elsewhere_waits_for_its_node(void **state)
{
    struct world world;

    (void)state;
    for (int is_heard = 0; is_heard < 2; is_heard++) {
        run(&world, __func__, 2, true);
        FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = ELSEWHERE);
        FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 3, .culprit = ELSEWHERE);
        world_end_rank(&world, 2, 5);
        if (is_heard) {
            FEED(&world, .kind = CDDPI_JOB_FAILED_THERE, .exit_status = 6);
            assert_int_equal(world.state.outcome.exit_status, 6);
        } else {
            world_end_rank(&world, 3,
                           4); /* nobody is left: the others are told, in case it never is */
            assert_int_equal(world_count(&world, CDDPI_JOB_PUBLISH_FOLLOW), 1);
            assert_int_equal(world.state.outcome.exit_status, 5);
        }
        assert_int_equal(world.named, -1);
    }
}

static void a_rank_elsewhere_that_follows_one_here_gives_that_one_time(void **state)
{
    struct world world;

    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        run(&world, __func__, 2, true);
        FEED(&world, .kind = CDDPI_JOB_HEARD, .exit_status = 6, .may_restart = true);
        assert_int_equal(world.actions.count, 0);
        if (fails) {
            world_end_rank(&world, 3, 7);
            assert_int_equal(world.named, 3);
            assert_int_equal(world_count(&world, CDDPI_JOB_PUBLISH_FAILURE), 1);
        } else {
            world_wait(&world, GRACE_MS);
            assert_int_equal(world_count(&world, CDDPI_JOB_SAY_HEARD), 1);
            assert_true(world_sends(&world, SIGTERM));
        }
        assert_int_equal(world.state.outcome.exit_status, fails ? 7 : 6);
        assert_true(world.state.outcome.may_restart);
    }
}

static void a_node_that_stood_still_does_not_restart_the_job(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_ENDED, .rank = 2, .exit_status = 3, .is_given_up = true);
    assert_int_equal(world.actions.list[0].kind, CDDPI_JOB_SAY_GIVEN_UP);
    assert_int_equal(world.state.outcome.exit_status, 1);
    assert_false(world.state.outcome.may_restart);
}

/* Members of the job change: that is no request to end the job, and no failure. */
static void ranks_that_end_since_members_change_fail_nobody(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_CHANGED, .number = SIGTERM);
    assert_true(world_sends(&world, SIGTERM));
    world_end_rank(&world, 2, CDDPI_STOPPED_EARLY);
    world_end_rank(&world, 3, 128 + SIGTERM);
    assert_int_equal(world.state.phase, CDDPI_JOB_OVER);
    assert_int_equal(world.named, -1);
    assert_int_equal(world.published, 0);
}

static void the_first_signal_during_a_change_lets_ranks_save_and_the_second_kills(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, false);
    FEED(&world, .kind = CDDPI_JOB_CHANGED, .number = 0);
    assert_int_equal(world_count(&world, CDDPI_JOB_SIGNAL_GROUPS), 0);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = -1);
    assert_false(world_sends(&world, SIGKILL));
    world_wait(&world, 1000);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = -1);
    assert_true(world_sends(&world, SIGKILL));
}

/* The same request may be sent to each node. */
static void only_the_node_that_was_asked_first_is_asked_again(void **state)
{
    struct world world;

    (void)state;
    for (int is_change = 0; is_change < 2; is_change++) {
        run(&world, __func__, 2, true);
        if (is_change) {
            FEED(&world, .kind = CDDPI_JOB_CHANGED, .number = SIGTERM);
        }
        world_wait(&world, 1000);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = 1);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = 1); /* one request */
        assert_int_equal(world.actions.count, 0);
        world_wait(&world, 201);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = 0);
        assert_int_equal(world.actions.count, 0);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = 1);
        assert_true(world_sends(&world, SIGKILL));
    }
}

/* They may wait for it. */
static void ranks_elsewhere_are_told_why_the_last_one_here_failed(void **state)
{
    struct world world;

    (void)state;
    for (int has_nodes = 0; has_nodes < 2; has_nodes++) {
        run(&world, __func__, 1, has_nodes);
        world_end_rank(&world, 2, 7);
        assert_int_equal(world_count(&world, CDDPI_JOB_TELL_FAILURE), has_nodes);
        assert_int_equal(world_count(&world, CDDPI_JOB_SAY_ENDING), 0); /* nobody is left here */
    }
}

/* Its reports may come in any order, also after its end. */
static void a_follower_that_last_blames_one_that_ended_here_is_named(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, true);
    world_end_rank(&world, 3, 0);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = ELSEWHERE);
    world_end_rank(&world, 2, 5);
    assert_int_equal(world.state.phase, CDDPI_JOB_AWAITS);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 3);
    world_end_rank(&world, 4, 0);
    assert_int_equal(world.named, 2);
    assert_int_equal(world_count(&world, CDDPI_JOB_PUBLISH_FAILURE), 1);
    assert_int_equal(world.state.outcome.exit_status, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_elsewhere_ends_the_ranks_here_with_its_status),
        cmocka_unit_test(a_rank_here_that_follows_one_elsewhere_waits_for_its_node),
        cmocka_unit_test(a_rank_elsewhere_that_follows_one_here_gives_that_one_time),
        cmocka_unit_test(a_node_that_stood_still_does_not_restart_the_job),
        cmocka_unit_test(ranks_that_end_since_members_change_fail_nobody),
        cmocka_unit_test(the_first_signal_during_a_change_lets_ranks_save_and_the_second_kills),
        cmocka_unit_test(only_the_node_that_was_asked_first_is_asked_again),
        cmocka_unit_test(ranks_elsewhere_are_told_why_the_last_one_here_failed),
        cmocka_unit_test(a_follower_that_last_blames_one_that_ended_here_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
