/* test_cpp_recovery.c - a program in C++ whose ranks are killed goes on from memory, and what its
 * functions throw is said. Skipped without a C++ compiler. */
#include "support/launcher.h"

/* Run two ranks of the program in @p mode. */
static void run(struct launched *job, const char *mode)
{
    char *program = strdup(launcher_path("tests/include/recovery_of_cpp"));

    if (access(program, X_OK) != 0) {
        free(program);
        skip();
    }
    LAUNCH(job, "--nproc", "2", "--max-restarts", "3", "--", program, mode);
    free(program);
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s%s", job->exit_status, job->out, job->err);
    }
}

static void a_killed_rank_costs_no_step(void **state)
{
    struct launched job = {0};

    (void)state;
    run(&job, "restores");
    assert_out(&job, "rank 0 goes on from step 4\n");
    assert_out(&job, "rank 1 goes on from step 4\n");
    assert_out(&job, "rank 0: 3 copies, generation 1\n"); /* of steps 5, 6 and 7 */
    assert_out(&job, "rank 1: 3 copies, generation 1\n");
    launcher_end(&job);
}

static void a_save_that_throws_ends_the_keeping_of_states(void **state)
{
    struct launched job = {0};

    (void)state;
    run(&job, "save throws");
    assert_err(&job, "the ink is used up");
    assert_out(&job, "rank 0: 1 copies, generation 0\n");
    assert_out(&job, "rank 1: 1 copies, generation 0\n");
    launcher_end(&job);
}

/* All ranks fail with its text, and the next processes begin anew. */
static void a_load_that_throws_is_said_on_all_ranks(void **state)
{
    static const char *const rows[][2] = {
        {"load throws", "a sum of apples and pears"},
        {"load throws 5", "an exception that is no std::exception"},
        {"load throws an error", "no such sum"},
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct launched job = {0};

        run(&job, rows[i][0]);
        assert_int_equal(launcher_count(job.out, "it failed: "), 2);
        assert_int_equal(launcher_count(job.out, rows[i][1]), 2);
        assert_int_equal(launcher_count(job.out, "goes on from step"), 0);
        assert_out(&job, "rank 0: 7 copies, generation 2\n");
        launcher_end(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_costs_no_step),
        cmocka_unit_test(a_save_that_throws_ends_the_keeping_of_states),
        cmocka_unit_test(a_load_that_throws_is_said_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
