/* test_launch_pairs.c - variables of two launchers at once, for each pair of known launchers: ranks
 * and cddp-run determine which one started them, or name both, and never train alone. Started with
 * the word "who", the program is a rank and prints which one. */
#include "group/launch/launch_claim.h"
#include "group/launch/launch_env.h"
#include "group/launch/launch_node.h"
#include "support/failure.h"
#include "support/mpirun.h"
#include "support/who.h"

#include <stdbool.h>

extern char **environ;

/* What a launcher sets: %r is the rank, %s the size, one process a machine, so that Slurm's list of
 * them, %t, is as many ones. */
static const struct launcher {
    const char *name;
    const char *text;  /* the variables, each with a space behind */
    const char *shows; /* one of these is in an error that names this launcher */
    const char *shows_too;
} launchers[] = {
    {"cddp-run",
     "CDDP_RANK=%r CDDP_WORLD_SIZE=%s CDDP_LOCAL_RANK=0 CDDP_LOCAL_WORLD_SIZE=1 "
     "CDDP_STORE=tcp://127.0.0.1:4711 ",
     "CDDP_RANK", "CDDP_WORLD_SIZE"},
    {"torchrun",
     "RANK=%r WORLD_SIZE=%s LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "
     "MASTER_PORT=4712 ",
     " RANK=", "WORLD_SIZE"},
    {"a wrapper", "RANK=%r WORLD_SIZE=%s MASTER_ADDR=127.0.0.1 MASTER_PORT=4712 ",
     " RANK=", "WORLD_SIZE"},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK=%r OMPI_COMM_WORLD_SIZE=%s OMPI_COMM_WORLD_LOCAL_RANK=0 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=7 PMIX_RANK=%r PMIX_SERVER_TMPDIR=/ ",
     "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"Hydra", "PMI_RANK=%r PMI_SIZE=%s MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 ", "PMI_RANK",
     "PMI_SIZE"},
    {"MVAPICH",
     "MV2_COMM_WORLD_RANK=%r MV2_COMM_WORLD_SIZE=%s MV2_COMM_WORLD_LOCAL_RANK=0 "
     "MV2_COMM_WORLD_LOCAL_SIZE=1 ",
     "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"jsrun",
     "JSM_NAMESPACE_RANK=%r JSM_NAMESPACE_SIZE=%s JSM_NAMESPACE_LOCAL_RANK=0 "
     "JSM_NAMESPACE_LOCAL_SIZE=1 ",
     "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"PALS", "PALS_RANKID=%r PALS_SIZE=%s PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=1 PALS_NODEID=%r ",
     "PALS_RANKID", "PALS_SIZE"},
    {"Flux", "FLUX_TASK_RANK=%r FLUX_JOB_SIZE=%s FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=%s ",
     "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"Slurm",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=%r SLURM_NODEID=%r SLURM_LOCALID=0 "
     "SLURM_STEP_NUM_TASKS=%s SLURM_NTASKS=%s SLURM_STEP_NUM_NODES=%s SLURM_NNODES=%s "
     "SLURM_STEP_NODELIST=a,b SLURM_STEP_TASKS_PER_NODE=%t ",
     "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"an indexed Job", "JOB_COMPLETION_INDEX=%r %sized=%s MASTER_ADDR=127.0.0.1 ",
     "JOB_COMPLETION_INDEX", "CDDP_WORLD_SIZE"},
    {"TrainJob",
     "PET_NODE_RANK=%r PET_NNODES=%s PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=127.0.0.1 "
     "PET_MASTER_PORT=4713 ",
     "PET_NODE_RANK", "PET_NNODES"},
};

enum { COUNT = sizeof launchers / sizeof *launchers, TEXT = 1000 };

/* RANK and WORLD_SIZE are the same variables for two of them. */
static bool share_variables(int a, int b)
{
    return strncmp(launchers[a].text, "RANK=", 5) == 0 &&
           strncmp(launchers[b].text, "RANK=", 5) == 0;
}

/* The variables of launcher @p i, whose job's size is WORLD_SIZE unless @p other sets that. */
static const char *words(int i, int rank, int size, int other)
{
    static char texts[2][TEXT];
    static int turn;
    char *out = texts[turn = !turn];
    bool other_has_size = other >= 0 && strstr(launchers[other].text, " WORLD_SIZE=") != NULL;
    size_t used = 0;

    for (const char *at = launchers[i].text; *at != '\0' && used + 32 < TEXT; at++) {
        if (strncmp(at, "%sized", 6) == 0) {
            used += (size_t)sprintf(out + used, other_has_size ? "CDDP_WORLD_SIZE" : "WORLD_SIZE");
            at += 5;
        } else if (strncmp(at, "%t", 2) == 0) {
            used += (size_t)sprintf(out + used, size == 1 ? "1" : "1,1");
            at++;
        } else if (*at == '%') {
            used += (size_t)sprintf(out + used, "%d", at[1] == 'r' ? rank : size);
            at++;
        } else {
            out[used++] = *at;
        }
    }
    out[used] = '\0';
    return out;
}

static void set_words(const char *text)
{
    while (*text != '\0') {
        char word[200];
        size_t length = strcspn(text, " ");

        snprintf(word, sizeof word, "%.*s", (int)length, text);
        word[strcspn(word, "=")] = '\0';
        setenv(word, word + strlen(word) + 1, 1);
        text += length + 1;
    }
}

static int clear_environment(void **state)
{
    (void)state;
    support_clear_environment();
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    setenv("CDDP_LOG", "off", 1);
    return 0;
}

static bool names(const char *text, int launcher)
{
    char padded[2000]; /* RANK is the end of other names, too */

    snprintf(padded, sizeof padded, " %s", text);
    return strstr(padded, launchers[launcher].shows) != NULL ||
           strstr(padded, launchers[launcher].shows_too) != NULL;
}

/* Set both, and fail unless a rank is one of 2, or the error names both. Whether it was one. */
static bool try_rank(int a, int rank_a, int size_a, int b, int rank_b, int size_b)
{
    struct cddpi_launch_env env;

    (void)clear_environment(NULL);
    set_words(words(a, rank_a, size_a, b));
    set_words(words(b, rank_b, size_b, a));
    if (cddpi_launch_env_read(NULL, &env) == CDDP_OK) {
        if (env.world_size != 2) {
            fail_msg("%s%s: alone by %s", words(a, rank_a, size_a, b), words(b, rank_b, size_b, a),
                     env.origin);
        }
        assert_true(env.rank == rank_a || env.rank == rank_b);
        return true;
    }
    if (!names(cddp_last_error(), a) || !names(cddp_last_error(), b)) {
        fail_msg("%s and %s: not both are named: %s", launchers[a].name, launchers[b].name,
                 cddp_last_error());
    }
    return false;
}

/* The same for cddp-run, for which ranks of another cddp-run are no machines. */
static bool try_node(int a, int rank_a, int size_a, int b, int rank_b, int size_b)
{
    struct cddpi_launch_given given = {.nodes = 0, .has_rdzv = true};
    struct cddpi_launch_node node;

    (void)clear_environment(NULL);
    set_words(words(a, rank_a, size_a, b));
    set_words(words(b, rank_b, size_b, a));
    if (cddpi_launch_node_read(&given, &node) == CDDP_OK) {
        if (node.nodes != 2) {
            fail_msg("%s%s: cddp-run is alone", words(a, rank_a, size_a, b),
                     words(b, rank_b, size_b, a));
        }
        assert_true(node.node == rank_a || node.node == rank_b);
        return true;
    }
    if (!last_error_has("ranks of another one (CDDP_RANK") &&
        (!names(cddp_last_error(), a) || !names(cddp_last_error(), b))) {
        fail_msg("cddp-run, %s and %s: not both are named: %s", launchers[a].name,
                 launchers[b].name, cddp_last_error());
    }
    return false;
}

static void each_launcher_alone_says_who_a_rank_and_cddp_run_are(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        struct cddpi_launch_given given = {.has_rdzv = true};
        struct cddpi_launch_node node;
        struct cddpi_launch_env env;

        (void)clear_environment(NULL);
        set_words(words(i, 1, 2, -1));
        if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
            fail_msg("%s: %s", launchers[i].name, cddp_last_error());
        }
        assert_int_equal(env.rank, 1);
        assert_int_equal(env.world_size, 2);
        if (i != 0) {
            if (strcmp(launchers[i].name, "a wrapper") != 0) {
                assert_int_equal(env.local_world_size, 1);
            }
            if (cddpi_launch_node_read(&given, &node) != CDDP_OK) {
                fail_msg("cddp-run in %s: %s", launchers[i].name, cddp_last_error());
            }
            assert_int_equal(node.node, 1);
            assert_int_equal(node.nodes, 2);
        }
    }
}

static void two_launchers_that_agree_are_one_job(void **state)
{
    (void)state;
    for (int a = 0; a < COUNT; a++) {
        for (int b = a + 1; b < COUNT; b++) {
            if (share_variables(a, b)) {
                continue;
            }
            if (!try_rank(a, 1, 2, b, 1, 2)) {
                fail_msg("%s and %s agree: %s", launchers[a].name, launchers[b].name,
                         cddp_last_error());
            }
            if (!try_node(a, 1, 2, b, 1, 2) && a != 0) {
                fail_msg("cddp-run: %s and %s agree: %s", launchers[a].name, launchers[b].name,
                         cddp_last_error());
            }
        }
    }
}

static void two_launchers_that_contradict_each_other_never_leave_a_rank_alone(void **state)
{
    static const int cases[][4] = {/* rank and size of both */
                                   {0, 2, 0, 1}, {1, 2, 0, 1}, {0, 1, 0, 2},
                                   {0, 1, 1, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}};

    (void)state;
    for (int a = 0; a < COUNT; a++) {
        for (int b = a + 1; b < COUNT; b++) {
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const int *c = cases[i];

                if (!share_variables(a, b)) {
                    (void)try_rank(a, c[0], c[1], b, c[2], c[3]);
                    (void)try_node(a, c[0], c[1], b, c[2], c[3]);
                }
            }
        }
    }
}

/* RANK without LOCAL_RANK and PET_*: one Trainer sets both. */
static bool are_read_together(int a, int b)
{
    return (strcmp(launchers[a].name, "a wrapper") == 0 &&
            strcmp(launchers[b].name, "TrainJob") == 0) ||
           (strcmp(launchers[b].name, "a wrapper") == 0 &&
            strcmp(launchers[a].name, "TrainJob") == 0);
}

static char self[4200];

/* What a program of @p outer's starts with @p inner's variables: the inner one is the nearer. */
static void who_is_within(struct launched *job, const char *outer, const char *inner)
{
    char script[2 * TEXT + 5000];

    snprintf(script, sizeof script, "env %s sh -c '%s %s who; exit $?'", outer, inner, self);
    launcher_start_program(job, "sh", (const char *const[]){"-c", script, NULL});
    launcher_wait(job);
}

static void the_launcher_that_is_nearest_to_a_process_has_started_it(void **state)
{
    (void)state;
    for (int outer = 0; outer < COUNT; outer++) {
        for (int inner = 0; inner < COUNT; inner++) {
            struct launched job = {0};

            if (outer == inner || share_variables(outer, inner)) {
                continue;
            }
            (void)clear_environment(NULL);
            who_is_within(&job, words(outer, 0, 1, inner), words(inner, 1, 2, outer));
            if (are_read_together(outer, inner) ? !names(job.err, outer) || !names(job.err, inner)
                                                : strstr(job.out, "rank 1 of 2") == NULL) {
                fail_msg("%s in %s: %s%s", launchers[inner].name, launchers[outer].name, job.out,
                         job.err);
            }
            launcher_end(&job);
        }
    }
}

static void
a_size_of_1_that_no_launcher_of_its_own_has_set_is_refused_beside_a_larger_one(void **state)
{
    (void)state;
    for (int outer = 0; outer < COUNT; outer++) {
        for (int inner = 0; inner < COUNT; inner++) {
            struct launched job = {0};

            if (outer == inner || share_variables(outer, inner)) {
                continue;
            }
            (void)clear_environment(NULL);
            who_is_within(&job, words(outer, 0, 2, inner), words(inner, 0, 1, outer));
            if (job.exit_status == 0 ? strstr(job.out, "of 2") == NULL
                                     : !names(job.err, outer) || !names(job.err, inner)) {
                fail_msg("%s in %s: %s%s", launchers[inner].name, launchers[outer].name, job.out,
                         job.err);
            }
            launcher_end(&job);
        }
    }
}

static void what_ranks_inherit_through_cddp_run_says_nothing_about_them(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        for (int size = 1; size <= 2; size++) {
            struct launched job = {0};

            (void)clear_environment(NULL);
            set_words(words(i, 0, size, -1));
            LAUNCH(&job, "--nnodes", "1", "-n", "2", "--", self, "who");
            if (job.exit_status != 0) {
                fail_msg("%s: %s", launchers[i].name, job.err);
            }
            assert_out(&job, "rank 0 of 2 by cddp-run");
            assert_out(&job, "rank 1 of 2 by cddp-run");
            launcher_end(&job);
        }
    }
}

static void what_a_rank_of_cddp_run_starts_by_another_launcher_is_that_one_s(void **state)
{
    char script[TEXT + 5000];

    (void)state;
    for (int i = 1; i < COUNT; i++) {
        struct launched job = {0};

        (void)clear_environment(NULL);
        /* a Trainer's pods set no LOCAL_RANK, which ranks of cddp-run have */
        snprintf(script, sizeof script, "%s %s who",
                 words(i, 1, 2, strcmp(launchers[i].name, "an indexed Job") == 0 ? -1 : 0), self);
        LAUNCH(&job, "-n", "1", "--", "sh", "-c", script);
        if (strcmp(launchers[i].name, "an indexed Job") != 0 &&
            (job.exit_status != 0 || strstr(job.out, "rank 1 of 2") == NULL)) {
            fail_msg("%s: %s%s", launchers[i].name, job.out, job.err);
        }
        launcher_end(&job);
    }
}

/* Its numbers may be those of the rank that started it. */
static void torchrun_in_a_rank_of_cddp_run_is_told_by_its_run(void **state)
{
    char script[2 * sizeof self + 100];
    struct launched job = {0};

    (void)state;
    snprintf(script, sizeof script,
             "%s who; TORCHELASTIC_RUN_ID=another WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 %s who", self,
             self);
    LAUNCH(&job, "-n", "2", "--", "sh", "-c", script);
    if (job.exit_status != 0) {
        fail_msg("%s", job.err);
    }
    assert_int_equal(launcher_count(job.out, "of 2 by cddp-run"), 2);
    assert_int_equal(launcher_count(job.out, "of 2 by torchrun"), 2);
    launcher_end(&job);
}

/* These ranks only say who they are, so cddp needs no MPI of its own. */
static void need_mpirun(void)
{
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0) {
        print_message("there is no mpirun of Open MPI here\n");
        skip();
    }
}

static void a_real_mpirun_is_nearer_than_what_it_inherits(void **state)
{
    struct launched job = {0};

    (void)state;
    need_mpirun();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    MPIRUN(&job, 2, NULL, self, "who");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 0 of 2 by Open MPI");
    assert_out(&job, "rank 1 of 2 by Open MPI");
    launcher_end(&job);
}

static void a_real_mpirun_starts_one_cddp_run_a_machine(void **state)
{
    const char *cddp_run = launcher_path("launcher/cddp-run");
    struct launched job = {0};

    (void)state;
    need_mpirun();
    MPIRUN(&job, 1, NULL, cddp_run, "-n", "2", "--", self, "who");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 0 of 2 by cddp-run");
    assert_out(&job, "rank 1 of 2 by cddp-run");
    launcher_end(&job);
    MPIRUN(&job, 2, NULL, cddp_run, "-n", "2", "--", self, "who");
    assert_err(&job, "Open MPI started 2 of this cddp-run");
    assert_int_equal(launcher_count(job.out, "rank"), 0);
    launcher_end(&job);
}

static void a_rank_of_cddp_run_may_start_a_real_mpirun(void **state)
{
    char script[9100];
    char *folder = support_mkdtemp();
    struct launched job = {0};

    (void)state;
    need_mpirun();
    snprintf(script, sizeof script,
             "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=%s; "
             "mpirun --oversubscribe -n 2 %s who",
             folder, self);
    LAUNCH(&job, "-n", "1", "--", "sh", "-c", script);
    if (job.exit_status != 0) {
        fail_msg("%s", job.err);
    }
    assert_out(&job, "rank 0 of 2 by Open MPI");
    assert_out(&job, "rank 1 of 2 by Open MPI");
    launcher_end(&job);
    free(folder);
}

static int print_who(void)
{
    struct cddpi_launch_env env;

    if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 2;
    }
    printf("rank %d of %d by %s\n", env.rank, env.world_size, env.origin);
    return 0;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, clear_environment, clear_environment)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(each_launcher_alone_says_who_a_rank_and_cddp_run_are),
        CASE(two_launchers_that_agree_are_one_job),
        CASE(two_launchers_that_contradict_each_other_never_leave_a_rank_alone),
        CASE(the_launcher_that_is_nearest_to_a_process_has_started_it),
        CASE(a_size_of_1_that_no_launcher_of_its_own_has_set_is_refused_beside_a_larger_one),
        CASE(what_ranks_inherit_through_cddp_run_says_nothing_about_them),
        CASE(what_a_rank_of_cddp_run_starts_by_another_launcher_is_that_one_s),
        CASE(torchrun_in_a_rank_of_cddp_run_is_told_by_its_run),
        CASE(a_real_mpirun_is_nearer_than_what_it_inherits),
        CASE(a_real_mpirun_starts_one_cddp_run_a_machine),
        CASE(a_rank_of_cddp_run_may_start_a_real_mpirun),
    };

    if (argc == 2 && strcmp(argv[1], "who") == 0) {
        return print_who();
    }
    snprintf(self, sizeof self, "%s", launcher_path("tests/test_launch_pairs"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
