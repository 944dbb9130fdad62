/* test_launcher_job_state.c - cddp-run's decisions about its ranks and about restarts, in histories
 * without real processes. */
#include "launcher/job_world.h"
#include "launcher/supervise/restarts.h"

/* A job of ranks 2 to 1 + @p count that runs. */
static void run(struct world *world, const char *history, int count, bool has_nodes)
{
    world_begin(world, history, count, GRACE_MS, has_nodes);
    world_start(world);
    assert_int_equal(world->state.phase, CDDPI_JOB_RUNS);
}

static void ranks_that_end_well_end_the_job_well(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, false);
    world_end_rank(&world, 3, 0);
    assert_int_equal(world_count(&world, CDDPI_JOB_TELL_END), 1);
    world_end_rank(&world, 2, 0);
    world_end_rank(&world, 4, 0);
    assert_int_equal(world_count(&world, CDDPI_JOB_TELL_END), 0); /* nobody is left to hear it */
    assert_int_equal(world.state.phase, CDDPI_JOB_OVER);
    assert_int_equal(world.state.outcome.exit_status, 0);
    assert_false(world.state.outcome.may_restart);
}

static void the_first_rank_to_fail_is_named_and_its_status_counts(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, false);
    world_end_rank(&world, 3, 7);
    assert_int_equal(world.named, 3);
    assert_true(world_sends(&world, SIGTERM) && world_sends(&world, SIGCONT) &&
                !world_sends(&world, SIGKILL));
    assert_int_equal(world_count(&world, CDDPI_JOB_TELL_FAILURE), 1);
    world_end_rank(&world, 2, 9);
    world_end_rank(&world, 4, 128 + SIGTERM);
    assert_int_equal(world.state.outcome.exit_status, 7);
    assert_true(world.state.outcome.may_restart);
}

static void ranks_that_do_not_end_are_killed_after_the_grace_period(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, false);
    world_end_rank(&world, 3, 7);
    world_wait(&world, GRACE_MS - 1);
    assert_int_equal(world.actions.count, 0);
    world_wait(&world, 1);
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world_count(&world, CDDPI_JOB_SAY_OVERDUE), 1);
    world_end_rank(&world, 2, 128 + SIGKILL);
    world_end_rank(&world, 4, 128 + SIGKILL);
    assert_int_equal(world.state.phase, CDDPI_JOB_OVER);
    assert_int_equal(world.state.outcome.exit_status, 7);
}

static void without_a_grace_period_they_are_killed_at_once(void **state)
{
    struct world world;

    (void)state;
    world_begin(&world, __func__, 2, 0, false);
    world_start(&world);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 3);
    world_end_rank(&world, 2, 1);
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world.named, 2);
}

static void a_rank_that_only_follows_is_not_named(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 4, false);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 4);
    world_end_rank(&world, 2, 1);
    assert_int_equal(world.state.phase, CDDPI_JOB_AWAITS);
    world_end_rank(&world, 3, 1); /* another one that follows */
    assert_int_equal(world.named, -1);
    world_end_rank(&world, 4, 128 + SIGSEGV);
    assert_int_equal(world.named, 4);
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGSEGV);
}

static void a_rank_that_follows_one_that_goes_on_is_named_in_the_end(void **state)
{
    struct world world;

    (void)state;
    for (int ends_well = 0; ends_well < 2; ends_well++) {
        run(&world, __func__, 2, false);
        FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 3);
        world_end_rank(&world, 2, 5);
        if (ends_well) {
            world_end_rank(&world, 3, 0);
        } else {
            world_wait(&world, GRACE_MS);
            assert_true(world_sends(&world, SIGTERM));
        }
        assert_int_equal(world.named, 2);
        assert_int_equal(world.state.outcome.exit_status, 5);
    }
}

static void a_rank_that_follows_one_that_then_ends_well_is_named_at_once(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, false);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 3);
    world_end_rank(&world, 2, 5);
    world_end_rank(&world, 3, 0);
    assert_int_equal(world.named, 2);
    assert_true(world_sends(&world, SIGTERM));
    assert_int_equal(world_count(&world, CDDPI_JOB_TELL_END), 1);
    assert_int_equal(world.state.outcome.exit_status, 5);
}

static void a_rank_that_blames_one_that_has_ended_is_named_at_once(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 3, false);
    world_end_rank(&world, 3, 0);
    FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 3);
    world_end_rank(&world, 2, 5);
    assert_int_equal(world.named, 2);
}

static void a_signal_asks_all_ranks_and_the_one_that_obeys_gives_the_status(void **state)
{
    static const int ends[] = {128 + SIGINT, CDDPI_STOPPED_EARLY};
    struct world world;

    (void)state;
    for (int i = 0; i < 2; i++) {
        run(&world, __func__, 3, false);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = -1);
        assert_true(world_sends(&world, SIGINT) && world_sends(&world, SIGCONT));
        assert_int_equal(world_count(&world, CDDPI_JOB_SAY_STOPPING), 1);
        world_end_rank(&world, 2, ends[i]);
        assert_int_equal(world_count(&world, CDDPI_JOB_TELL_END), 1);
        world_end_rank(&world, 3, 1); /* which complains that rank 2 is gone */
        world_end_rank(&world, 4, 0);
        assert_int_equal(world.named, -1);
        assert_int_equal(world.state.outcome.exit_status, ends[i]);
        assert_false(world.state.outcome.may_restart);
    }
}

static void a_rank_that_fails_before_one_obeys_is_named(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, false);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTERM, .node = -1);
    world_end_rank(&world, 3, 11);
    assert_int_equal(world.named, 3);
    world_end_rank(&world, 2, CDDPI_STOPPED_EARLY);
    assert_int_equal(world.state.outcome.exit_status, 11);
    assert_false(world.state.outcome.may_restart);
}

static void a_second_signal_kills_and_the_same_request_twice_does_not(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, false);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTERM, .node = -1);
    world_wait(&world, 200);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = -1);
    assert_int_equal(world.actions.count, 0);
    world_wait(&world, 1);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGHUP, .node = -1);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTERM, .node = 7); /* another machine's */
    assert_int_equal(world.actions.count, 0);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGINT, .node = -1);
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world_count(&world, CDDPI_JOB_SAY_KILLING), 1);
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGINT);
}

static void a_signal_while_a_cause_is_awaited_names_who_followed_and_kills(void **state)
{
    struct world world;

    (void)state;
    for (int hangs_up = 0; hangs_up < 2; hangs_up++) {
        run(&world, __func__, 3, false);
        FEED(&world, .kind = CDDPI_JOB_BLAMED, .rank = 2, .culprit = 4);
        world_end_rank(&world, 2, 5);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = hangs_up ? SIGHUP : SIGTERM,
             .node = -1);
        assert_int_equal(world.named, 2);
        assert_int_equal(world_sends(&world, SIGKILL), !hangs_up);
        assert_int_equal(world.state.outcome.exit_status, 5);
        assert_false(world.state.outcome.may_restart);
    }
}

static void a_rank_that_says_that_it_saves_gets_its_time_again(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    world.state.is_silent = true;
    FEED(&world, .kind = CDDPI_JOB_SAVING); /* nobody has asked: it means nothing */
    assert_true(world.state.deadline_ns == CDDPI_JOB_NEVER);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTERM, .node = 0);
    for (int i = 0; i < 10; i++) {
        world_wait(&world, 3 * GRACE_MS - 1);
        FEED(&world, .kind = CDDPI_JOB_SAVING);
        assert_int_equal(world_count(&world, CDDPI_JOB_PUBLISH_SAVING), 1);
        FEED(&world, .kind = CDDPI_JOB_SAVING); /* so soon the others are not told again */
        assert_int_equal(world.actions.count, 0);
    }
    world_wait(&world, 3 * GRACE_MS);
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGKILL);
    run(&world, __func__, 2, false);
    world_end_rank(&world, 2, 7); /* after a failure that is the grace period */
    world_wait(&world, GRACE_MS - 1);
    FEED(&world, .kind = CDDPI_JOB_SAVING);
    world_wait(&world, GRACE_MS - 1);
    assert_false(world_sends(&world, SIGKILL));
    world_wait(&world, 1);
    assert_true(world_sends(&world, SIGKILL));
}

/* It comes while ranks train, so it asks for nothing; and it is no checkpoint. */
static void progress_that_is_kept_in_memory_is_noted_and_changes_nothing_else(void **state)
{
    struct world world;
    int64_t deadline_ns;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_KEPT);
    assert_int_equal(world.actions.count, 0);
    assert_true(world.state.outcome.has_kept);
    assert_false(world.state.outcome.has_saved);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTERM, .node = 0);
    deadline_ns = world.state.deadline_ns;
    world_wait(&world, GRACE_MS);
    FEED(&world, .kind = CDDPI_JOB_KEPT);
    assert_int_equal(world.actions.count, 0);
    assert_true(world.state.deadline_ns == deadline_ns);
}

static void what_the_kernel_keeps_is_abandoned(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, false);
    world_end_rank(&world, 2, 1);
    world_wait(&world, GRACE_MS);
    world_wait(&world, CDDPI_JOB_KILL_S * 1000 - 1);
    assert_int_equal(world.state.phase, CDDPI_JOB_KILLED);
    world_wait(&world, 1);
    assert_int_equal(world_count(&world, CDDPI_JOB_ABANDON), 1);
    assert_int_equal(world.state.phase, CDDPI_JOB_OVER);
    assert_true(world.state.has_unkillable);
    assert_false(world.state.outcome.may_restart);
    assert_int_equal(world.state.outcome.exit_status, 1);
    cddpi_job_state_step(
        &world.state,
        &(struct cddpi_job_event){.kind = CDDPI_JOB_ENDED, .rank = 3, .exit_status = 137},
        &world.actions); /* the kernel lets it go */
    assert_int_equal(world.state.alive, 0);
    world_begin(&world, __func__, 1, 0, true); /* also where the job has ended well elsewhere */
    world_start(&world);
    cddpi_job_state_step(
        &world.state,
        &(struct cddpi_job_event){.kind = CDDPI_JOB_FAILED_THERE, .now_ns = world.now_ns},
        &world.actions);
    cddpi_job_state_step(
        &world.state,
        &(struct cddpi_job_event){.kind = CDDPI_JOB_TIME, .now_ns = world.state.deadline_ns},
        &world.actions);
    assert_int_equal(world.state.phase, CDDPI_JOB_OVER);
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGKILL);
}

static void a_program_that_cannot_run_ends_the_job_without_a_restart(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_EXECUTED, .rank = 3);
    FEED(&world, .kind = CDDPI_JOB_NOT_EXECUTED, .rank = 2, .exit_status = 126, .text = "why");
    assert_string_equal(world.actions.list[0].text, "why");
    assert_int_equal(world.actions.list[1].kind, CDDPI_JOB_PUBLISH_FAILURE);
    assert_false(world.actions.list[1].may_restart);
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world.published, 1);
    assert_int_equal(world_count(&world, CDDPI_JOB_FREE_PORTS), 1);
    world_end_rank(&world, 2, 127);
    world_end_rank(&world, 3, 128 + SIGKILL);
    assert_int_equal(world.state.outcome.exit_status, 126);
    assert_false(world.state.outcome.may_restart);
    run(&world, __func__, 1, true);
    world_end_rank(&world, 2, 127); /* which may be known before why */
    FEED(&world, .kind = CDDPI_JOB_NOT_EXECUTED, .rank = 2, .exit_status = 126, .text = "why");
    assert_string_equal(world.actions.list[0].text, "why");
    assert_int_equal(world.state.outcome.exit_status, 126);
    assert_false(world.state.outcome.may_restart);
}

static void ranks_of_which_one_cannot_be_started_are_ended(void **state)
{
    struct world world;

    (void)state;
    for (int started = 0; started < 2; started++) {
        world_begin(&world, __func__, 2, GRACE_MS, true);
        if (started > 0) {
            FEED(&world, .kind = CDDPI_JOB_STARTED, .rank = 2);
        }
        FEED(&world, .kind = CDDPI_JOB_NOT_STARTED, .text = "why");
        assert_int_equal(world.published, 1);
        assert_int_equal(world.state.phase, started > 0 ? CDDPI_JOB_KILLED : CDDPI_JOB_OVER);
        assert_int_equal(world.state.outcome.exit_status, 1);
    }
}

static void without_the_process_that_started_it_nothing_is_left(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, true);
    FEED(&world, .kind = CDDPI_JOB_ORPHANED, .text = "why");
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world.published, 1);
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGKILL);
    run(&world, __func__, 2, false);
    world_end_rank(&world, 2, 4);
    world_wait(&world, GRACE_MS);
    assert_int_equal(world.state.phase, CDDPI_JOB_KILLED);
    FEED(&world, .kind = CDDPI_JOB_ORPHANED, .text = "why"); /* nor started again */
    assert_true(world_sends(&world, SIGKILL));
    assert_int_equal(world.state.outcome.exit_status, 128 + SIGKILL);
    assert_false(world.state.outcome.may_restart);
}

static void signals_that_do_not_end_a_job_reach_the_ranks(void **state)
{
    struct world world;

    (void)state;
    run(&world, __func__, 2, false);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGUSR1, .node = -1);
    assert_int_equal(world_count(&world, CDDPI_JOB_SIGNAL_RANKS), 1);
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGTSTP, .node = -1);
    assert_true(world_sends(&world, SIGSTOP));
    FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = SIGCONT, .node = -1);
    assert_true(world_sends(&world, SIGCONT));
    assert_int_equal(world.state.phase, CDDPI_JOB_RUNS);
}

static void a_signal_after_the_last_rank_forbids_the_restart(void **state)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGKILL};
    struct world world;

    (void)state;
    for (int i = 0; i < 3; i++) {
        run(&world, __func__, 1, false);
        world_end_rank(&world, 2, 4);
        assert_true(world.state.outcome.may_restart);
        if (i < 2) {
            FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = numbers[i], .node = -1);
        } else { /* or cddp-run is to go */
            FEED(&world, .kind = CDDPI_JOB_ORPHANED);
        }
        assert_false(world.state.outcome.may_restart);
        assert_int_equal(world.state.outcome.exit_status, 128 + numbers[i]);
    }
}

/* The ranks that are left are ended after a failure: whoever asks for that wants no restart. */
static void a_first_signal_while_ranks_are_ended_forbids_the_restart(void **state)
{
    static const int numbers[] = {SIGINT, SIGHUP};

    (void)state;
    for (int i = 0; i < 4; i++) {
        bool is_killed = i / 2 == 1;
        struct world world;

        run(&world, __func__, 2, false);
        world_end_rank(&world, 2, 4);
        world_wait(&world, is_killed ? GRACE_MS : 0);
        assert_true(world.state.outcome.may_restart);
        FEED(&world, .kind = CDDPI_JOB_SIGNALLED, .number = numbers[i % 2], .node = -1);
        assert_false(world.state.outcome.may_restart);
        world_end_rank(&world, 3, 128 + SIGKILL);
        assert_false(world.state.outcome.may_restart);
        assert_int_equal(world.state.outcome.exit_status, 4);
    }
}

static void restarts_are_counted_and_those_that_lead_nowhere_end(void **state)
{
    struct cddpi_generation_outcome failed = {.exit_status = 1, .may_restart = true};
    struct cddpi_generation_outcome saved = {
        .exit_status = 1, .may_restart = true, .has_saved = true};
    struct cddpi_generation_outcome kept = {
        .exit_status = 1, .may_restart = true, .has_kept = true};
    struct cddpi_restarts restarts = {.made = 0};
    static const int64_t pauses[] = {0, 250, 500, 1000};
    int64_t pause_ms = -1;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, 1, &pause_ms),
                         CDDPI_RESTART_NOW);
        assert_int_equal(pause_ms, pauses[i]);
    }
    assert_int_equal(cddpi_restarts_next(&restarts, 100, &saved, 1, &pause_ms), CDDPI_RESTART_NOW);
    assert_int_equal(pause_ms, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, 1, &pause_ms),
                         CDDPI_RESTART_NOW);
    }
    assert_int_equal(cddpi_restarts_next(&restarts, 100, &kept, 1, &pause_ms), CDDPI_RESTART_NOW);
    assert_int_equal(pause_ms, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, 1, &pause_ms),
                         CDDPI_RESTART_NOW);
    }
    assert_int_equal(restarts.made, 14);
    assert_int_equal(cddpi_restarts_next(&restarts, 14, &failed, 1, &pause_ms), CDDPI_RESTART_NOT);
    assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, 1, &pause_ms),
                     CDDPI_RESTART_GIVE_UP);
    assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, CDDPI_SHORT_LIFE_MS, &pause_ms),
                     CDDPI_RESTART_NOW); /* one that lived */
    assert_int_equal(pause_ms, 0);
    failed.may_restart = false;
    assert_int_equal(cddpi_restarts_next(&restarts, 100, &failed, 1, &pause_ms), CDDPI_RESTART_NOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_end_well_end_the_job_well),
        cmocka_unit_test(the_first_rank_to_fail_is_named_and_its_status_counts),
        cmocka_unit_test(ranks_that_do_not_end_are_killed_after_the_grace_period),
        cmocka_unit_test(without_a_grace_period_they_are_killed_at_once),
        cmocka_unit_test(a_rank_that_only_follows_is_not_named),
        cmocka_unit_test(a_rank_that_follows_one_that_goes_on_is_named_in_the_end),
        cmocka_unit_test(a_rank_that_follows_one_that_then_ends_well_is_named_at_once),
        cmocka_unit_test(a_rank_that_blames_one_that_has_ended_is_named_at_once),
        cmocka_unit_test(a_signal_asks_all_ranks_and_the_one_that_obeys_gives_the_status),
        cmocka_unit_test(a_rank_that_fails_before_one_obeys_is_named),
        cmocka_unit_test(a_second_signal_kills_and_the_same_request_twice_does_not),
        cmocka_unit_test(a_signal_while_a_cause_is_awaited_names_who_followed_and_kills),
        cmocka_unit_test(a_rank_that_says_that_it_saves_gets_its_time_again),
        cmocka_unit_test(progress_that_is_kept_in_memory_is_noted_and_changes_nothing_else),
        cmocka_unit_test(what_the_kernel_keeps_is_abandoned),
        cmocka_unit_test(a_program_that_cannot_run_ends_the_job_without_a_restart),
        cmocka_unit_test(ranks_of_which_one_cannot_be_started_are_ended),
        cmocka_unit_test(without_the_process_that_started_it_nothing_is_left),
        cmocka_unit_test(signals_that_do_not_end_a_job_reach_the_ranks),
        cmocka_unit_test(a_signal_after_the_last_rank_forbids_the_restart),
        cmocka_unit_test(a_first_signal_while_ranks_are_ended_forbids_the_restart),
        cmocka_unit_test(restarts_are_counted_and_those_that_lead_nowhere_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
