/* test_launch_cluster.c - which rank a process is, given exactly the variables that the training
 * operator, an indexed Job, torchrun and others set, without other hosts. For Slurm:
 * test_launch_slurm.c. */
#include "group/launch/launch_env.h"
#include "group/launch/launch_node.h"
#include "support/failure.h"
#include "support/who.h"

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

    who_set(variables);
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

    who_set(variables);
}

static void set_indexed_job(void)
{
    static const char *const variables[][2] = {{"JOB_COMPLETION_INDEX", "1"},
                                               {"WORLD_SIZE", "4"},
                                               {"MASTER_ADDR", "train-0.train"},
                                               {"CDDP_TOKEN", SUPPORT_TOKEN},
                                               {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {NULL, NULL}};

    who_set(variables);
}

static void a_pod_of_a_pytorch_job_is_alone_on_its_host(void **state)
{
    (void)state;
    set_pytorch_job();
    who_is(2, 3, 0, 1, "tcp://job-master-0:23456");
    unsetenv("PET_NNODES"); /* older operators set fewer */
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_NPROC_PER_NODE");
    who_is(2, 3, 0, 1, "tcp://job-master-0:23456");
    who_is_refused("CDDP_TOKEN", NULL);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    who_is_refused("LOCAL_RANK",
                   NULL); /* this is not what torchrun or cddp-run starts in the pod */
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("WORLD_SIZE", "6", 1);
    who_is(2, 6, 1, 2, "tcp://job-master-0:23456");
}

static void a_pod_of_an_elastic_job_has_no_rank_but_a_number(void **state)
{
    (void)state;
    set_elastic_job();
    who_is(1, 3, 0, 1, "tcp://job-worker-0:23456");
    setenv("PET_NNODES", "3", 1);
    who_is(1, 3, 0, 1, "tcp://job-worker-0:23456");
    setenv("PET_RDZV_ENDPOINT", "job-worker-0", 1);
    who_is(1, 3, 0, 1, "tcp://job-worker-0:29500");
    who_is_refused("PET_NNODES", "1:3");
    who_is_refused("PET_NNODES", "many");
    who_is_refused("PET_NODE_RANK", "3");
    who_is_refused("CDDP_TOKEN", NULL);
}

static void a_pod_of_an_indexed_job_has_its_index_for_a_rank(void **state)
{
    (void)state;
    set_indexed_job();
    who_is(1, 4, 0, 1, "tcp://train-0.train:29500");
    setenv("MASTER_PORT", "5000", 1);
    who_is(1, 4, 0, 1, "tcp://train-0.train:5000");
    setenv("CDDP_WORLD_SIZE", "3", 1);
    who_is(1, 3, 0, 1, "tcp://train-0.train:5000");
    setenv("CDDP_STORE", "tcp://train-0.train:6000", 1);
    who_is(1, 3, 0, 1, "tcp://train-0.train:6000");
    who_is_refused("CDDP_TOKEN", NULL);
    who_is_refused("JOB_COMPLETION_INDEX", "3");
    unsetenv("CDDP_STORE");
    who_is_refused("MASTER_ADDR", NULL);
    who_is_refused("MASTER_PORT", "0");
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

    who_set(variables);
}

static void a_pod_of_a_train_job_is_a_rank(void **state)
{
    (void)state;
    set_train_job();
    who_is(1, 2, 0, 1, "tcp://job-node-0-0.job:29511");
    unsetenv("JOB_COMPLETION_INDEX");
    unsetenv("KUBERNETES_SERVICE_HOST");
    who_is(1, 2, 0, 1, "tcp://job-node-0-0.job:29511");
    setenv("PET_NPROC_PER_NODE", "auto", 1);
    unsetenv("PET_MASTER_PORT");
    who_is(1, 2, 0, 1, "tcp://job-node-0-0.job:29500");
    who_is_refused("PET_MASTER_ADDR", NULL); /* not alone */
    who_is_refused("PET_NNODES", NULL);
    who_is_refused("PET_NODE_RANK", NULL); /* this host's name has no number */
    who_is_refused("PET_MASTER_PORT", "tcp://10.0.0.1:29500");
    who_is_refused("PET_NPROC_PER_NODE", "2"); /* that is for cddp-run to start */
    setenv("PET_RDZV_ENDPOINT", "job-node-0-0.job:29400", 1);
    who_is(1, 2, 0, 1, "tcp://job-node-0-0.job:29400");
}

static void a_pod_s_cddp_run_is_a_machine_of_as_many_as_there_are_pods(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};

    (void)state;
    set_train_job();
    setenv("PET_NPROC_PER_NODE", "4", 1);
    who_is_node(1, 2, 4, "tcp://job-node-0-0.job:29511");
    who_is_no_node((struct cddpi_launch_given){.nodes = 3},
                   "--nnodes 3 and Kubeflow (PET_NODE_RANK=1");
    (void)who_clear(NULL);
    set_pytorch_job();
    who_is_node(2, 3, 0, "tcp://job-master-0:23456");
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("WORLD_SIZE", "6", 1); /* it counts processes, RANK and PET_NNODES count pods */
    who_is_node(2, 3, 2, "tcp://job-master-0:23456");
    setenv("WORLD_SIZE", "5", 1);
    who_is_no_node(none, "WORLD_SIZE=5 contradict each other");
    (void)who_clear(NULL);
    set_elastic_job();
    who_is_node(1, 3, 0, "tcp://job-worker-0:23456");
    (void)who_clear(NULL);
    set_indexed_job();
    who_is_node(1, 4, 0, "tcp://train-0.train:29500");
    (void)who_clear(NULL);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    who_is_no_node(none, "MASTER_ADDR");
    setenv("MASTER_ADDR", "a", 1);
    setenv("MASTER_PORT", "29500", 1);
    who_is_node(1, 2, 0, "tcp://a:29500");
}

static void pods_of_an_elastic_policy_come_and_go(void **state)
{
    struct cddpi_launch_given none = {.nodes = 0};
    struct cddpi_launch_node node;

    (void)state;
    set_elastic_job();
    setenv("PET_NNODES", "1:3", 1);
    assert_int_equal(cddpi_launch_node_read(&none, &node), CDDP_OK);
    assert_int_equal(node.node, 1);
    assert_int_equal(node.nodes, 3);
    assert_int_equal(node.least, 1);
    assert_int_equal(node.max_restarts, 3);
    assert_string_equal(node.rdzv, "tcp://job-worker-0:23456");
    setenv("PET_MAX_RESTARTS", "-1", 1);
    who_is_no_node(none, "PET_MAX_RESTARTS=-1 is not a whole number from 0");
    unsetenv("PET_MAX_RESTARTS");
    assert_int_equal(cddpi_launch_node_read(&none, &node), CDDP_OK);
    assert_int_equal(node.max_restarts, -1);
    setenv("PET_NNODES", "3", 1);
    assert_int_equal(cddpi_launch_node_read(&none, &node), CDDP_OK);
    assert_int_equal(node.least, 0);
    setenv("PET_NNODES", "4:3", 1);
    who_is_no_node(none, "PET_NNODES=4:3 is neither a number of pods nor MIN:MAX");
    setenv("PET_NNODES", "0:3", 1);
    who_is_no_node(none, "PET_NNODES=0:3 is neither a number of pods nor MIN:MAX");
}

static void pods_of_a_job_set_meet_by_its_names(void **state)
{
    (void)state;
    setenv("JOB_COMPLETION_INDEX", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("CDDP_TOKEN", "from the Secret of this test", 1);
    setenv("JOBSET_NAME", "train", 1);
    who_is_refused("MASTER_ADDR", NULL);
    setenv("REPLICATED_JOB_NAME", "worker", 1);
    who_is(1, 2, 0, 1, "tcp://train-worker-0-0.train:29500");
    who_is_refused("JOB_INDEX", "1"); /* whose pods count from 0, too */
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
    who_is_refused("MASTER_PORT", "tcp://10.0.0.1:29500");
    assert_true(last_error_has("a Service called master"));
    assert_true(last_error_has("enableServiceLinks: false"));
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    who_is_alone();
    (void)who_clear(NULL);
    set_indexed_job();
    who_is_refused("MASTER_PORT", "tcp://10.0.0.1:29500");
    setenv("MASTER_PORT", "tcp://10.0.0.1:29500", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("JOB_COMPLETION_INDEX", "0", 1);
    who_is_alone();
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
        who_is_refused(names[i], "1");
        setenv(names[i], "1", 1);
        if (strcmp(names[i], "RANK") == 0 || strcmp(names[i], "WORLD_SIZE") == 0) {
            assert_int_equal(cddpi_launch_node_read(&given, &node), CDDP_OK); /* it sets both */
            assert_non_null(strstr(node.warning, names[i]));
        } else {
            who_is_no_node(given, names[i]);
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
    who_is_refused("OMPI_COMM_WORLD_SIZE", "4");
    assert_true(last_error_has("left over"));
    setenv("PMIX_SERVER_TMPDIR", getenv("HOME"), 1); /* the folder is there, nobody listens */
    setenv("PMIX_SERVER_URI4", "12.0;tcp4://127.0.0.1:9", 1);
    who_is_refused("OMPI_COMM_WORLD_SIZE", "4");
    assert_true(last_error_has("left over"));
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1); /* what is left over is no launcher beside another */
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    who_is_alone();
}

static void torchrun_on_several_hosts_leaves_its_port_to_itself(void **state)
{
    (void)state;
    set_pytorch_job();
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_RUN_ID", "run", 1);
    who_is(2, 3, 0, 1, "tcp://job-master-0:23457");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, who_clear, who_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_pod_of_a_pytorch_job_is_alone_on_its_host),
        CASE(a_pod_of_an_elastic_job_has_no_rank_but_a_number),
        CASE(a_pod_of_an_indexed_job_has_its_index_for_a_rank),
        CASE(a_pod_of_a_train_job_is_a_rank),
        CASE(a_pod_s_cddp_run_is_a_machine_of_as_many_as_there_are_pods),
        CASE(pods_of_an_elastic_policy_come_and_go),
        CASE(pods_of_a_job_set_meet_by_its_names),
        CASE(a_service_called_master_is_named_and_not_read_by_a_lone_rank),
        CASE(half_of_a_launcher_s_variables_is_an_error),
        CASE(a_launcher_that_nobody_knows_is_warned_of),
        CASE(torchrun_s_job_and_generation_are_known_to_one_rank_as_well),
        CASE(what_open_mpi_left_over_in_a_shell_is_told_at_once),
        CASE(torchrun_on_several_hosts_leaves_its_port_to_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
