/* test_recovery_api_fails.c - jobs of cddp/recovery.h whose functions fail, whose state may be bad,
 * or has been damaged: it is not taken up; the job goes on from its checkpoint, and says why. */
#include "support/recovery_api.h"

#define STATE_FAILS "every=1 steps=9 calls=20 ddp=s part=100 whole=100"

static const char itself[] = "recovery: going back to the newest checkpoint: the run failed by "
                             "itself, so its last state is not used\n";
static const char lost[] =
    "recovery: going back to the newest checkpoint: a part of the last state was lost\n";

/* The job of three ranks says each line of @p lines, never @p never, and @p why @p count times. */
static void fails(const char *words, const char *why, int count, const char *never,
                  const char *const *lines)
{
    struct launched job = {0};
    char all[512];

    snprintf(all, sizeof all, STATE_FAILS " %s", words);
    recovery_runs(&job, "3", LOOPS(all), lines);
    launcher_need_absence(job.out, never, "stdout");
    if (launcher_count(job.err, why) != count) {
        fail_msg("%s is not %d times in %s", why, count, job.err);
    }
    launcher_end(&job);
}

/* What was kept before is still right. */
static void a_function_that_does_not_save_ends_the_keeping_in_its_generation(void **state)
{
    static const char rank_1[] = "rank 1: a function that saves a part of the state: a file or a "
                                 "connection failed; so nothing is kept from now on\n";
    static const char rank_0[] = "rank 0: a function that saves a part of the state: a file or a "
                                 "connection failed; so nothing is kept from now on\n";

    (void)state;
    fails("0.1:fail-save=4 0.2:kill=7", rank_1, 1, "nothing",
          LOOPS("1.3: replaced 3\n", "copies: 6\n", "1.3: ends at 9\n"));
    fails("checkpoint=5 0.0:fail-save=4 0.2:kill=7", rank_0, 1, "replaced",
          LOOPS("1.3: begins at 5\n", "copies: 4\n", "1.3: ends at 9\n"));
    fails("0.*:fail-save=1 0.2:kill=3", rank_0, 1, "replaced",
          LOOPS("1.3: begins at 0\n", "copies: 9\n", "1.3: ends at 9\n"));
    fails("*.1:fail-save=4", rank_1, 1, "replaced", LOOPS("copies: 3\n", "0.3: ends at 9\n"));
}

static void a_function_that_does_not_load_is_called_once(void **state)
{
    static const char why[] = "rank 2: recovery: a function that loads a part of the state: no "
                              "time\n";

    (void)state;
    for (int part = 1; part <= 3; part++) {
        char words[128];

        snprintf(words, sizeof words, "checkpoint=4 0.0:kill=7 1.2:fail-load=%d 2.*:fail-load=1",
                 part);
        fails(words, why, 3, "replaced",
              LOOPS("1.3: begins at 4\n", "2.3: begins at 4\n", "copies: 5\n", "2.3: ends at 9\n"));
    }
    /* on all; without a checkpoint */
    fails("0.0:kill=7 1.*:fail-load=2 2.0:kill=4 3.0:met=8", "rank 0: recovery: a function that", 3,
          "2.3: replaced",
          LOOPS("1.3: begins at 0\n", "2.3: begins at 0\n", "3.3: replaced 3\n",
                "4.3: replaced 8\n", "4.3: ends at 9\n"));
}

static void nor_is_one_again_in_which_a_process_ended(void **state)
{
    (void)state;
    fails("checkpoint=4 0.0:kill=7 1.0:load=1 2.*:load=1", itself, 1, "replaced",
          LOOPS("1.3: begins at 4\n", "2.3: begins at 4\n", "copies: 5\n", "2.3: ends at 9\n"));
    fails("checkpoint=4 0.0:kill=7 1.1:load=3 2.*:load=1", itself, 1, "replaced",
          LOOPS("2.3: begins at 4\n", "2.3: ends at 9\n"));
    fails("checkpoint=4 0.0:kill=7 1.*:load=2 2.*:load=1 3.*:load=1", itself, 1, "replaced",
          LOOPS("2.3: begins at 4\n", "2.3: ends at 9\n"));
    /* afterwards, the job keeps its state as before */
    fails(
        "checkpoint=4 0.0:kill=7 1.2:load=1 2.1:kill=7 3.0:kill=8", itself, 1, "2.3: replaced",
        LOOPS("2.3: begins at 4\n", "3.3: replaced 6\n", "4.3: replaced 7\n", "4.3: ends at 9\n"));
}

/* The others wait for it until their deadline, and it is killed. */
static void a_function_that_does_not_return_counts_as_one_that_ends(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "9", "--timeout", "20", "--grace", "1", "--",
           recovery_rank(), STATE_ALL "checkpoint=3 0.1:hang-save=6 1.1:hang-load=2 2.*:load=1");
    recovery_ends_well(&job, LOOPS("1.2: begins at 3\n", "2.2: begins at 3\n", "2.2: ends at 9\n"));
    launcher_need_absence(job.out, "replaced", "stdout");
    assert_int_equal(launcher_count(job.err, itself), 1);
    launcher_end(&job);
}

/* The generation that goes back to the checkpoint is lost before it has kept anything, too. */
static void what_was_not_to_be_used_stays_so(void **state)
{
    (void)state;
    fails("checkpoint=4 0.0:kill=7 1.0:load=1 2.2:begun=4 3.*:load=1", itself, 1, "replaced",
          LOOPS("2.3: begins at 4\n", "3.3: begins at 4\n", "3.3: ends at 9\n"));
    fails("checkpoint=4 0.2:refuse=7 1.1:begun=4 2.0:begun=4", itself, 1, "replaced",
          LOOPS("1.3: begins at 4\n", "2.3: begins at 4\n", "3.3: begins at 4\n",
                "3.3: ends at 9\n"));
}

static void a_loop_that_refuses_its_state_goes_back(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        char words[128];

        snprintf(words, sizeof words, "checkpoint=4 0.%d:refuse=7 1.*:kill=7", rank);
        fails(words, itself, 1, "1.3: replaced",
              LOOPS("1.3: begins at 4\n", "2.3: replaced 6\n", "2.3: ends at 9\n"));
    }
    /* who only fails has no doubt */
    fails("checkpoint=4 0.1:ends=7 1.0:ends=8", itself, 0, "never",
          LOOPS("1.3: replaced 6\n", "2.3: replaced 7\n", "2.3: ends at 9\n"));
}

static void ranks_at_different_steps_fail(void **state)
{
    (void)state;
    fails("0.1:jump=5 1.0:jump=7 2.2:jump=8", "recovery_step: ranks are at steps 5 to 6; this one",
          3, "never",
          LOOPS("1.3: replaced 4\n", "2.3: replaced 6\n", "3.3: replaced 7\n", "3.3: ends at 9\n"));
}

static void damage_is_found(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank += 2) {
        char words[128];

        snprintf(words, sizeof words, "checkpoint=4 0.%d:damage=7 1.*:kill=7", rank);
        fails(words, lost, 1, "1.3: replaced",
              LOOPS("1.3: begins at 4\n", "2.3: replaced 6\n", "2.3: ends at 9\n"));
    }
}

/* Before rank 1 of generation 1 begins, @p command does something to its memory, $own. */
static void ruin(const char *command)
{
    struct launched job = {0};
    char script[400];

    snprintf(script, sizeof script,
             "own=/proc/$$/fd/$(echo $CDDP_KEEP_FDS | cut -d, -f$((LOCAL_RANK + 1))); "
             "[ $CDDP_GENERATION.$RANK != 1.1 ] || %s; exec \"$0\" \"$1\"",
             command);
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "9", "--", "sh", "-c", script, recovery_rank(),
           STATE_ALL "ddp=s checkpoint=4 0.0:kill=7 1.0:kill=7");
    recovery_ends_well(&job, LOOPS("1.2: begins at 4\n", "2.2: begins at 4\n", "2.2: replaced 6\n",
                                   "2.2: ends at 9\n"));
    launcher_need_absence(job.out, "1.2: replaced", "stdout");
    assert_int_equal(launcher_count(job.err, lost), 1);
    launcher_end(&job);
}

static void memory_that_is_no_longer_in_form_holds_nothing(void **state)
{
    (void)state;
    ruin("truncate -s 0 $own");
    ruin("truncate -s 5000 $own");
    ruin("yes | head -c 5000 >$own");
    ruin("dd if=/dev/zero of=$own bs=4096 count=1 conv=notrunc 2>/dev/null");
    ruin("yes | head -c 1000 | dd of=$own bs=8 seek=1 conv=notrunc 2>/dev/null");
    ruin("yes | head -c 500000 | dd of=$own bs=64 seek=1024 conv=notrunc 2>/dev/null");
}

/* One allocation after another, while the state is restored. */
static void where_memory_ends_the_job_goes_on_in_some_way(void **state)
{
    int failed = 0;

    (void)state;
    for (int nth = 1; nth <= 9; nth++) {
        struct launched job = {0};
        char words[512];

        snprintf(words, sizeof words,
                 STATE_FAILS " checkpoint=4 0.2:kill=7 1.%d:no-memory=%d 1.0:kill=8", nth % 3, nth);
        recovery_runs(&job, "3", LOOPS(words), LOOPS("1.3: begins at 4\n", "ends at 9\n"));
        failed += strstr(job.err, "no memory") != NULL;
        launcher_end(&job);
    }
    assert_in_range(failed, 3, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_that_does_not_save_ends_the_keeping_in_its_generation),
        cmocka_unit_test(a_function_that_does_not_load_is_called_once),
        cmocka_unit_test(nor_is_one_again_in_which_a_process_ended),
        cmocka_unit_test(a_function_that_does_not_return_counts_as_one_that_ends),
        cmocka_unit_test(what_was_not_to_be_used_stays_so),
        cmocka_unit_test(a_loop_that_refuses_its_state_goes_back),
        cmocka_unit_test(ranks_at_different_steps_fail),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(memory_that_is_no_longer_in_form_holds_nothing),
        cmocka_unit_test(where_memory_ends_the_job_goes_on_in_some_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
