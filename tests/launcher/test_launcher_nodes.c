/* test_launcher_nodes.c - a job on several machines: nodes that wait for others, failures, signals,
 * restarts, and nodes that are gone or stand still. Here all machines are this one. */
#include "support/fleet.h"

/* Of a failure that ranks 2 and 3 report and write, both on node 1, one is shown. */
static void ranks_of_a_later_node_write_to_stderr_like_those_of_the_first(void **state)
{
    static const char script[] =
        "[ $RANK -lt 2 ] && exec sleep 1000; echo up $RANK >&2; "
        "printf \"f\\00$RANK\\000\\000\\000\\011\\000the disk\\n\" >/proc/$$/fd/$CDDP_REPORT_FD; "
        "echo the disk >&2; echo $$ >$SHARED/pid$RANK; "
        "while [ ! -s $SHARED/pid2 -o ! -s $SHARED/pid3 ]; do sleep 0.01; done; exit 4";
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "2", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--nproc", "2", "--", "sh", "-c", script);
    fleet_ends_with(&fleet, 2, 4);
    assert_err(&fleet.nodes[1], "[2] up 2\n");
    assert_err(&fleet.nodes[1], "[3] up 3\n");
    assert_int_equal(launcher_count(fleet.nodes[1].err, "] the disk\n"), 1);
    assert_err(&fleet.nodes[1], "1 other rank printed the same");
    fleet_end(&fleet);
}

/* While its output waits, only the ranks of this node are no longer read: there are no others here.
 */
static void a_slow_reader_of_one_node_does_no_harm_with_many_ranks_on_another(void **state)
{
    static const char rank[] = "[ $RANK != 0 ] || head -c 9000000 /dev/zero";
    struct fleet fleet;
    char script[5000];

    (void)state;
    fleet_begin(&fleet);
    START(&fleet, 1, "2", "1", "--nproc", "60", "--", "sh", "-c", rank);
    snprintf(script, sizeof script,
             "{ \"$0\" --nnodes 2 --node-rank 0 --rdzv %s --nproc 1 -- sh -c '%s'; echo $? >got; } "
             "| { sleep 1; wc -c; }; exit $(cat got)",
             fleet.url, rank);
    launcher_start_program(
        &fleet.nodes[0], "sh",
        (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"), NULL});
    fleet_ends_with(&fleet, 2, 0);
    assert_out(&fleet.nodes[0], "9000000\n");
    fleet_end(&fleet);
}

static void a_failure_on_one_node_ends_all_and_is_named_on_all(void **state)
{
    for (int failing = 0; failing < 4; failing++) {
        struct fleet fleet;
        char script[512];

        (void)state;
        fleet_begin(&fleet);
        snprintf(script, sizeof script,
                 "[ $RANK != %d ] || { for r in 0 1 2 3; do while [ $r != $RANK -a ! -s "
                 "$SHARED/parent$r ]; do sleep 0.01; done; done; exit 7; }; " WAITS,
                 failing);
        START(&fleet, 0, "2", "0", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
        START(&fleet, 1, "2", "1", "--grace", "1000", "--nproc", "3", "--", "sh", "-c", script);
        fleet_ends_with(&fleet, 2, 7);
        assert_failed_rank(&fleet.nodes[0], failing);
        assert_failed_rank(&fleet.nodes[1], failing);
        assert_names_node(&fleet.nodes[failing == 0 ? 1 : 0], failing == 0 ? 0 : 1);
        fleet_end(&fleet);
    }
}

static void ranks_of_other_nodes_hear_of_a_failure_in_the_store(void **state)
{
    struct fleet fleet;
    char script[4400];

    (void)state;
    fleet_begin(&fleet);
    setenv("LAUNCHER_RANK", launcher_path("tests/launcher_rank"), 1);
    snprintf(script, sizeof script,
             "trap '' TERM; if [ $RANK = 0 ]; then exec \"$LAUNCHER_RANK\" await failure; fi; "
             "while [ ! -e $SHARED/go ]; do sleep 0.01; done; exit 9");
    START(&fleet, 0, "2", "0", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
    launcher_await_text(fleet.nodes[0].dir, "out", "waiting");
    launcher_write(fleet.folder, "go", "");
    fleet_ends_with(&fleet, 2, 9);
    launcher_need_rank(fleet.nodes[0].out, 1);
    unsetenv("LAUNCHER_RANK");
    fleet_end(&fleet);
}

/* A rank that ends because another did says so in the pipe, and may end before that one's end is
 * heard from its node. */
static void the_cause_is_named_also_where_it_is_another_nodes(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    setenv("SCRIPT",
           "if [ $RANK = 0 ]; then printf 'b\\000\\000\\001\\000' >/proc/$$/fd/$CDDP_REPORT_FD; "
           "echo $$ >$SHARED/follower; exit 1; fi; "
           "while [ ! -s $SHARED/follower ]; do sleep 0.01; done; "
           "while kill -0 $(cat $SHARED/follower) 2>&-; do sleep 0.01; done; exit 6",
           1);
    START(&fleet, 0, "2", "0", "--grace", "1000", "--nproc", "1", "--", "sh", "-c",
          "eval \"$SCRIPT\"");
    START(&fleet, 1, "2", "1", "--grace", "1000", "--nproc", "1", "--", "sh", "-c",
          "eval \"$SCRIPT\"");
    fleet_ends_with(&fleet, 2, 6);
    assert_failed_rank(&fleet.nodes[0], 1);
    unsetenv("SCRIPT");
    fleet_end(&fleet);
}

static void a_node_whose_supervisor_is_killed_is_named(void **state)
{
    for (int killed = 0; killed < 2; killed++) {
        struct fleet fleet;

        (void)state;
        fleet_begin_tcp(
            &fleet); /* with a limit of silence of a day: it is told at once all the same */
        START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", WAITS);
        (void)fleet_supervisor(&fleet, 0);
        (void)fleet_supervisor(&fleet, 1);
        kill(fleet_supervisor(&fleet, killed), SIGKILL);
        fleet_wait(&fleet, 2);
        assert_int_equal(fleet.nodes[killed].exit_status, 128 + SIGKILL);
        assert_int_equal(fleet.nodes[1 - killed].exit_status, 1);
        assert_names_node(&fleet.nodes[1 - killed], killed);
        fleet_end(&fleet);
    }
}

/* As a machine that is frozen, or whose cable is pulled: no connection of its is closed. */
static void a_node_that_gives_no_sign_of_life_is_named(void **state)
{
    static const char *const limits[] = {"2000", "1000", "100"};
    static const char *const said[] = {"2 s", "1 s", "1 s"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct fleet fleet;
        char text[80];
        pid_t frozen;

        fleet_begin(&fleet);
        setenv("CDDP_HEARTBEAT_MS", limits[i], 1);
        START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", WAITS);
        (void)fleet_supervisor(&fleet, 0);
        frozen = fleet_supervisor(&fleet, 1);
        kill(frozen, SIGSTOP);
        launcher_wait(&fleet.nodes[0]);
        kill(frozen, SIGCONT);
        launcher_wait(&fleet.nodes[1]);
        assert_int_equal(fleet.nodes[0].exit_status, 1);
        assert_err(&fleet.nodes[0], "cddp-run: node 1 (");
        assert_err(&fleet.nodes[0], ") is lost: no sign of life for ");
        snprintf(text, sizeof text,
                 " s, and it may be silent for %s (CDDP_HEARTBEAT_MS): ", said[i]);
        assert_err(&fleet.nodes[0], text);
        assert_int_not_equal(fleet.nodes[1].exit_status, 0);
        fleet_end(&fleet);
    }
}

/* Its rank ends as cddp-train does after a request to stop, which came from the ranks elsewhere. */
static void a_node_that_slept_says_that_the_others_went_on(void **state)
{
    static const char rank[] = "echo $PPID >$SHARED/parent$RANK; while [ ! -e $SHARED/go ]; do "
                               "sleep 0.02; done; exit 3";

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fleet fleet;
        pid_t supervisor;

        fleet_begin(&fleet);
        setenv("CDDP_HEARTBEAT_MS", "2000", 1);
        START(&fleet, 0, "2", "0", "--nproc", "1", "--grace", "0.2", "--", "sh", "-c", rank);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--grace", "0.2", "--", "sh", "-c", rank);
        (void)fleet_supervisor(&fleet, 1 - i);
        supervisor = fleet_supervisor(&fleet, i);
        kill(supervisor, SIGSTOP);
        launcher_await_text(fleet.nodes[1 - i].dir, "err", i == 0 ? "node 0 (" : "node 1 (");
        launcher_write(fleet.folder, "go", "");
        kill(supervisor, SIGCONT);
        fleet_wait(&fleet, 2);
        assert_int_equal(fleet.nodes[i].exit_status, 1);
        assert_err(&fleet.nodes[i], "cddp-run: this host did not answer for ");
        assert_err(&fleet.nodes[i], " s, so the others went on without it\n");
        assert_no_err(&fleet.nodes[1 - i], "so the others went on");
        fleet_end(&fleet);
    }
}

/* Longer than with the shortest limit, so that this also shows which one counts. */
static void a_node_that_is_frozen_for_less_than_the_limit_goes_on(void **state)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        struct fleet fleet;
        pid_t supervisor;

        (void)state;
        fleet_begin_tcp(&fleet);
        for (int i = 0; i < 2; i++) {
            START(&fleet, i, "2", i == 0 ? "0" : "1", "--nproc", "1", "--", "sh", "-c",
                  "echo $PPID >$SHARED/parent$RANK; "
                  "while [ ! -e $SHARED/go ]; do sleep 0.01; done");
        }
        (void)fleet_supervisor(&fleet, 1 - frozen);
        supervisor = fleet_supervisor(&fleet, frozen);
        kill(supervisor, SIGSTOP);
        usleep(3500000);
        kill(supervisor, SIGCONT);
        launcher_write(fleet.folder, "go", "");
        fleet_ends_with(&fleet, 2, 0);
        fleet_end(&fleet);
    }
}

static void a_signal_to_one_node_reaches_the_ranks_of_all(void **state)
{
    for (int asked = 0; asked < 2; asked++) {
        struct fleet fleet;

        (void)state;
        fleet_begin(&fleet);
        for (int i = 0; i < 2; i++) {
            START(&fleet, i, "2", i == 0 ? "0" : "1", "--nproc", "2", "--", "sh", "-c",
                  "trap 'echo usr >$SHARED/usr$RANK' USR1; echo $PPID >$SHARED/parent$RANK; "
                  "while :; do sleep 0.01; done");
        }
        for (int rank = 0; rank < 4; rank++) {
            (void)fleet_supervisor(&fleet, rank);
        }
        kill(fleet.nodes[asked].pid, SIGUSR1);
        for (int rank = 0; rank < 4; rank++) {
            char name[16];

            snprintf(name, sizeof name, "usr%d", rank);
            launcher_await_text(fleet.folder, name, "usr");
        }
        kill(fleet.nodes[asked].pid, SIGINT);
        fleet_ends_with(&fleet, 2, 128 + SIGINT);
        assert_err(&fleet.nodes[0], "cddp-run: SIGINT: ");
        assert_err(&fleet.nodes[1], "cddp-run: SIGINT: ");
        fleet_end(&fleet);
    }
}

static void all_nodes_restart_together(void **state)
{
    static const char script[] = "echo $MASTER_PORT >$SHARED/gen$CDDP_GENERATION.$RANK; "
                                 "[ $CDDP_GENERATION != 2 ] || exit 0; [ $RANK != 1 ] || exit 5; "
                                 "exec sleep 1000";
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    START(&fleet, 0, "2", "0", "--max-restarts", "3", "--nproc", "1", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--max-restarts", "3", "--nproc", "2", "--", "sh", "-c", script);
    fleet_ends_with(&fleet, 2, 0);
    for (int rank = 0; rank < 3; rank++) {
        char name[16];

        snprintf(name, sizeof name, "gen2.%d", rank);
        launcher_await_text(fleet.folder, name, "\n");
    }
    fleet_end(&fleet);
}

static void a_node_that_cannot_run_the_program_ends_all(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    for (int i = 0; i < 2; i++) {
        fleet.nodes[i].dir = support_mkdtemp();
        launcher_write(fleet.nodes[i].dir, "program",
                       i == 0 ? "#!/bin/sh\nexec sleep 1000\n" : "#!/no/such/interpreter\n");
    }
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "./program");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--", "./program");
    fleet_ends_with(&fleet, 2, 127);
    assert_names_node(&fleet.nodes[0], 1);
    assert_err(&fleet.nodes[0], "): ./program ");
    fleet_end(&fleet);
}

/* Each event is awaited, so that the order alone decides. */
static void a_node_that_waits_says_for_whom_and_until_when(void **state)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        struct fleet fleet;
        const char *waits = is_tcp ? "cddp-run: node 0 has not come yet, or cannot be reached at "
                                   : "cddp-run: node 0 has not come to file://";

        (void)state;
        (is_tcp ? fleet_begin_tcp : fleet_begin)(&fleet);
        START(&fleet, 1, "3", "1", "--timeout", "600", "--nproc", "1", "--", "true");
        launcher_await_text(fleet.nodes[1].dir, "err", waits);
        launcher_await_text(fleet.nodes[1].dir, "err", ": waiting until ");
        launcher_await_text(fleet.nodes[1].dir, "err", " (--timeout 600)\n");
        START(&fleet, 0, "3", "0", "--timeout", "600", "--nproc", "1", "--", "true");
        for (int i = 0; i < 2; i++) {
            launcher_await_text(fleet.nodes[i].dir, "err",
                                "of 3 nodes these have not come yet: 2: ");
        }
        START(&fleet, 2, "3", "2", "--timeout", "600", "--nproc", "1", "--", "true");
        fleet_ends_with(&fleet, 3, 0);
        fleet_end(&fleet);
    }
}

static void a_name_that_is_not_known_is_told_while_it_is_waited_for(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    launcher_start(&job, (const char *const[]){"--nnodes", "2", "--node-rank", "0", "--rdzv",
                                               "tcp://node-0.invalid:29500", "--", "true", NULL});
    unsetenv("CDDP_TOKEN");
    launcher_await_text(job.dir, "err", "cddp-run: the name node-0.invalid is not known yet: ");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_later_node_write_to_stderr_like_those_of_the_first),
        cmocka_unit_test(a_slow_reader_of_one_node_does_no_harm_with_many_ranks_on_another),
        cmocka_unit_test(a_failure_on_one_node_ends_all_and_is_named_on_all),
        cmocka_unit_test(ranks_of_other_nodes_hear_of_a_failure_in_the_store),
        cmocka_unit_test(the_cause_is_named_also_where_it_is_another_nodes),
        cmocka_unit_test(a_node_whose_supervisor_is_killed_is_named),
        cmocka_unit_test(a_node_that_gives_no_sign_of_life_is_named),
        cmocka_unit_test(a_node_that_slept_says_that_the_others_went_on),
        cmocka_unit_test(a_node_that_is_frozen_for_less_than_the_limit_goes_on),
        cmocka_unit_test(a_signal_to_one_node_reaches_the_ranks_of_all),
        cmocka_unit_test(all_nodes_restart_together),
        cmocka_unit_test(a_node_that_cannot_run_the_program_ends_all),
        cmocka_unit_test(a_node_that_waits_says_for_whom_and_until_when),
        cmocka_unit_test(a_name_that_is_not_known_is_told_while_it_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
