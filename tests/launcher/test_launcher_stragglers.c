/* test_launcher_stragglers.c - rank 0 tells cddp-run which ranks are slow; such a rank is named,
 * and replaced if the user asks for that. */
#include "support/fleet.h"
#include "support/launcher.h"

/* A report of 40 s in which rank 2 needs 2.5 times the median's time, and two that are none. */
#define SLOW "p\\001\\000\\100\\234\\002\\000\\372\\000\\000\\000"
#define SLOW_DATA "p\\001\\000\\100\\234\\002\\000\\372\\000\\001\\000"
#define NONE_SLOW "p\\000\\000\\100\\234"
#define ODD "p\\377\\377\\377\\377p\\001\\000\\100\\234\\377\\377\\377\\377\\377\\377"

/* In the first generation, rank 0 writes @p reports; then all ranks end as after a checkpoint, if
 * one of them is asked to. Later generations write them again, and say why they began. */
#define RANKS(reports)                                                                             \
    "report() { printf '" reports "' >/proc/$$/fd/$CDDP_REPORT_FD; }; "                            \
    "if [ $CDDP_GENERATION != 0 ]; then echo \"$WORLD_SIZE ranks: $CDDP_GENERATION_REASON\"; "     \
    "[ $RANK != 0 ] || report; exit 0; fi; "                                                       \
    "trap '>asked$RANK; exit 3' TERM; >up$RANK; "                                                  \
    "for r in 0 1 2; do while [ ! -e up$r ]; do sleep 0.01; done; done; "                          \
    "[ $RANK != 0 ] || report; while [ ! -e asked2 ]; do sleep 0.02; done; exit 3"

/* The same, and all ranks end at once. */
#define REPORTS(reports)                                                                           \
    "[ $RANK != 0 ] || printf '" reports "' >/proc/$$/fd/$CDDP_REPORT_FD; exit 0"

static void assert_succeeded(const struct launched *job)
{
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
}

static void a_straggler_is_named_once(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c", REPORTS(SLOW SLOW SLOW NONE_SLOW SLOW SLOW));
    assert_succeeded(&job);
    assert_err(&job, "cddp-run: rank 2 is slow: for 80 s it has needed 2.5 times the median's time "
                     "for a step, because it computes longer; the others wait for it\n");
    assert_int_equal(launcher_count(job.err, "is slow"), 1);
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c", REPORTS(SLOW_DATA SLOW_DATA));
    assert_succeeded(&job);
    assert_err(&job, "because it waits longer for its data");
    launcher_end(&job);
}

static void what_is_no_straggler_is_not_named(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c", REPORTS(SLOW NONE_SLOW SLOW NONE_SLOW SLOW));
    assert_succeeded(&job);
    assert_no_err(&job, "slow");
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c", REPORTS(SLOW SLOW SLOW)); /* has no rank 2 */
    assert_succeeded(&job);
    assert_no_err(&job, "slow");
    launcher_end(&job);
}

/* Whoever writes to the pipe is not believed everything. */
static void odd_reports_do_no_harm(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c", REPORTS(ODD ODD SLOW SLOW));
    assert_succeeded(&job);
    assert_err(&job, "cddp-run: rank 2 is slow: for 80 s ");
    assert_int_equal(launcher_count(job.err, "is slow"), 1);
    launcher_end(&job);
}

/* They come while a program trains on, and are no sign that it saves. */
static void such_reports_give_no_longer_time_to_end(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start(
        &job, (const char *const[]){"--nproc", "1", "--grace", "0.5", "--", "sh", "-c",
                                    "trap '' TERM; echo $$ >pid0; while :; do printf '" NONE_SLOW
                                    "' >/proc/$$/fd/$CDDP_REPORT_FD; sleep 0.02; done",
                                    NULL});
    (void)launcher_number(&job, "pid0");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGKILL);
    launcher_end(&job);
}

static void a_straggler_is_replaced_but_not_again_and_again(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--elastic", "1:3", "--replace-stragglers", "2:50.5", "--", "sh", "-c",
           RANKS(SLOW SLOW));
    assert_succeeded(&job);
    assert_err(&job, "; the others wait for it. A new process takes its place\n");
    assert_err(&job, "cddp-run: rank 2 leaves, and another takes its place: ranks save");
    assert_out(&job, "3 ranks: rank 2 leaves, and another takes its place\n");
    assert_err(&job, "; the others wait for it. It stays: the rank there was replaced ");
    assert_no_err(&job, "generation 2");
    assert_int_equal(launcher_failures(job.err, NULL), 0);
    launcher_end(&job);
}

/* In the folder SHARED: wait for the file "go"; then rank 0 reports, once. Later all ranks end. */
#define REPORTS_ONCE                                                                               \
    "trap 'exit 3' TERM; cd $SHARED; [ ! -e reported ] || exit 0; echo $WORLD_SIZE >size$RANK; "   \
    "while [ ! -e go ]; do sleep 0.02; done; "                                                     \
    "[ $RANK != 0 ] || { >reported; printf '" SLOW SLOW "' >/proc/$$/fd/$CDDP_REPORT_FD; }; "      \
    "while :; do sleep 0.02; done"

/* Wait until a generation of three ranks runs. */
static void await_three(const char *folder)
{
    launcher_await_text(folder, "size0", "3");
    launcher_await_text(folder, "size1", "3");
    launcher_await_text(folder, "size2", "3");
}

/* Between machines, its node leaves, and the spare comes. */
static void the_node_of_a_straggler_leaves(void **state)
{
    static const char *const numbers[] = {"0", "1", "2", "3"};
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    for (int i = 0; i < 4; i++) {
        if (i == 3) {
            await_three(fleet.folder);
        }
        START(&fleet, i, "2:3", numbers[i], "--nproc", "1", "--replace-stragglers", "2:60", "--",
              "sh", "-c", REPORTS_ONCE);
    }
    launcher_await_text(fleet.nodes[0].dir, "err", "node 3 (");
    launcher_write(fleet.folder, "go", "");
    fleet_wait(&fleet, 4);
    assert_int_equal(fleet.nodes[2].exit_status, 3);
    assert_err(&fleet.nodes[2], "this node has left the job\n");
    assert_err(&fleet.nodes[0], "rank 2 of node 2 (");
    assert_err(&fleet.nodes[0], "Its node leaves, and node 3 (");
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    assert_int_equal(fleet.nodes[1].exit_status, 0);
    assert_int_equal(fleet.nodes[3].exit_status, 0);
    fleet_end(&fleet);
}

static void a_host_of_a_list_leaves_with_its_straggler(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("SHARED", ".", 1);
    launcher_start(&job, (const char *const[]){"--hosts", "localhost:1,127.0.0.1:1,127.0.0.2:1",
                                               "--nnodes", "2:3", "--replace-stragglers", "2:60",
                                               "--", "sh", "-c", REPORTS_ONCE, NULL});
    unsetenv("SHARED");
    await_three(job.dir);
    launcher_write(job.dir, "go", "");
    launcher_wait(&job);
    assert_succeeded(&job);
    assert_err(&job, "rank 2 of node 2 (127.0.0.2) is slow: ");
    assert_err(&job, "Its node leaves, and the others go on without it\n");
    assert_err(&job, ": 2 ranks on 2 nodes\n");
    launcher_end(&job);
}

static void wrong_words_are_refused(void **state)
{
    static const char *const wrong[] = {"2",   "2:",    ":30",   "1:30",  "2:0",
                                        "x:3", "2:3:4", "2:nan", "inf:5", "2:90000"};
    struct launched job = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        LAUNCH(&job, "--elastic", "1:3", "--replace-stragglers", wrong[i], "--", "true");
        assert_int_equal(job.exit_status, 2);
        assert_err(&job, "not F:S, such as 1.5:30");
        launcher_end(&job);
    }
    LAUNCH(&job, "--nproc", "3", "--replace-stragglers", "1.5:30", "--", "true");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job,
               "--replace-stragglers 1.5:30: the number of ranks of this job is fixed, so none "
               "can be replaced: add --elastic MIN:MAX");
    launcher_end(&job);
    LAUNCH(&job, "--elastic", "1:3", "--replace-stragglers", "1.5:30", "--dry-run", "--", "true");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "stragglers: a rank is replaced if it needs 1.5 times the median's time for a "
                     "step for 30 s\n");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_is_named_once),
        cmocka_unit_test(what_is_no_straggler_is_not_named),
        cmocka_unit_test(odd_reports_do_no_harm),
        cmocka_unit_test(such_reports_give_no_longer_time_to_end),
        cmocka_unit_test(a_straggler_is_replaced_but_not_again_and_again),
        cmocka_unit_test(the_node_of_a_straggler_leaves),
        cmocka_unit_test(a_host_of_a_list_leaves_with_its_straggler),
        cmocka_unit_test(wrong_words_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
