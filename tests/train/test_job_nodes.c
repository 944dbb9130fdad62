/* test_job_nodes.c - cddp-train in jobs whose nodes come and go: what they leave behind is an
 * undisturbed run's, and nodes that do not suit the job do no harm. */
#include "support/fleet.h"
#include "support/job.h"

#define TRAIN(fleet, i, nnodes, rank, nproc, run, micro_batch)                                     \
    START((fleet), (i), (nnodes), (rank), "--nproc", (nproc), LONG_RUN, run_dir_argument(run),     \
          micro_batch, "train.log_steps=1", "train.checkpoint_steps=50")

/* The last step in the run's metrics; 0: there is none. */
static unsigned long long last_step(const char *run)
{
    char *text = launcher_read(in_work("%s", run), "metrics.jsonl");
    const char *line = text;
    unsigned long long step = 0;

    while (line != NULL && (line = strstr(line, "\"step\":")) != NULL) {
        (void)sscanf(line++, "\"step\":%llu", &step);
    }
    free(text);
    return step;
}

/* Wait until the run has more steps than before, also than those that will be computed again. */
static void await_progress(const char *run)
{
    unsigned long long before = last_step(run);

    for (int waited_ms = 0; last_step(run) <= before; waited_ms += 20) {
        if (waited_ms > SUPPORT_TIMEOUT_MS) {
            fail_msg("no step after %llu", before);
        }
        support_sleep_ms(20);
    }
}

static void await_generation(struct fleet *fleet, const char *run, int generation, int ranks,
                             int nodes)
{
    launcher_await_text(fleet->nodes[0].dir, "err",
                        argument("generation %d: %d ranks on %d node", generation, ranks, nodes));
    await_progress(run);
}

/* Stop the job by a signal to node 0. Returns the last step. */
static int stop_all(struct fleet *fleet, const char *run)
{
    struct launched *first = &fleet->nodes[0];
    int step = 0;
    char *latest;

    kill(first->pid, SIGINT);
    launcher_wait(first);
    if (first->exit_status != 3) {
        fail_msg("exit status %d: %s", first->exit_status, first->err);
    }
    latest = launcher_read(in_work("%s/checkpoints", run), "latest");
    assert_non_null(latest);
    assert_int_equal(sscanf(latest, "step-%d", &step), 1);
    free(latest);
    return step;
}

static pid_t parent_of(pid_t pid)
{
    char *text = launcher_read(argument("/proc/%d", pid), "stat");
    int parent = 0;

    assert_non_null(text);
    assert_int_equal(sscanf(strrchr(text, ')'), ") %*c %d", &parent), 1);
    free(text);
    return parent;
}

static void nodes_that_come_and_go_leave_the_bits_of_an_undisturbed_run(void **state)
{
    static const char micro_batch[] = "train.micro_batch=10"; /* of 60: for 1 to 6 ranks */
    struct launched whole = {0};
    struct fleet fleet;
    int step;

    (void)state;
    fleet_begin_tcp(&fleet);
    launcher_settle(10); /* with both */
    TRAIN(&fleet, 0, "1:3", "0", "1", "moved", micro_batch);
    TRAIN(&fleet, 1, "1:3", "1", "2", "moved", micro_batch);
    wait_for_checkpoint(&fleet.nodes[0], "moved");
    TRAIN(&fleet, 2, "1:3", "2", "3", "moved", micro_batch);
    await_generation(&fleet, "moved", 1, 6, 3);
    kill(parent_of(find_rank("moved", 1)), SIGKILL); /* node 1 */
    await_generation(&fleet, "moved", 2, 4, 2);
    TRAIN(&fleet, 3, "1:3", "1", "1", "moved", micro_batch);
    await_generation(&fleet, "moved", 3, 5, 3);
    kill(fleet.nodes[2].pid, SIGTERM);
    await_generation(&fleet, "moved", 4, 2, 2);
    launcher_wait(&fleet.nodes[2]);
    assert_int_equal(fleet.nodes[2].exit_status, 3);
    step = stop_all(&fleet, "moved");
    fleet_end(&fleet);
    JOB_RUN_WELL(&whole, "--nproc", "1", LONG_RUN, run_dir_argument("whole"), micro_batch,
                 argument("train.max_steps=%d", step));
    launcher_end(&whole);
    assert_same_checkpoint("moved", "whole", step);
}

static void a_node_whose_ranks_are_too_many_waits_until_others_are_gone(void **state)
{
    static const char micro_batch[] = "train.micro_batch=20"; /* of 60: for 1 to 3 ranks */
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    launcher_settle(10); /* with both */
    TRAIN(&fleet, 0, "1:3", "0", "1", "full", micro_batch);
    TRAIN(&fleet, 1, "1:3", "1", "2", "full", micro_batch);
    wait_for_checkpoint(&fleet.nodes[0], "full");
    TRAIN(&fleet, 2, "1:3", "2", "2", "full", micro_batch);
    await_generation(&fleet, "full", 1, 3, 2);
    kill(fleet.nodes[1].pid, SIGTERM);
    await_generation(&fleet, "full", 2, 3, 2);
    launcher_wait(&fleet.nodes[1]);
    assert_int_equal(fleet.nodes[1].exit_status, 3);
    (void)stop_all(&fleet, "full");
    launcher_wait(&fleet.nodes[2]);
    assert_int_equal(fleet.nodes[2].exit_status, 3);
    assert_err(&fleet.nodes[0], "waits, since the job cannot use its ranks now\n");
    assert_err(&fleet.nodes[0], "train.micro_batch");
    fleet_end(&fleet);
}

static void a_late_node_with_another_configuration_is_refused(void **state)
{
    const char *const rest[] = {"--nproc",
                                "1",
                                "my.conf",
                                "train.epochs=1000000",
                                "train.eval_epochs=1000000",
                                "optimizer.schedule.type=constant",
                                run_dir_argument("refused"),
                                "train.checkpoint_steps=50",
                                NULL};
    struct fleet fleet;
    char *conf = launcher_read(in_work("%s", ""), "small.conf");
    unsigned long long step;

    (void)state;
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 2; i++) {
        fleet.nodes[i].dir = support_mkdtemp();
        launcher_write(fleet.nodes[i].dir, "my.conf",
                       argument("%s%s", conf, i == 0 ? "" : "# another\n"));
    }
    fleet_start(&fleet, 0, "1:2", "0", rest);
    wait_for_checkpoint(&fleet.nodes[0], "refused");
    fleet_start(&fleet, 1, "1:2", "1", rest);
    launcher_wait(&fleet.nodes[1]);
    assert_int_equal(fleet.nodes[1].exit_status, 2);
    assert_err(&fleet.nodes[1], ") has another train.conf than node 0 (");
    launcher_await_text(fleet.nodes[0].dir, "err", ") has another train.conf than node 0 (");
    step = last_step("refused");
    await_progress("refused");
    assert_true(last_step("refused") > step);
    (void)stop_all(&fleet, "refused");
    assert_no_err(&fleet.nodes[0], "generation 1");
    fleet_end(&fleet);
    free(conf);
}

/* A file of rows that a line divides; @p shift moves the line. */
static void write_rows(const char *dir, int shift)
{
    char text[4000] = "a,b,kind\n";
    size_t used = strlen(text);

    for (int i = 0; i < 120; i++) {
        used += (size_t)sprintf(text + used, "%d,%d,%s\n", i % 12, i / 12,
                                i % 12 > i / 12 + shift ? "yes" : "no");
    }
    launcher_write(dir, "rows.csv", text);
}

/* Ranks compare what they have read when they begin, and all fail if it differs. */
static void a_late_node_with_other_data_is_left_out(void **state)
{
    static const char conf[] =
        "model = { type = \"mlp\"; hidden = [64]; };\n"
        "data = { type = \"csv\"; train = \"rows.csv\"; target = \"kind\"; };\n"
        "train = { epochs = 1000000; eval_epochs = 1000000; batch_size = 12;\n"
        "  checkpoint_steps = 50; log_steps = 1; };\n"
        "optimizer = { type = \"sgd\"; lr = 0.01; };\n";
    const char *const rest[] = {"--nproc", "1", "data.conf", run_dir_argument("data"), NULL};
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 3; i++) {
        fleet.nodes[i].dir = support_mkdtemp();
        launcher_write(fleet.nodes[i].dir, "data.conf", conf);
        write_rows(fleet.nodes[i].dir, i == 2);
    }
    fleet_start(&fleet, 0, "1:3", "0", rest);
    fleet_start(&fleet, 1, "1:3", "1", rest);
    wait_for_checkpoint(&fleet.nodes[0], "data");
    fleet_start(&fleet, 2, "1:3", "2", rest);
    launcher_wait(&fleet.nodes[2]);
    assert_int_not_equal(fleet.nodes[2].exit_status, 0);
    assert_err(&fleet.nodes[2], "rows.csv");
    assert_err(&fleet.nodes[2], "the others go on without this node");
    await_progress("data");
    (void)stop_all(&fleet, "data");
    assert_err(&fleet.nodes[0], "going on without node 2 (");
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_come_and_go_leave_the_bits_of_an_undisturbed_run),
        cmocka_unit_test(a_node_whose_ranks_are_too_many_waits_until_others_are_gone),
        cmocka_unit_test(a_late_node_with_another_configuration_is_refused),
        cmocka_unit_test(a_late_node_with_other_data_is_left_out),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
