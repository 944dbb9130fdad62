/* test_launcher_hosts.c - one cddp-run starts a job on a list of hosts. Here all hosts are this
 * machine: the command of --ssh runs the given words in a shell, with another host name where that
 * is permitted. */
#include "support/launcher.h"

#include <stdbool.h>

static const char reach[] =
    "#!/bin/sh\n"
    "host=$1\n"
    "shift\n"
    "echo \"$host: $*\" >>\"$REACHED\"\n"
    "[ \"$host\" != away ] || { echo \"ssh: connect to host away: No route to host\" >&2; exit "
    "255; "
    "}\n"
    "cd /\n" /* as a login does, it begins elsewhere, and with an environment of its own */
    "words=$*\n"
    "if unshare -u true 2>/dev/null; then\n"
    "    exec env -i PATH=\"$PATH\" unshare -u sh -c 'hostname \"$0\"; exec sh -c \"$1\"' "
    "\"$host\" "
    "\"$words\"\n"
    "fi\n"
    "exec env -i PATH=\"$PATH\" sh -c \"$words\"\n";

/* A folder with the script in it, in which the job then runs. */
static void prepare(struct launched *job)
{
    char path[4200];

    memset(job, 0, sizeof *job);
    job->dir = support_mkdtemp();
    launcher_write(job->dir, "reach", reach);
    snprintf(path, sizeof path, "%s/reached", job->dir);
    setenv("REACHED", path, 1);
    unsetenv("CDDP_TOKEN");
}

#define START(job, hosts, ...)                                                                     \
    launcher_start(                                                                                \
        (job), (const char *const[]){"--hosts", (hosts), "--ssh", "./reach", __VA_ARGS__, NULL})
#define RUN(job, hosts, ...)                                                                       \
    do {                                                                                           \
        START(job, hosts, __VA_ARGS__);                                                            \
        launcher_wait(job);                                                                        \
    } while (0)

static void ranks_of_all_hosts_are_numbered_in_the_lists_order(void **state)
{
    static const char script[] = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                                 "$GROUP_RANK/$GROUP_WORLD_SIZE";
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:2,beta:1,localhost:2", "--", "sh", "-c", script);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.err, "");
    assert_out(&job, "0/5 0/2 0/3\n");
    assert_out(&job, "[1] 1/5 1/2 0/3\n");
    assert_out(&job, "[2] 2/5 0/1 1/3\n");
    assert_out(&job, "[3] 3/5 0/2 2/3\n");
    assert_out(&job, "[4] 4/5 1/2 2/3\n");
    assert_int_equal(launcher_count(job.out, "\n"), 5);
    launcher_end(&job);
}

static void only_hosts_that_are_elsewhere_are_reached_by_the_command(void **state)
{
    struct launched job;
    char *reached;

    (void)state;
    prepare(&job);
    RUN(&job, "localhost:1,alpha:1", "--", "true");
    assert_int_equal(job.exit_status, 0);
    reached = launcher_read(job.dir, "reached");
    launcher_need_text(reached, "alpha: ", "reached");
    launcher_need_absence(reached, "localhost: ", "reached");
    free(reached);
    launcher_end(&job);
}

static void ranks_elsewhere_get_no_token_on_a_command_line(void **state)
{
    struct launched job;
    char *reached;
    char *token;
    char wanted[4200];

    (void)state;
    prepare(&job);
    setenv("CDDP_LOG", "error", 1);
    setenv("FLAVOUR", "it's \"sour\", $HOME", 1);
    setenv("UNNAMED", "x", 1);
    RUN(&job, "alpha:1", "--export", "FLAVOUR,DEPTH=3", "--", "sh", "-c",
        "echo \"$PWD|$CDDP_LOG|$FLAVOUR|$DEPTH|$UNNAMED|\"; echo $CDDP_TOKEN >token");
    unsetenv("CDDP_LOG");
    unsetenv("FLAVOUR");
    unsetenv("UNNAMED");
    assert_int_equal(job.exit_status, 0);
    snprintf(wanted, sizeof wanted, "|error|it's \"sour\", $HOME|3||\n");
    assert_out(&job, wanted);
    token = launcher_read(job.dir, "token"); /* so it was written in our folder */
    assert_non_null(token);
    token[strcspn(token, "\n")] = '\0';
    assert_int_equal(strlen(token), 32);
    reached = launcher_read(job.dir, "reached");
    launcher_need_absence(reached, token, "reached");
    free(reached);
    free(token);
    launcher_end(&job);
}

static void words_reach_the_program_as_they_are(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:1", "--", "printf", "<%s>\n", "a b", "it's", "$HOME", "", "*", "\\");
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "<a b>\n<it's>\n<$HOME>\n<>\n<*>\n<\\>\n");
    launcher_end(&job);
}

static void whole_lines_of_all_hosts_come_out(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:2,beta:2", "--tag-output", "--", "sh", "-c",
        "i=0; while [ $i -lt 200 ]; do printf 'line '; echo $i of $RANK; echo err $i of $RANK >&2; "
        "i=$((i+1)); done");
    assert_int_equal(job.exit_status, 0);
    for (int rank = 0; rank < 4; rank++) {
        for (int i = 0; i < 200; i++) {
            char line[64];

            snprintf(line, sizeof line, "[%d] line %d of %d\n", rank, i, rank);
            assert_int_equal(launcher_count(job.out, line), 1);
            snprintf(line, sizeof line, "[%d] err %d of %d\n", rank, i, rank);
            assert_int_equal(launcher_count(job.err, line), 1);
        }
    }
    launcher_end(&job);
}

static void the_report_names_host_and_rank_that_failed_first(void **state)
{
    struct launched job;
    int rank;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:2,beta:2", "--", "sh", "-c", "[ $RANK != 3 ] || exit 7; exec sleep 1000");
    assert_int_equal(job.exit_status, 7);
    assert_err(&job, "cddp-run on beta: rank 3 ");
    assert_err(&job, "cddp-run: the first to fail was node 1 (beta): rank 3 ");
    assert_int_equal(launcher_failures(job.err, &rank), 2);
    assert_int_equal(rank, 3);
    launcher_end(&job);
}

/* What a rank reports of its failure comes as data, and is in the last line. */
static void the_report_says_why(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:1,beta:1", "--", "sh", "-c",
        "[ $RANK != 1 ] || { printf 'f\\001\\000\\000\\000\\011\\000the disk\\n' "
        ">/proc/$$/fd/$CDDP_REPORT_FD; exit 4; }; exec sleep 1000");
    assert_int_equal(job.exit_status, 4);
    assert_failed_rank(&job, 1);
    assert_err(&job, ": the disk\n");
    launcher_end(&job);
}

static void a_host_that_cannot_be_reached_ends_the_others(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:1,away:1", "--", "sh", "-c", "exec sleep 1000");
    assert_int_equal(job.exit_status, 255);
    assert_err(&job, "ssh: connect to host away: No route to host\n");
    assert_names_node(&job, 1);
    launcher_end(&job);
}

/* Wait until all @p ranks have written who they are; the last one's parent. */
static pid_t await_ranks(const struct launched *job, int ranks)
{
    pid_t parent = 0;

    for (int rank = 0; rank < ranks; rank++) {
        char name[16];

        snprintf(name, sizeof name, "parent%d", rank);
        parent = (pid_t)launcher_number(job, name);
    }
    return parent;
}

#define WAITS "echo $$ >pid$RANK; echo $PPID >parent$RANK; exec sleep 1000"

static void assert_ranks_are_gone(const struct launched *job, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        char name[16];

        snprintf(name, sizeof name, "pid%d", rank);
        assert_true(launcher_is_gone((pid_t)launcher_number(job, name)));
    }
}

static void a_host_whose_cddp_run_is_killed_is_named(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    START(&job, "alpha:1,beta:1", "--", "sh", "-c", WAITS);
    kill(await_ranks(&job, 2), SIGKILL);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 1);
    assert_ranks_are_gone(&job, 2);
    launcher_end(&job);
}

static void no_rank_outlives_the_first_cddp_run(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    START(&job, "alpha:1,beta:2", "--", "sh", "-c", WAITS);
    (void)await_ranks(&job, 3);
    kill(job.pid, SIGKILL);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGKILL);
    assert_ranks_are_gone(&job, 3);
    launcher_end(&job);
}

static void signals_reach_the_ranks_of_all_hosts(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    START(&job, "alpha:1,beta:2", "--", "sh", "-c",
          "trap 'echo usr >usr$RANK' USR1; echo $PPID >parent$RANK; while :; do sleep 0.01; done");
    (void)await_ranks(&job, 3);
    kill(job.pid, SIGUSR1);
    launcher_await_text(job.dir, "usr0", "usr");
    launcher_await_text(job.dir, "usr1", "usr");
    launcher_await_text(job.dir, "usr2", "usr");
    kill(job.pid, SIGINT);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGINT);
    assert_err(&job, "cddp-run: SIGINT: stopping all ranks on 2 hosts; after 30 s, or at a second "
                     "signal, they are killed\n");
    assert_int_equal(launcher_count(job.err, "SIGINT"), 1);
    launcher_end(&job);
}

static void all_hosts_restart(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:1,beta:1", "--max-restarts", "2", "--", "sh", "-c",
        "[ $CDDP_GENERATION = 1 ] && { echo up $RANK; exit 0; }; [ $RANK != 1 ] || exit 5; exec "
        "sleep 1000");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "up 0\n");
    assert_out(&job, "[1] up 1\n");
    assert_false(launcher_names_node(job.err, 1)); /* as it would be at the job's end */
    launcher_end(&job);
}

static void hosts_may_stand_in_a_file(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    launcher_write(job.dir, "hosts", "# two machines\nalpha slots=1\n\nbeta:2 # fast\n");
    LAUNCH(&job, "--hostfile", "hosts", "--ssh", "./reach", "--", "sh", "-c", "echo $RANK");
    assert_int_equal(job.exit_status, 0);
    assert_int_equal(launcher_count(job.out, "\n"), 3);
    launcher_end(&job);
    prepare(&job);
    launcher_write(job.dir, "hosts", "alpha slots=1\nbeta slot=2\n");
    LAUNCH(&job, "--hostfile", "hosts", "--ssh", "./reach", "--", "true");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "cddp-run: hosts:2: \"slot=2\" is not known: a line is host, host:N, or host "
                     "slots=N max_slots=N\n");
    launcher_end(&job);
}

static void a_dry_run_shows_hosts_and_ranks(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job);
    RUN(&job, "alpha:2,beta:3", "--dry-run", "--", "echo", "a b");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "node 0: alpha, 2 ranks: 0 to 1: ./reach alpha ");
    assert_out(&job, "node 1: beta, 3 ranks: 2 to 4: ./reach beta ");
    assert_out(&job, " -- echo 'a b'\n");
    assert_null(launcher_read(job.dir, "reached"));
    launcher_end(&job);
}

static void an_agent_without_its_parcel_says_what_it_is_for(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--agent", "--nnodes", "1", "--node-rank", "0", "--rdzv", "tcp://127.0.0.1:1",
           "--", "true");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job,
               "this option is for cddp-run --hosts, and --ssh has to pass standard input on");
    launcher_end(&job);
}

static void an_agent_says_that_its_parcel_is_of_another_version(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c",
                              "{ printf 'cddprun1\\011\\0\\0\\0\\006\\0\\0\\0'; head -c 5000 "
                              "/dev/zero; } | \"$0\" --agent "
                              "--nnodes 1 --node-rank 0 --rdzv tcp://127.0.0.1:1 -- true",
                              launcher_path("launcher/cddp-run"), NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "--agent: what comes on standard input is not understood: ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_all_hosts_are_numbered_in_the_lists_order),
        cmocka_unit_test(only_hosts_that_are_elsewhere_are_reached_by_the_command),
        cmocka_unit_test(ranks_elsewhere_get_no_token_on_a_command_line),
        cmocka_unit_test(words_reach_the_program_as_they_are),
        cmocka_unit_test(whole_lines_of_all_hosts_come_out),
        cmocka_unit_test(the_report_names_host_and_rank_that_failed_first),
        cmocka_unit_test(the_report_says_why),
        cmocka_unit_test(a_host_that_cannot_be_reached_ends_the_others),
        cmocka_unit_test(a_host_whose_cddp_run_is_killed_is_named),
        cmocka_unit_test(no_rank_outlives_the_first_cddp_run),
        cmocka_unit_test(signals_reach_the_ranks_of_all_hosts),
        cmocka_unit_test(all_hosts_restart),
        cmocka_unit_test(hosts_may_stand_in_a_file),
        cmocka_unit_test(a_dry_run_shows_hosts_and_ranks),
        cmocka_unit_test(an_agent_without_its_parcel_says_what_it_is_for),
        cmocka_unit_test(an_agent_says_that_its_parcel_is_of_another_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
