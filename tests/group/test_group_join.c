/* test_group_join.c - how ranks find each other: options, launchers' variables, files, servers. */
#include "group/launch/launch_env.h"
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

static const char *const variables[] = {"CDDP_RANK",
                                        "CDDP_WORLD_SIZE",
                                        "CDDP_LOCAL_RANK",
                                        "CDDP_STORE",
                                        "CDDP_LOCAL_WORLD_SIZE",
                                        "CDDP_TOKEN",
                                        "CDDP_JOB",
                                        "CDDP_GENERATION",
                                        "CDDP_BACKEND",
                                        "CDDP_TIMEOUT_MS",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "OMPI_COMM_WORLD_RANK",
                                        "PMIX_NAMESPACE",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_SERVER_TMPDIR",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS"};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        unsetenv(variables[i]);
    }
    return 0;
}

static bool is_empty(const char *folder)
{
    DIR *opened = opendir(folder);
    struct dirent *entry;
    bool empty = true;

    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        if (entry->d_name[0] != '.') {
            fprintf(stderr, "left over: %s/%s\n", folder, entry->d_name);
            empty = false;
        }
    }
    if (opened != NULL) {
        closedir(opened);
    }
    return empty;
}

/* A group that works: the sum of all ranks. */
static int use(cddp_group *group, int rank, int n)
{
    int32_t sum = 0;

    CHECK(cddp_group_rank(group) == rank && cddp_group_world_size(group) == n);
    CHECK(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(sum == n * (n - 1) / 2);
    return 0;
}

struct sizes {
    const char *url;
    int of[2]; /* what rank 0 and rank 1 believe */
};

struct place {
    const char *url;
    uint32_t timeout_ms;
    int absent; /* rank that does not come; -1: none */
};

static int options_rank(int rank, int n, void *argument)
{
    const struct place *place = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    options.rendezvous = place->url;
    options.token = SUPPORT_TOKEN;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = place->timeout_ms;
    for (uint32_t generation = 1; generation < 4; generation++) { /* left, and built anew */
        options.generation = generation;
        CHECK(cddp_group_create(&options, &group) == CDDP_OK);
        CHECK(group_info(group).generation == generation);
        CHECK(use(group, rank, n) == 0);
        cddp_group_destroy(group);
    }
    return 0;
}

static void ranks_meet_through_a_server_in_rank_0_and_meet_again(void **state)
{
    static const int sizes[] = {1, 2, 3, 7};

    (void)state;
    for (int i = 0; i < 4; i++) {
        char url[64];
        struct place place = {url, SUPPORT_TIMEOUT_MS, -1};

        snprintf(url, sizeof url, "tcp://127.0.0.1:%d", support_free_port());
        assert_int_equal(run_ranks(sizes[i], options_rank, &place), 0);
    }
}

static void ranks_meet_through_a_file_and_meet_again(void **state)
{
    static const int sizes[] = {2, 3, 8};
    char *folder = support_mkdtemp();

    (void)state;
    for (int i = 0; i < 3; i++) {
        char url[4200];
        struct place place = {url, SUPPORT_TIMEOUT_MS, -1};

        snprintf(url, sizeof url, "file://%s/meet", folder); /* the same one: it is a stale one */
        assert_int_equal(run_ranks(sizes[i], options_rank, &place), 0);
    }
    support_rmdir(folder);
}

/* The world size that a rank believes in stands in @p argument. */
static int size_rank(int rank, int n, void *argument)
{
    const struct sizes *sizes = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    char text[128];

    (void)n;
    options.rendezvous = sizes->url;
    options.token = SUPPORT_TOKEN;
    options.rank = rank;
    options.world_size = sizes->of[rank];
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    snprintf(text, sizeof text,
             "rank 1 was started for a world size of %d and rank 0 for one of %d: ", sizes->of[1],
             sizes->of[0]);
    CHECK(failure_is(cddp_group_create(&options, &group), CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has(text));
    return 0;
}

static void ranks_of_jobs_of_different_sizes_are_told_so(void **state)
{
    char *folder = support_mkdtemp();
    char url[4200];

    (void)state;
    snprintf(url, sizeof url, "file://%s/meet", folder);
    assert_int_equal(run_ranks(2, size_rank, &(struct sizes){url, {3, 2}}), 0);
    assert_int_equal(run_ranks(2, size_rank, &(struct sizes){url, {2, 3}}), 0);
    support_rmdir(folder);
}

static int absent_rank(int rank, int n, void *argument)
{
    const struct place *place = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    cddp_status status;
    char name[32];

    if (rank == place->absent) {
        return 0;
    }
    options.rendezvous = place->url;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = place->timeout_ms;
    status = cddp_group_create(&options, &group);
    snprintf(name, sizeof name, "rank %d did not come", place->absent);
    CHECK(failure_is(status, CDDP_ERR_TIMEOUT, -1, -1, ""));
    CHECK(last_error_has(name));
    return 0;
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    char *folder = support_mkdtemp();
    char url[4200];

    (void)state;
    for (int absent = 2; absent >= 0; absent -= 2) {
        struct place place = {url, 2000, absent};
        int failed = 1;

        /* the others must be here by then, which may take a slow machine longer */
        for (; failed != 0 && place.timeout_ms < SUPPORT_TIMEOUT_MS; place.timeout_ms *= 4) {
            snprintf(url, sizeof url, "file://%s/without-%d-%u", folder, absent, place.timeout_ms);
            failed = run_ranks(3, absent_rank, &place);
        }
        assert_int_equal(failed, 0);
    }
    support_rmdir(folder);
}

/* Joins a job of which the launcher has said that one rank failed. */
static int bereaved_rank(int rank, int n, void *argument)
{
    const struct place *place = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    if (rank == place->absent) {
        return 0;
    }
    options.rendezvous = place->url;
    options.job = "bereaved";
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = place->timeout_ms;
    CHECK(failure_is(cddp_group_create(&options, &group), CDDP_ERR_PEER, -1, -1, ""));
    CHECK(last_error_has("rank 9 (pid 99) exited with status 3"));
    return 0;
}

static void a_failure_that_the_launcher_tells_ends_the_wait(void **state)
{
    static const char text[] = "rank 9 (pid 99) exited with status 3";
    char *folder = support_mkdtemp();
    char url[4200];

    (void)state;
    for (int absent = 2; absent >= 0; absent -= 2) {
        struct place place = {url, SUPPORT_TIMEOUT_MS, absent};
        cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
        cddp_store *store;

        snprintf(url, sizeof url, "file://%s/bereaved-%d", folder, absent);
        options.url = url;
        options.prefix = "bereaved/0/";
        assert_int_equal(cddp_store_open(&options, &store), CDDP_OK);
        assert_int_equal(cddp_store_set(store, "failure", text, sizeof text - 1), CDDP_OK);
        assert_int_equal(run_ranks(3, bereaved_rank, &place), 0);
        cddp_store_close(store);
    }
    support_rmdir(folder);
}

/* Joins as one of two ranks of @p place, in pairs: two processes for each rank. */
static int double_rank(int rank, int n, void *argument)
{
    const struct place *place = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    (void)n;
    options.rendezvous = place->url;
    options.token = "0123456789abcdef0123456789abcdef";
    options.rank = rank < 2 ? 0 : 1; /* the second pair would complete either job */
    options.world_size = 3;
    options.timeout_ms = place->timeout_ms;
    CHECK(cddp_group_create(&options, &group) != CDDP_OK);
    CHECK(last_error_has("came twice to "));
    return 0;
}

static void two_jobs_that_meet_at_one_place_are_told_so(void **state)
{
    char *folder = support_mkdtemp();
    char url[4200];
    struct place place = {url, SUPPORT_TIMEOUT_MS, -1};

    (void)state;
    snprintf(url, sizeof url, "file://%s/meet", folder);
    assert_int_equal(run_ranks(4, double_rank, &place), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", support_free_port());
    assert_int_equal(run_ranks(2, double_rank, &place), 0);
    support_rmdir(folder);
}

/* What ranks of two jobs tell each other. */
struct jobs {
    const char *url;
    atomic_int joined; /* ranks of the first */
    atomic_int refused;
};

/* Ranks 0 and 1 are a job, 2 and 3 another one at the same place, later. */
static int later_rank(int rank, int n, void *argument)
{
    struct jobs *jobs = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    int failed = 0;

    (void)n;
    options.rendezvous = jobs->url;
    options.rank = rank % 2;
    options.world_size = 2;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    if (rank < 2) {
        CHECK(cddp_group_create(&options, &group) == CDDP_OK);
        atomic_fetch_add(&jobs->joined, 1);
        while (atomic_load(&jobs->refused) < 2) {
            support_sleep_ms(1);
        }
        failed = use(group, rank, 2);
        cddp_group_destroy(group);
        return failed;
    }
    while (atomic_load(&jobs->joined) < 2) {
        support_sleep_ms(1);
    }
    failed = cddp_group_create(&options, &group) != CDDP_OK && last_error_has(" file://") ? 0 : 1;
    atomic_fetch_add(&jobs->refused, 1);
    CHECK(failed == 0);
    return 0;
}

static void a_job_at_the_file_of_one_that_runs_is_refused(void **state)
{
    struct jobs *jobs = mmap(NULL, sizeof *jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);
    char *folder = support_mkdtemp();
    char url[4200];

    (void)state;
    assert_true(jobs != MAP_FAILED);
    snprintf(url, sizeof url, "file://%s/meet", folder);
    for (int i = 0; i < 2; i++) { /* and once it has ended, the next one is not */
        memset(jobs, 0, sizeof *jobs);
        jobs->url = url;
        assert_int_equal(run_ranks(4, later_rank, jobs), 0);
        assert_true(is_empty(folder));
    }
    munmap(jobs, sizeof *jobs);
    support_rmdir(folder);
}

static int default_rank(int rank, int n, void *argument)
{
    void (*environment)(int, int) = *(void (**)(int, int))argument;
    cddp_group *group;

    environment(rank, n);
    CHECK(cddp_group_create(NULL, &group) == CDDP_OK);
    CHECK(group_info(group).local_rank == rank && group_info(group).local_world_size == n);
    CHECK(use(group, rank, n) == 0);
    cddp_group_destroy(group);
    return 0;
}

static int port;

static void torchrun_environment(int rank, int n)
{
    support_setenv_number("RANK", rank);
    support_setenv_number("WORLD_SIZE", n);
    support_setenv_number("LOCAL_RANK", rank);
    support_setenv_number("LOCAL_WORLD_SIZE", n);
    support_setenv_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
}

static void agent_environment(int rank, int n)
{
    torchrun_environment(rank, n);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_RUN_ID", "a/strange id", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
}

static void open_mpi_environment(int rank, int n)
{
    support_setenv_number("OMPI_COMM_WORLD_RANK", rank);
    support_setenv_number("OMPI_COMM_WORLD_SIZE", n);
    support_setenv_number("OMPI_COMM_WORLD_LOCAL_RANK", rank);
    support_setenv_number("OMPI_COMM_WORLD_LOCAL_SIZE", n);
    setenv("PMIX_NAMESPACE", "1898053633", 1);
    setenv("PMIX_SERVER_TMPDIR", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", 1);
}

/* MPICH's and Intel MPI's; without a proxy the ranks' parent names the job. */
static void hydra_environment(int rank, int n)
{
    support_setenv_number("PMI_RANK", rank);
    support_setenv_number("PMI_SIZE", n);
    support_setenv_number("MPI_LOCALRANKID", rank);
    support_setenv_number("MPI_LOCALNRANKS", n);
}

/* Hydra's ranks are also some of a Slurm step, whose rank is that of their proxy. */
static void hydra_in_slurm_environment(int rank, int n)
{
    hydra_environment(rank, n);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "1", 1);
}

static void slurm_environment(int rank, int n)
{
    support_setenv_number("SLURM_PROCID", rank);
    support_setenv_number("SLURM_NTASKS", n);
    support_setenv_number("SLURM_LOCALID", rank);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "0", 1);
}

static void every_launcher_s_variables_lead_to_one_group(void **state)
{
    void (*environments[])(int, int) = {torchrun_environment, agent_environment,
                                        open_mpi_environment, slurm_environment,
                                        hydra_environment,    hydra_in_slurm_environment};
    char *folder = support_mkdtemp();
    char *before = getenv("TMPDIR") != NULL ? strdup(getenv("TMPDIR")) : NULL;

    (void)state;
    setenv("TMPDIR", folder, 1);
    for (int i = 0; i < 6; i++) {
        port = support_free_port();
        assert_int_equal(run_ranks(3, default_rank, &environments[i]), 0);
        assert_true(is_empty(folder));
    }
    if (before != NULL) {
        setenv("TMPDIR", before, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(before);
    support_rmdir(folder);
}

/* How PyTorch's init_process_group() is told where to meet. */
struct init_method {
    const char *url;
    bool has_options; /* rank and world size are options; else RANK and WORLD_SIZE */
    int master_port;  /* MASTER_PORT, with MASTER_ADDR; 0: neither is set */
};

static int init_method_rank(int rank, int n, void *argument)
{
    const struct init_method *method = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    options.rendezvous = method->url;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    if (method->has_options) {
        options.rank = rank;
        options.world_size = n;
    } else {
        support_setenv_number("RANK", rank);
        support_setenv_number("WORLD_SIZE", n);
    }
    if (method->master_port != 0) {
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        support_setenv_number("MASTER_PORT", method->master_port);
    }
    CHECK(cddp_group_create(&options, &group) == CDDP_OK);
    CHECK(use(group, rank, n) == 0);
    cddp_group_destroy(group);
    return 0;
}

static void pytorch_s_init_methods_lead_to_one_group(void **state)
{
    char *folder = support_mkdtemp();
    char file[4200];
    char tcp[64];

    (void)state;
    snprintf(file, sizeof file, "file://%s/sharedfile", folder);
    for (int has_options = 0; has_options < 2; has_options++) {
        snprintf(tcp, sizeof tcp, "tcp://127.0.0.1:%d", support_free_port());
        assert_int_equal(run_ranks(3, init_method_rank, &(struct init_method){tcp, has_options, 0}),
                         0);
        assert_int_equal(
            run_ranks(3, init_method_rank, &(struct init_method){file, has_options, 0}), 0);
        assert_int_equal(
            run_ranks(3, init_method_rank,
                      &(struct init_method){"env://", has_options, support_free_port()}),
            0);
    }
    support_rmdir(folder);
}

static void env_without_a_job_in_the_environment_is_an_error(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    (void)state;
    options.rendezvous = "env://";
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("RANK and WORLD_SIZE are not set"));
    options.world_size = 2;
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("MASTER_ADDR"));
    options.rendezvous = "env://nowhere";
    options.timeout_ms = 1000;
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("env://nowhere"));
}

/* Rank @p rank of 4, two on each host. */
static void assert_needs_mpi(int rank, const char *origin)
{
    struct cddpi_launch_env env;

    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
    assert_string_equal(env.origin, origin);
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.local_rank, rank % 2);
    assert_int_equal(env.local_world_size, 2);
    assert_true(env.rendezvous_by_mpi);
    assert_string_equal(env.store, "");
    assert_string_equal(env.folder, "");
    setenv("CDDP_STORE", "tcp://10.0.0.7:4242", 1);
    setenv("CDDP_TOKEN", SUPPORT_TOKEN, 1);
    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
    assert_false(env.rendezvous_by_mpi);
    assert_true(env.hosts_store);
    assert_string_equal(env.store, "tcp://10.0.0.7:4242");
}

static void ranks_of_mpirun_on_several_hosts_need_mpi_or_a_store(void **state)
{
    (void)state;
    open_mpi_environment(3, 4);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    assert_needs_mpi(3, "Open MPI");
    (void)clear_environment(NULL);
    hydra_environment(2, 4);
    setenv("MPI_LOCALRANKID", "0", 1);
    setenv("MPI_LOCALNRANKS", "2", 1);
    assert_needs_mpi(2, "Hydra");
}

static void a_lone_process_is_rank_0_of_1(void **state)
{
    struct cddpi_launch_env env;
    cddp_group *group;
    cddp_group *part;
    float x = 3;
    void *memory;

    (void)state;
    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_OK);
    assert_string_equal(env.origin, "a lone process");
    assert_int_equal(env.rank, 0);
    assert_int_equal(env.world_size, 1);
    assert_int_equal(cddp_group_create(NULL, &group), CDDP_OK);
    assert_string_equal(group_info(group).backend, "solo");
    assert_int_equal(cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_MEAN, NULL), CDDP_OK);
    assert_int_equal(cddp_all_reduce_weighted(group, &x, &x, 1, CDDP_F32, 0, NULL), CDDP_OK);
    assert_true(x == 0);
    assert_true(failure_is(cddp_group_alloc(group, 100, 0, NULL), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("group_alloc: out is NULL"));
    assert_true(
        failure_is(cddp_group_alloc(group, SIZE_MAX, 0, &memory), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("bytes are too many"));
    assert_int_equal(cddp_group_alloc(group, 100, 0, &memory), CDDP_OK);
    assert_int_equal(((char *)memory)[99], 0);
    cddp_group_free(group, memory);
    assert_int_equal(cddp_group_split(group, 1, 0, &part), CDDP_OK);
    assert_int_equal(cddp_barrier(part, NULL), CDDP_OK);
    cddp_group_destroy(part);
    assert_int_equal(cddp_group_split(group, -1, 0, &part), CDDP_OK);
    assert_null(part);
    cddp_group_abort(group, "enough");
    assert_true(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, 0, 0, ""));
    assert_true(last_error_has("enough"));
    cddp_group_destroy(group);
}

static void refused(const char *name, const char *value)
{
    struct cddpi_launch_env env;

    setenv(name, value, 1);
    assert_int_equal(cddpi_launch_env_read(NULL, &env), CDDP_ERR_ARGUMENT);
    if (!last_error_has(name)) {
        fail_msg("%s is not named: %s", name, cddp_last_error());
    }
}

static void a_bad_variable_is_named(void **state)
{
    (void)state;
    setenv("CDDP_WORLD_SIZE", "2", 1);
    refused("CDDP_RANK", "2");
    refused("CDDP_RANK", "1x");
    setenv("CDDP_RANK", "1", 1);
    refused("CDDP_LOCAL_WORLD_SIZE", "3");
    unsetenv("CDDP_LOCAL_WORLD_SIZE");
    refused("CDDP_STORE", "");
    (void)clear_environment(NULL);
    torchrun_environment(0, 2);
    refused("MASTER_PORT", "70000");
    (void)clear_environment(NULL);
    open_mpi_environment(0, 2);
    refused("OMPI_COMM_WORLD_LOCAL_RANK", "-1");
    (void)clear_environment(NULL);
    hydra_environment(0, 2);
    refused("PMI_RANK", "2");
    (void)clear_environment(NULL);
    slurm_environment(0, 2);
    refused("SLURM_NTASKS", "many");
    (void)clear_environment(NULL);
}

static void an_unknown_backend_is_unavailable(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    (void)state;
    options.backend = "carrier-pigeon";
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("carrier-pigeon"));
    options.backend = "solo";
    options.world_size = 2;
    options.rendezvous = "tcp://127.0.0.1:1";
    assert_int_equal(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, clear_environment, clear_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks_meet_through_a_server_in_rank_0_and_meet_again),
        CASE(ranks_meet_through_a_file_and_meet_again),
        CASE(ranks_of_jobs_of_different_sizes_are_told_so),
        CASE(a_rank_that_does_not_come_is_named),
        CASE(a_failure_that_the_launcher_tells_ends_the_wait),
        CASE(two_jobs_that_meet_at_one_place_are_told_so),
        CASE(a_job_at_the_file_of_one_that_runs_is_refused),
        CASE(every_launcher_s_variables_lead_to_one_group),
        CASE(pytorch_s_init_methods_lead_to_one_group),
        CASE(env_without_a_job_in_the_environment_is_an_error),
        CASE(ranks_of_mpirun_on_several_hosts_need_mpi_or_a_store),
        CASE(a_lone_process_is_rank_0_of_1),
        CASE(a_bad_variable_is_named),
        CASE(an_unknown_backend_is_unavailable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
