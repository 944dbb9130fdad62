/* test_group_random.c - collectives drawn at random (support/group_random.h), with what a group
 * otherwise measures or finds: the link and the number of leaders, cores, carrier, cipher. Every
 * alternative gives the bits of the reference. */
#include "group/join/link.h"
#include "support/group_cases.h"
#include "support/group_random.h"
#include "support/mpirun.h"

#ifdef __SANITIZE_THREAD__ /* as in support/ddp_ranks.h */
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

/* What the ranks of one group are told. */
struct job {
    char store[256];     /* empty: no net, but group_from_seed() */
    const char *hosts;   /* by rank: a digit */
    const char *thread;  /* CDDP_COMM_THREAD; NULL: unset */
    const char *spin;    /* CDDP_SPIN_US; NULL: unset */
    const char *sockets; /* CDDP_SOCKETS; NULL: unset */
    const char *cipher;  /* CDDP_CIPHER, of encrypted data; "any": unset; NULL: data are plain */
    struct group_seed seed;
    uint64_t draws;
    int steps;
};

static void set(const char *name, const char *value)
{
    if (value != NULL) {
        setenv(name, value, 1);
    }
}

static cddp_status join(const struct job *job, int rank, int n, cddp_group **out)
{
    set("CDDP_COMM_THREAD", job->thread);
    set("CDDP_SPIN_US", job->spin);
    set("CDDP_SOCKETS", job->sockets);
    if (job->cipher != NULL) {
        set("CDDP_ENCRYPT", "1");
        set("CDDP_CIPHER", strcmp(job->cipher, "any") == 0 ? NULL : job->cipher);
    }
    if (job->store[0] == '\0') {
        return group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, out);
    }
    setenv("CDDP_BACKEND", "net", 1); /* also on one host */
    return group_join_on(job->hosts[rank] - '0', job->store, rank, n, SUPPORT_TIMEOUT_MS, out);
}

static int drawing_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    cddp_group *group;

    CHECK(join(job, rank, n, &group) == CDDP_OK);
    if (group_random(group, job->draws, job->steps) != 0) {
        fprintf(stderr, "(rank %d, hosts %s)\n", rank, job->hosts);
        return 1;
    }
    cddp_group_destroy(group);
    return 0;
}

/* By hand, $TEST_DRAWS makes other draws, and $TEST_STEPS more. */
static void run(struct job job)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    const char *steps = getenv("TEST_STEPS");
    const char *draws = getenv("TEST_DRAWS");
    static uint64_t number;

    job.draws = (88172645463325252u + (draws != NULL ? strtoull(draws, NULL, 10) : 1)) *
                (2 * ++number + 1);
    job.steps = steps != NULL ? atoi(steps) : job.steps / SLOWER;
    if (job.store[0] != '\0') {
        snprintf(job.store, sizeof job.store, "file://%s/cddp-test-random-%d-%d", folder,
                 (int)getpid(), (int)number);
    }
    assert_int_equal(group_seed_create((int)strlen(job.hosts), &job.seed), CDDP_OK);
    assert_int_equal(run_ranks((int)strlen(job.hosts), drawing_rank, &job), 0);
    close(job.seed.fd);
}

static void collectives_of_one_host_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    run((struct job){.hosts = "00", .thread = "0", .steps = 120});
    run((struct job){.hosts = "000", .thread = "1", .steps = 100});
    run((struct job){.hosts = "00000", .spin = "0", .steps = 60});
    run((struct job){.hosts = "00000000", .thread = "0", .spin = "1000", .steps = 40});
}

static void those_of_several_hosts_do_for_every_link_and_number_of_leaders(void **state)
{
    static const char *const hosts[] = {"01",      "012",      "0011",   "00011",
                                        "0123456", "01230123", "011233", "0000"};

    (void)state;
    if (getenv("CDDP_BACKEND") != NULL) {
        skip(); /* the test is about that backend */
    }
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        static const char *const ciphers[] = {NULL, "chacha20", NULL, "any"};
        static const char *const sockets[] = {NULL, "1", "3"};
        struct job job = {.store = "net",
                          .hosts = hosts[i],
                          .sockets = sockets[i % 3],
                          .cipher = ciphers[i % 4],
                          .thread = i % 3 == 0   ? "0"
                                    : i % 3 == 1 ? "1"
                                                 : NULL,
                          .spin = i % 2 == 0 ? "0" : NULL,
                          .steps = 40};

        run(job);
    }
}

/* mpirun starts this program again, as ranks. */
static void so_do_those_that_mpi_carries(void **state)
{
#ifdef __SANITIZE_THREAD__
    (void)state;
    print_message("skipped: Open MPI is not built with the thread sanitizer\n");
    skip();
#else
    static const char *const hosts[] = {"0,1", "0,0,1,1"};
    char path[4096] = {0};

    (void)state;
    if (getenv("CDDP_BACKEND") != NULL) {
        skip();
    }
    NEED_MPIRUN();
    assert_true(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};

        setenv("TEST_HOSTS", hosts[i], 1);
        support_setenv_number("TEST_NONCE", (int)getpid() * 2 + i);
        MPIRUN(&job, 2 + 2 * i, NULL, path, "as a rank");
        assert_mpirun_ended_well(&job);
        launcher_end(&job);
    }
    unsetenv("TEST_HOSTS");
#endif
}

static int mpi_rank(void)
{
    const char *nonce = getenv("TEST_NONCE");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    struct group_seed seed = {.fd = -1};
    struct cddpi_group_link link;
    cddp_group *group;

    CHECK(nonce != NULL && rank != NULL && size != NULL);
    seed.nonce = strtoull(nonce, NULL, 10);
    setenv("CDDP_BACKEND", "net", 1);
    setenv("CDDP_CARRIER", "mpi", 1);
    CHECK(group_from_seed(&seed, atoi(rank), atoi(size), SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddpi_group_link(group, CDDP_F32, &link) && strcmp(link.carrier, "mpi") == 0);
    CHECK(group_random(group, 88172645463325252u + seed.nonce % 2, 30) == 0);
    cddp_group_destroy(group);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_one_host_have_the_bits_of_the_reference),
        cmocka_unit_test(those_of_several_hosts_do_for_every_link_and_number_of_leaders),
        cmocka_unit_test(so_do_those_that_mpi_carries),
    };

    (void)argv;
    return argc > 1 ? mpi_rank() : cmocka_run_group_tests(tests, NULL, NULL);
}
