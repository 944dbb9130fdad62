/* test_launch_slurm.c - which rank a process is, given exactly the variables that Slurm sets, and
 * where the ranks of a step find their token, without other hosts. */
#include "group/launch/launch_env.h"
#include "group/launch/launch_node.h"
#include "support/failure.h"
#include "support/who.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* As slurm 22.05 sets them for rank 4 of srun --nodes 3 --ntasks 5. */
static void set_slurm(void)
{
    static const char *const variables[][2] = {{"SLURM_JOB_ID", "1234"},
                                               {"SLURM_JOBID", "1234"},
                                               {"SLURM_STEP_ID", "2"},
                                               {"SLURM_STEPID", "2"},
                                               {"SLURM_PROCID", "4"},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_NODEID", "2"},
                                               {"SLURM_NTASKS", "5"},
                                               {"SLURM_NPROCS", "5"},
                                               {"SLURM_NNODES", "3"},
                                               {"SLURM_JOB_NUM_NODES", "3"},
                                               {"SLURM_STEP_NUM_NODES", "3"},
                                               {"SLURM_STEP_NUM_TASKS", "5"},
                                               {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                               {"SLURM_JOB_NODELIST", "node[03-05]"},
                                               {"SLURM_STEP_NODELIST", "node[03-05]"},
                                               {"SLURM_SUBMIT_DIR", "nowhere"},
                                               {NULL, NULL}};

    who_set(variables);
}

static void a_slurm_step_on_several_nodes_meets_on_its_first_node(void **state)
{
    (void)state;
    set_slurm();
    who_is(4, 5, 0, 1, "tcp://node03:29746"); /* 20000 + (16 x 1234 + 2) modulo 10000 */
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_NODEID", "1", 1);
    setenv("SLURM_LOCALID", "1", 1);
    who_is(3, 5, 1, 2, "tcp://node03:29746");
    setenv("SLURM_STEP_ID", "3", 1);
    who_is(3, 5, 1, 2, "tcp://node03:29747");
    setenv("CDDP_STORE", "tcp://login:4711", 1);
    who_is(3, 5, 1, 2, "tcp://login:4711");
    unsetenv("SLURM_STEP_NODELIST");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    unsetenv("CDDP_STORE");
    who_is(3, 5, 1, 2, "tcp://node03:29747");
}

static void what_is_wrong_in_slurm_s_variables_is_named(void **state)
{
    (void)state;
    set_slurm();
    who_is_refused("SLURM_STEP_TASKS_PER_NODE", "2(x2),2");
    who_is_refused("SLURM_STEP_TASKS_PER_NODE", "2(x");
    who_is_refused("SLURM_STEP_TASKS_PER_NODE", "5");
    who_is_refused("SLURM_STEP_NODELIST", "node[3");
    who_is_refused("SLURM_NODEID", "3");
    who_is_refused("SLURM_LOCALID", "1");
    who_is_refused("SLURM_STEP_ID", NULL);
    who_is_refused("SLURM_JOB_ID", NULL);
    setenv("SLURM_PROCID", "0", 1);
    who_is_refused("CDDP_STORE", NULL); /* rank 0 is on node 2: the text says to set it */
}

static void a_slurm_step_on_one_node_meets_in_a_file(void **state)
{
    struct cddpi_launch_env env;

    (void)state;
    set_slurm();
    setenv("SLURM_STEP_TASKS_PER_NODE", "5", 1);
    setenv("SLURM_NODEID", "0", 1);
    setenv("SLURM_LOCALID", "4", 1);
    setenv("TMPDIR", getenv("HOME"), 1);
    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
    assert_int_equal(env.local_world_size, 5);
    assert_int_equal(strncmp(env.store, "file://", 7), 0);
    assert_string_equal(env.token_file, "");
    assert_int_equal(rmdir(env.folder), 0);
    unsetenv("TMPDIR");
}

enum { RANKS = 6 };

/* What ranks tell each other. */
struct shared {
    atomic_int here[2];
    char tokens[RANKS][64];
};

static void barrier(struct shared *shared, int which)
{
    atomic_fetch_add(&shared->here[which], 1);
    while (atomic_load(&shared->here[which]) < RANKS) {
        support_sleep_ms(1);
    }
}

static int token_rank(int rank, int n, void *argument)
{
    struct shared *shared = argument;
    struct cddpi_launch_env env;

    CHECK(cddpi_launch_env_read(NULL, &env) == CDDP_OK);
    CHECK(strlen(env.token) == 32);
    snprintf(shared->tokens[rank], sizeof shared->tokens[0], "%.40s", env.token);
    barrier(shared, 0);
    for (int r = 0; r < n; r++) {
        CHECK(strcmp(shared->tokens[r], env.token) == 0);
    }
    CHECK(rank != 0 || unlink(env.token_file) == 0);
    barrier(shared, 1);
    CHECK(cddpi_launch_env_read(NULL, &env) == CDDP_OK); /* still known, without the file */
    CHECK(strcmp(env.token, shared->tokens[rank]) == 0 && access(env.token_file, F_OK) != 0);
    return 0;
}

static void one_rank_makes_the_token_and_all_read_it(void **state)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(shared != MAP_FAILED);
    set_slurm();
    assert_int_equal(run_ranks(RANKS, token_rank, shared), 0);
    munmap(shared, sizeof *shared);
}

static const char *in_home(const char *name)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s/%s", getenv("HOME"), name);
    return path;
}

/* In a process of its own, which has no token yet: the error has @p text; NULL: there is none, and
 * the token's file is in the submit directory. */
static int alone(int rank, int n, void *argument)
{
    struct cddpi_launch_env env;
    cddp_status status = cddpi_launch_env_read(NULL, &env);

    (void)rank;
    (void)n;
    if (argument == NULL) {
        CHECK(status == CDDP_OK);
        CHECK(strstr(env.token_file, "/submit/.cddp-slurm-1234.2.token") != NULL);
        CHECK(unlink(env.token_file) == 0);
        return 0;
    }
    CHECK(status != CDDP_OK && last_error_has(argument));
    return 0;
}

static void a_token_that_others_could_read_or_nobody_wrote_is_refused(void **state)
{
    char path[4200];

    (void)state;
    set_slurm();
    setenv("CDDP_TIMEOUT_MS", "200", 1);
    assert_int_equal(mkdir(in_home(".cddp"), 0700), 0);
    snprintf(path, sizeof path, "%s", in_home(".cddp/slurm-1234.2.token"));
    support_write_file(path, "", 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(run_ranks(1, alone, "has had no token in it for 200 ms"), 0);
    support_write_file(path, "0123456789abcdef0123456789abcdef\n", 33);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(run_ranks(1, alone, "is not a file that this user alone can read"), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(run_ranks(1, alone, "slurm-1234.2.token"), 0);
}

/* A pipe that nobody writes to would be waited for beyond every deadline; a device has effects. */
static void what_is_no_file_in_the_tokens_place_blocks_nobody(void **state)
{
    char paths[2][4200];

    (void)state;
    set_slurm();
    setenv("CDDP_TIMEOUT_MS", "200", 1);
    assert_int_equal(mkdir(in_home(".cddp"), 0700), 0);
    assert_int_equal(mkdir(in_home("submit"), 0700), 0);
    setenv("SLURM_SUBMIT_DIR", in_home("submit"), 1);
    snprintf(paths[0], sizeof paths[0], "%s", in_home(".cddp/slurm-1234.2.token"));
    snprintf(paths[1], sizeof paths[1], "%s", in_home("submit/.cddp-slurm-1234.2.token"));
    for (int i = 0; i < 2; i++) {
        const char *path = paths[i];

        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(run_ranks(1, alone, "a named pipe"), 0);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("/dev/zero", path), 0);
        assert_int_equal(run_ranks(1, alone, "remove it"), 0);
        assert_int_equal(unlink(path), 0);
        setenv("HOME", "/proc/nowhere", 1);
    }
}

static void without_a_home_the_token_is_in_the_submit_directory(void **state)
{
    (void)state;
    set_slurm();
    assert_int_equal(mkdir(in_home("submit"), 0700), 0);
    setenv("SLURM_SUBMIT_DIR", in_home("submit"), 1);
    setenv("HOME", "/proc/nowhere", 1);
    assert_int_equal(run_ranks(1, alone, NULL), 0);
    setenv("SLURM_SUBMIT_DIR", "/proc/nowhere", 1);
    assert_int_equal(run_ranks(1, alone, "export CDDP_TOKEN=$(openssl rand -hex 16)"), 0);
    unsetenv("HOME");
    assert_int_equal(run_ranks(1, alone, "$HOME/.cddp (it is not set)"), 0);
}

static void a_slurm_step_s_cddp_run_is_one_of_its_nodes(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};
    char token[256];
    char file[600];

    (void)state;
    set_slurm();
    who_is_no_node(none, "several on a machine");
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1); /* the job's SLURM_NTASKS stays 5 */
    setenv("SLURM_PROCID", "2", 1);
    who_is_node(2, 3, 0, "tcp://node03:29746");
    assert_int_equal(cddpi_launch_node_token(token, sizeof token, file, sizeof file), CDDP_OK);
    assert_int_equal(strlen(token), 32);
    assert_int_equal(unlink(file), 0);
}

static void a_slurm_script_that_would_leave_nodes_idle_is_told_so(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};
    struct cddpi_launch_node node;

    (void)state;
    set_slurm();
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NODEID", "0", 1);
    unsetenv("SLURM_STEP_ID");
    who_is_no_node(none, "Slurm's job has 3 nodes");
    setenv("SLURM_STEP_ID", "4294967291", 1);
    who_is_no_node(none, "Slurm's job has 3 nodes");
    assert_int_equal(cddpi_launch_node_read(&(struct cddpi_launch_given){.nodes = 1}, &node),
                     CDDP_OK);
    assert_int_equal(
        cddpi_launch_node_read(&(struct cddpi_launch_given){.starts_hosts = true}, &node), CDDP_OK);
    setenv("SLURM_STEP_ID", "4294967290", 1); /* salloc's shell has a reader */
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_int_equal(cddpi_launch_node_read(&none, &node), CDDP_OK);
    assert_non_null(strstr(node.warning, "Slurm's job has 3 nodes"));
    setenv("SLURM_JOB_NUM_NODES", "1", 1);
    setenv("SLURM_STEP_ID", "4294967291", 1);
    assert_int_equal(cddpi_launch_node_read(&none, &node), CDDP_OK); /* many tasks, one node */
    assert_int_equal(node.nodes, 1);
    assert_string_equal(node.warning, "");
}

/* The step's number of nodes need only be enough: others may come, or wait. */
static void nodes_that_come_and_go_are_as_many_as_slurm_has_started(void **state)
{
    struct cddpi_launch_given given = {.nodes = 4, .least = 2};
    struct cddpi_launch_node node;

    (void)state;
    set_slurm();
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NODEID", "2", 1);
    setenv("SLURM_LOCALID", "0", 1);
    assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK);
    assert_int_equal(node.node, 2);
    assert_int_equal(node.nodes, 3);
    assert_int_equal(strncmp(node.rdzv, "tcp://", 6), 0);
    given.nodes = 2;
    assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK);
    given = (struct cddpi_launch_given){.nodes = 6, .least = 4};
    who_is_no_node(given, "--nnodes 4:6 needs at least 4 nodes, and Slurm has started 3 (");
}

static void salloc_s_shell_is_alone_or_what_its_step_says(void **state)
{
    (void)state;
    set_slurm();
    setenv("SLURM_STEP_ID", "4294967290", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1", 1);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NODEID", "0", 1);
    who_is_alone();
    unsetenv("SLURM_STEP_NUM_TASKS"); /* NTASKS is the job's */
    who_is_alone();
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NODEID", "2", 1);
    who_is(2, 3, 0, 1, "tcp://node03:27034");
    unsetenv("SLURM_PROCID"); /* salloc without an interactive step */
    who_is_alone();
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, who_clear, who_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_slurm_step_on_several_nodes_meets_on_its_first_node),
        CASE(what_is_wrong_in_slurm_s_variables_is_named),
        CASE(a_slurm_step_on_one_node_meets_in_a_file),
        CASE(one_rank_makes_the_token_and_all_read_it),
        CASE(a_token_that_others_could_read_or_nobody_wrote_is_refused),
        CASE(what_is_no_file_in_the_tokens_place_blocks_nobody),
        CASE(without_a_home_the_token_is_in_the_submit_directory),
        CASE(a_slurm_step_s_cddp_run_is_one_of_its_nodes),
        CASE(a_slurm_script_that_would_leave_nodes_idle_is_told_so),
        CASE(nodes_that_come_and_go_are_as_many_as_slurm_has_started),
        CASE(salloc_s_shell_is_alone_or_what_its_step_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
