/* test_launcher_nodes.c - cddp-run on several machines, one by one with --nnodes and --rdzv. Here
 * all machines are this one. */
#include "support/launcher.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { MAX_NODES = 3 };

/* What is waited for is told: who is silent for less is not lost, unless a test chooses a limit. */
#define A_DAY "86400000"

/* The nodes of one job, in folders of their own; what they share is in `folder`. */
struct fleet {
    struct launched nodes[MAX_NODES];
    char *folder;
    char url[4200];
};

static void begin(struct fleet *fleet)
{
    memset(fleet, 0, sizeof *fleet);
    fleet->folder = support_mkdtemp();
    snprintf(fleet->url, sizeof fleet->url, "file://%s", fleet->folder);
    unsetenv("CDDP_TOKEN");
    setenv("SHARED", fleet->folder, 1);
    setenv("CDDP_HEARTBEAT_MS", A_DAY, 1);
}

static void begin_tcp(struct fleet *fleet)
{
    begin(fleet);
    snprintf(fleet->url, sizeof fleet->url, "tcp://127.0.0.1:%u", support_free_port());
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
}

/* Start node @p i with @p rest behind --rdzv. @p rank NULL: by order of arrival. */
static void start(struct fleet *fleet, int i, const char *nnodes, const char *rank,
                  const char *const *rest)
{
    const char *words[24] = {"--nnodes", nnodes, "--rdzv", fleet->url};
    int count = 4;

    if (rank != NULL) {
        words[count++] = "--node-rank";
        words[count++] = rank;
    }
    while (*rest != NULL) {
        words[count++] = *rest++;
    }
    words[count] = NULL;
    launcher_start(&fleet->nodes[i], words);
}

#define START(fleet, i, nnodes, rank, ...)                                                         \
    start((fleet), (i), (nnodes), (rank), (const char *const[]){__VA_ARGS__, NULL})

/* Start node @p i as a pod of Kubeflow's second Trainer would, by its variables alone. */
static void start_pod(struct fleet *fleet, int i, const char *port, const char *const *words)
{
    support_setenv_number("PET_NODE_RANK", i);
    setenv("PET_NNODES", "2", 1);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("PET_MASTER_ADDR", "127.0.0.1", 1);
    setenv("PET_MASTER_PORT", port, 1);
    launcher_start(&fleet->nodes[i], words);
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_NNODES");
    unsetenv("PET_NPROC_PER_NODE");
    unsetenv("PET_MASTER_ADDR");
    unsetenv("PET_MASTER_PORT");
}

static void end(struct fleet *fleet)
{
    for (int i = 0; i < MAX_NODES; i++) {
        if (fleet->nodes[i].dir != NULL) {
            launcher_end(&fleet->nodes[i]);
        }
    }
    support_rmdir(fleet->folder);
    unsetenv("CDDP_TOKEN");
    unsetenv("SHARED");
    unsetenv("CDDP_HEARTBEAT_MS");
}

static void wait_all(struct fleet *fleet, int count)
{
    for (int i = 0; i < count; i++) {
        launcher_wait(&fleet->nodes[i]);
    }
}

static void assert_all_end_with(struct fleet *fleet, int count, int exit_status)
{
    wait_all(fleet, count);
    for (int i = 0; i < count; i++) {
        if (fleet->nodes[i].exit_status != exit_status) {
            fail_msg("node %d ended with %d, not %d: %s", i, fleet->nodes[i].exit_status,
                     exit_status, fleet->nodes[i].err);
        }
    }
}

/* Wait until the process whose number rank @p rank wrote is there, and give its number. */
static pid_t supervisor_of(const struct fleet *fleet, int rank)
{
    struct launched shared = fleet->nodes[0];
    char name[32];

    shared.dir = fleet->folder;
    snprintf(name, sizeof name, "parent%d", rank);
    return (pid_t)launcher_number(&shared, name);
}

/* A rank that says who its supervisor is, and then waits to be ended. */
#define WAITS "echo $PPID >$SHARED/parent$RANK; exec sleep 1000"

static void every_rank_knows_its_place_with_unequal_numbers(void **state)
{
    static const char script[] =
        "echo $CDDP_RANK/$CDDP_WORLD_SIZE $CDDP_LOCAL_RANK/$CDDP_LOCAL_WORLD_SIZE "
        "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
        ">$SHARED/rank$RANK; echo $MASTER_ADDR:$MASTER_PORT $CDDP_JOB >$SHARED/master$RANK";
    static const char *const wanted[] = {"0/6 0/1 0/6 0/1 0/3\n", "1/6 0/3 1/6 0/3 1/3\n",
                                         "2/6 1/3 2/6 1/3 1/3\n", "3/6 2/3 3/6 2/3 1/3\n",
                                         "4/6 0/2 4/6 0/2 2/3\n", "5/6 1/2 5/6 1/2 2/3\n"};
    struct fleet fleet;
    char *master;

    (void)state;
    begin(&fleet);
    START(&fleet, 2, "3", "2", "--nproc", "2", "--", "sh", "-c", script);
    START(&fleet, 1, "3", "1", "--nproc", "3", "--", "sh", "-c", script);
    START(&fleet, 0, "3", "0", "--nproc", "1", "--", "sh", "-c", script);
    assert_all_end_with(&fleet, 3, 0);
    master = launcher_read(fleet.folder, "master0");
    for (int rank = 0; rank < 6; rank++) {
        char name[16];
        char *text;

        snprintf(name, sizeof name, "rank%d", rank);
        text = launcher_read(fleet.folder, name);
        assert_non_null(text);
        assert_string_equal(text, wanted[rank]);
        free(text);
        snprintf(name, sizeof name, "master%d", rank);
        text = launcher_read(fleet.folder, name);
        assert_string_equal(text, master);
        free(text);
    }
    free(master);
    end(&fleet);
}

static void nodes_without_a_rank_are_numbered_as_they_come(void **state)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        struct fleet fleet;

        (void)state;
        (is_tcp ? begin_tcp : begin)(&fleet);
        for (int i = 0; i < 3; i++) {
            START(&fleet, i, "3", NULL, "--nproc", "2", "--", "sh", "-c",
                  "echo up >$SHARED/up$RANK");
        }
        assert_all_end_with(&fleet, 3, 0);
        for (int rank = 0; rank < 6; rank++) {
            char name[16];

            snprintf(name, sizeof name, "up%d", rank);
            launcher_await_text(fleet.folder, name, "up");
        }
        for (int i = 0; i < 3; i++) {
            assert_err(&fleet.nodes[i], " of 3, by order of arrival\n");
        }
        end(&fleet);
    }
}

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
    begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "2", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--nproc", "2", "--", "sh", "-c", script);
    assert_all_end_with(&fleet, 2, 4);
    assert_err(&fleet.nodes[1], "[2] up 2\n");
    assert_err(&fleet.nodes[1], "[3] up 3\n");
    assert_int_equal(launcher_count(fleet.nodes[1].err, "] the disk\n"), 1);
    assert_err(&fleet.nodes[1], "1 other rank said the same");
    end(&fleet);
}

/* While its output waits, only the ranks of this node are no longer read: there are no others here.
 */
static void a_slow_reader_of_one_node_does_no_harm_with_many_ranks_on_another(void **state)
{
    static const char rank[] = "[ $RANK != 0 ] || head -c 9000000 /dev/zero";
    struct fleet fleet;
    char script[5000];

    (void)state;
    begin(&fleet);
    START(&fleet, 1, "2", "1", "--nproc", "60", "--", "sh", "-c", rank);
    snprintf(script, sizeof script,
             "{ \"$0\" --nnodes 2 --node-rank 0 --rdzv %s --nproc 1 -- sh -c '%s'; echo $? >got; } "
             "| { sleep 1; wc -c; }; exit $(cat got)",
             fleet.url, rank);
    launcher_start_program(
        &fleet.nodes[0], "sh",
        (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"), NULL});
    assert_all_end_with(&fleet, 2, 0);
    assert_out(&fleet.nodes[0], "9000000\n");
    end(&fleet);
}

/* Only the node itself would know, and who refused it. */
static void a_node_with_another_token_is_told_of_on_all(void **state)
{
    static const char refused[] = "127.0.0.1 (it does not know the job's token)";
    struct fleet fleet;
    char *text;

    (void)state;
    begin_tcp(&fleet);
    START(&fleet, 0, "3", "0", "--timeout", "6", "--nproc", "1", "--", "true");
    START(&fleet, 1, "3", "1", "--timeout", "6", "--nproc", "1", "--", "true");
    setenv("CDDP_TOKEN", "fedcba9876543210", 1);
    START(&fleet, 2, "3", "2", "--timeout", "6", "--nproc", "1", "--", "true");
    launcher_await_text(fleet.nodes[1].dir, "err", refused);
    text = launcher_read(fleet.nodes[1].dir, "err");
    launcher_need_absence(text, "did not come", "stderr");
    free(text);
    wait_all(&fleet, 3);
    for (int i = 0; i < 2; i++) {
        assert_err(&fleet.nodes[i], "of 3 nodes these did not come within 6 s: 2 (these did: ");
        assert_err(&fleet.nodes[i], "this token? The job's store has refused ");
        assert_err(&fleet.nodes[i], refused);
    }
    assert_err(&fleet.nodes[2], "token");
    end(&fleet);
}

/* As another version's cddp-run: it sees that the store's is not its own, says its own, and goes.
 */
static void come_with_another_version(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char hello[12]; /* a magic number, and the version */
    int fd = -1;

    for (int waited_ms = 0; waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 10) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            break;
        }
        close(fd);
        support_sleep_ms(10);
    }
    assert_int_equal(recv(fd, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    hello[8] ^= 64;
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    while (recv(fd, hello, sizeof hello, 0) > 0) { /* to its end: what is not read is a reset */
    }
    close(fd);
}

static void a_node_of_another_version_is_told_of_on_all(void **state)
{
    static const char refused[] = "127.0.0.1 (it speaks another version of the protocol)";
    struct fleet fleet;

    (void)state;
    begin_tcp(&fleet);
    START(&fleet, 0, "3", "0", "--timeout", "4", "--nproc", "1", "--", "true");
    START(&fleet, 1, "3", "1", "--timeout", "4", "--nproc", "1", "--", "true");
    come_with_another_version((uint16_t)atoi(strrchr(fleet.url, ':') + 1));
    launcher_await_text(fleet.nodes[1].dir, "err", refused);
    wait_all(&fleet, 2);
    for (int i = 0; i < 2; i++) {
        assert_err(&fleet.nodes[i], "this token? The job's store has refused ");
        assert_err(&fleet.nodes[i], refused);
    }
    end(&fleet);
}

static void the_nodes_that_did_not_come_are_named(void **state)
{
    struct fleet fleet;

    (void)state;
    begin_tcp(&fleet);
    START(&fleet, 0, "4", "0", "--timeout", "1", "--nproc", "1", "--", "true");
    wait_all(&fleet, 1);
    assert_int_not_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[0],
               "of 4 nodes these did not come within 1 s: 1, 2, 3 (these did: 0 (");
    end(&fleet);
    begin_tcp(&fleet);
    START(&fleet, 0, "2", "1", "--timeout", "1", "--nproc", "1", "--", "true");
    wait_all(&fleet, 1);
    assert_int_not_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[0],
               "node 0 did not come, or cannot be reached, within 1 s: store tcp://");
    end(&fleet);
}

static void a_wrong_token_is_refused_and_does_no_harm(void **state)
{
    struct fleet fleet;

    (void)state;
    begin_tcp(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "true");
    setenv("CDDP_TOKEN", "another", 1);
    START(&fleet, 1, "2", "1", "--timeout", "3", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[1]);
    assert_int_not_equal(fleet.nodes[1].exit_status, 0);
    assert_err(&fleet.nodes[1], "the server refused the job's token");
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    START(&fleet, 2, "2", "1", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[2]);
    launcher_wait(&fleet.nodes[0]);
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    assert_int_equal(fleet.nodes[2].exit_status, 0);
    end(&fleet);
}

static void a_store_that_others_reach_needs_a_secret(void **state)
{
    struct launched job = {0};

    (void)state;
    unsetenv("CDDP_TOKEN");
    LAUNCH(&job, "--nnodes", "2", "--node-rank", "0", "--rdzv", "tcp://127.0.0.1:1", "--", "true");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "so the job needs a secret. Make one (openssl rand -hex 16 >FILE;");
    launcher_end(&job);
    job.dir = support_mkdtemp();
    launcher_write(job.dir, "token", "0123456789abcdef0123456789abcdef\n"); /* for all to read */
    LAUNCH(&job, "--nnodes", "1", "--rdzv", "tcp://127.0.0.1:1", "--token-file", "token", "--",
           "true");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "token may be read by others (mode 0755), and so is no secret");
    launcher_end(&job);
}

/* Also with the mark that editors of Windows put at the beginning, and their ends of lines. */
static void a_token_file_of_ones_own_is_taken(void **state)
{
    static const char *const files[] = {"0123456789abcdef0123456789abcdef\n",
                                        "\xEF\xBB\xBF"
                                        "0123456789abcdef0123456789abcdef\r\n"};
    char url[64];
    char path[4200];

    (void)state;
    unsetenv("CDDP_TOKEN");
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};

        snprintf(url, sizeof url, "tcp://localhost:%u", support_free_port());
        job.dir = support_mkdtemp();
        launcher_write(job.dir, "token", files[i]);
        snprintf(path, sizeof path, "%s/token", job.dir);
        assert_int_equal(chmod(path, 0600), 0);
        LAUNCH(&job, "--nnodes", "1", "--nproc", "1", "--rdzv", url, "--token-file", "token", "--",
               "sh", "-c",
               "[ $CDDP_TOKEN = 0123456789abcdef0123456789abcdef ] && echo $CDDP_STORE");
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, url);
        launcher_end(&job);
    }
}

static void a_short_token_is_hidden_and_one_that_cannot_be_is_said(void **state)
{
    struct launched job = {0};
    char url[64];

    (void)state;
    snprintf(url, sizeof url, "tcp://localhost:%u", support_free_port());
    setenv("CDDP_TOKEN", "hunter2", 1);
    LAUNCH(&job, "--nnodes", "1", "--nproc", "1", "--rdzv", url, "--log-dir", ".", "--", "sh", "-c",
           "echo it is $CDDP_TOKEN.; echo $CDDP_TOKEN >&2");
    assert_int_equal(job.exit_status, 0);
    assert_null(strstr(job.out, "hunter2"));
    assert_null(strstr(job.err, "hunter2"));
    assert_out(&job, "it is *******.\n");
    launcher_end(&job);
    setenv("CDDP_TOKEN", "abc", 1);
    LAUNCH(&job, "--nnodes", "1", "--nproc", "1", "--rdzv", url, "--", "true");
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "it is too short to be hidden in what ranks print");
    unsetenv("CDDP_TOKEN");
    launcher_end(&job);
}

static void only_a_machine_with_that_address_can_be_node_0(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    /* of a network that is for documentation (RFC 5737) */
    LAUNCH(&job, "--nnodes", "2", "--node-rank", "0", "--rdzv", "tcp://203.0.113.7:29500", "--",
           "true");
    unsetenv("CDDP_TOKEN");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "203.0.113.7 is not an address of this machine, and node 0 serves the job's "
                     "store");
    launcher_end(&job);
}

static void a_name_that_is_not_known_is_waited_for_and_then_said(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    /* a name that never is one (RFC 6761) */
    LAUNCH(&job, "--nnodes", "2", "--node-rank", "0", "--timeout", "1", "--rdzv",
           "tcp://node-0.invalid:29500", "--", "true");
    unsetenv("CDDP_TOKEN");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job, "the name node-0.invalid was not known within 1 s, and it is not this "
                     "machine's own");
    launcher_end(&job);
}

static void two_jobs_on_one_port_are_told_apart(void **state)
{
    struct fleet fleet;

    (void)state;
    begin_tcp(&fleet);
    START(&fleet, 0, "1", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
    (void)supervisor_of(&fleet, 0);
    START(&fleet, 1, "1", "0", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[1]);
    assert_int_not_equal(fleet.nodes[1].exit_status, 0);
    assert_err(&fleet.nodes[1], "is in use already: by another job?");
    kill(fleet.nodes[0].pid, SIGTERM);
    launcher_wait(&fleet.nodes[0]);
    assert_int_equal(fleet.nodes[0].exit_status, 128 + SIGTERM);
    end(&fleet);
}

/* Both nodes say @p text, and nothing runs. */
static void assert_refused(struct fleet *fleet, const char *text)
{
    wait_all(fleet, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fleet->nodes[i].exit_status, 2);
        assert_err(&fleet->nodes[i], text);
        assert_int_equal(launcher_count(fleet->nodes[i].err, "cddp-run: "), 1);
    }
    assert_null(launcher_read(fleet->folder, "ran"));
    end(fleet);
}

static void other_options_on_one_node_are_said_once_on_all(void **state)
{
    struct fleet fleet;

    (void)state;
    begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", "echo x >$SHARED/ran");
    assert_refused(&fleet, ") was started to run something else than node 0 (");
    begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "3", "2", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    assert_refused(&fleet, ") was started with --nnodes 3, node 0 (");
    begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--max-restarts", "3", "--", "sh", "-c",
          "echo ran >$SHARED/ran");
    assert_refused(&fleet, ") was started with --max-restarts 3, node 0 (");
}

static void a_failure_on_one_node_ends_all_and_is_named_on_all(void **state)
{
    for (int failing = 0; failing < 4; failing++) {
        struct fleet fleet;
        char script[512];

        (void)state;
        begin(&fleet);
        snprintf(script, sizeof script,
                 "[ $RANK != %d ] || { for r in 0 1 2 3; do while [ $r != $RANK -a ! -s "
                 "$SHARED/parent$r ]; do sleep 0.01; done; done; exit 7; }; " WAITS,
                 failing);
        START(&fleet, 0, "2", "0", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
        START(&fleet, 1, "2", "1", "--grace", "1000", "--nproc", "3", "--", "sh", "-c", script);
        assert_all_end_with(&fleet, 2, 7);
        snprintf(script, sizeof script, "rank %d (pid ", failing);
        assert_err(&fleet.nodes[0], script);
        assert_err(&fleet.nodes[1], script);
        assert_err(&fleet.nodes[failing == 0 ? 1 : 0],
                   failing == 0 ? "cddp-run: node 0 (" : "cddp-run: node 1 (");
        assert_err(&fleet.nodes[failing == 0 ? 1 : 0], ") exited with status 7\n");
        end(&fleet);
    }
}

static void ranks_of_other_nodes_hear_of_a_failure_in_the_store(void **state)
{
    struct fleet fleet;
    char script[4400];

    (void)state;
    begin(&fleet);
    setenv("LAUNCHER_RANK", launcher_path("tests/launcher_rank"), 1);
    snprintf(script, sizeof script,
             "trap '' TERM; if [ $RANK = 0 ]; then exec \"$LAUNCHER_RANK\" failure; fi; "
             "while [ ! -e $SHARED/go ]; do sleep 0.01; done; exit 9");
    START(&fleet, 0, "2", "0", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--grace", "1000", "--nproc", "1", "--", "sh", "-c", script);
    launcher_await_text(fleet.nodes[0].dir, "out", "waiting");
    launcher_write(fleet.folder, "go", "");
    assert_all_end_with(&fleet, 2, 9);
    assert_out(&fleet.nodes[0], "heard: rank 1 (pid ");
    unsetenv("LAUNCHER_RANK");
    end(&fleet);
}

/* A rank that ends because another did says so in the pipe, and may end before that one's end is
 * heard from its node. */
static void the_cause_is_named_also_where_it_is_another_nodes(void **state)
{
    struct fleet fleet;

    (void)state;
    begin(&fleet);
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
    assert_all_end_with(&fleet, 2, 6);
    assert_err(&fleet.nodes[0], "): rank 1 (pid ");
    assert_no_err(&fleet.nodes[0], "rank 0 (pid ");
    unsetenv("SCRIPT");
    end(&fleet);
}

static void a_node_whose_supervisor_is_killed_is_named(void **state)
{
    for (int killed = 0; killed < 2; killed++) {
        struct fleet fleet;

        (void)state;
        begin_tcp(&fleet); /* with a limit of silence of a day: it is told at once all the same */
        START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", WAITS);
        (void)supervisor_of(&fleet, 0);
        (void)supervisor_of(&fleet, 1);
        kill(supervisor_of(&fleet, killed), SIGKILL);
        wait_all(&fleet, 2);
        assert_int_equal(fleet.nodes[killed].exit_status, 128 + SIGKILL);
        assert_int_equal(fleet.nodes[1 - killed].exit_status, 1);
        assert_err(&fleet.nodes[1 - killed],
                   killed == 0 ? "cddp-run: node 0 (" : "cddp-run: node 1 (");
        assert_err(&fleet.nodes[1 - killed], ") is lost: ");
        end(&fleet);
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

        begin(&fleet);
        setenv("CDDP_HEARTBEAT_MS", limits[i], 1);
        START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", WAITS);
        (void)supervisor_of(&fleet, 0);
        frozen = supervisor_of(&fleet, 1);
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
        end(&fleet);
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

        begin(&fleet);
        setenv("CDDP_HEARTBEAT_MS", "2000", 1);
        START(&fleet, 0, "2", "0", "--nproc", "1", "--grace", "0.2", "--", "sh", "-c", rank);
        START(&fleet, 1, "2", "1", "--nproc", "1", "--grace", "0.2", "--", "sh", "-c", rank);
        (void)supervisor_of(&fleet, 1 - i);
        supervisor = supervisor_of(&fleet, i);
        kill(supervisor, SIGSTOP);
        launcher_await_text(fleet.nodes[1 - i].dir, "err", " is lost: ");
        launcher_write(fleet.folder, "go", "");
        kill(supervisor, SIGCONT);
        wait_all(&fleet, 2);
        assert_int_equal(fleet.nodes[i].exit_status, 1);
        assert_err(&fleet.nodes[i], "cddp-run: this host did not answer for ");
        assert_err(&fleet.nodes[i], " s, so the others went on without it\n");
        assert_no_err(&fleet.nodes[1 - i], "so the others went on");
        end(&fleet);
    }
}

/* Longer than with the shortest limit, so that this also shows which one counts. */
static void a_node_that_is_frozen_for_less_than_the_limit_goes_on(void **state)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        struct fleet fleet;
        pid_t supervisor;

        (void)state;
        begin_tcp(&fleet);
        for (int i = 0; i < 2; i++) {
            START(&fleet, i, "2", i == 0 ? "0" : "1", "--nproc", "1", "--", "sh", "-c",
                  "echo $PPID >$SHARED/parent$RANK; "
                  "while [ ! -e $SHARED/go ]; do sleep 0.01; done");
        }
        (void)supervisor_of(&fleet, 1 - frozen);
        supervisor = supervisor_of(&fleet, frozen);
        kill(supervisor, SIGSTOP);
        usleep(3500000);
        kill(supervisor, SIGCONT);
        launcher_write(fleet.folder, "go", "");
        assert_all_end_with(&fleet, 2, 0);
        end(&fleet);
    }
}

static void a_signal_to_one_node_reaches_the_ranks_of_all(void **state)
{
    for (int asked = 0; asked < 2; asked++) {
        struct fleet fleet;

        (void)state;
        begin(&fleet);
        for (int i = 0; i < 2; i++) {
            START(&fleet, i, "2", i == 0 ? "0" : "1", "--nproc", "2", "--", "sh", "-c",
                  "trap 'echo usr >$SHARED/usr$RANK' USR1; echo $PPID >$SHARED/parent$RANK; "
                  "while :; do sleep 0.01; done");
        }
        for (int rank = 0; rank < 4; rank++) {
            (void)supervisor_of(&fleet, rank);
        }
        kill(fleet.nodes[asked].pid, SIGUSR1);
        for (int rank = 0; rank < 4; rank++) {
            char name[16];

            snprintf(name, sizeof name, "usr%d", rank);
            launcher_await_text(fleet.folder, name, "usr");
        }
        kill(fleet.nodes[asked].pid, SIGINT);
        assert_all_end_with(&fleet, 2, 128 + SIGINT);
        assert_err(&fleet.nodes[0], "cddp-run: SIGINT: asking 2 ranks to end;");
        assert_err(&fleet.nodes[1], "cddp-run: SIGINT: asking 2 ranks to end;");
        end(&fleet);
    }
}

static void all_nodes_restart_together(void **state)
{
    static const char script[] = "echo $MASTER_PORT >$SHARED/gen$CDDP_GENERATION.$RANK; "
                                 "[ $CDDP_GENERATION != 2 ] || exit 0; [ $RANK != 1 ] || exit 5; "
                                 "exec sleep 1000";
    struct fleet fleet;

    (void)state;
    begin(&fleet);
    START(&fleet, 0, "2", "0", "--max-restarts", "3", "--nproc", "1", "--", "sh", "-c", script);
    START(&fleet, 1, "2", "1", "--max-restarts", "3", "--nproc", "2", "--", "sh", "-c", script);
    assert_all_end_with(&fleet, 2, 0);
    for (int i = 0; i < 2; i++) {
        assert_err(&fleet.nodes[i], "cddp-run: restarting (1 of 3) under generation 1\n");
        assert_err(&fleet.nodes[i], "cddp-run: restarting (2 of 3) under generation 2\n");
    }
    for (int rank = 0; rank < 3; rank++) {
        char name[16];

        snprintf(name, sizeof name, "gen2.%d", rank);
        launcher_await_text(fleet.folder, name, "\n");
    }
    end(&fleet);
}

static void a_node_that_cannot_run_the_program_ends_all(void **state)
{
    struct fleet fleet;

    (void)state;
    begin(&fleet);
    for (int i = 0; i < 2; i++) {
        fleet.nodes[i].dir = support_mkdtemp();
        launcher_write(fleet.nodes[i].dir, "program",
                       i == 0 ? "#!/bin/sh\nexec sleep 1000\n" : "#!/no/such/interpreter\n");
    }
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "./program");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--", "./program");
    assert_all_end_with(&fleet, 2, 127);
    assert_err(&fleet.nodes[0],
               "): ./program cannot be executed: No such file or directory (is its "
               "interpreter there?)");
    end(&fleet);
}

static void wrong_words_are_said(void **state)
{
    static const struct {
        const char *words[8];
        const char *text;
    } rows[] = {
        {{"--nnodes", "2"}, "--nnodes 2: the machines have to meet: add --rdzv tcp://HOST:PORT"},
        {{"--nnodes", "2", "--node-rank", "2", "--rdzv", "tcp://a:1"},
         "--node-rank 2: with --nnodes 2 it is from 0 to 1"},
        {{"--nnodes", "2", "--rdzv", "http://a:1"},
         "--rdzv http://a:1: neither tcp://HOST:PORT nor file:///FOLDER"},
        {{"--node-rank", "0"}, "--node-rank needs --nnodes and --rdzv"},
        {{"--hosts", "a", "--nnodes", "2", "--rdzv", "tcp://a:1"},
         "--hosts and --nnodes exclude each other"},
        {{"--hosts", "a", "--hostfile", "b"}, "--hosts and --hostfile exclude each other"},
        {{"--ssh", "rsh"}, "--ssh needs --hosts or --hostfile"},
        {{"--token-file", "x"}, "--token-file"},
        {{"--agent"}, "--agent needs --nnodes, --node-rank and --rdzv"},
    };

    (void)state;
    unsetenv("CDDP_TOKEN");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct launched job = {0};
        const char *words[12] = {NULL};
        int count = 0;

        while (rows[i].words[count] != NULL) {
            words[count] = rows[i].words[count];
            count++;
        }
        words[count] = "--";
        words[count + 1] = "true";
        launcher_start(&job, words);
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 2);
        assert_err(&job, rows[i].text);
        launcher_end(&job);
    }
}

static void pods_of_several_ranks_are_one_job_by_their_variables(void **state)
{
    static const char *const words[] = {
        "--", "sh", "-c", "echo $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE",
        NULL};
    struct fleet fleet;

    (void)state;
    begin_tcp(&fleet);
    start_pod(&fleet, 0, strrchr(fleet.url, ':') + 1, words);
    start_pod(&fleet, 1, strrchr(fleet.url, ':') + 1, words);
    assert_all_end_with(&fleet, 2, 0);
    assert_out(&fleet.nodes[0], "0 of 4, local 0 of 2");
    assert_out(&fleet.nodes[0], "1 of 4, local 1 of 2");
    assert_out(&fleet.nodes[1], "2 of 4, local 0 of 2");
    assert_out(&fleet.nodes[1], "3 of 4, local 1 of 2");
    assert_err(&fleet.nodes[1], "node 1 of 2, which meet at tcp://127.0.0.1:");
    assert_err(&fleet.nodes[1], "(PET_NODE_RANK=1, PET_NNODES=2)");
    end(&fleet);
}

static void check_says_who_this_is_and_who_says_so(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "2", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    LAUNCH(&job, "--check");
    assert_out(&job, "\nlauncher\n");
    assert_out(&job, "SLURM_PROCID=0, SLURM_NTASKS=2");
    assert_out(&job, "as a rank: not known: torchrun and Slurm contradict each other");
    launcher_end(&job);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    LAUNCH(&job, "--check");
    assert_out(&job, "as a rank: 0 of 2, by Slurm");
    launcher_end(&job);
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_NTASKS");
    unsetenv("SLURM_STEP_ID");
    LAUNCH(&job, "--check");
    assert_out(&job, "as a rank: alone");
    assert_out(&job, "as cddp-run: this machine alone");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pods_of_several_ranks_are_one_job_by_their_variables),
        cmocka_unit_test(check_says_who_this_is_and_who_says_so),
        cmocka_unit_test(every_rank_knows_its_place_with_unequal_numbers),
        cmocka_unit_test(nodes_without_a_rank_are_numbered_as_they_come),
        cmocka_unit_test(ranks_of_a_later_node_write_to_stderr_like_those_of_the_first),
        cmocka_unit_test(a_slow_reader_of_one_node_does_no_harm_with_many_ranks_on_another),
        cmocka_unit_test(a_node_with_another_token_is_told_of_on_all),
        cmocka_unit_test(a_node_of_another_version_is_told_of_on_all),
        cmocka_unit_test(the_nodes_that_did_not_come_are_named),
        cmocka_unit_test(a_wrong_token_is_refused_and_does_no_harm),
        cmocka_unit_test(a_store_that_others_reach_needs_a_secret),
        cmocka_unit_test(a_token_file_of_ones_own_is_taken),
        cmocka_unit_test(a_short_token_is_hidden_and_one_that_cannot_be_is_said),
        cmocka_unit_test(only_a_machine_with_that_address_can_be_node_0),
        cmocka_unit_test(a_name_that_is_not_known_is_waited_for_and_then_said),
        cmocka_unit_test(two_jobs_on_one_port_are_told_apart),
        cmocka_unit_test(other_options_on_one_node_are_said_once_on_all),
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
        cmocka_unit_test(wrong_words_are_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
