/* test_launcher_store.c - a job whose store is in a process of its own (cddp-run --store), so that
 * it survives the loss of every node, node 0 too. Here all machines are this one. */
#include "support/fleet.h"
#include "support/undisturbed.h"

enum { STORE = 4 }; /* its place among the fleet's nodes */

/* As cddp-train: asked to end, it saves and ends with 3. A rank of generation G writes upG.RANK. */
#define TRAINS                                                                                     \
    "trap 'echo >$SHARED/asked$RANK; [ ! -e $SHARED/slow ] || while [ ! -e $SHARED/saved ]; do "   \
    "sleep 0.02; done; exit 3' TERM; echo $PPID >$SHARED/parent$RANK; "                            \
    "echo $RANK/$WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT >$SHARED/up$CDDP_GENERATION.$RANK; "      \
    "while [ ! -e $SHARED/go ]; do sleep 0.02; done"

#define TRAIN(fleet, i, nnodes, rank, nproc)                                                       \
    START((fleet), (i), (nnodes), (rank), "--nproc", (nproc), "--timeout", "60", "--", "bash",     \
          "-c", TRAINS)

/* The store, on a port of its own, is served. */
static void begin(struct fleet *fleet)
{
    fleet_begin_tcp(fleet);
    launcher_start(&fleet->nodes[STORE],
                   (const char *const[]){"--store", fleet->url, "--timeout", "60", NULL});
    launcher_await_text(fleet->nodes[STORE].dir, "err", "is served at");
}

/* Wait until rank @p rank of generation @p generation says @p text. */
static void await(const struct fleet *fleet, int generation, int rank, const char *text)
{
    char name[32];

    snprintf(name, sizeof name, "up%d.%d", generation, rank);
    launcher_await_text(fleet->folder, name, text);
}

/* Nodes 0 to 2, with 1, 2 and 1 ranks, and the pids of their supervisors. */
static void begin_three(struct fleet *fleet, const char *nnodes, pid_t supervisors[3])
{
    static const char *const ranks[] = {"0", "1", "2"};
    static const char *const nprocs[] = {"1", "2", "1"};

    begin(fleet);
    fleet_await_all();
    for (int i = 0; i < 3; i++) {
        TRAIN(fleet, i, nnodes, ranks[i], nprocs[i]);
    }
    for (int rank = 0; rank < 4; rank++) {
        await(fleet, 0, rank, "/4 at 127.0.0.1:");
        supervisors[rank == 3 ? 2 : rank > 0] = fleet_supervisor(fleet, rank);
    }
}

/* As if the machine were gone. */
static void kill_node(struct fleet *fleet, int i, pid_t supervisor)
{
    kill(supervisor, SIGKILL);
    kill(fleet->nodes[i].pid, SIGKILL);
    launcher_wait(&fleet->nodes[i]);
}

static void assert_ends(struct fleet *fleet, int i, int exit_status)
{
    launcher_wait(&fleet->nodes[i]);
    if (fleet->nodes[i].exit_status != exit_status) {
        fail_msg("node %d ended with %d, not %d: %s", i, fleet->nodes[i].exit_status, exit_status,
                 fleet->nodes[i].err);
    }
}

static void the_rest_go_on_under_node_1_when_node_0_is_killed(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];
    char *up[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    kill_node(&fleet, 0, supervisors[0]);
    for (int rank = 0; rank < 3; rank++) {
        char name[32];

        await(&fleet, 1, rank, "/3 at 127.0.0.1:");
        snprintf(name, sizeof name, "up1.%d", rank);
        up[rank] = launcher_read(fleet.folder, name);
    }
    assert_string_equal(up[0] + 1, up[1] + 1); /* one address and port for torch.distributed */
    assert_string_equal(up[0] + 1, up[2] + 1);
    launcher_write(fleet.folder, "go", "");
    assert_ends(&fleet, 1, 0);
    assert_ends(&fleet, 2, 0);
    assert_ends(&fleet, STORE, 0);
    assert_names_node(&fleet.nodes[2], 0);
    assert_names_node(&fleet.nodes[STORE], 0);
    assert_err(&fleet.nodes[1], "cddp-run: generation 1: 3 ranks on 2 nodes\n");
    for (int rank = 0; rank < 3; rank++) {
        free(up[rank]);
    }
    fleet_end(&fleet);
}

static void one_of_three_goes_on_when_two_are_killed_at_once(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    kill(supervisors[1], SIGKILL);
    kill_node(&fleet, 0, supervisors[0]);
    kill_node(&fleet, 1, supervisors[1]);
    await(&fleet, 1, 0, "0/1 at ");
    launcher_write(fleet.folder, "go", "");
    assert_ends(&fleet, 2, 0);
    assert_ends(&fleet, STORE, 0);
    assert_names_node(&fleet.nodes[2], 0);
    assert_names_node(&fleet.nodes[2], 1);
    fleet_end(&fleet);
}

static void node_0_is_killed_while_members_change(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    launcher_write(fleet.folder, "slow", "");
    kill(fleet.nodes[2].pid, SIGTERM);
    launcher_await_text(fleet.folder, "asked1", "\n"); /* all have heard of the change */
    kill_node(&fleet, 0, supervisors[0]);
    launcher_await_text(fleet.nodes[1].dir, "err", ") is lost");
    launcher_write(fleet.folder, "saved", "");
    await(&fleet, 1, 1, "1/2 at ");
    launcher_write(fleet.folder, "go", "");
    assert_ends(&fleet, 2, 3);
    assert_ends(&fleet, 1, 0);
    assert_ends(&fleet, STORE, 0);
    fleet_end(&fleet);
}

static void node_0_leaves_when_it_is_asked_to(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    kill(fleet.nodes[0].pid, SIGTERM);
    assert_ends(&fleet, 0, 3);
    await(&fleet, 1, 2, "2/3 at ");
    launcher_write(fleet.folder, "go", "");
    assert_ends(&fleet, 1, 0);
    assert_ends(&fleet, 2, 0);
    assert_ends(&fleet, STORE, 0);
    assert_err(&fleet.nodes[2], ") leaves the job\n");
    fleet_end(&fleet);
}

static void a_node_comes_after_all_have_been_killed(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    for (int i = 0; i < 3; i++) {
        kill_node(&fleet, i, supervisors[i]);
    }
    launcher_await_text(fleet.nodes[STORE].dir, "err", "no node is left: waiting for others");
    TRAIN(&fleet, 3, "1:3", NULL, "2");
    await(&fleet, 1, 1, "1/2 at ");
    launcher_write(fleet.folder, "go", "");
    assert_ends(&fleet, 3, 0);
    assert_ends(&fleet, STORE, 0);
    assert_err(&fleet.nodes[3], "this one is node 3 from now on");
    fleet_end(&fleet);
}

static void all_end_when_the_store_is_killed(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    kill(fleet.nodes[STORE].pid, SIGKILL);
    for (int i = 0; i < 3; i++) {
        char text[4300];

        assert_ends(&fleet, i, 1);
        snprintf(text, sizeof text, "cddp-run: the job's store at %s is lost: ", fleet.url);
        assert_err(&fleet.nodes[i], text);
    }
    launcher_wait(&fleet.nodes[STORE]);
    fleet_end(&fleet);
}

static void a_signal_to_the_store_ends_the_job_with_a_checkpoint(void **state)
{
    struct fleet fleet;
    pid_t supervisors[3];

    (void)state;
    begin_three(&fleet, "1:3", supervisors);
    kill(fleet.nodes[STORE].pid, SIGTERM);
    for (int i = 0; i < 3; i++) {
        assert_ends(&fleet, i, 3);
    }
    assert_ends(&fleet, STORE, 3);
    fleet_end(&fleet);
}

/* Signal the store, once the ranks of all nodes save since it has been signalled before. */
static void signal_again(struct fleet *fleet, int first, int second)
{
    pid_t supervisors[3];

    begin_three(fleet, "1:3", supervisors);
    launcher_write(fleet->folder, "slow", "");
    kill(fleet->nodes[STORE].pid, first);
    for (int rank = 0; rank < 4; rank++) {
        char name[32];

        snprintf(name, sizeof name, "asked%d", rank);
        launcher_await_text(fleet->folder, name, "\n");
    }
    support_sleep_ms(300); /* so that it is no part of the same request */
    kill(fleet->nodes[STORE].pid, second);
}

/* When a terminal closes, the kernel and the shell both send SIGHUP. */
static void a_hangup_after_a_signal_to_the_store_costs_no_checkpoint(void **state)
{
    struct fleet fleet;

    (void)state;
    signal_again(&fleet, SIGTERM, SIGHUP);
    launcher_write(fleet.folder, "saved", "");
    for (int i = 0; i < 3; i++) {
        assert_ends(&fleet, i, 3);
    }
    assert_ends(&fleet, STORE, 3);
    fleet_end(&fleet);
}

static void a_second_signal_to_the_store_kills_the_ranks(void **state)
{
    struct fleet fleet;

    (void)state;
    signal_again(&fleet, SIGTERM, SIGTERM);
    for (int i = 0; i < 3; i++) {
        assert_ends(&fleet, i, 128 + SIGTERM);
        assert_err(&fleet.nodes[i], "cddp-run: SIGTERM: killing ");
    }
    assert_ends(&fleet, STORE, 128 + SIGTERM);
    fleet_end(&fleet);
}

/* Their number is fixed: the job ends. By order of arrival, as the store is none of them. */
static void a_fixed_job_ends_with_node_0(void **state)
{
    struct fleet fleet;

    (void)state;
    begin(&fleet);
    TRAIN(&fleet, 0, "2", NULL, "1");
    launcher_await_text(fleet.nodes[0].dir, "err", "this is node 0 of 2");
    TRAIN(&fleet, 1, "2", NULL, "1");
    await(&fleet, 0, 0, "0/2 at ");
    await(&fleet, 0, 1, "1/2 at ");
    kill_node(&fleet, 0, fleet_supervisor(&fleet, 0));
    assert_ends(&fleet, 1, 1);
    assert_ends(&fleet, STORE, 1);
    assert_names_node(&fleet.nodes[1], 0);
    fleet_end(&fleet);
}

/* cddp-train on the job's ranks, killed with node 0 after its first checkpoint, and on one rank. */
static void with_micro_batches_the_bits_are_those_of_the_undisturbed_run(void **state)
{
    static const char *const ranks[] = {"0", "1", "2"};
    static const char *const nprocs[] = {"1", "2", "1"};
    struct fleet fleet;
    char conf[4300];
    char run_dir[4300];

    (void)state;
    begin(&fleet);
    fleet_await_all();
    undisturbed_write_conf(fleet.folder);
    snprintf(conf, sizeof conf, "%s/t.conf", fleet.folder);
    snprintf(run_dir, sizeof run_dir, "%s/run", fleet.folder);
    for (int i = 0; i < 3; i++) {
        START(&fleet, i, "1:3", ranks[i], "--nproc", nprocs[i], "--run-dir", run_dir, conf);
    }
    undisturbed_await_checkpoint(fleet.folder);
    kill(fleet.nodes[0].pid, SIGKILL); /* its supervisor and ranks end with it */
    launcher_wait(&fleet.nodes[0]);
    assert_ends(&fleet, 1, 0);
    assert_ends(&fleet, 2, 0);
    assert_ends(&fleet, STORE, 0);
    assert_err(&fleet.nodes[1], "cddp-run: generation 1: 3 ranks on 2 nodes\n");
    undisturbed_compare(fleet.folder);
    fleet_end(&fleet);
}

/* Run cddp-ctl on @p run until it ends with @p status and has printed @p text, on either stream.
 * @p what: after the command; NULL: nothing. */
static void await_ctl(const char *run, const char *command, const char *what, int status,
                      const char *text)
{
    for (int ms = 0;; ms += 50) {
        struct launched ctl = {.dir = NULL};
        bool is_so;

        launcher_start_program(&ctl, launcher_path("launcher/cddp-ctl"),
                               (const char *const[]){run, command, what, NULL});
        launcher_wait(&ctl);
        is_so = ctl.exit_status == status &&
                (strstr(ctl.out, text) != NULL || strstr(ctl.err, text) != NULL);
        if (!is_so && ms >= SUPPORT_LIMIT_S * 1000) {
            fail_msg("status %d: %s%s", ctl.exit_status, ctl.out, ctl.err);
        }
        launcher_end(&ctl);
        if (is_so) {
            return;
        }
        support_sleep_ms(50);
    }
}

/* The store, and @p count nodes that train for long, in a folder that all share. */
static void begin_training(struct fleet *fleet, int count, const char *nnodes, char run_dir[4300])
{
    static const char conf[] =
        "data = { type = \"synthetic\"; samples = 240; classes = 4; image = [1, 8, 8]; };\n"
        "model = { type = \"mlp\"; hidden = [24]; };\n"
        "train = { epochs = 100000000; batch_size = 24; micro_batch = 3; checkpoint_seconds = 0.0;"
        " eval_epochs = 100000000; };\n"
        "optimizer = { type = \"sgd\"; lr = 0.05; };\n";
    static const char *const ranks[] = {"0", "1", "2"};
    char path[4300];

    begin(fleet);
    launcher_write(fleet->folder, "t.conf", conf);
    snprintf(path, sizeof path, "%s/t.conf", fleet->folder);
    snprintf(run_dir, 4300, "%s/run", fleet->folder);
    if (count > 1) { /* as many as it may have */
        fleet_await_all();
    }
    for (int i = 0; i < count; i++) {
        START(fleet, i, nnodes, ranks[i], "--nproc", "1", "--run-dir", run_dir, path);
    }
}

static void cddp_ctl_follows_rank_0_to_the_next_node(void **state)
{
    struct fleet fleet;
    char run_dir[4300];

    (void)state;
    begin_training(&fleet, 2, "1:2", run_dir);
    await_ctl(run_dir, "status", NULL, 0, "generation 0");
    kill(fleet.nodes[0].pid, SIGKILL);
    launcher_wait(&fleet.nodes[0]);
    await_ctl(run_dir, "status", NULL, 0, "generation 1");
    /* now it trains: earlier, a signal would just end it */
    await_ctl(run_dir, "checkpoint", NULL, 0, "");
    await_ctl(run_dir, "stop", NULL, 0, "");
    assert_ends(&fleet, 1, 3);
    assert_ends(&fleet, STORE, 3);
    fleet_end(&fleet);
}

static void cddp_ctl_reaches_the_job_through_its_store(void **state)
{
    struct fleet fleet;
    char run_dir[4300];
    char path[4400];

    (void)state;
    begin_training(&fleet, 3, "1:3", run_dir);
    await_ctl(fleet.url, "status", NULL, 0, "generation 0  3 ranks on 3 nodes");
    await_ctl(fleet.url, "status", NULL, 0, "elastic: 1 to 3 nodes");
    await_ctl(fleet.url, "checkpoint", NULL, 0, "a checkpoint is written");
    snprintf(path, sizeof path, "%s/checkpoints/latest", run_dir);
    assert_int_equal(access(path, F_OK), 0);
    await_ctl(fleet.url, "remove", "node:0", 0, "generation 1: 2 ranks on 2 nodes");
    assert_ends(&fleet, 0, 3);
    await_ctl(fleet.url, "remove", "node:0", 1, ") is gone already\n");
    kill(fleet.nodes[1].pid, SIGKILL);
    launcher_wait(&fleet.nodes[1]);
    await_ctl(fleet.url, "checkpoint", NULL, 0, "a checkpoint is written");
    await_ctl(fleet.url, "status", NULL, 0, "generation 2  1 rank on 1 node");
    await_ctl(fleet.url, "status", NULL, 0, "began: node 1 (");
    await_ctl(fleet.url, "stop", NULL, 0, "the job has ended with status 3");
    assert_ends(&fleet, 2, 3);
    assert_ends(&fleet, STORE, 3);
    fleet_end(&fleet);
}

/* No node is left, so the store alone knows what the job does. */
static void cddp_ctl_sees_a_job_without_nodes(void **state)
{
    struct fleet fleet;
    char run_dir[4300];

    (void)state;
    begin_training(&fleet, 1, "1:2", run_dir);
    await_ctl(fleet.url, "status", NULL, 0, "generation 0  1 rank on 1 node");
    kill(fleet.nodes[0].pid, SIGKILL);
    launcher_wait(&fleet.nodes[0]);
    await_ctl(fleet.url, "status", NULL, 0, "now: waiting for nodes: the job needs 1");
    await_ctl(fleet.url, "stop", NULL, 1, "the job has ended with status 1");
    assert_ends(&fleet, STORE, 1);
    fleet_end(&fleet);
}

/* A store that does not answer is not a job that has ended, nor one that has not begun. */
static void cddp_ctl_does_not_take_a_silent_store_for_an_end(void **state)
{
    struct launched top = {.dir = NULL};
    struct fleet fleet;
    char run_dir[4300];
    pid_t store;

    (void)state;
    begin_training(&fleet, 1, "1:2", run_dir);
    await_ctl(fleet.url, "status", NULL, 0, "generation 0  1 rank on 1 node");
    launcher_start_program(&top, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){"--timeout=10", fleet.url, "top", NULL});
    launcher_await_text(top.dir, "out", "generation 0  1 rank on 1 node\n");
    store = launcher_child(fleet.nodes[STORE].pid);
    kill(store, SIGSTOP);
    launcher_wait(&top);
    kill(store, SIGCONT);
    assert_int_equal(top.exit_status, 1);
    launcher_need_absence(top.out, "has ended", "stdout");
    assert_err(&top, "did not answer");
    assert_no_err(&top, "has not begun");
    launcher_end(&top);
    await_ctl(fleet.url, "checkpoint", NULL, 0, ""); /* now it trains */
    await_ctl(fleet.url, "stop", NULL, 0, "the job has ended with status 3");
    assert_ends(&fleet, 0, 3);
    assert_ends(&fleet, STORE, 3);
    fleet_end(&fleet);
}

static void what_a_store_cannot_do_is_refused(void **state)
{
    static const struct {
        const char *words[5];
        const char *says;
    } cases[] = {
        {{"--store", "file:///tmp"}, "--store file:///tmp: not tcp://HOST:PORT"},
        {{"--store", "tcp://127.0.0.1:1,127.0.0.1:2"}, "more than one address"},
        {{"--store", "tcp://127.0.0.1:1", "--nproc", "2"}, "--store and --nproc exclude each"},
        {{"--store", "tcp://127.0.0.1:1", "train.conf"}, "--store runs nothing"},
        {{"--store", "tcp://nohost"}, "is not host:port"},
    };

    (void)state;
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launched job = {.dir = NULL};

        launcher_start(&job, cases[i].words);
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 2);
        assert_err(&job, cases[i].says);
        launcher_end(&job);
    }
    unsetenv("CDDP_TOKEN");
}

static void the_message_about_a_token_names_the_option(void **state)
{
    struct launched job = {.dir = NULL};

    (void)state;
    setenv("CDDP_TOKEN", "short", 1);
    LAUNCH(&job, "--store", "tcp://head:1");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "cddp-run: --store tcp://head:1: other machines can reach it, and the token");
    launcher_end(&job);
    unsetenv("CDDP_TOKEN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_go_on_under_node_1_when_node_0_is_killed),
        cmocka_unit_test(one_of_three_goes_on_when_two_are_killed_at_once),
        cmocka_unit_test(node_0_is_killed_while_members_change),
        cmocka_unit_test(node_0_leaves_when_it_is_asked_to),
        cmocka_unit_test(a_node_comes_after_all_have_been_killed),
        cmocka_unit_test(all_end_when_the_store_is_killed),
        cmocka_unit_test(a_signal_to_the_store_ends_the_job_with_a_checkpoint),
        cmocka_unit_test(a_hangup_after_a_signal_to_the_store_costs_no_checkpoint),
        cmocka_unit_test(a_second_signal_to_the_store_kills_the_ranks),
        cmocka_unit_test(a_fixed_job_ends_with_node_0),
        cmocka_unit_test(with_micro_batches_the_bits_are_those_of_the_undisturbed_run),
        cmocka_unit_test(cddp_ctl_follows_rank_0_to_the_next_node),
        cmocka_unit_test(cddp_ctl_reaches_the_job_through_its_store),
        cmocka_unit_test(cddp_ctl_sees_a_job_without_nodes),
        cmocka_unit_test(cddp_ctl_does_not_take_a_silent_store_for_an_end),
        cmocka_unit_test(what_a_store_cannot_do_is_refused),
        cmocka_unit_test(the_message_about_a_token_names_the_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
