/* test_recovery_members.c - jobs whose ranks or machines come, go and are lost: the others go on
 * from the last step that all have kept in memory, and end as a job that nobody disturbed, byte for
 * byte. */
#include "support/fleet.h"
#include "support/recovery.h"

#define RUN RECOVERY_RUN("mlp"), "train.recovery=memory"

static void signal_rank(const char *run_dir, int rank, int number)
{
    pid_t pid = find_rank(run_dir, rank);

    assert_true(pid > 0);
    assert_int_equal(kill(pid, number), 0);
}

static void ctl(const char *run_dir, const char *verb, const char *what)
{
    struct launched ctl = {0};

    launcher_start_program(&ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){in_work("%s", run_dir), verb, what, NULL});
    launcher_wait(&ctl);
    if (ctl.exit_status != 0) {
        fail_msg("exit status %d: %s%s", ctl.exit_status, ctl.out, ctl.err);
    }
    launcher_end(&ctl);
}

static void kill_rank_0(const char *run_dir)
{
    assert_true(recovery_kill(run_dir, 0));
}

/* The ranks of the newest generation. */
static int ranks_of(const char *run_dir)
{
    char *text = launcher_read(in_work("%s", run_dir), "metrics.jsonl");
    int ranks = 0;

    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "\"world_size\":")) != NULL; at++) {
        assert_int_equal(sscanf(at, "\"world_size\":%d", &ranks), 1);
    }
    free(text);
    return ranks;
}

/* Of three ranks, one is killed while another leaves, and nobody can save. */
static void fewer_ranks_go_on_from_what_more_have_kept(void **state)
{
    static const char *const shards[] = {"ddp.shard_optimizer=true", "ddp.shard_optimizer=false"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *name = argument("fewer-%d", i);
        struct launched job = {0};
        unsigned long long last;

        JOB_START(&job, "--elastic", "1:3", "--nproc", "3", RUN, shards[i], run_dir_argument(name));
        recovery_await_steps(&job, name);
        last = recovery_last_metric(name);
        signal_rank(name, 0, SIGSTOP);
        signal_rank(name, 1, SIGTERM);
        signal_rank(name, 2, SIGKILL);
        signal_rank(name, 0, SIGCONT);
        assert_true(recovery_step(&job, 1) + 1 >= last);
        recovery_await_steps(&job, name);
        assert_int_equal(ranks_of(name), 2);
        (void)recovery_lose(&job, name, kill_rank_0); /* it has parts of three ranks, and of two */
        recovery_await_steps(&job, name);
        RECOVERY_COMPARE(&job, name, RUN);
        assert_no_err(&job, "/checkpoints/step-");
        assert_no_err(&job, "going back");
        launcher_end(&job);
    }
}

/* They save, but what is in memory is as new, and is at hand. */
static void ranks_that_leave_and_come_find_the_last_step_in_memory(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--elastic", "1:4", "--nproc", "2", RUN, run_dir_argument("changes"));
    recovery_await_steps(&job, "changes");
    ctl("changes", "add", "2");
    recovery_await_steps(&job, "changes");
    assert_int_equal(ranks_of("changes"), 4);
    (void)recovery_lose(&job, "changes", kill_rank_0);
    recovery_await_steps(&job, "changes");
    ctl("changes", "remove", "1");
    recovery_await_steps(&job, "changes");
    assert_int_equal(ranks_of("changes"), 3);
    signal_rank("changes", 2, SIGTERM);
    (void)recovery_step(&job, 4);
    recovery_await_steps(&job, "changes");
    assert_int_equal(ranks_of("changes"), 2);
    (void)recovery_lose(&job, "changes", kill_rank_0);
    recovery_await_steps(&job, "changes");
    RECOVERY_COMPARE(&job, "changes", RUN);
    assert_int_equal(launcher_count(job.err, "continuing from memory: step "), 5);
    assert_no_err(&job, "/checkpoints/step-");
    assert_no_err(&job, "going back");
    launcher_end(&job);
}

/* A pipeline of two stages, which leaves and comes as a whole: its ranks may then have other
 * layers. */
static void whole_pipelines_leave_and_come(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--elastic", "2:4", "--nproc", "4", RECOVERY_RUN("gpt2"),
              "train.recovery=memory", "parallel.pipeline=2", run_dir_argument("pipelines"));
    recovery_await_steps(&job, "pipelines");
    signal_rank("pipelines", 3, SIGTERM);
    (void)recovery_step(&job, 1);
    recovery_await_steps(&job, "pipelines");
    assert_int_equal(ranks_of("pipelines"), 2);
    (void)recovery_lose(&job, "pipelines", kill_rank_0);
    recovery_await_steps(&job, "pipelines");
    ctl("pipelines", "add", "2");
    (void)recovery_step(&job, 3);
    recovery_await_steps(&job, "pipelines");
    assert_int_equal(ranks_of("pipelines"), 4);
    RECOVERY_COMPARE(&job, "pipelines", RECOVERY_RUN("gpt2"), "train.recovery=memory");
    assert_no_err(&job, "/checkpoints/step-");
    assert_no_err(&job, "going back");
    launcher_end(&job);
}

/* Start node @p i of a job, as a machine of its own, with @p ranks ranks, a digit. */
static void start_node(struct fleet *fleet, int i, const char *nnodes, char ranks,
                       const char *run_dir, const char *more)
{
    support_setenv_number("CDDP_HOST_ID", 100 + i);
    START(fleet, i, nnodes, argument("%d", i), "--nproc", argument("%c", ranks), RUN, more,
          run_dir_argument(run_dir));
    unsetenv("CDDP_HOST_ID");
}

static void start_nodes(struct fleet *fleet, const char *nnodes, const char *ranks,
                        const char *run_dir, const char *more)
{
    fleet_begin_tcp(fleet);
    if ((size_t)(nnodes[2] - '0') == strlen(ranks)) {
        fleet_await_all();
    }
    for (int i = 0; ranks[i] != '\0'; i++) {
        start_node(fleet, i, nnodes, ranks[i], run_dir, more);
    }
}

/* Kill node @p i at once: its ranks, and both processes of cddp-run. */
static void kill_node(struct fleet *fleet, int i, const char *run_dir, int first_rank, int ranks)
{
    pid_t launcher = fleet->nodes[i].pid;
    pid_t supervisor = launcher_child(launcher);
    pid_t pids[MOST_RANKS];

    for (int r = 0; r < ranks; r++) {
        pids[r] = find_rank(run_dir, first_rank + r);
        assert_true(pids[r] > 0);
    }
    kill(launcher, SIGKILL);
    kill(supervisor, SIGKILL);
    for (int r = 0; r < ranks; r++) {
        kill(pids[r], SIGKILL);
    }
    for (int r = 0; r < ranks; r++) {
        assert_true(launcher_is_gone(pids[r]));
    }
}

/* Node @p lost of the nodes is killed, of which each has as many ranks as the digit says. The job
 * goes on from memory without it. */
static void lose_node(const char *run_dir, const char *ranks, int lost, const char *more)
{
    const char *nnodes = argument("1:%zu", strlen(ranks));
    int head = lost == 0 ? 1 : 0; /* whose rank 0 says what the job does, afterwards */
    int first_rank = 0;
    struct fleet fleet;
    struct launched *job;
    unsigned long long last;

    for (int i = 0; i < lost; i++) {
        first_rank += ranks[i] - '0';
    }
    start_nodes(&fleet, nnodes, ranks, run_dir, more);
    job = &fleet.nodes[head];
    recovery_await_steps(job, run_dir);
    last = recovery_last_metric(run_dir);
    kill_node(&fleet, lost, run_dir, first_rank, ranks[lost] - '0');
    assert_true(recovery_step(job, 1) + 1 >= last);
    recovery_await_steps(job, run_dir);
    RECOVERY_COMPARE(job, run_dir, RUN);
    assert_no_err(job, "/checkpoints/step-");
    assert_no_err(job, "going back");
    fleet_end(&fleet);
}

static void a_machine_that_is_lost_costs_no_more_than_a_rank(void **state)
{
    (void)state;
    lose_node("lost-11", "11", 1, "ddp.shard_optimizer=true");
    lose_node("lost-22", "22", 1, "ddp.shard_optimizer=false");
    lose_node("lost-111", "111", 2, "ddp.shard_optimizer=true");
    lose_node("lost-121", "121", 1, "ddp.shard_optimizer=true");
}

/* Of three ranks of two machines, both of one machine have each other's copies, or none. */
static void what_is_lost_with_its_machine_costs_the_steps_since_the_checkpoint(void **state)
{
    struct fleet fleet;
    struct launched *job = &fleet.nodes[0];

    (void)state;
    start_nodes(&fleet, "1:2", "12", "parts", "ddp.shard_optimizer=true");
    recovery_await_steps(job, "parts");
    ctl("parts", "checkpoint", NULL);
    recovery_await_steps(job, "parts"); /* no checkpoint is as new as what is lost */
    kill_node(&fleet, 1, "parts", 1, 2);
    launcher_await_text(job->dir, "err",
                        "going back to the newest checkpoint: a part of the last state was lost\n");
    recovery_await_steps(job, "parts");
    RECOVERY_COMPARE(job, "parts", RUN);
    assert_int_equal(launcher_count(job->err, "/checkpoints/step-"), 1);
    assert_no_err(job, "from memory");
    fleet_end(&fleet);
}

static void kill_rank_1(const char *run_dir)
{
    assert_true(recovery_kill(run_dir, 1));
}

/* A machine comes, ranks of both are killed, and at last the first machine is lost. */
static void a_machine_that_comes_soon_has_all_that_the_job_needs(void **state)
{
    struct fleet fleet;
    struct launched *first = &fleet.nodes[0];
    struct launched *second = &fleet.nodes[1];
    unsigned long long last;

    (void)state;
    start_nodes(&fleet, "1:2", "2", "comes", "ddp.shard_optimizer=true");
    recovery_await_steps(first, "comes");
    start_node(&fleet, 1, "1:2", '1', "comes", "ddp.shard_optimizer=true");
    (void)recovery_step(first, 1);
    recovery_await_steps(first, "comes");
    assert_int_equal(ranks_of("comes"), 3);
    (void)recovery_lose(first, "comes", kill_rank_0);
    recovery_await_steps(first, "comes");
    (void)recovery_lose(first, "comes", kill_rank_1);
    recovery_await_steps(first, "comes");
    last = recovery_last_metric("comes");
    kill_node(&fleet, 1, "comes", 2, 1);
    assert_true(recovery_step(first, 4) + 1 >= last);
    recovery_await_steps(first, "comes");
    RECOVERY_COMPARE(first, "comes", RUN);
    assert_no_err(first, "going back");
    assert_int_equal(recovery_count(second), 0);
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_ranks_go_on_from_what_more_have_kept),
        cmocka_unit_test(ranks_that_leave_and_come_find_the_last_step_in_memory),
        cmocka_unit_test(whole_pipelines_leave_and_come),
        cmocka_unit_test(a_machine_that_is_lost_costs_no_more_than_a_rank),
        cmocka_unit_test(what_is_lost_with_its_machine_costs_the_steps_since_the_checkpoint),
        cmocka_unit_test(a_machine_that_comes_soon_has_all_that_the_job_needs),
    };

    return cmocka_run_group_tests(tests, make_same_bits_work, remove_work);
}
