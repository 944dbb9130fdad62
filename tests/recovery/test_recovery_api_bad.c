/* test_recovery_api_bad.c - jobs of cddp/recovery.h in which something is wrong: ranks disagree
 * about their state, functions fail, there is no memory, or what was kept is damaged. No wrong
 * state is taken up; the job goes on from its checkpoint, and the log says why. */
#include "support/recovery_api.h"

/* It keeps nothing, because of @p why; a rank that is killed before step 7 costs the steps since
 * the checkpoint of step 4. */
static void keeps_nothing(const char *words, const char *why)
{
    struct launched job = {0};
    char all[512];

    snprintf(all, sizeof all, "every=1 steps=9 checkpoint=4 0.0:kill=7 %s", words);
    RECOVERS_AS(&job, "3", all, "1.3: begins at 4\n", "copies: 0\n", "1.3: ends at 9\n");
    launcher_need_absence(job.out, "replaced", "stdout");
    assert_int_equal(launcher_count(job.err, why), 2); /* once in each generation */
    launcher_end(&job);
}

static void ranks_with_different_states_keep_nothing(void **state)
{
    static const char differs[] =
        "rank 1: its state differs from that of rank 0; so a rank that is lost costs the steps "
        "since the newest checkpoint";

    (void)state;
    keeps_nothing("*.0:whole=40 *.1:whole=41 *.2:whole=40", differs);
    keeps_nothing("*.0:calls=40 *.1:calls=39 *.2:calls=40", differs);
    keeps_nothing("whole=1 whole=2 *.1:order=r", differs);
    keeps_nothing("*.0:part=40 *.1:whole=40 *.2:part=40", differs);
    keeps_nothing("whole=40 *.1:whole=40", differs);
}

/* @p words, of a job in which generation 0 has kept its state up to step 4 and was killed. @p why
 * is said once. */
static void does_not_take_it(const char *words, const char *why)
{
    struct launched job = {0};
    char all[512];

    snprintf(all, sizeof all, "every=1 steps=9 checkpoint=3 0.0:kill=5 %s", words);
    RECOVERS_AS(&job, "3", all, "0.3: begins at 0\n", "1.3: begins at 3\n", "1.3: ends at 9\n");
    launcher_need_absence(job.out, "replaced", "stdout");
    assert_int_equal(launcher_count(job.err, why), 1);
    assert_int_equal(launcher_count(job.err, "going back to the newest checkpoint: "), 1);
    launcher_end(&job);
}

static void a_state_with_other_arrays_is_not_taken(void **state)
{
    static const char anew[] = "recovery: going back to the newest checkpoint: the run was "
                               "configured anew, so its last state does not fit\n";

    (void)state;
    does_not_take_it("whole=30 1.*:whole=31", anew);
    does_not_take_it("0.*:whole=30 1.*:whole=31", anew);
    does_not_take_it("0.*:whole=30 1.*:part=30", anew);
    does_not_take_it("whole=30 whole=31 1.*:order=r", anew);
    does_not_take_it("whole=30 0.*:calls=8 1.*:calls=7", anew);
    does_not_take_it("whole=30 1.*:ddp=p", anew);
}

/* One rank registers something else. */
static void ranks_that_differ_after_a_restart_take_nothing(void **state)
{
    static const char differ[] = "recovery: going back to the newest checkpoint: ranks have "
                                 "registered different states\n";
    static const char warning[] = "rank 2: its state differs from that of rank 0; so";

    (void)state;
    does_not_take_it("whole=30 1.2:whole=31", differ);
    does_not_take_it("whole=30 1.0:whole=31", differ);
    does_not_take_it("whole=30 1.2:whole=31", warning);
}

static void without_memory_of_a_launcher_the_log_says_so(void **state)
{
    static const char line[] = "recovery: the launcher holds no memory, so nothing is kept\n";
    struct launched job = {0};

    (void)state;
    setenv("CDDP_LOG", "info", 1);
    LAUNCH(&job, "--nproc", "2", "--", recovery_rank(), STATE_ALL);
    unsetenv("CDDP_LOG");
    recovery_ends_well(&job, LOOPS("copies: 0\n", "0.2: ends at 9\n"));
    assert_int_equal(launcher_count(job.err, line), 1);
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "2", "--", recovery_rank(), STATE_ALL);
    recovery_ends_well(&job, LOOPS("copies: 0\n", "0.2: ends at 9\n"));
    assert_no_err(&job, "recovery");
    launcher_end(&job);
}

/* Start ranks of which some find no memory, or a limit. */
static void start_limited(struct launched *job, const char *limit, const char *words)
{
    char script[128];

    snprintf(script, sizeof script, "%s; exec \"$0\" \"$1\"", limit);
    LAUNCH(job, "--nproc", "2", "--max-restarts", "9", "--", "sh", "-c", script, recovery_rank(),
           words);
}

static void one_rank_without_memory_lets_all_keep_nothing(void **state)
{
    static const char warning[] = "rank 1: the launcher holds no memory for it; so a rank that is "
                                  "lost costs the steps since the newest checkpoint\n";
    struct launched job = {0};

    (void)state;
    start_limited(&job, "[ $RANK = 0 ] || unset CDDP_KEEP_FDS",
                  STATE_ALL "checkpoint=4 0.0:kill=7");
    recovery_ends_well(&job, LOOPS("1.2: begins at 4\n", "copies: 0\n", "1.2: ends at 9\n"));
    assert_int_equal(launcher_count(job.err, warning), 1);
    launcher_end(&job);
    /* from the second generation on */
    start_limited(&job, "[ $RANK = 0 -o $CDDP_GENERATION = 0 ] || unset CDDP_KEEP_FDS",
                  STATE_ALL "checkpoint=4 0.0:kill=7 1.1:kill=9");
    recovery_ends_well(
        &job, LOOPS("1.2: begins at 4\n", "2.2: begins at 8\n", "copies: 0\n", "2.2: ends at 9\n"));
    launcher_need_absence(job.out, "replaced", "stdout");
    assert_err(&job, "going back to the newest checkpoint: a part of the last state was lost\n");
    launcher_end(&job);
}

/* The first copy fits, but the second does not: 4 MB in all, and files of 3 MB. */
static void where_memory_is_limited_nothing_more_is_kept(void **state)
{
    static const char warning[] =
        "memory that outlives a rank: File too large (ulimit -f); so a rank that is "
        "lost costs the steps since the newest checkpoint\n";
    struct launched job = {0};

    (void)state;
    start_limited(&job, "ulimit -f 6000",
                  "every=1 steps=9 checkpoint=4 whole=4000000 0.0:kill=7 1.1:kill=8");
    recovery_ends_well(&job, LOOPS("1.2: begins at 4\n", "2.2: begins at 4\n", "2.2: replaced 5\n",
                                   "copies: 0\n", "2.2: ends at 9\n"));
    assert_int_equal(launcher_count(job.err, warning), 2); /* again, since it had kept something */
    launcher_end(&job);
}

static void parts_that_leave_holes_keep_nothing(void **state)
{
    static const char holes[] = "rank 0: all ranks together have 19 bytes of 20; so";
    static const char more[] = "rank 0: all ranks together have 21 bytes of 20; so";
    static const char twice[] = "rank 0: ranks have some bytes of an array twice, others not; so";

    (void)state;
    keeps_nothing("*.0:range=20:0:9 *.1:range=20:10:8 *.2:range=20:18:2", holes);
    keeps_nothing("*.0:range=20:0:10 *.1:range=20:10:9 *.2:range=20:18:2", more);
    keeps_nothing("*.0:range=20:0:10 *.1:range=20:9:8 *.2:range=20:18:2", twice);
    keeps_nothing("*.0:range=20:0:10 *.1:range=20:5:10 *.2:range=20:10:0", twice);
    keeps_nothing("*.0:range=20:0:10 *.1:range=20:0:10 *.2:range=20:10:0", twice);
    keeps_nothing("*.0:range=1000:0:1 *.1:range=1000:0:0 *.2:range=1000:1:999 "
                  "*.0:range=20:2:18 *.1:range=20:1:1 *.2:range=20:1:1",
                  twice);
}

/* The sums of their bytes are right. */
static void nor_do_those_that_have_another_arrays_bytes(void **state)
{
    (void)state;
    keeps_nothing("*.0:range=20:0:10 *.1:range=20:10:10 *.2:range=20:10:1 "
                  "*.0:range=20:0:10 *.1:range=20:10:9 *.2:range=20:10:0",
                  "rank 0: ranks have some bytes of an array twice, others not; so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_different_states_keep_nothing),
        cmocka_unit_test(a_state_with_other_arrays_is_not_taken),
        cmocka_unit_test(ranks_that_differ_after_a_restart_take_nothing),
        cmocka_unit_test(without_memory_of_a_launcher_the_log_says_so),
        cmocka_unit_test(one_rank_without_memory_lets_all_keep_nothing),
        cmocka_unit_test(where_memory_is_limited_nothing_more_is_kept),
        cmocka_unit_test(parts_that_leave_holes_keep_nothing),
        cmocka_unit_test(nor_do_those_that_have_another_arrays_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
