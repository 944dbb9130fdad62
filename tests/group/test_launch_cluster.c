/* test_launch_cluster.c - who a rank is by exactly the variables that Slurm, the training operator
 * and an indexed Job set, read without other hosts. */
#include "group/launch/launch_env.h"
#include "group/launch/launch_node.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

extern char **environ;

/* Nothing is left of this machine's own launchers. */
static int clear_environment(void **state)
{
    char *home = support_mkdtemp();

    (void)state;
    for (char **at = environ; *at != NULL;) {
        static const char *const keep[] = {"PATH=", "TMPDIR=", "CDDP_TEST_",
                                           "LSAN",  "ASAN",    "UBSAN"};
        bool kept = false;

        for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
            kept = kept || strncmp(*at, keep[i], strlen(keep[i])) == 0;
        }
        if (kept) {
            at++;
        } else {
            char name[256];

            snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
            unsetenv(name);
            at = environ;
        }
    }
    setenv("HOME", home, 1);
    free(home); /* the folder goes with the process */
    return 0;
}

static void set_all(const char *const (*variables)[2])
{
    for (; (*variables)[0] != NULL; variables++) {
        setenv((*variables)[0], (*variables)[1], 1);
    }
}

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

    set_all(variables);
}

/* As training operator 1.8 sets them in a worker's pod. */
static void set_pytorch_job(void)
{
    static const char *const variables[][2] = {{"PYTHONUNBUFFERED", "1"},
                                               {"MASTER_PORT", "23456"},
                                               {"PET_MASTER_PORT", "23456"},
                                               {"MASTER_ADDR", "job-master-0"},
                                               {"PET_MASTER_ADDR", "job-master-0"},
                                               {"WORLD_SIZE", "3"},
                                               {"RANK", "2"},
                                               {"PET_NPROC_PER_NODE", "auto"},
                                               {"PET_NODE_RANK", "2"},
                                               {"PET_NNODES", "3"},
                                               {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {"KUBERNETES_SERVICE_PORT", "443"},
                                               {"CDDP_TOKEN", SUPPORT_TOKEN},
                                               {NULL, NULL}};

    set_all(variables);
}

static void set_elastic_job(void)
{
    static const char *const variables[][2] = {{"PET_RDZV_ENDPOINT", "job-worker-0:23456"},
                                               {"PET_RDZV_BACKEND", "c10d"},
                                               {"PET_NNODES", "3:3"},
                                               {"PET_NODE_RANK", "1"},
                                               {"PET_MAX_RESTARTS", "3"},
                                               {"CDDP_TOKEN", SUPPORT_TOKEN},
                                               {NULL, NULL}};

    set_all(variables);
}

static void set_indexed_job(void)
{
    static const char *const variables[][2] = {{"JOB_COMPLETION_INDEX", "1"},
                                               {"WORLD_SIZE", "4"},
                                               {"MASTER_ADDR", "train-0.train"},
                                               {"CDDP_TOKEN", SUPPORT_TOKEN},
                                               {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {NULL, NULL}};

    set_all(variables);
}

/* Rank, world size, local rank, local world size, store. */
static void is(int rank, int world_size, int local_rank, int local_world_size, const char *store)
{
    struct cddpi_launch_env env;

    if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.world_size, world_size);
    assert_int_equal(env.local_rank, local_rank);
    assert_int_equal(env.local_world_size, local_world_size);
    assert_string_equal(env.store, store);
    assert_true(env.token[0] != '\0');
    assert_true(env.hosts_store);
}

/* The error's text has @p name once @p name is @p value; NULL: is not set. */
static void refused(const char *name, const char *value)
{
    struct cddpi_launch_env env;
    char *before = getenv(name) != NULL ? strdup(getenv(name)) : NULL;

    if (value != NULL) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
    if (cddpi_launch_env_read(NULL, &env) != CDDP_ERR_ARGUMENT ||
        strstr(cddp_last_error(), name) == NULL) {
        fail_msg("%s=%s: %s", name, value != NULL ? value : "", cddp_last_error());
    }
    if (before != NULL) {
        setenv(name, before, 1);
    } else {
        unsetenv(name);
    }
    free(before);
}

static void a_slurm_step_on_several_nodes_meets_on_its_first_node(void **state)
{
    (void)state;
    set_slurm();
    is(4, 5, 0, 1, "tcp://node03:29746"); /* 20000 + (16 x 1234 + 2) modulo 10000 */
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_NODEID", "1", 1);
    setenv("SLURM_LOCALID", "1", 1);
    is(3, 5, 1, 2, "tcp://node03:29746");
    setenv("SLURM_STEP_ID", "3", 1);
    is(3, 5, 1, 2, "tcp://node03:29747");
    setenv("CDDP_STORE", "tcp://login:4711", 1);
    is(3, 5, 1, 2, "tcp://login:4711");
    unsetenv("SLURM_STEP_NODELIST");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    unsetenv("CDDP_STORE");
    is(3, 5, 1, 2, "tcp://node03:29747");
}

static void what_is_wrong_in_slurm_s_variables_is_named(void **state)
{
    (void)state;
    set_slurm();
    refused("SLURM_STEP_TASKS_PER_NODE", "2(x2),2");
    refused("SLURM_STEP_TASKS_PER_NODE", "2(x");
    refused("SLURM_STEP_TASKS_PER_NODE", "5");
    refused("SLURM_STEP_NODELIST", "node[3");
    refused("SLURM_NODEID", "3");
    refused("SLURM_LOCALID", "1");
    refused("SLURM_STEP_ID", NULL);
    refused("SLURM_JOB_ID", NULL);
    setenv("SLURM_PROCID", "0", 1);
    refused("CDDP_STORE", NULL); /* rank 0 is on node 2: the text says to set it */
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
    CHECK(status != CDDP_OK && strstr(cddp_last_error(), argument) != NULL);
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

static void a_pod_of_a_pytorch_job_is_alone_on_its_host(void **state)
{
    (void)state;
    set_pytorch_job();
    is(2, 3, 0, 1, "tcp://job-master-0:23456");
    unsetenv("PET_NNODES"); /* older operators set fewer */
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_NPROC_PER_NODE");
    is(2, 3, 0, 1, "tcp://job-master-0:23456");
    refused("CDDP_TOKEN", NULL);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    refused("LOCAL_RANK", NULL); /* this is not what torchrun or cddp-run starts in the pod */
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("WORLD_SIZE", "6", 1);
    is(2, 6, 1, 2, "tcp://job-master-0:23456");
}

static void a_pod_of_an_elastic_job_has_no_rank_but_a_number(void **state)
{
    (void)state;
    set_elastic_job();
    is(1, 3, 0, 1, "tcp://job-worker-0:23456");
    setenv("PET_NNODES", "3", 1);
    is(1, 3, 0, 1, "tcp://job-worker-0:23456");
    setenv("PET_RDZV_ENDPOINT", "job-worker-0", 1);
    is(1, 3, 0, 1, "tcp://job-worker-0:29500");
    refused("PET_NNODES", "1:3");
    refused("PET_NNODES", "many");
    refused("PET_NODE_RANK", "3");
    refused("CDDP_TOKEN", NULL);
}

static void a_pod_of_an_indexed_job_has_its_index_for_a_rank(void **state)
{
    (void)state;
    set_indexed_job();
    is(1, 4, 0, 1, "tcp://train-0.train:29500");
    setenv("MASTER_PORT", "5000", 1);
    is(1, 4, 0, 1, "tcp://train-0.train:5000");
    setenv("CDDP_WORLD_SIZE", "3", 1);
    is(1, 3, 0, 1, "tcp://train-0.train:5000");
    setenv("CDDP_STORE", "tcp://train-0.train:6000", 1);
    is(1, 3, 0, 1, "tcp://train-0.train:6000");
    refused("CDDP_TOKEN", NULL);
    refused("JOB_COMPLETION_INDEX", "3");
    unsetenv("CDDP_STORE");
    refused("MASTER_ADDR", NULL);
    refused("MASTER_PORT", "0");
    unsetenv("WORLD_SIZE");
    unsetenv("CDDP_WORLD_SIZE");
    setenv("JOB_COMPLETION_INDEX", "7", 1);
    {
        struct cddpi_launch_env env; /* pods that have nothing to do with each other */

        assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
        assert_string_equal(env.origin, "a lone process");
    }
}

/* As Kubeflow's second Trainer sets them; it gives Jobs indices, too. */
static void set_train_job(void)
{
    static const char *const variables[][2] = {{"PET_NNODES", "2"},
                                               {"PET_NPROC_PER_NODE", "1"},
                                               {"PET_NODE_RANK", "1"},
                                               {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                               {"PET_MASTER_PORT", "29511"},
                                               {"JOB_COMPLETION_INDEX", "1"},
                                               {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {"CDDP_TOKEN", "from the Secret of this test"},
                                               {NULL, NULL}};

    set_all(variables);
}

static void a_pod_of_a_train_job_is_a_rank(void **state)
{
    (void)state;
    set_train_job();
    is(1, 2, 0, 1, "tcp://job-node-0-0.job:29511");
    unsetenv("JOB_COMPLETION_INDEX");
    unsetenv("KUBERNETES_SERVICE_HOST");
    is(1, 2, 0, 1, "tcp://job-node-0-0.job:29511");
    setenv("PET_NPROC_PER_NODE", "auto", 1);
    unsetenv("PET_MASTER_PORT");
    is(1, 2, 0, 1, "tcp://job-node-0-0.job:29500");
    refused("PET_MASTER_ADDR", NULL); /* not alone */
    refused("PET_NNODES", NULL);
    refused("PET_NODE_RANK", NULL); /* this host's name has no number */
    refused("PET_MASTER_PORT", "tcp://10.0.0.1:29500");
    refused("PET_NPROC_PER_NODE", "2"); /* that is for cddp-run to start */
    setenv("PET_RDZV_ENDPOINT", "job-node-0-0.job:29400", 1);
    is(1, 2, 0, 1, "tcp://job-node-0-0.job:29400");
}

/* Node, nodes, ranks of each, and where they meet. */
static void is_node(int node, int nodes, int nproc, const char *rdzv)
{
    struct cddpi_launch_given given = {.nodes = 0};
    struct cddpi_launch_node read;

    if (cddpi_launch_node_read(&given, &read) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(read.node, node);
    assert_int_equal(read.nodes, nodes);
    assert_int_equal(read.nproc, nproc);
    assert_string_equal(read.rdzv, rdzv);
}

static void is_no_node(struct cddpi_launch_given given, const char *text)
{
    struct cddpi_launch_node node;

    if (cddpi_launch_node_read(&given, &node) != CDDP_ERR_ARGUMENT ||
        strstr(cddp_last_error(), text) == NULL) {
        fail_msg("%s is not in: %s", text, cddp_last_error());
    }
}

static void a_pod_s_cddp_run_is_a_machine_of_as_many_as_there_are_pods(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};

    (void)state;
    set_train_job();
    setenv("PET_NPROC_PER_NODE", "4", 1);
    is_node(1, 2, 4, "tcp://job-node-0-0.job:29511");
    is_no_node((struct cddpi_launch_given){.nodes = 3}, "--nnodes 3 and Kubeflow (PET_NODE_RANK=1");
    (void)clear_environment(NULL);
    set_pytorch_job();
    is_node(2, 3, 0, "tcp://job-master-0:23456");
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("WORLD_SIZE", "6", 1); /* it counts processes, RANK and PET_NNODES count pods */
    is_node(2, 3, 2, "tcp://job-master-0:23456");
    setenv("WORLD_SIZE", "5", 1);
    is_no_node(none, "WORLD_SIZE=5 contradict each other");
    (void)clear_environment(NULL);
    set_elastic_job();
    is_node(1, 3, 0, "tcp://job-worker-0:23456");
    (void)clear_environment(NULL);
    set_indexed_job();
    is_node(1, 4, 0, "tcp://train-0.train:29500");
    (void)clear_environment(NULL);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    is_no_node(none, "MASTER_ADDR");
    setenv("MASTER_ADDR", "a", 1);
    setenv("MASTER_PORT", "29500", 1);
    is_node(1, 2, 0, "tcp://a:29500");
}

static void pods_of_a_job_set_meet_by_its_names(void **state)
{
    (void)state;
    setenv("JOB_COMPLETION_INDEX", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("CDDP_TOKEN", "from the Secret of this test", 1);
    setenv("JOBSET_NAME", "train", 1);
    refused("MASTER_ADDR", NULL);
    setenv("REPLICATED_JOB_NAME", "worker", 1);
    is(1, 2, 0, 1, "tcp://train-worker-0-0.train:29500");
    refused("JOB_INDEX", "1"); /* whose pods count from 0, too */
}

static void a_slurm_step_s_cddp_run_is_one_of_its_nodes(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};
    char token[256];
    char file[600];

    (void)state;
    set_slurm();
    is_no_node(none, "several on a machine");
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1); /* the job's SLURM_NTASKS stays 5 */
    setenv("SLURM_PROCID", "2", 1);
    is_node(2, 3, 0, "tcp://node03:29746");
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
    is_no_node(none, "Slurm's job has 3 nodes");
    setenv("SLURM_STEP_ID", "4294967291", 1);
    is_no_node(none, "Slurm's job has 3 nodes");
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

/* That this process trains alone. */
static void is_alone(void)
{
    struct cddpi_launch_env env;

    if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(env.world_size, 1);
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
    is_alone();
    unsetenv("SLURM_STEP_NUM_TASKS"); /* NTASKS is the job's */
    is_alone();
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NODEID", "2", 1);
    is(2, 3, 0, 1, "tcp://node03:27034");
    unsetenv("SLURM_PROCID"); /* salloc without an interactive step */
    is_alone();
}

static void a_service_called_master_is_named_and_not_read_by_a_lone_rank(void **state)
{
    (void)state;
    set_pytorch_job();
    unsetenv("PET_NNODES");
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_MASTER_ADDR");
    unsetenv("PET_NPROC_PER_NODE");
    setenv("MASTER_PORT", "tcp://10.0.0.1:29500", 1);
    refused("MASTER_PORT", "tcp://10.0.0.1:29500");
    assert_non_null(strstr(cddp_last_error(), "a Service called master"));
    assert_non_null(strstr(cddp_last_error(), "enableServiceLinks: false"));
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    is_alone();
    (void)clear_environment(NULL);
    set_indexed_job();
    refused("MASTER_PORT", "tcp://10.0.0.1:29500");
    setenv("MASTER_PORT", "tcp://10.0.0.1:29500", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("JOB_COMPLETION_INDEX", "0", 1);
    is_alone();
}

static void half_of_a_launcher_s_variables_is_an_error(void **state)
{
    static const char *const names[] = {"RANK",          "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",      "PMIX_RANK",  "FLUX_TASK_RANK",
                                        "PET_NODE_RANK", "CDDP_RANK",  "MV2_COMM_WORLD_RANK"};
    struct cddpi_launch_given given = {.nodes = 0};
    struct cddpi_launch_node node;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        refused(names[i], "1");
        setenv(names[i], "1", 1);
        if (strcmp(names[i], "RANK") == 0 || strcmp(names[i], "WORLD_SIZE") == 0) {
            assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK); /* it sets both */
            assert_non_null(strstr(node.warning, names[i]));
        } else {
            is_no_node(given, names[i]);
        }
        unsetenv(names[i]);
    }
}

static void a_launcher_that_nobody_knows_is_warned_of(void **state)
{
    static const char *const pairs[][2] = {
        {"HOROVOD_RANK", "HOROVOD_SIZE"}, {"NODE_RANK", "NNODES"}, {"X_PROCID", "X_NPROCS"}};
    static const char *const none[][2] = {{"LOCAL_RANK", "LOCAL_SIZE"},
                                          {"BUFFER_RANK", "OTHER_SIZE"}};
    struct cddpi_launch_given given = {.nodes = 0};
    struct cddpi_launch_node node;

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        setenv(pairs[i][0], "0", 1);
        setenv(pairs[i][1], "1", 1);
        assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK);
        assert_string_equal(node.warning, "");
        setenv(pairs[i][1], "2", 1);
        assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK);
        assert_non_null(strstr(node.warning, pairs[i][0]));
        assert_non_null(strstr(node.warning, pairs[i][1]));
        unsetenv(pairs[i][0]);
        unsetenv(pairs[i][1]);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        setenv(none[i][0], "0", 1);
        setenv(none[i][1], "2", 1);
        assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK);
        assert_string_equal(node.warning, "");
    }
}

static void torchrun_s_job_and_generation_are_known_to_one_rank_as_well(void **state)
{
    struct cddpi_launch_env env;

    (void)state;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("TORCHELASTIC_RUN_ID", "run", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
    assert_string_equal(env.job, "run");
    assert_int_equal(env.generation, 2);
}

static void what_open_mpi_left_over_in_a_shell_is_told_at_once(void **state)
{
    (void)state;
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("PMIX_NAMESPACE", "1234", 1);
    refused("OMPI_COMM_WORLD_SIZE", "4");
    assert_non_null(strstr(cddp_last_error(), "left over"));
    setenv("PMIX_SERVER_TMPDIR", getenv("HOME"), 1); /* the folder is there, nobody listens */
    setenv("PMIX_SERVER_URI4", "12.0;tcp4://127.0.0.1:9", 1);
    refused("OMPI_COMM_WORLD_SIZE", "4");
    assert_non_null(strstr(cddp_last_error(), "left over"));
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1); /* what is left over is no launcher beside another */
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    is_alone();
}

static void torchrun_on_several_hosts_leaves_its_port_to_itself(void **state)
{
    (void)state;
    set_pytorch_job();
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_RUN_ID", "run", 1);
    is(2, 3, 0, 1, "tcp://job-master-0:23457");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, clear_environment, clear_environment)

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
        CASE(a_pod_of_a_pytorch_job_is_alone_on_its_host),
        CASE(a_pod_of_an_elastic_job_has_no_rank_but_a_number),
        CASE(a_pod_of_an_indexed_job_has_its_index_for_a_rank),
        CASE(a_pod_of_a_train_job_is_a_rank),
        CASE(a_pod_s_cddp_run_is_a_machine_of_as_many_as_there_are_pods),
        CASE(pods_of_a_job_set_meet_by_its_names),
        CASE(a_slurm_step_s_cddp_run_is_one_of_its_nodes),
        CASE(a_slurm_script_that_would_leave_nodes_idle_is_told_so),
        CASE(salloc_s_shell_is_alone_or_what_its_step_says),
        CASE(a_service_called_master_is_named_and_not_read_by_a_lone_rank),
        CASE(half_of_a_launcher_s_variables_is_an_error),
        CASE(a_launcher_that_nobody_knows_is_warned_of),
        CASE(torchrun_s_job_and_generation_are_known_to_one_rank_as_well),
        CASE(what_open_mpi_left_over_in_a_shell_is_told_at_once),
        CASE(torchrun_on_several_hosts_leaves_its_port_to_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
