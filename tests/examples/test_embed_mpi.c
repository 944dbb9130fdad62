/* test_embed_mpi.c - the example of an MPI program: unpatched, and with its patch on 1, 2 and 3
 * processes and on several hosts as mpirun sees them. */
#include "support/embed.h"
#include "support/mpirun.h"

/* Run @p program on @p ranks ranks; all end with the same weights. */
static void run_mpi(const char *program, int ranks, const char *hosts, struct run *run)
{
    struct launched job = {0};
    char path[4400];

    memset(run, 0, sizeof *run);
    MPIRUN(&job, ranks, hosts, program, NULL);
    assert_mpirun_ended_well(&job);
    snprintf(path, sizeof path, "%s/out", job.dir);
    read_output(path, run);
    launcher_end(&job);
    assert_int_equal(run->count, 11);
    for (int rank = 0; rank < ranks; rank++) {
        assert_true(run->weights[rank] != 0);
        assert_true(run->weights[rank] == run->weights[0]);
    }
}

static const char *patched_program(void)
{
    static char alone[4200];
    static char patched[4200];

    snprintf(alone, sizeof alone, "%s", launcher_path("examples/embed_mpi_alone"));
    snprintf(patched, sizeof patched, "%s", launcher_path("examples/embed_mpi_trainer"));
    need_programs(alone, patched);
    return patched;
}

/* Before its patch every process of the program does all of the work. */
static void ranks_learn_what_the_program_learnt_before_its_patch(void **state)
{
    const char *program;
    struct run alone;

    (void)state;
    NEED_MPIRUN();
    program = patched_program();
    run_mpi(launcher_path("examples/embed_mpi_alone"), 2, NULL, &alone);
    assert_true(alone.losses[0] > 0.4);
    assert_true(alone.losses[alone.count - 1] < 0.3);
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct run run;

        run_mpi(program, ranks, NULL, &run);
        assert_same_losses(&alone, &run, 1e-5);
    }
}

/* Whatever connects them. */
static void several_hosts_give_the_bits_of_one(void **state)
{
    static const char *const carriers[] = {"mpi", "tcp"};
    const char *program;
    struct run one;
    struct run several;

    (void)state;
    NEED_MPIRUN();
    program = patched_program();
    run_mpi(program, 4, NULL, &one);
    for (int i = 0; i < 2; i++) {
        setenv("CDDP_CARRIER", carriers[i], 1);
        run_mpi(program, 4, "hosta:2,hostb:2", &several);
        assert_true(several.weights[0] == one.weights[0]);
        run_mpi(program, 4, "hosta:3,hostb:1", &several);
        assert_true(several.weights[0] == one.weights[0]);
        run_mpi(program, 4, "hosta:1,hostb:1,hostc:2", &several);
        assert_true(several.weights[0] == one.weights[0]);
    }
    unsetenv("CDDP_CARRIER");
}

static void the_patch_is_short(void **state)
{
    (void)state;
    assert_short_patch("embed_mpi", 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_learn_what_the_program_learnt_before_its_patch),
        cmocka_unit_test(several_hosts_give_the_bits_of_one),
        cmocka_unit_test(the_patch_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
