/* test_recovery_processes.c - which processes of a training job stay when others are lost, leave or
 * come: all others, and the job ends as one that nobody disturbed, byte for byte. */
#include "support/ctl_run.h"
#include "support/recovery.h"

/* Write the processes of ranks 0 to @p count - 1, as they are now. */
static void find_all(const char *run_dir, int count, pid_t out[MOST_RANKS])
{
    for (int rank = 0; rank < count; rank++) {
        out[rank] = find_rank(run_dir, rank);
        assert_true(out[rank] > 0);
    }
}

/* How many of @p before are in @p now. */
static int stayed(const pid_t *before, int before_count, const pid_t *now, int now_count)
{
    int found = 0;

    for (int i = 0; i < before_count; i++) {
        for (int k = 0; k < now_count; k++) {
            found += before[i] == now[k];
        }
    }
    return found;
}

/* The job has gone on from memory @p count times, now with @p ranks ranks, of which @p staying are
 * processes that it had before. */
static void assert_staying(struct launched *job, const char *run_dir, int count, pid_t *processes,
                           int before, int ranks, int staying)
{
    pid_t now[MOST_RANKS];
    int found;

    (void)recovery_step(job, count);
    recovery_await_steps(job, run_dir);
    find_all(run_dir, ranks, now);
    found = stayed(processes, before, now, ranks);
    if (found != staying) {
        fail_msg("after change %d, %d processes of %d stayed: %s", count, found, before,
                 launcher_read(job->dir, "err"));
    }
    memcpy(processes, now, sizeof now);
}

static const struct {
    const char *name, *conf;
    int ranks;
    const char *ranks_only,
        *all; /* the run that nobody disturbs, on one rank, has only the second */
} ways[] = {
    {"two", "mlp", 2, "ddp.shard_optimizer=false", NULL},
    {"three", "mlp", 3, "ddp.shard_optimizer=true", "optimizer.type=adamw"},
    {"norms", "norms", 3, "ddp.shard_optimizer=true", NULL},
    {"stages", "gpt2", 4, "parallel.pipeline=2", NULL},
    {"two-networks", "dcgan", 2, "ddp.shard_optimizer=true", "train.log_steps=5"},
};

static void all_but_the_killed_ranks_stay(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        const char *name = ways[w].name;
        const char *words[] = {"--nproc",
                               argument("%d", ways[w].ranks),
                               "--max-restarts",
                               "1000",
                               RECOVERY_RUN(ways[w].conf),
                               "train.recovery=memory",
                               run_dir_argument(name),
                               ways[w].ranks_only,
                               ways[w].all,
                               NULL};
        const char *alone[] = {RECOVERY_RUN(ways[w].conf), "train.recovery=memory", ways[w].all,
                               NULL};
        struct launched job = {0};
        pid_t processes[MOST_RANKS];
        int count = 0;

        launcher_start(&job, words);
        recovery_await_steps(&job, name);
        find_all(name, ways[w].ranks, processes);
        for (int rank = 0; rank < ways[w].ranks; rank++) {
            assert_true(recovery_kill(name, rank));
            assert_staying(&job, name, ++count, processes, ways[w].ranks, ways[w].ranks,
                           ways[w].ranks - 1);
        }
        recovery_compare(&job, name, alone); /* one rank is no pipeline, and ends the same */
        launcher_end(&job);
    }
}

static void signal_rank(const char *run_dir, int rank, int number)
{
    pid_t pid = find_rank(run_dir, rank);

    assert_true(pid > 0);
    assert_int_equal(kill(pid, number), 0);
}

/* @p verb: "add" or "remove". */
static void change_by_one(const char *run_dir, const char *verb)
{
    struct launched ctl = {0};

    CTL(&ctl, in_work("%s", run_dir), verb, "1");
    assert_int_equal(ctl.exit_status, 0);
    launcher_end(&ctl);
}

static void those_that_do_not_leave_stay(void **state)
{
    struct launched job = {0};
    pid_t processes[MOST_RANKS], before[MOST_RANKS];

    (void)state;
    JOB_START(&job, "--elastic", "1:4", "--nproc", "3", RECOVERY_RUN("mlp"),
              "train.recovery=memory", run_dir_argument("members"));
    recovery_await_steps(&job, "members");
    find_all("members", 3, processes);
    signal_rank("members", 0, SIGTERM);
    assert_staying(&job, "members", 1, processes, 3, 2, 2);
    change_by_one("members", "add");
    assert_staying(&job, "members", 2, processes, 2, 3, 2);
    assert_true(recovery_kill("members", 1));
    assert_staying(&job, "members", 3, processes, 3, 3, 2);
    signal_rank("members", 1, SIGTERM);
    assert_staying(&job, "members", 4, processes, 3, 2, 2);
    signal_rank("members", 1, SIGTERM);
    assert_staying(&job, "members", 5, processes, 2, 1, 1);
    change_by_one("members", "add");
    assert_staying(&job, "members", 6, processes, 1, 2, 1);
    memcpy(before, processes, sizeof before);
    change_by_one("members", "remove");
    assert_staying(&job, "members", 7, processes, 2, 1, 1);
    assert_true(launcher_is_gone(before[before[0] == processes[0]])); /* it has no place */
    recovery_compare(&job, "members",
                     (const char *const[]){RECOVERY_RUN("mlp"), "train.recovery=memory", NULL});
    /* by the rank 0 that leaves, and at the end; not at each change */
    assert_int_equal(launcher_count(job.out, "to continue"), 2);
    launcher_end(&job);
}

/* The launcher lets it go on, for it to end; then it has lost its ranks like the others. Nothing of
 * its own steps is used. */
static void a_rank_that_stood_still_goes_on_with_the_others(void **state)
{
    struct launched job = {0};
    pid_t processes[MOST_RANKS];

    (void)state;
    JOB_START(&job, "--nproc", "3", "--max-restarts", "9", "--timeout", "40", RECOVERY_RUN("mlp"),
              "train.recovery=memory", run_dir_argument("frozen"));
    recovery_await_steps(&job, "frozen");
    find_all("frozen", 3, processes);
    assert_int_equal(kill(processes[1], SIGSTOP), 0);
    assert_staying(&job, "frozen", 1, processes, 3, 3, 3);
    recovery_compare(&job, "frozen",
                     (const char *const[]){RECOVERY_RUN("mlp"), "train.recovery=memory", NULL});
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_but_the_killed_ranks_stay),
        cmocka_unit_test(those_that_do_not_leave_stay),
        cmocka_unit_test(a_rank_that_stood_still_goes_on_with_the_others),
    };

    return cmocka_run_group_tests(tests, make_same_bits_work, remove_work);
}
