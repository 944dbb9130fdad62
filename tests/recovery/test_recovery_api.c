/* test_recovery_api.c - jobs that keep the state of a loop of their own with cddp/recovery.h, and
 * whose ranks are lost: from which step the others go on, and with which state. */
#include "support/recovery_api.h"

/* Whole arrays, parts, functions, and a model, @p ddp "p" or "s" for one whose optimizer is
 * sharded; a rank is killed before step 5 is kept, and in one, at another place. */
static void lose_one(const char *ranks, const char *ddp, int rank)
{
    char words[256], begins[16], goes_on[32], ends[32];

    snprintf(words, sizeof words, STATE_ALL "ddp=%s 0.%d:kill=5", ddp, rank);
    snprintf(begins, sizeof begins, "0.%s: begins at 0", ranks);
    snprintf(goes_on, sizeof goes_on, "1.%s: replaced 4\n", ranks);
    snprintf(ends, sizeof ends, "1.%s: ends at 9\n", ranks);
    RECOVERS(ranks, words, begins, goes_on, ends);
}

static void each_rank_may_be_lost(void **state)
{
    static const char *const ranks[] = {"1", "2", "3", "5"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int rank = 0; rank < atoi(ranks[i]); rank += 1 + (rank > 0)) {
            lose_one(ranks[i], rank % 2 == 0 ? "p" : "s", rank);
            lose_one(ranks[i], rank % 2 == 0 ? "s" : "p", rank);
        }
    }
}

static void all_ranks_may_be_lost_again_and_again(void **state)
{
    (void)state;
    RECOVERS("4", STATE_ALL "ddp=s 0.*:kill=3 1.*:met=5 2.*:save=7 3.*:kill=8 4.*:met=8",
             "1.4: replaced 2\n", "2.4: replaced 5\n", "3.4: replaced 6\n", "4.4: replaced 7\n",
             "5.4: replaced 8\n", "5.4: ends at 9\n");
}

/* Of the ranks, one has kept step 5, and another one may not have. */
static void a_step_that_not_all_have_kept_is_done_again(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        char words[256];

        snprintf(words, sizeof words, "every=1 steps=9 " ARRAYS_ALL "ddp=s 0.%d:begun=5", rank);
        RECOVERS_AS(&job, "3", words, "1.3: replaced ", "1.3: ends at 9\n");
        if (strstr(job.out, "1.3: replaced 5\n") == NULL &&
            strstr(job.out, "1.3: replaced 4\n") == NULL) {
            fail_msg("it goes on from another step: %s", job.out);
        }
        launcher_end(&job);
    }
}

static void a_function_that_kills_its_rank_while_it_saves_leaves_the_step_before(void **state)
{
    (void)state;
    RECOVERS("3", STATE_ALL "0.0:save=5 1.2:save=7 2.*:save=8", "1.3: replaced 4\n",
             "2.3: replaced 6\n", "3.3: replaced 7\n", "3.3: ends at 9\n");
    RECOVERS("2", STATE_ALL "0.0:save=1", "1.2: begins at 0\n", "copies: 9\n", "1.2: ends at 9\n");
}

static void what_was_kept_twice_is_kept_again_after_a_restart(void **state)
{
    (void)state;
    RECOVERS("2", STATE_ALL "ddp=p 0.1:kill=2 1.0:kill=3 2.1:kill=4 3.*:kill=5",
             "1.2: replaced 1\n", "2.2: replaced 2\n", "3.2: replaced 3\n", "4.2: replaced 4\n",
             "4.2: ends at 9\n");
    RECOVERS("2", STATE_ALL "0.1:kill=2 1.1:kill=2 2.1:kill=2 3.0:met=1", "1.2: replaced 1\n",
             "2.2: replaced 1\n", "3.2: replaced 1\n", "4.2: replaced 1\n", "4.2: ends at 9\n");
}

/* A rank that is told to end leaves an elastic job; the others take its parts. */
static void each_rank_takes_its_new_part_when_ranks_leave(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "5", "--elastic", "1:5", "--", recovery_rank(),
           "every=3 steps=12 calls=1 ddp=s part=1 part=2 part=3 part=31 part=33 part=1000 whole=7 "
           "0.4:term=2 1.0:term=4 2.1:term=5 3.1:term=7");
    recovery_ends_well(&job, LOOPS("0.5: stopped 2\n", "1.4: replaced 2\n", "1.4: stopped 4\n",
                                   "2.3: replaced 4\n", "2.3: stopped 5\n", "3.2: replaced 5\n",
                                   "3.2: stopped 7\n", "4.1: replaced 7\n", "4.1: ends at 12\n"));
    launcher_end(&job);
}

/* One rank reads what all have kept. */
static void all_ranks_but_one_may_leave_at_once(void **state)
{
    char words[512] = "every=1 steps=9 calls=9 whole=300 part=1000 ";
    struct launched job = {0};

    (void)state;
    for (int rank = 1; rank < 12; rank++) {
        snprintf(words + strlen(words), sizeof words - strlen(words), "0.%d:term=5 ", rank);
    }
    LAUNCH(&job, "--nproc", "12", "--elastic", "1:12", "--", recovery_rank(), words);
    recovery_ends_well(&job, LOOPS("0.12: stopped 5\n", "1.1: replaced 5\n", "1.1: ends at 9\n"));
    launcher_end(&job);
}

static void models_may_have_the_same_names(void **state)
{
    (void)state;
    RECOVERS("3", STATE_ALL "ddp=pp 0.1:kill=5", "1.3: replaced 4\n", "1.3: ends at 9\n");
    RECOVERS("2", STATE_ALL "ddp=ss 0.0:kill=6", "1.2: replaced 5\n", "1.2: ends at 9\n");
}

static void a_loop_may_have_one_array_or_none(void **state)
{
    (void)state;
    RECOVERS("2", "every=1 steps=9 0.1:kill=5", "1.2: replaced 4\n", "1.2: ends at 9\n");
    RECOVERS("3", "every=1 steps=9 calls=1 0.1:kill=5", "1.3: replaced 4\n", "1.3: ends at 9\n");
    RECOVERS("4", "every=1 steps=9 whole=1 0.1:kill=5", "1.4: replaced 4\n", "1.4: ends at 9\n");
    RECOVERS("3", "every=1 steps=9 ddp=s 0.1:kill=5", "1.3: replaced 4\n", "1.3: ends at 9\n");
}

/* Only the last rank has something, or each rank where it likes. */
static void parts_may_be_of_any_size(void **state)
{
    (void)state;
    RECOVERS("3",
             "every=1 steps=6 *.0:range=50:0:0 *.1:range=50:50:0 *.2:range=50:0:50 "
             "*.0:range=70:69:1 *.1:range=70:0:1 *.2:range=70:1:68 "
             "0.0:range=33:0:0 0.1:range=33:0:33 0.2:range=33:33:0 "
             "1.0:range=33:2:31 1.1:range=33:1:1 1.2:range=33:0:1 0.1:kill=4",
             "1.3: replaced 3\n", "1.3: ends at 6\n");
}

static void all_states_that_have_come_to_an_end_stay(void **state)
{
    (void)state;
    RECOVERS("2", STATE_ALL "0.1:kill=9 1.0:met=8", "1.2: replaced 8\n", "2.2: replaced 8\n",
             "2.2: ends at 9\n");
    RECOVERS("2", STATE_ALL "ddp=p 0.1:dies=9", "0.2: ends at 9\n", "1.2: replaced 9\n",
             "copies: 0\n", "1.2: ends at 9\n");
    recovery_runs(NULL, "2",
                  LOOPS("name=a " STATE_ALL, "name=b every=100 steps=5 whole=100 0.1:kill=3"),
                  LOOPS("a 0.2: ends at 9\n", "b 0.2: begins at 0\n", "a 1.2: begins at 0\n",
                        "a 1.2: replaced 9\n", "a 1.2: ends at 9\n", "b 1.2: begins at 0\n",
                        "b 1.2: ends at 5\n"));
}

/* The larger state of the other loop takes the place of the first. */
static void of_several_loops_the_one_that_kept_last_goes_on(void **state)
{
    (void)state;
    recovery_runs(NULL, "2",
                  LOOPS("name=a checkpoint=9 " STATE_ALL,
                        "name=b every=1 steps=8 calls=7 whole=200000 ddp=s 0.1:kill=5",
                        "name=c " STATE_ALL "1.0:kill=6"),
                  LOOPS("a 0.2: ends at 9\n", "b 0.2: begins at 0\n", "a 1.2: begins at 9\n",
                        "a 1.2: ends at 9\n", "b 1.2: replaced 4\n", "b 1.2: ends at 8\n",
                        "c 1.2: begins at 0\n", "a 2.2: ends at 9\n", "b 2.2: begins at 0\n",
                        "b 2.2: ends at 8\n", "c 2.2: begins at 0\n", "c 2.2: ends at 9\n"));
}

/* They share the memory, in which each has kept something. */
static void loops_that_take_turns_keep_what_is_whole(void **state)
{
    (void)state;
    recovery_runs(NULL, "2",
                  LOOPS("together", "name=a " STATE_ALL,
                        "name=b every=1 steps=100 whole=300000 calls=3 0.1:kill=6"),
                  LOOPS("a 1.2: replaced 6\n", "a 1.2: ends at 9\n"));
    recovery_runs(NULL, "2",
                  LOOPS("together", "name=a " STATE_ALL,
                        "name=b every=1 steps=100 whole=300000 calls=3 0.0:save=6"),
                  LOOPS("a 1.2: replaced 6\n", "a 1.2: ends at 9\n"));
    recovery_runs(NULL, "2",
                  LOOPS("together", "name=a every=1 steps=9 whole=300000 0.1:kill=6 1.0:kill=8",
                        "name=b every=1 steps=100 whole=9"),
                  LOOPS("b 1.2: replaced 5\n", "b 2.2: replaced 7\n", "a 2.2: ends at 9\n"));
    recovery_runs(NULL, "2",
                  LOOPS("together", "name=a " STATE_ALL "0.1:kill=6",
                        "name=b every=1 steps=100 whole=300000 calls=3"),
                  LOOPS("a 1.2: ends at 9\n"));
    recovery_runs(NULL, "3",
                  LOOPS("together", "name=a every=4 steps=9 whole=300000 part=7 0.1:kill=6",
                        "name=b every=3 steps=100 whole=3 part=9", "name=c every=5 whole=90000"),
                  LOOPS("a 1.3: ends at 9\n"));
}

static void the_newer_of_checkpoint_and_memory_counts(void **state)
{
    struct launched job = {0};

    (void)state;
    RECOVERS("2", STATE_ALL "checkpoint=4 0.1:kill=7 1.0:kill=9", "1.2: begins at 4\n",
             "1.2: replaced 6\n", "2.2: begins at 8\n", "2.2: replaced 8\n", "2.2: ends at 9\n");
    RECOVERS_AS(&job, "2", "every=3 steps=9 checkpoint=4 ddp=s " ARRAYS_ALL "0.1:kill=5",
                "1.2: begins at 4\n", "copies: 2\n", "1.2: ends at 9\n");
    launcher_need_absence(job.out, "replaced", "stdout");
    launcher_end(&job);
    /* only rank 0's checkpoint counts */
    RECOVERS("2", "every=3 steps=9 0.*:checkpoint=4 *.1:folder=nowhere " ARRAYS_ALL "0.1:kill=7",
             "1.2: begins at 4\n", "1.2: replaced 6\n", "1.2: ends at 9\n");
}

/* A loop that goes back to an older state by itself: what it has left behind does not come back. */
static void a_loop_that_goes_back_does_not_go_on_from_later_steps(void **state)
{
    (void)state;
    RECOVERS("2", STATE_ALL "0.*:back=6 0.*:gone-back=5", "1.2: replaced 4\n", "1.2: ends at 9\n");
    RECOVERS("2", "every=2 steps=9 whole=7 0.*:back=7 0.*:gone-back=6", "1.2: begins at 0\n",
             "copies: 4\n", "1.2: ends at 9\n");
    RECOVERS("2", STATE_ALL "0.*:kill=7 1.*:back=7 1.*:gone-back=6", "1.2: replaced 6\n",
             "2.2: replaced 5\n", "2.2: ends at 9\n");
}

static void only_the_steps_that_were_asked_for_are_kept(void **state)
{
    (void)state;
    RECOVERS("2", "every=3 steps=10 whole=5 0.1:kill=9", "1.2: replaced 6\n", "copies: 1\n");
    RECOVERS("2", "every=100 steps=10 whole=5 0.1:kill=9", "1.2: begins at 0\n", "copies: 0\n",
             "1.2: ends at 10\n");
    /* those of rank 0 count */
    RECOVERS("2", "*.0:every=2 *.1:every=5 steps=10 whole=5 0.1:kill=8", "1.2: replaced 6\n",
             "copies: 2\n");
}

/* The rank compares its times. */
static void copies_take_a_limited_part_of_the_time(void **state)
{
    struct launched job = {0};

    (void)state;
    RECOVERS_AS(&job, "2", "steps=300 calls=9 slow_us=100 whole=5", "0.2: ends at 300\n");
    launcher_need_absence(job.out, "copies: 0\n", "stdout");
    launcher_end(&job);
}

static void a_job_that_is_told_to_stop_keeps_its_state(void **state)
{
    (void)state;
    struct launched job = {0};

    LAUNCH(&job, "--nproc", "3", "--elastic", "2:3", "--", recovery_rank(),
           "every=100 steps=9 calls=9 " ARRAYS_ALL "0.2:term=5");
    recovery_ends_well(&job, LOOPS("0.3: stopped 5\n", "1.2: replaced 5\n", "1.2: ends at 9\n"));
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_may_be_lost),
        cmocka_unit_test(all_ranks_may_be_lost_again_and_again),
        cmocka_unit_test(a_step_that_not_all_have_kept_is_done_again),
        cmocka_unit_test(a_function_that_kills_its_rank_while_it_saves_leaves_the_step_before),
        cmocka_unit_test(what_was_kept_twice_is_kept_again_after_a_restart),
        cmocka_unit_test(each_rank_takes_its_new_part_when_ranks_leave),
        cmocka_unit_test(all_ranks_but_one_may_leave_at_once),
        cmocka_unit_test(models_may_have_the_same_names),
        cmocka_unit_test(a_loop_may_have_one_array_or_none),
        cmocka_unit_test(parts_may_be_of_any_size),
        cmocka_unit_test(all_states_that_have_come_to_an_end_stay),
        cmocka_unit_test(of_several_loops_the_one_that_kept_last_goes_on),
        cmocka_unit_test(loops_that_take_turns_keep_what_is_whole),
        cmocka_unit_test(the_newer_of_checkpoint_and_memory_counts),
        cmocka_unit_test(a_loop_that_goes_back_does_not_go_on_from_later_steps),
        cmocka_unit_test(only_the_steps_that_were_asked_for_are_kept),
        cmocka_unit_test(copies_take_a_limited_part_of_the_time),
        cmocka_unit_test(a_job_that_is_told_to_stop_keeps_its_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
