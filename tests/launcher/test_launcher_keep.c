/* test_launcher_keep.c - memory that cddp-run holds for its ranks: what a rank writes there is what
 * the rank in its place finds in the next generation. */
#include "support/fleet.h"

/* The rank's own memory is $own. */
#define OWN "own=/proc/$$/fd/$(echo $CDDP_KEEP_FDS | cut -d, -f$((LOCAL_RANK + 1))); "

/* A rank of the first generation keeps its name, and waits until all have done so. */
#define KEEPS                                                                                      \
    "at=${SHARED-.}; " OWN "if [ $CDDP_GENERATION = 0 ]; then "                                    \
    "echo \"$RANK begins with $(cat $own | wc -c) bytes\"; "                                       \
    "echo \"state of $GROUP_RANK.$LOCAL_RANK\" >$own; >$at/kept$RANK; "                            \
    "for r in $(seq 0 $((WORLD_SIZE - 1))); do "                                                   \
    "while [ ! -e $at/kept$r ]; do sleep 0.01; done; done; "

/* Its last rank is killed. Ranks of later ones say what they find. */
#define KEEPS_UNTIL_KILLED                                                                         \
    KEEPS "[ $RANK != $((WORLD_SIZE - 1)) ] || kill -9 $$; exec sleep 1000; fi; "                  \
          "echo \"$RANK of $WORLD_SIZE finds $(cat $own)\""

static void assert_finds(const struct launched *job, int rank, int world_size, int node, int local)
{
    char text[80];

    snprintf(text, sizeof text, "%d of %d finds state of %d.%d\n", rank, world_size, node, local);
    assert_out(job, text);
    snprintf(text, sizeof text, "%d begins with 0 bytes\n", rank);
    assert_out(job, text);
}

static void assert_ends_well(const struct launched *job)
{
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
}

static void a_restarted_rank_finds_what_the_one_before_has_kept(void **state)
{
    static const char *const sizes[] = {"1", "3"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};
        int ranks = atoi(sizes[i]);

        LAUNCH(&job, "--nproc", sizes[i], "--max-restarts", "1", "--", "sh", "-c",
               KEEPS_UNTIL_KILLED);
        assert_ends_well(&job);
        assert_failed_rank(&job, ranks - 1);
        for (int rank = 0; rank < ranks; rank++) {
            assert_finds(&job, rank, ranks, 0, rank);
        }
        launcher_end(&job);
    }
}

/* Fewer ranks go on, and have what all have kept. */
static void memory_of_ranks_that_are_gone_stays(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--elastic", "1:4", "--max-restarts", "0", "--nproc", "4", "--", "sh", "-c",
           KEEPS "[ $RANK != 1 ] || printf 'l\\001\\000\\000' >/proc/$$/fd/$CDDP_REPORT_FD; "
                 ">told$RANK; while [ ! -e told1 ]; do sleep 0.01; done; exit 3; fi; "
                 "echo \"$RANK of $WORLD_SIZE finds $(cat $own)\"; "
                 "for fd in $(echo $CDDP_KEEP_FDS | tr , ' '); do cat /proc/$$/fd/$fd; done "
                 "| tr '\\n' ';'; echo");
    assert_ends_well(&job);
    for (int rank = 0; rank < 3; rank++) {
        assert_finds(&job, rank, 3, 0, rank);
    }
    assert_int_equal(
        launcher_count(job.out, "state of 0.0;state of 0.1;state of 0.2;state of 0.3;"), 3);
    launcher_end(&job);
}

static void each_node_holds_what_its_own_ranks_keep(void **state)
{
    static const char *const numbers[] = {"0", "1"};
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    for (int i = 0; i < 2; i++) {
        START(&fleet, i, "2", numbers[i], "--nproc", "2", "--max-restarts", "1", "--", "sh", "-c",
              KEEPS_UNTIL_KILLED);
    }
    fleet_wait(&fleet, 2);
    for (int rank = 0; rank < 4; rank++) {
        assert_ends_well(&fleet.nodes[rank / 2]);
        assert_finds(&fleet.nodes[rank / 2], rank, 4, rank / 2, rank % 2);
    }
    fleet_end(&fleet);
}

static void so_does_each_host_of_a_list(void **state)
{
    struct launched job = {0};

    (void)state;
    job.dir = support_mkdtemp();
    launcher_write(job.dir, "reach", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
    LAUNCH(&job, "--hosts", "a:2,b:1", "--ssh", "./reach", "--max-restarts", "1", "--", "sh", "-c",
           KEEPS_UNTIL_KILLED);
    assert_ends_well(&job);
    for (int rank = 0; rank < 3; rank++) {
        assert_finds(&job, rank, 3, rank / 2, rank % 2);
    }
    launcher_end(&job);
}

/* Also if they are the ranks of a cddp-run that is itself a rank, or a host's. */
static void ranks_that_are_not_restarted_have_no_such_memory(void **state)
{
    static const char *const rows[][6] = {
        {"--nproc", "2"},
        {"--hosts", "localhost:2"},
        {"--max-restarts", "1", "--dry-run", "--nproc", "2"},
    };
    static const char says[] = "echo keeps ${CDDP_KEEP_FDS-nothing}";

    (void)state;
    setenv("CDDP_KEEP_FDS", "0,1", 1);
    for (int i = 0; i < 3; i++) {
        struct launched job = {0};
        const char *words[12] = {NULL};
        int used = 0;

        for (; rows[i][used] != NULL; used++) {
            words[used] = rows[i][used];
        }
        words[used] = "--";
        words[used + 1] = "sh";
        words[used + 2] = "-c";
        words[used + 3] = says;
        launcher_start(&job, words);
        launcher_wait(&job);
        assert_ends_well(&job);
        assert_int_equal(launcher_count(job.out, "keeps nothing\n"), i < 2 ? 2 : 0);
        launcher_need_absence(job.out, "CDDP_KEEP_FDS=", "stdout");
        launcher_end(&job);
    }
    unsetenv("CDDP_KEEP_FDS");
}

/* Its ranks have memory of their own, or none. */
static void a_job_within_a_rank_does_not_touch_that_ranks_memory(void **state)
{
    struct launched job = {0};
    char *program = strdup(launcher_path("launcher/cddp-run"));

    (void)state;
    LAUNCH(&job, "--nproc", "1", "--max-restarts", "1", "--", "sh", "-c",
           OWN "echo outer >$own; $0 --nproc 1 -- sh -c 'echo keeps ${CDDP_KEEP_FDS-nothing}'; "
               "$0 --nproc 1 --max-restarts 1 -- sh -c '" OWN "[ ! -s $own ] || echo stale; "
               "echo inner >$own; echo finds $(cat $own)'; echo has $(cat $own)",
           program);
    assert_ends_well(&job);
    assert_string_equal(job.out, "keeps nothing\nfinds inner\nhas outer\n");
    launcher_end(&job);
    free(program);
}

static void a_job_for_which_there_is_no_memory_runs_and_says_so_once(void **state)
{
    struct launched job = {0};
    char *program = strdup(launcher_path("launcher/cddp-run"));
    char *rank = strdup(launcher_path("tests/launcher_rank"));

    (void)state;
    launcher_start_program(
        &job, rank,
        (const char *const[]){
            "no-memfd", program, "--nproc", "2", "--max-restarts", "1", "--", "sh", "-c",
            "echo keeps ${CDDP_KEEP_FDS-nothing}; [ $CDDP_GENERATION = 1 ]", NULL});
    launcher_wait(&job);
    free(program);
    free(rank);
    if (job.exit_status == 77) {
        launcher_end(&job);
        print_message("skipped: no program may filter its calls here\n");
        skip();
    }
    assert_ends_well(&job);
    assert_int_equal(launcher_count(job.err, "cddp-run: warning: no memory outlives the ranks here,"
                                             " so a restart goes on from a checkpoint: "
                                             "memfd_create: "),
                     1);
    assert_int_equal(launcher_count(job.err, "no memory outlives"), 1);
    assert_out(&job, "keeps nothing\n");
    assert_int_equal(launcher_count(job.out, "keeps nothing\n"), launcher_count(job.out, "keeps "));
    launcher_end(&job);
}

static void a_job_that_says_that_it_keeps_its_progress_is_not_given_up(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "1", "--max-restarts", "100", "--", "sh", "-c",
           "printf kwk >/proc/$$/fd/$CDDP_REPORT_FD; [ $CDDP_GENERATION = 7 ]");
    assert_ends_well(&job);
    assert_no_err(&job, "giving up");
    launcher_end(&job);
}

/* Ranks say it while they train, so it does not mean that they are still saving. */
static void a_rank_that_keeps_its_progress_gets_no_more_time(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--grace", "0.5", "--", "sh", "-c",
           "trap '' TERM; if [ $RANK = 0 ]; then while [ ! -e up ]; do sleep 0.01; done; exit 5; "
           "fi; while :; do printf k >/proc/$$/fd/$CDDP_REPORT_FD; >up; sleep 0.05; done");
    assert_int_equal(job.exit_status, 5);
    assert_err(&job, ") did not end within 0.5 s: killing it\n");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restarted_rank_finds_what_the_one_before_has_kept),
        cmocka_unit_test(memory_of_ranks_that_are_gone_stays),
        cmocka_unit_test(each_node_holds_what_its_own_ranks_keep),
        cmocka_unit_test(so_does_each_host_of_a_list),
        cmocka_unit_test(ranks_that_are_not_restarted_have_no_such_memory),
        cmocka_unit_test(a_job_within_a_rank_does_not_touch_that_ranks_memory),
        cmocka_unit_test(a_job_for_which_there_is_no_memory_runs_and_says_so_once),
        cmocka_unit_test(a_job_that_says_that_it_keeps_its_progress_is_not_given_up),
        cmocka_unit_test(a_rank_that_keeps_its_progress_gets_no_more_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
