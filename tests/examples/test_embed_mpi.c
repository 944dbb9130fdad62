/* test_embed_mpi.c - the example of a program of MPI: as built, on 1, 2 and 3 processes and on
 * several hosts as mpirun sees them, and with what cddp added taken out again. */
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

static void two_and_three_ranks_follow_one(void **state)
{
    const char *program;
    struct run alone;
    struct run several;

    (void)state;
    NEED_MPIRUN();
    program = launcher_path("examples/embed_mpi_trainer");
    run_mpi(program, 1, NULL, &alone);
    assert_true(alone.losses[0] > 0.4);
    assert_true(alone.losses[alone.count - 1] < 0.3);
    run_mpi(program, 2, NULL, &several);
    assert_same_losses(&alone, &several, 1e-5);
    run_mpi(program, 3, NULL, &several);
    assert_same_losses(&alone, &several, 1e-5);
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
    program = launcher_path("examples/embed_mpi_trainer");
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

static void without_the_marked_lines_it_is_the_program_that_it_was(void **state)
{
    char *folder;
    char source[4200];
    char program[4200];
    char command[16384];
    struct run alone;
    struct run stripped;

    (void)state;
    NEED_MPIRUN();
    if (system("mpicc --version >/dev/null 2>&1") != 0) {
        skip();
    }
    folder = support_mkdtemp();
    snprintf(source, sizeof source, "%s/plain.c", folder);
    snprintf(program, sizeof program, "%s/plain", folder);
    assert_in_range(embed_strip("embed_mpi/trainer.c", source), 1, 50);
    snprintf(command, sizeof command,
             "mpicc -std=c11 -O2 -ffp-contract=off '%s' -o '%s' -lm 2>/dev/null", source, program);
    assert_int_equal(system(command), 0);
    run_mpi(launcher_path("examples/embed_mpi_trainer"), 1, NULL, &alone);
    run_mpi(program, 2, NULL, &stripped);
    assert_same_losses(&alone, &stripped, 1e-5);
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_and_three_ranks_follow_one),
        cmocka_unit_test(several_hosts_give_the_bits_of_one),
        cmocka_unit_test(without_the_marked_lines_it_is_the_program_that_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
