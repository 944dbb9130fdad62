/* test_launcher_leave.c - a rank that is asked to leave tells cddp-run, and an elastic job goes on
 * without it. */
#include "support/launcher.h"

#include <signal.h>

/* Ranks of the first generation, which are four, report, and end as after a checkpoint; those of
 * later ones say how many they are, and why. */
#define REPORTS(reports)                                                                           \
    "[ $CDDP_GENERATION = 0 ] || { echo \"$WORLD_SIZE ranks: $CDDP_GENERATION_REASON\"; exit 0; "  \
    "}; "                                                                                          \
    "pipe=/proc/$$/fd/$CDDP_REPORT_FD; " reports                                                   \
    " >up$RANK; for r in 0 1 2 3; do while [ ! -e up$r ]; do sleep 0.01; done; done; exit 3"

static void assert_goes_on(const char *elastic, const char *script, const char *says)
{
    struct launched job = {0};

    LAUNCH(&job, "--elastic", elastic, "--nproc", "4", "--", "sh", "-c", script);
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_out(&job, says);
    assert_int_equal(launcher_failures(job.err, NULL), 0);
    launcher_end(&job);
}

static void the_others_go_on_without_a_rank_that_leaves(void **state)
{
    (void)state;
    assert_goes_on("1:4", REPORTS("[ $RANK != 2 ] || printf 'l\\002\\000\\000' >$pipe;"),
                   "3 ranks: rank 2 leaves");
}

/* Whoever writes to the pipe is not believed everything. */
static void a_rank_leaves_once(void **state)
{
    (void)state;
    assert_goes_on("1:4",
                   REPORTS("[ $RANK != 0 ] || printf "
                           "'l\\002\\000\\000l\\002\\000\\000wl\\002\\000\\001l\\007\\000\\000l\\37"
                           "7\\377\\377l\\001' >$pipe;"),
                   "3 ranks: rank 2 leaves");
}

/* A rank's parent may have passed on what cddp-run has sent, but not before cddp-run has. */
static void what_a_parent_passes_on_is_believed_only_at_first(void **state)
{
    (void)state;
    assert_goes_on("1:4", REPORTS("[ $RANK != 2 ] || printf 'l\\002\\000\\001' >$pipe;"),
                   "3 ranks: rank 2 leaves");
    assert_goes_on("1:4",
                   REPORTS("if [ $RANK = 2 ]; then printf 'l\\002\\000\\000' >$pipe; >told; fi; "
                           "while [ ! -e told ]; do sleep 0.01; done; "
                           "[ $RANK = 2 ] || printf \"l\\00$RANK\\000\\001\" >$pipe;"),
                   "3 ranks: rank 2 leaves");
}

static void several_ranks_leave_at_once(void **state)
{
    (void)state;
    assert_goes_on("1:4", REPORTS("[ $RANK = 1 ] || printf \"l\\00$RANK\\000\\000\" >$pipe;"),
                   "1 ranks: ");
}

static void so_many_stay_as_the_job_needs(void **state)
{
    (void)state;
    assert_goes_on("2:4", REPORTS("printf \"l\\00$RANK\\000\\000\" >$pipe;"), "2 ranks: ");
    assert_goes_on("4:5", REPORTS("[ $RANK != 2 ] || printf 'l\\002\\000\\000' >$pipe;"),
                   "4 ranks: rank 2 leaves, and another takes its place");
}

/* Without --elastic the report changes nothing. */
static void a_job_with_a_fixed_number_of_ranks_ends_with_a_rank_that_leaves(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "4", "--", "sh", "-c", REPORTS("printf 'l\\001\\000\\000' >$pipe;"));
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
}

static void a_trainer_that_embeds_cddp_leaves_too(void **state)
{
    static const char script[] = "[ $RANK != 1 ] || echo $$ >pid$CDDP_GENERATION; exec $0 embeds";
    struct launched job = {0};
    char *program = strdup(launcher_path("tests/launcher_rank"));

    (void)state;
    launcher_start(&job, (const char *const[]){"--elastic", "1:3", "--nproc", "3", "--", "sh", "-c",
                                               script, program, NULL});
    launcher_await_text(job.dir, "out", "up with 3");
    assert_int_equal(kill((pid_t)launcher_number(&job, "pid0"), SIGTERM), 0);
    launcher_wait(&job);
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_out(&job, "up with 2");
    assert_err(&job, "rank 1 leaves");
    assert_int_equal(launcher_failures(job.err, NULL), 0);
    launcher_end(&job);
    free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_a_rank_that_leaves),
        cmocka_unit_test(a_rank_leaves_once),
        cmocka_unit_test(what_a_parent_passes_on_is_believed_only_at_first),
        cmocka_unit_test(several_ranks_leave_at_once),
        cmocka_unit_test(so_many_stay_as_the_job_needs),
        cmocka_unit_test(a_job_with_a_fixed_number_of_ranks_ends_with_a_rank_that_leaves),
        cmocka_unit_test(a_trainer_that_embeds_cddp_leaves_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
