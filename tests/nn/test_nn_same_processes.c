/* test_nn_same_processes.c - a micro-batch has the same bits in every process: in ranks of a group,
 * with other settings of libraries, on one core, and for each instruction set on any number of
 * threads. */
#include "support/group.h"
#include "support/micro_bits.h"

#include <cddp/group.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { RANKS = 3, MOST_KINDS = 32, MOST_SETTINGS = 6 };

struct answers {
    struct bits_answer of[MOST_KINDS];
};

static struct answers *shared; /* by ranks; the last are the parent's */

static void compute_answers(cddp_group *group, bool reversed, struct answers *out)
{
    for (size_t i = 0; i < bits_kind_count; i++) {
        size_t k = reversed ? bits_kind_count - 1 - i : i;

        bits_of_kind(&bits_kinds[k], group, &out->of[k]);
    }
}

static int answers_differ(const char *circumstance, const struct answers *a,
                          const struct answers *b)
{
    int bad = 0;

    for (size_t k = 0; k < bits_kind_count; k++) {
        bad += bits_compare(&bits_kinds[k], circumstance, &a->of[k], &b->of[k]);
    }
    return bad;
}

static int answer_as_rank(int rank, int n, void *argument)
{
    cddp_group *group = NULL;

    /* each rank in another way */
    setenv("CDDP_COMM_THREAD", rank == 1 ? "1" : "0", 1);
    setenv("CDDP_THREADS", rank == 2 ? "2" : "1", 1);
    CHECK(group_from_seed(argument, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    compute_answers(group, rank == 1, &shared[rank]);
    cddp_group_destroy(group);
    return 0;
}

/* A process of its own: this program again. */
struct process {
    const char *name;
    const char *settings[MOST_SETTINGS][2];
    bool reversed, one_core, limited;
};

static const struct process processes[] = {
    {.name = "a process"},
    {.name = "models in the other order", .reversed = true},
    {.name = "no cache of primitives",
     .settings = {{"DNNL_PRIMITIVE_CACHE_CAPACITY", "0"},
                  {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0"}}},
    {.name = "settings of OpenMP",
     .settings = {{"OMP_NUM_THREADS", "5"},
                  {"OMP_DYNAMIC", "true"},
                  {"OMP_PROC_BIND", "true"},
                  {"OMP_WAIT_POLICY", "active"}}},
    {.name = "settings of malloc",
     .settings = {{"MALLOC_MMAP_THRESHOLD_", "4096"}, {"MALLOC_PERTURB_", "165"}}},
    {.name = "one core", .one_core = true},
    {.name = "one core, three threads", .settings = {{"CDDP_THREADS", "3"}}, .one_core = true},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which map terabytes */
    {.name = "limited memory", .limited = true},
#endif
};

static const struct process of_instructions[][3] = {
    {{.name = "avx512", .settings = {{"CDDP_MAX_ISA", "avx512"}}},
     {.name = "avx512, 2 threads", .settings = {{"CDDP_MAX_ISA", "avx512"}, {"CDDP_THREADS", "2"}}},
     {.name = "avx512, 5 threads",
      .settings = {{"CDDP_MAX_ISA", "avx512"}, {"CDDP_THREADS", "5"}}}},
    {{.name = "avx2", .settings = {{"CDDP_MAX_ISA", "avx2"}}},
     {.name = "avx2, 2 threads", .settings = {{"CDDP_MAX_ISA", "avx2"}, {"CDDP_THREADS", "2"}}},
     {.name = "avx2, 5 threads", .settings = {{"CDDP_MAX_ISA", "avx2"}, {"CDDP_THREADS", "5"}}}},
    {{.name = "generic", .settings = {{"CDDP_MAX_ISA", "generic"}}},
     {.name = "generic, 3 threads",
      .settings = {{"CDDP_MAX_ISA", "generic"}, {"CDDP_THREADS", "3"}}},
     {.name = "generic, 4 threads",
      .settings = {{"CDDP_MAX_ISA", "generic"}, {"CDDP_THREADS", "4"}}}},
};

static void become(const struct process *process, int fd)
{
    char to[16];
    char *argv[] = {"test_nn_same_processes", process->reversed ? "reversed" : "forward", to, NULL};
    struct rlimit limit = {(rlim_t)16 << 30, (rlim_t)16 << 30};
    cpu_set_t cores;

    snprintf(to, sizeof to, "%d", fd);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* there are more threads than cores */
    for (int i = 0; i < MOST_SETTINGS && process->settings[i][0] != NULL; i++) {
        setenv(process->settings[i][0], process->settings[i][1], 1);
    }
    if (process->one_core && sched_getaffinity(0, sizeof cores, &cores) == 0) {
        int core = 0;

        while (!CPU_ISSET(core, &cores)) {
            core++;
        }
        CPU_ZERO(&cores);
        CPU_SET(core, &cores);
        (void)sched_setaffinity(0, sizeof cores, &cores);
    }
    if (process->limited) {
        (void)setrlimit(RLIMIT_AS, &limit);
    }
    execv("/proc/self/exe", argv);
    _exit(1);
}

static void run_process(const struct process *process, struct answers *out)
{
    int fd = memfd_create("answers", 0);
    pid_t pid;
    int status = -1;

    assert_true(fd >= 0);
    pid = fork();
    if (pid == 0) {
        become(process, fd);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status != 0) {
        fail_msg("%s: wait status %d", process->name, status);
    }
    assert_int_equal(pread(fd, out, sizeof *out, 0), sizeof *out);
    close(fd);
}

/* In such a process. */
static int answer_to_parent(const char *order, const char *fd)
{
    struct answers *answers = calloc(1, sizeof *answers);
    size_t done = 0;

    compute_answers(NULL, strcmp(order, "reversed") == 0, answers);
    while (done < sizeof *answers) {
        ssize_t written = write(atoi(fd), (const char *)answers + done, sizeof *answers - done);

        if (written <= 0) {
            return 1;
        }
        done += (size_t)written;
    }
    free(answers);
    return 0;
}

static void ranks_give_the_same_bits(void **state)
{
    static const char *const names[RANKS] = {"rank 0 of 3", "rank 1 of 3", "rank 2 of 3"};
    struct group_seed seed;
    int bad = 0;

    (void)state;
    assert_int_equal(group_seed_create(RANKS, &seed), CDDP_OK);
    assert_int_equal(run_ranks(RANKS, answer_as_rank, &seed), 0);
    close(seed.fd);
    run_process(&processes[0], &shared[RANKS]);
    for (int rank = 0; rank < RANKS; rank++) {
        bad += answers_differ(names[rank], &shared[RANKS], &shared[rank]);
    }
    assert_int_equal(bad, 0);
}

static void processes_give_the_same_bits(void **state)
{
    struct answers *answers = calloc(1, sizeof *answers);
    int bad = 0;

    (void)state;
    run_process(&processes[0], &shared[RANKS]);
    for (size_t p = 1; p < COUNT_OF(processes); p++) {
        run_process(&processes[p], answers);
        bad += answers_differ(processes[p].name, &shared[RANKS], answers);
    }
    free(answers);
    assert_int_equal(bad, 0);
}

static void threads_give_the_same_bits_with_all_instructions(void **state)
{
    struct answers *answers = calloc(2, sizeof *answers);
    int bad = 0;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(of_instructions); i++) {
        run_process(&of_instructions[i][0], &answers[0]);
        for (size_t p = 1; p < 3; p++) {
            run_process(&of_instructions[i][p], &answers[1]);
            bad += answers_differ(of_instructions[i][p].name, &answers[0], &answers[1]);
        }
    }
    free(answers);
    assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_the_same_bits),
        cmocka_unit_test(processes_give_the_same_bits),
        cmocka_unit_test(threads_give_the_same_bits_with_all_instructions),
    };

    if (argc == 3) {
        return answer_to_parent(argv[1], argv[2]);
    }
    shared = mmap(NULL, (RANKS + 1) * sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || bits_kind_count > MOST_KINDS) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
