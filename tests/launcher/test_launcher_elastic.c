/* test_launcher_elastic.c - a job on several machines whose members come and go: nodes that come
 * late, are killed and come back, leave when they are asked to, or wait as spares. Here all
 * machines are this one. */
#include "support/fleet.h"

#include <cddp/store.h>

/* As cddp-train: asked to end, it saves and ends with 3. A rank of generation G writes upG.RANK. */
#define TRAINS                                                                                     \
    "trap 'exit 3' TERM; echo $PPID >$SHARED/parent$RANK; "                                        \
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "          \
    ">$SHARED/up$CDDP_GENERATION.$RANK; while [ ! -e $SHARED/go ]; do sleep 0.02; done"

#define TRAIN(fleet, i, nnodes, rank, nproc)                                                       \
    START((fleet), (i), (nnodes), (rank), "--nproc", (nproc), "--", "bash", "-c", TRAINS)

/* Wait until rank @p rank of generation @p generation, or of a later one, says @p text. (On a slow
 * machine, a job may begin with fewer nodes, and let the others in.) */
static void await(const struct fleet *fleet, int generation, int rank, const char *text)
{
    for (int waited_ms = 0; waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 10) {
        for (int i = generation; i < generation + 4; i++) {
            char name[32];
            char *said;
            bool is_found;

            snprintf(name, sizeof name, "up%d.%d", i, rank);
            said = launcher_read(fleet->folder, name);
            is_found = said != NULL && strstr(said, text) != NULL;
            free(said);
            if (is_found) {
                return;
            }
        }
        support_sleep_ms(10);
    }
    fail_msg("no rank %d says \"%s\"", rank, text);
}

/* Let the ranks end. The first @p count nodes end with 0, but for node @p other. */
static void finish(struct fleet *fleet, int count, int other)
{
    launcher_write(fleet->folder, "go", "");
    fleet_wait(fleet, count);
    for (int i = 0; i < count; i++) {
        if (i != other && fleet->nodes[i].exit_status != 0) {
            fail_msg("node %d ended with %d: %s", i, fleet->nodes[i].exit_status,
                     fleet->nodes[i].err);
        }
    }
}

static void a_node_that_comes_late_is_let_in(void **state)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        struct fleet fleet;

        (void)state;
        (is_tcp ? fleet_begin_tcp : fleet_begin)(&fleet);
        TRAIN(&fleet, 0, "2:3", "0", "1");
        TRAIN(&fleet, 1, "2:3", "1", "2");
        await(&fleet, 0, 2, "2/3 1/2 1/2"); /* no third one has come */
        TRAIN(&fleet, 2, "2:3", "2", "3");
        await(&fleet, 1, 5, "5/6 2/3 2/3");
        await(&fleet, 1, 0, "0/6 0/1 0/3");
        finish(&fleet, 3, -1);
        assert_err(&fleet.nodes[0], "cddp-run: node 2 (");
        assert_err(&fleet.nodes[0], ") has come\n");
        assert_err(&fleet.nodes[1], ": 6 ranks on 3 nodes\n");
        fleet_end(&fleet);
    }
}

/* The second node comes later than the default allows. */
static void a_job_waits_for_further_nodes_for_as_long_as_it_is_told(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    TRAIN(&fleet, 0, "1:2", "0", "1");
    support_sleep_ms(5000);
    TRAIN(&fleet, 1, "1:2", "1", "1");
    await(&fleet, 0, 1, "1/2");
    finish(&fleet, 2, -1);
    fleet_end(&fleet);
}

static void a_time_that_is_no_number_is_told_once_and_the_default_holds(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    setenv("CDDP_SETTLE_MS", "soon", 1);
    TRAIN(&fleet, 0, "1:2", "0", "1");
    await(&fleet, 0, 0, "0/1");
    finish(&fleet, 1, -1);
    assert_int_equal(launcher_count(fleet.nodes[0].err, "CDDP_SETTLE_MS=soon is not a"), 1);
    fleet_end(&fleet);
}

static void the_most_nodes_start_at_once_also_with_gaps_in_their_numbers(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    TRAIN(&fleet, 0, "1:3", "0", "2");
    TRAIN(&fleet, 1, "1:3", "7", "1");
    TRAIN(&fleet, 2, "1:3", "4", "1");
    await(&fleet, 0, 3, "3/4 0/1 2/3");
    await(&fleet, 0, 2, "2/4 0/1 1/3");
    finish(&fleet, 3, -1);
    fleet_end(&fleet);
}

static void a_node_that_was_killed_comes_back_under_another_number(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    TRAIN(&fleet, 0, "1:3", "0", "1");
    TRAIN(&fleet, 1, "1:3", "1", "2");
    TRAIN(&fleet, 2, "1:3", "2", "1");
    await(&fleet, 0, 0, "0/4");
    await(&fleet, 0, 1, "1/4");
    await(&fleet, 0, 2, "2/4");
    await(&fleet, 0, 3, "3/4");
    kill(fleet_supervisor(&fleet, 1), SIGKILL);
    await(&fleet, 1, 0, "0/2 0/1 0/2");
    await(&fleet, 1, 1, "1/2 0/1 1/2");
    TRAIN(&fleet, 3, "1:3", "1", "3");
    await(&fleet, 2, 4, "4/5 2/3 2/3");
    finish(&fleet, 4, 1);
    assert_names_node(&fleet.nodes[0], 1);
    assert_err(&fleet.nodes[0], ") is lost: ");
    assert_err(&fleet.nodes[3], "cddp-run: a node 1 has come before: this one is node 3 from now "
                                "on\n");
    assert_no_err(&fleet.nodes[3], "is lost"); /* before it came */
    fleet_end(&fleet);
}

static void a_node_that_is_asked_to_leave_leaves_and_the_others_go_on(void **state)
{
    static const int signals[] = {SIGTERM, SIGUSR1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fleet fleet;

        fleet_begin_tcp(&fleet);
        fleet_await_all();
        TRAIN(&fleet, 0, "1:3", "0", "1");
        TRAIN(&fleet, 1, "1:3", "1", "2");
        TRAIN(&fleet, 2, "1:3", "2", "1");
        await(&fleet, 0, 1, "1/4");
        kill(fleet.nodes[1].pid, signals[i]);
        launcher_wait(&fleet.nodes[1]);
        assert_int_equal(fleet.nodes[1].exit_status, 3);
        assert_err(&fleet.nodes[1], "this node has left the job\n");
        await(&fleet, 1, 1, "1/2 0/1 1/2");
        launcher_write(fleet.folder, "go", "");
        launcher_wait(&fleet.nodes[0]);
        launcher_wait(&fleet.nodes[2]);
        assert_int_equal(fleet.nodes[0].exit_status, 0);
        assert_int_equal(fleet.nodes[2].exit_status, 0);
        fleet_end(&fleet);
    }
}

static void too_few_nodes_are_waited_for_and_then_end_the_job(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 2; i++) {
        START(&fleet, i, "2:2", i == 0 ? "0" : "1", "--timeout", "3", "--nproc", "1", "--", "bash",
              "-c", TRAINS);
    }
    await(&fleet, 0, 0, "0/2");
    await(&fleet, 0, 1, "1/2");
    kill(fleet_supervisor(&fleet, 1), SIGKILL);
    fleet_wait(&fleet, 2);
    assert_int_equal(fleet.nodes[0].exit_status, 4);
    assert_err(&fleet.nodes[0], "1 node is left, and the job needs 2: waiting for others for up to "
                                "3 s (--timeout)\n");
    assert_err(&fleet.nodes[0], "too few nodes: 1 of at least 2 after 3 s. The job ends; ");
    fleet_end(&fleet);
}

static void a_node_that_comes_while_too_few_are_left_is_let_in(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    TRAIN(&fleet, 0, "2:2", "0", "1");
    TRAIN(&fleet, 1, "2:2", "1", "1");
    await(&fleet, 0, 0, "0/2");
    await(&fleet, 0, 1, "1/2");
    kill(fleet_supervisor(&fleet, 1), SIGKILL);
    launcher_await_text(fleet.nodes[0].dir, "err", "and the job needs 2: waiting");
    TRAIN(&fleet, 2, "2:2", "1", "3");
    await(&fleet, 1, 3, "3/4 2/3 1/2");
    finish(&fleet, 3, 1);
    fleet_end(&fleet);
}

static void more_nodes_than_the_most_wait_until_one_is_gone(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    TRAIN(&fleet, 0, "2:2", "0", "1");
    TRAIN(&fleet, 1, "2:2", "1", "1");
    await(&fleet, 0, 0, "0/2");
    await(&fleet, 0, 1, "1/2");
    TRAIN(&fleet, 2, "2:2", NULL, "2");
    launcher_await_text(fleet.nodes[2].dir, "err",
                        "the job has its 2 nodes: this one waits until one of them leaves");
    kill(fleet_supervisor(&fleet, 1), SIGKILL);
    await(&fleet, 1, 2, "2/3 1/2 1/2");
    finish(&fleet, 3, 1);
    fleet_end(&fleet);
}

/* Start node 2 late, with @p rest: it is refused with @p text, and the others go on. */
static void need_refusal(struct fleet *fleet, const char *nnodes, const char *const *rest,
                         const char *text)
{
    fleet_start(fleet, 2, nnodes, "2", rest);
    launcher_wait(&fleet->nodes[2]);
    assert_int_equal(fleet->nodes[2].exit_status, 2);
    assert_err(&fleet->nodes[2], text);
    launcher_await_text(fleet->nodes[0].dir, "err", "cddp-run: not let in: node 2 (");
    finish(fleet, 2, -1);
    assert_err(&fleet->nodes[0], text);
    assert_no_err(&fleet->nodes[1], text);
    assert_no_err(&fleet->nodes[0], "generation 1");
    fleet_end(fleet);
}

static void a_late_node_that_differs_is_refused_and_the_job_goes_on(void **state)
{
    static const struct {
        const char *nnodes;
        const char *rest[9]; /* ended by NULL */
        const char *text;
    } rows[] = {
        {"2:2", {"--nproc", "1", "--", "echo", "hello"}, "was started to run something else"},
        {"2:3", {"--nproc", "1", "--", "bash", "-c", TRAINS}, "was started with --nnodes 2:3, "},
        {"2:2",
         {"--nproc", "1", "--max-restarts", "2", "--", "bash", "-c", TRAINS},
         "was started with --max-restarts 2, "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleet fleet;

        fleet_begin_tcp(&fleet);
        TRAIN(&fleet, 0, "2:2", "0", "1");
        TRAIN(&fleet, 1, "2:2", "1", "1");
        await(&fleet, 0, 1, "1/2");
        need_refusal(&fleet, rows[i].nnodes, rows[i].rest, rows[i].text);
    }
}

/* The same words, and another file. */
static void a_late_node_with_another_program_is_refused(void **state)
{
    static const char *const rest[] = {"--nproc", "1", "--", "./train", NULL};
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 3; i++) {
        fleet.nodes[i].dir = support_mkdtemp();
        launcher_write(fleet.nodes[i].dir, "train",
                       i < 2 ? "#!/bin/bash\n" TRAINS "\n" : "#!/bin/bash\n" TRAINS "\nexit 0\n");
    }
    fleet_start(&fleet, 0, "2:2", "0", rest);
    fleet_start(&fleet, 1, "2:2", "1", rest);
    await(&fleet, 0, 1, "1/2");
    need_refusal(&fleet, "2:2", rest, ") has another program than node 0 (");
}

/* Such as one without the job's data. */
static void a_late_node_whose_ranks_fail_at_once_is_left_out(void **state)
{
    static const char *const numbers[] = {"0", "1", "2"};
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    launcher_settle(10); /* with the first two */
    unsetenv("BAD");
    for (int i = 0; i < 3; i++) {
        START(&fleet, i, "1:3", numbers[i], "--nproc", "1", "--", "bash", "-c",
              "[ -z \"$BAD\" ] || exit 7; " TRAINS);
        if (i == 1) {
            await(&fleet, 0, 1, "1/2");
            setenv("BAD", "yes", 1);
        }
    }
    unsetenv("BAD");
    launcher_wait(&fleet.nodes[2]);
    assert_int_equal(fleet.nodes[2].exit_status, 7);
    assert_err(&fleet.nodes[2], "the others go on without this node: the job failed as soon as it "
                                "took part\n");
    await(&fleet, 2, 1, "1/2 0/1 1/2");
    finish(&fleet, 2, -1);
    assert_err(&fleet.nodes[0], ", which came late: the job failed as soon as it took part\n");
    fleet_end(&fleet);
}

/* Such as one whose disk is full, so that the logs of new ranks cannot be made. */
static void a_node_on_which_ranks_cannot_be_started_is_left_out(void **state)
{
    struct fleet fleet;
    char logs[4200];
    char moved[4210];

    (void)state;
    fleet_begin_tcp(&fleet);
    snprintf(logs, sizeof logs, "%s/logs", fleet.folder);
    snprintf(moved, sizeof moved, "%s.old", logs);
    fleet_await_all();
    TRAIN(&fleet, 0, "1:3", "0", "1");
    TRAIN(&fleet, 1, "1:3", "1", "1");
    START(&fleet, 2, "1:3", "2", "--nproc", "1", "--log-dir", logs, "--", "bash", "-c", TRAINS);
    await(&fleet, 0, 1, "1/3"); /* its cddp-run has given a sign of life, so it is missed */
    await(&fleet, 0, 2, "2/3");
    assert_int_equal(rename(logs, moved), 0);
    launcher_write(fleet.folder, "logs", "");
    kill(fleet.nodes[1].pid, SIGKILL);
    launcher_wait(&fleet.nodes[2]);
    assert_int_equal(fleet.nodes[2].exit_status, 1);
    assert_err(&fleet.nodes[2],
               "the others go on without this node: its ranks could not be started\n");
    await(&fleet, 2, 0, "0/1 0/1 0/1");
    finish(&fleet, 2, 1);
    assert_err(&fleet.nodes[0], "going on without node 2 (");
    assert_err(&fleet.nodes[0], "): its ranks could not be started\n");
    fleet_end(&fleet);
}

/* Start node @p i as the training operator does with an elastic policy. */
static void start_pod(struct fleet *fleet, int i, const char *number)
{
    setenv("PET_NNODES", "1:2", 1);
    setenv("PET_NODE_RANK", number, 1);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("PET_MAX_RESTARTS", "3", 1);
    setenv("PET_RDZV_BACKEND", "c10d", 1);
    setenv("PET_RDZV_ID", "job", 1);
    setenv("PET_RDZV_ENDPOINT", fleet->url + strlen("tcp://"), 1);
    launcher_start(&fleet->nodes[i], (const char *const[]){"--", "bash", "-c", TRAINS, NULL});
    unsetenv("PET_NNODES");
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_NPROC_PER_NODE");
    unsetenv("PET_MAX_RESTARTS");
    unsetenv("PET_RDZV_BACKEND");
    unsetenv("PET_RDZV_ID");
    unsetenv("PET_RDZV_ENDPOINT");
}

static void a_pod_of_an_elastic_policy_is_replaced_by_one_of_its_name(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    start_pod(&fleet, 0, "0");
    start_pod(&fleet, 1, "1");
    await(&fleet, 0, 3, "3/4 1/2 1/2");
    kill(fleet_supervisor(&fleet, 2), SIGKILL);
    await(&fleet, 1, 1, "1/2 1/2 0/1");
    start_pod(&fleet, 2, "1");
    await(&fleet, 2, 3, "3/4 1/2 1/2");
    finish(&fleet, 3, 1);
    assert_err(&fleet.nodes[1], "node 1 of 1:2, which meet at tcp://127.0.0.1:");
    fleet_end(&fleet);
}

/* Wait until the job's log has event @p number. */
static void await_event(const struct fleet *fleet, int number)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    void *job = NULL;
    void *event = NULL;
    char key[128];

    options.url = fleet->url;
    options.token = getenv("CDDP_TOKEN");
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    assert_int_equal(cddp_store_open(&options, &store), CDDP_OK);
    assert_int_equal(cddp_store_get(store, "cddp-run/job", 0, &job, NULL), CDDP_OK);
    snprintf(key, sizeof key, "%s/event/%d", (char *)job, number);
    assert_int_equal(cddp_store_get(store, key, 0, &event, NULL), CDDP_OK);
    cddp_free(event);
    cddp_free(job);
    cddp_store_close(store);
}

/* Node 0 serves the store for a while after the end, since a node that waits does not answer. */
static void a_node_that_comes_after_the_end_waits_for_another_job(void **state)
{
    struct fleet fleet;
    pid_t spare;

    (void)state;
    fleet_begin_tcp(&fleet);
    TRAIN(&fleet, 0, "1:1", "0", "1");
    await(&fleet, 0, 0, "0/1");
    TRAIN(&fleet, 1, "1:1", "1", "1");
    launcher_await_text(fleet.nodes[1].dir, "err", "this one waits until one of them leaves");
    spare = launcher_child(fleet.nodes[1].pid);
    kill(spare, SIGSTOP);
    launcher_write(fleet.folder, "go", "");
    await_event(&fleet, 3); /* START, JOIN, DONE, END */
    START(&fleet, 2, "1:1", "2", "--timeout", "3", "--nproc", "1", "--", "bash", "-c", TRAINS);
    launcher_wait(&fleet.nodes[2]);
    kill(spare, SIGCONT);
    assert_int_equal(fleet.nodes[2].exit_status, 1);
    assert_err(&fleet.nodes[2], "the job there has ended, and no other");
    launcher_wait(&fleet.nodes[0]);
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    fleet_end(&fleet);
}

static void a_second_node_0_is_an_error(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    TRAIN(&fleet, 0, "1:2", "0", "1");
    TRAIN(&fleet, 1, "1:2", "1", "1");
    await(&fleet, 0, 1, "1/2");
    TRAIN(&fleet, 2, "1:2", "0", "1");
    launcher_wait(&fleet.nodes[2]);
    assert_int_not_equal(fleet.nodes[2].exit_status, 0);
    assert_err(&fleet.nodes[2], "is in use already: by another job?");
    finish(&fleet, 2, -1);
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_comes_late_is_let_in),
        cmocka_unit_test(a_job_waits_for_further_nodes_for_as_long_as_it_is_told),
        cmocka_unit_test(a_time_that_is_no_number_is_told_once_and_the_default_holds),
        cmocka_unit_test(the_most_nodes_start_at_once_also_with_gaps_in_their_numbers),
        cmocka_unit_test(a_node_that_was_killed_comes_back_under_another_number),
        cmocka_unit_test(a_node_that_is_asked_to_leave_leaves_and_the_others_go_on),
        cmocka_unit_test(too_few_nodes_are_waited_for_and_then_end_the_job),
        cmocka_unit_test(a_node_that_comes_while_too_few_are_left_is_let_in),
        cmocka_unit_test(more_nodes_than_the_most_wait_until_one_is_gone),
        cmocka_unit_test(a_late_node_that_differs_is_refused_and_the_job_goes_on),
        cmocka_unit_test(a_late_node_with_another_program_is_refused),
        cmocka_unit_test(a_late_node_whose_ranks_fail_at_once_is_left_out),
        cmocka_unit_test(a_node_on_which_ranks_cannot_be_started_is_left_out),
        cmocka_unit_test(a_pod_of_an_elastic_policy_is_replaced_by_one_of_its_name),
        cmocka_unit_test(a_node_that_comes_after_the_end_waits_for_another_job),
        cmocka_unit_test(a_second_node_0_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
