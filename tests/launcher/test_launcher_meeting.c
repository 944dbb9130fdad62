/* test_launcher_meeting.c - how cddp-runs that are started one by one, with --nnodes and --rdzv,
 * find each other, and the messages if they do not. Here all machines are this one. */
#include "support/fleet.h"

#include <cddp/store.h>

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
    fleet_begin(&fleet);
    START(&fleet, 2, "3", "2", "--nproc", "2", "--", "sh", "-c", script);
    START(&fleet, 1, "3", "1", "--nproc", "3", "--", "sh", "-c", script);
    START(&fleet, 0, "3", "0", "--nproc", "1", "--", "sh", "-c", script);
    fleet_ends_with(&fleet, 3, 0);
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
    fleet_end(&fleet);
}

static void nodes_without_a_rank_are_numbered_as_they_come(void **state)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        struct fleet fleet;

        (void)state;
        (is_tcp ? fleet_begin_tcp : fleet_begin)(&fleet);
        for (int i = 0; i < 3; i++) {
            START(&fleet, i, "3", NULL, "--nproc", "2", "--", "sh", "-c",
                  "echo up >$SHARED/up$RANK");
        }
        fleet_ends_with(&fleet, 3, 0);
        for (int rank = 0; rank < 6; rank++) {
            char name[16];

            snprintf(name, sizeof name, "up%d", rank);
            launcher_await_text(fleet.folder, name, "up");
        }
        for (int i = 0; i < 3; i++) {
            assert_err(&fleet.nodes[i], " of 3, by order of arrival\n");
        }
        fleet_end(&fleet);
    }
}

/* Only the node itself would know, and who refused it. */
static void a_node_with_another_token_is_told_of_on_all(void **state)
{
    static const char refused[] = "127.0.0.1 (it does not know the job's token)";
    struct fleet fleet;
    char *text;

    (void)state;
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "3", "0", "--timeout", "6", "--nproc", "1", "--", "true");
    START(&fleet, 1, "3", "1", "--timeout", "6", "--nproc", "1", "--", "true");
    setenv("CDDP_TOKEN", "fedcba9876543210", 1);
    START(&fleet, 2, "3", "2", "--timeout", "6", "--nproc", "1", "--", "true");
    launcher_await_text(fleet.nodes[1].dir, "err", refused);
    text = launcher_read(fleet.nodes[1].dir, "err");
    launcher_need_absence(text, "did not come", "stderr");
    free(text);
    fleet_wait(&fleet, 3);
    for (int i = 0; i < 2; i++) {
        assert_err(&fleet.nodes[i], "this token? The job's store has refused ");
        assert_err(&fleet.nodes[i], refused);
    }
    assert_err(&fleet.nodes[2], "token");
    fleet_end(&fleet);
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
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "3", "0", "--timeout", "4", "--nproc", "1", "--", "true");
    START(&fleet, 1, "3", "1", "--timeout", "4", "--nproc", "1", "--", "true");
    come_with_another_version((uint16_t)atoi(strrchr(fleet.url, ':') + 1));
    launcher_await_text(fleet.nodes[1].dir, "err", refused);
    fleet_wait(&fleet, 2);
    for (int i = 0; i < 2; i++) {
        assert_err(&fleet.nodes[i], refused);
    }
    fleet_end(&fleet);
}

/* What a cddp-run of another version says of itself, under the key where it does. */
static void say_in_another_version(const struct fleet *fleet)
{
    static const unsigned char record[24] = {'c', 'd', 'd', 'p', 'r', 'u', 'n', '1', 9, 0, 0, 0, 2};
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    void *job = NULL;
    char key[128];

    options.url = fleet->url;
    options.token = getenv("CDDP_TOKEN");
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    assert_int_equal(cddp_store_open(&options, &store), CDDP_OK);
    assert_int_equal(cddp_store_get(store, "cddp-run/job", 0, &job, NULL), CDDP_OK);
    snprintf(key, sizeof key, "%s/0/node/1", (char *)job);
    assert_int_equal(cddp_store_set(store, key, record, sizeof record), CDDP_OK);
    cddp_free(job);
    cddp_store_close(store);
}

static void a_node_whose_messages_are_of_another_version_ends_the_meeting(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "3", "0", "--nproc", "1", "--", "true");
    START(&fleet, 2, "3", "2", "--nproc", "1", "--", "true");
    say_in_another_version(&fleet);
    for (int i = 0; i <= 2; i += 2) {
        launcher_wait(&fleet.nodes[i]);
        assert_int_equal(fleet.nodes[i].exit_status, 2);
        assert_err(&fleet.nodes[i], "cddp-run: node 1 is of another cddp version than node 0 (");
    }
    fleet_end(&fleet);
}

static void the_nodes_that_did_not_come_are_named(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "4", "0", "--timeout", "1", "--nproc", "1", "--", "true");
    fleet_wait(&fleet, 1);
    assert_int_not_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[0],
               "of 4 nodes these did not come within 1 s: 1, 2, 3 (these did: 0 (");
    fleet_end(&fleet);
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "2", "1", "--timeout", "1", "--nproc", "1", "--", "true");
    fleet_wait(&fleet, 1);
    assert_int_not_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[0],
               "node 0 did not come, or cannot be reached, within 1 s: store tcp://");
    fleet_end(&fleet);
}

static void a_wrong_token_is_refused_and_does_no_harm(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "true");
    setenv("CDDP_TOKEN", "another", 1);
    START(&fleet, 1, "2", "1", "--timeout", "3", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[1]);
    assert_int_not_equal(fleet.nodes[1].exit_status, 0);
    assert_err(&fleet.nodes[1], "token");
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    START(&fleet, 2, "2", "1", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[2]);
    launcher_wait(&fleet.nodes[0]);
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    assert_int_equal(fleet.nodes[2].exit_status, 0);
    fleet_end(&fleet);
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
    fleet_begin_tcp(&fleet);
    START(&fleet, 0, "1", "0", "--nproc", "1", "--", "sh", "-c", WAITS);
    (void)fleet_supervisor(&fleet, 0);
    START(&fleet, 1, "1", "0", "--nproc", "1", "--", "true");
    launcher_wait(&fleet.nodes[1]);
    assert_int_not_equal(fleet.nodes[1].exit_status, 0);
    assert_err(&fleet.nodes[1], "is in use already: by another job?");
    kill(fleet.nodes[0].pid, SIGTERM);
    launcher_wait(&fleet.nodes[0]);
    assert_int_equal(fleet.nodes[0].exit_status, 128 + SIGTERM);
    fleet_end(&fleet);
}

/* Both nodes say @p text, and nothing runs. */
static void assert_refused(struct fleet *fleet, const char *text)
{
    fleet_wait(fleet, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fleet->nodes[i].exit_status, 2);
        assert_err(&fleet->nodes[i], text);
        assert_int_equal(launcher_count(fleet->nodes[i].err, text), 1);
    }
    assert_null(launcher_read(fleet->folder, "ran"));
    fleet_end(fleet);
}

static void other_options_on_one_node_are_said_once_on_all(void **state)
{
    struct fleet fleet;

    (void)state;
    fleet_begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--", "sh", "-c", "echo x >$SHARED/ran");
    assert_refused(&fleet, ") was started to run something else than node 0 (");
    fleet_begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "3", "2", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    assert_refused(&fleet, ") was started with --nnodes 3, node 0 (");
    fleet_begin(&fleet);
    START(&fleet, 0, "2", "0", "--nproc", "1", "--", "sh", "-c", "echo ran >$SHARED/ran");
    START(&fleet, 1, "2", "1", "--nproc", "1", "--max-restarts", "3", "--", "sh", "-c",
          "echo ran >$SHARED/ran");
    assert_refused(&fleet, ") was started with --max-restarts 3, node 0 (");
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
        {{"--hosts", "a", "--nnodes", "2", "--rdzv", "tcp://a:1"}, "--hosts and --nnodes"},
        {{"--nnodes", "1:2"}, "--nnodes 1:2: the machines have to meet: add --rdzv"},
        {{"--nnodes", "3:2", "--rdzv", "tcp://a:1"}, "--nnodes 3:2: MIN is larger than MAX"},
        {{"--nnodes", "0:2", "--rdzv", "tcp://a:1"}, "--nnodes 0:2: not MIN:MAX, such as 2:4"},
        {{"--nnodes", "1:5000", "--rdzv", "tcp://a:1"}, "with whole numbers from 1 to 4096"},
        {{"--nnodes", "1:", "--rdzv", "tcp://a:1"}, "--nnodes 1:: not MIN:MAX"},
        {{"--nnodes", "1:2:3", "--rdzv", "tcp://a:1"}, "--nnodes 1:2:3: not MIN:MAX"},
        {{"--nnodes", "1:x", "--rdzv", "tcp://a:1"}, "--nnodes 1:x: not MIN:MAX"},
        {{"--nnodes", "3:4", "--hosts", "a,b"},
         "--nnodes 3:4: the job needs at least 3 hosts, and the list has 2"},
        {{"--nnodes", "2", "--hosts", "a,b"}, "--hosts and --nnodes exclude each other"},
        {{"--elastic", "2"}, "--elastic 2: not MIN:MAX"},
        {{"--elastic", "3:2"}, "--elastic 3:2: MIN is larger than MAX"},
        {{"--elastic", "0:2"}, "--elastic 0:2: not MIN:MAX"},
        {{"--elastic", "1:2", "--nnodes", "2", "--rdzv", "tcp://a:1"},
         "--elastic and --nnodes exclude each other"},
        {{"--elastic", "1:2", "--rdzv", "tcp://a:1"}, "--elastic and --rdzv exclude each other"},
        {{"--elastic", "1:2", "--hosts", "a"}, "--elastic and --hosts exclude each other"},
        {{"--elastic", "2:3", "--nproc", "4"}, "--nproc 4: with --elastic 2:3 it is from 2 to 3"},
        {{"--elastic", "2:3", "--nproc", "1"}, "--nproc 1: with --elastic 2:3 it is from 2 to 3"},
        {{"--hosts", "a", "--hostfile", "b"}, "--hosts and --hostfile"},
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
    fleet_begin_tcp(&fleet);
    fleet_start_pod(&fleet, 0, strrchr(fleet.url, ':') + 1, words);
    fleet_start_pod(&fleet, 1, strrchr(fleet.url, ':') + 1, words);
    fleet_ends_with(&fleet, 2, 0);
    assert_out(&fleet.nodes[0], "0 of 4, local 0 of 2");
    assert_out(&fleet.nodes[0], "1 of 4, local 1 of 2");
    assert_out(&fleet.nodes[1], "2 of 4, local 0 of 2");
    assert_out(&fleet.nodes[1], "3 of 4, local 1 of 2");
    assert_err(&fleet.nodes[1], "node 1 of 2, which meet at tcp://127.0.0.1:");
    assert_err(&fleet.nodes[1], "(PET_NODE_RANK=1, PET_NNODES=2)");
    fleet_end(&fleet);
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
    assert_out(&job, "as a rank: not known: torchrun and Slurm ");
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
        cmocka_unit_test(a_node_with_another_token_is_told_of_on_all),
        cmocka_unit_test(a_node_of_another_version_is_told_of_on_all),
        cmocka_unit_test(a_node_whose_messages_are_of_another_version_ends_the_meeting),
        cmocka_unit_test(the_nodes_that_did_not_come_are_named),
        cmocka_unit_test(a_wrong_token_is_refused_and_does_no_harm),
        cmocka_unit_test(a_store_that_others_reach_needs_a_secret),
        cmocka_unit_test(a_token_file_of_ones_own_is_taken),
        cmocka_unit_test(a_short_token_is_hidden_and_one_that_cannot_be_is_said),
        cmocka_unit_test(only_a_machine_with_that_address_can_be_node_0),
        cmocka_unit_test(a_name_that_is_not_known_is_waited_for_and_then_said),
        cmocka_unit_test(two_jobs_on_one_port_are_told_apart),
        cmocka_unit_test(other_options_on_one_node_are_said_once_on_all),
        cmocka_unit_test(wrong_words_are_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
