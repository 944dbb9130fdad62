/* test_launcher_cores.c - which cores ranks get, on machines that we do not have: a few files
 * simulate their /sys. */
#include "launcher/supervise/rank_gpus.h"
#include "launcher/supervise/worker.h"
#include "support/launcher.h"

/* A machine with 2 nodes of 4 cores, whose second threads are numbered 8 to 15. */
static char *make_machine(void)
{
    char *sys = support_mkdtemp();
    char command[9000];

    snprintf(
        command, sizeof command,
        "cd '%s' && mkdir -p node/node0 node/node1 && echo 0-1 >node/online && echo 0-3,8-11 "
        ">node/node0/cpulist && echo 4-7,12-15 >node/node1/cpulist && for c in 0 1 2 3 4 5 6 7 "
        "8 9 10 11 12 13 14 15; do mkdir -p cpu/cpu$c/topology && echo $((c %% 8)),$((c %% 8 + "
        "8)) >cpu/cpu$c/topology/thread_siblings_list; done",
        sys);
    assert_int_equal(system(command), 0);
    return sys;
}

static void assert_share(const struct cddpi_rank_cores *cores, int rank, int ranks, bool bind,
                         const char *cpus, int threads)
{
    struct cddpi_core_share share = cddpi_cores_share(cores, rank, ranks, bind);
    char text[256];

    cddpi_cores_text(cores, &share, text, sizeof text);
    assert_string_equal(text, cpus);
    assert_int_equal(share.threads, threads);
}

static void siblings_and_nodes_stay_together(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct cddpi_rank_cores cores;
    char *sys = make_machine();

    (void)state;
    assert_int_equal(cddpi_cores_order(sys, all, 16, &cores), CDDP_OK);
    assert_int_equal(cores.core_count, 8);
    assert_int_equal(cores.cpu_count, 16);
    assert_int_equal(cores.node_count, 2);
    assert_share(&cores, 0, 2, true, "0-3,8-11", 4);
    assert_share(&cores, 1, 2, true, "4-7,12-15", 4);
    assert_share(&cores, 0, 3, true, "0-1,8-9", 2);
    assert_share(&cores, 2, 3, true, "5-7,13-15", 3);
    assert_share(&cores, 7, 8, true, "7,15", 1);
    assert_share(&cores, 9, 12, true, "1,9", 1);
    assert_share(&cores, 9, 12, false, "0-15", 1);
    assert_share(&cores, 1, 3, false, "0-15", 2);
    cddpi_cores_fini(&cores);
    support_rmdir(sys);
}

/* An elastic job's number of ranks changes between generations. */
static void ranks_are_bound_unless_they_outnumber_the_cores(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static struct cddpi_job job = {.local_world_size = 8};
    char *sys = make_machine();

    (void)state;
    assert_int_equal(cddpi_cores_order(sys, all, 16, &job.cores), CDDP_OK);
    assert_true(cddpi_worker_cores(&job, 7).bound);
    job.local_world_size = 9;
    assert_false(cddpi_worker_cores(&job, 8).bound);
    job.local_world_size = 4;
    job.first_rank = 9;
    assert_true(cddpi_worker_cores(&job, 9).bound);
    assert_int_equal(cddpi_worker_cores(&job, 9).begin, 0);
    job.options.bind = CDDPI_BIND_NONE;
    assert_false(cddpi_worker_cores(&job, 9).bound);
    job.local_world_size = 9;
    job.options.bind = CDDPI_BIND_CORE;
    assert_true(cddpi_worker_cores(&job, 17).bound);
    cddpi_cores_fini(&job.cores);
    support_rmdir(sys);
}

static void only_allowed_processors_count(void **state)
{
    static const int some[] = {2, 5, 6, 10, 14};
    struct cddpi_rank_cores cores;
    char *sys = make_machine();

    (void)state;
    assert_int_equal(cddpi_cores_order(sys, some, 5, &cores), CDDP_OK);
    assert_int_equal(cores.core_count, 3);
    assert_share(&cores, 0, 3, true, "2,10", 1);
    assert_share(&cores, 1, 3, true, "5", 1);
    assert_share(&cores, 2, 3, true, "6,14", 1);
    cddpi_cores_fini(&cores);
    support_rmdir(sys);
}

static void without_topology_each_processor_is_a_core(void **state)
{
    static const int some[] = {0, 1, 7};
    struct cddpi_rank_cores cores;

    (void)state;
    assert_int_equal(cddpi_cores_order("no-such-sys", some, 3, &cores), CDDP_OK);
    assert_int_equal(cores.core_count, 3);
    assert_share(&cores, 0, 1, true, "0-1,7", 3);
    cddpi_cores_fini(&cores);
}

static void the_shares_of_all_ranks_are_all_cores_once(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct cddpi_rank_cores cores;

    (void)state;
    assert_int_equal(cddpi_cores_order("no-such-sys", all, 11, &cores), CDDP_OK);
    for (int ranks = 1; ranks <= 11; ranks++) {
        int next = 0;

        for (int rank = 0; rank < ranks; rank++) {
            struct cddpi_core_share share = cddpi_cores_share(&cores, rank, ranks, true);

            assert_int_equal(share.begin, next);
            assert_true(share.end > share.begin);
            next = share.end;
        }
        assert_int_equal(next, 11);
    }
    cddpi_cores_fini(&cores);
}

/* GPUs of @p nodes, one after another, and a network card between them. The driver's GPUs are
 * numbered from 7 downwards. */
static char *make_pci(const char *nodes)
{
    char *pci = support_mkdtemp();
    char command[2048];

    snprintf(
        command, sizeof command,
        "cd '%s' && mkdir gpus dev && i=1 && for n in %s; do d=0000:0$i:00.0; mkdir $d && echo "
        "0x10de >$d/vendor && echo 0x030200 >$d/class && echo $n >$d/numa_node && echo 0x2330 "
        ">$d/device && mkdir gpus/$d && printf 'Model: \\t H\\nDevice Minor: \\t %%d\\n' $((8 - "
        "i)) "
        ">gpus/$d/information && echo >dev/nvidia$((8 - i)) && i=$((i + 2)); done && "
        "mkdir 0000:02:00.0 && echo 0x15b3 >0000:02:00.0/vendor && "
        "echo 0x020000 >0000:02:00.0/class && echo 0 >0000:02:00.0/numa_node",
        pci, nodes);
    assert_int_equal(system(command), 0);
    return pci;
}

/* As cddpi_gpu_nodes(), in a folder of make_pci(). */
static int gpu_nodes(const char *pci, const char *visible, int *out)
{
    char driver[512];
    char dev[512];
    struct cddpi_gpu_paths paths = {pci, driver, dev};

    snprintf(driver, sizeof driver, "%s/gpus", pci);
    snprintf(dev, sizeof dev, "%s/dev", pci);
    return cddpi_gpu_nodes(&paths, visible, out);
}

static void run_in(const char *folder, const char *what)
{
    char command[1024];

    snprintf(command, sizeof command, "cd '%s' && %s", folder, what);
    assert_int_equal(system(command), 0);
}

static void gpus_are_found_with_their_nodes(void **state)
{
    static const int of_all[] = {1, 0, -1};
    int nodes[CDDPI_MACHINE_GPUS];
    char *pci = make_pci("1 0 -1");

    (void)state;
    assert_int_equal(gpu_nodes(pci, NULL, nodes), 3);
    assert_memory_equal(nodes, of_all, sizeof of_all);
    assert_int_equal(gpu_nodes(pci, "2,0", nodes), 2);
    assert_true(nodes[0] == -1 && nodes[1] == 1);
    assert_int_equal(gpu_nodes(pci, "1,-1,0", nodes), 1);
    assert_int_equal(gpu_nodes(pci, "1,7,0", nodes), 0);
    assert_int_equal(gpu_nodes(pci, "", nodes), 0);
    assert_int_equal(gpu_nodes(pci, "GPU-cafe", nodes), 0);
    assert_int_equal(gpu_nodes("no-such-sys", NULL, nodes), 0);
    run_in(pci, "echo 0x20b0 >0000:03:00.0/device"); /* CUDA's order is not that of PCI */
    assert_int_equal(gpu_nodes(pci, NULL, nodes), 0);
    support_rmdir(pci);
}

/* A container or a scheduler hides the driver's folder of a GPU, or its device file. CUDA numbers
 * the rest from 0 on. */
static void hidden_gpus_do_not_count(void **state)
{
    int nodes[CDDPI_MACHINE_GPUS];
    char *pci = make_pci("2 1 0");

    (void)state;
    run_in(pci, "rm dev/nvidia7");
    assert_int_equal(gpu_nodes(pci, "0,1", nodes), 2);
    assert_true(nodes[0] == 1 && nodes[1] == 0);
    run_in(pci, "rm -r gpus/0000:03:00.0");
    assert_int_equal(gpu_nodes(pci, NULL, nodes), 1);
    assert_int_equal(nodes[0], 0);
    run_in(pci, "echo Model: H >gpus/0000:05:00.0/information");
    assert_int_equal(gpu_nodes(pci, NULL, nodes), 0);
    support_rmdir(pci);
}

/* Cores move only for jobs on GPUs, and only where rank r opens GPU r. */
static void jobs_on_gpus_are_known_by_options_and_environment(void **state)
{
    static const struct {
        const char *arguments[2], *device, *visible;
        bool per_gpu, expected;
    } cases[] = {
        {{NULL}, NULL, NULL, false, false},
        {{NULL}, NULL, NULL, true, true},
        {{NULL}, "cuda", NULL, false, true},
        {{NULL}, "cpu", "0,1", false, false},
        {{NULL}, "cuda:1", NULL, false, false},
        {{NULL}, NULL, "0,1", false, true},
        {{NULL}, NULL, "", false, false},
        {{"train.device=cuda"}, NULL, NULL, false, true},
        {{"train.device=cuda", "train.device=cpu"}, NULL, "0", false, false},
        {{"train.device=auto"}, "cuda", NULL, false, true},
        {{"train.devices=[\"cuda:0\"]"}, "cuda", "0", true, false},
        {{"parallel.devices=[\"cuda:0\"]", "train.device=cuda"}, NULL, NULL, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *arguments[2] = {(char *)(uintptr_t)cases[i].arguments[0],
                              (char *)(uintptr_t)cases[i].arguments[1]};
        struct cddpi_launch_options options = {.config = "train.conf",
                                               .per_gpu = cases[i].per_gpu,
                                               .arguments = arguments,
                                               .argument_count = (arguments[0] != NULL) +
                                                                 (arguments[1] != NULL)};

        assert_int_equal(cddpi_gpu_per_rank(&options, cases[i].device, cases[i].visible),
                         cases[i].expected);
    }
}

static void ranks_get_cores_near_their_gpus(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const struct {
        int ranks, gpus, nodes[8];
        const char *cpus[4];
    } cases[] = {
        {2, 2, {1, 0}, {"4-7,12-15", "0-3,8-11"}},
        {4, 4, {1, 1, 0, 0}, {"4-5,12-13", "6-7,14-15", "0-1,8-9", "2-3,10-11"}},
        {4, 4, {1, 0, 1, 0}, {"4-5,12-13", "0-1,8-9", "6-7,14-15", "2-3,10-11"}},
        {2, 4, {1, 0, 0, 0}, {"4-7,12-15", "0-3,8-11"}}, /* rank r opens GPU r */
        {4, 8, {1, 1, 1, 1}, {"0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"}},
        {2, 2, {1, 1}, {"0-3,8-11", "4-7,12-15"}},   /* both want one node: neither is split */
        {2, 2, {-1, -1}, {"0-3,8-11", "4-7,12-15"}}, /* not known */
        {3, 2, {1, 1}, {"0-1,8-9", "2-4,10-12", "5-7,13-15"}}, /* too few: as without GPUs */
    };
    char *sys = make_machine();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cddpi_rank_cores cores;

        assert_int_equal(cddpi_cores_order(sys, all, 16, &cores), CDDP_OK);
        assert_int_equal(cddpi_cores_near(&cores, cases[i].nodes, cases[i].gpus, cases[i].ranks),
                         CDDP_OK);
        for (int rank = 0; rank < cases[i].ranks; rank++) {
            int threads = 8 * (rank + 1) / cases[i].ranks - 8 * rank / cases[i].ranks;

            assert_share(&cores, rank, cases[i].ranks, true, cases[i].cpus[rank], threads);
        }
        cddpi_cores_fini(&cores);
    }
    support_rmdir(sys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siblings_and_nodes_stay_together),
        cmocka_unit_test(ranks_are_bound_unless_they_outnumber_the_cores),
        cmocka_unit_test(only_allowed_processors_count),
        cmocka_unit_test(without_topology_each_processor_is_a_core),
        cmocka_unit_test(the_shares_of_all_ranks_are_all_cores_once),
        cmocka_unit_test(gpus_are_found_with_their_nodes),
        cmocka_unit_test(hidden_gpus_do_not_count),
        cmocka_unit_test(jobs_on_gpus_are_known_by_options_and_environment),
        cmocka_unit_test(ranks_get_cores_near_their_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
