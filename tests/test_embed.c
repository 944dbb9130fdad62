/* test_embed.c - the example of an embedding trainer: as built, on 1, 2 and 3 processes, and with
 * what cddp added taken out again. */
#include "support.h"

#include <fcntl.h>
#include <math.h>
#include <stdbool.h>

enum { MOST_RANKS = 4, MOST_LOSSES = 64 };

struct run {
    int count;
    int steps[MOST_LOSSES];
    double losses[MOST_LOSSES];
    unsigned long long weights[MOST_RANKS];
};

struct place {
    char folder[4096];
    const char *program;
};

static int run_rank(int rank, int world_size, void *argument)
{
    const struct place *place = argument;
    char text[4400];
    int file;

    support_setenv_number("CDDP_RANK", rank);
    support_setenv_number("CDDP_WORLD_SIZE", world_size);
    support_setenv_number("CDDP_LOCAL_RANK", rank);
    support_setenv_number("CDDP_LOCAL_WORLD_SIZE", world_size);
    snprintf(text, sizeof text, "test-embed-%d-%d", (int)getppid(), world_size);
    setenv("CDDP_JOB", text, 1);
    snprintf(text, sizeof text, "file://%s/store-%d", place->folder, world_size);
    setenv("CDDP_STORE", text, 1);
    setenv("CDDP_TOKEN", "test", 1);
    support_setenv_number("CDDP_TIMEOUT_MS", SUPPORT_TIMEOUT_MS);
    snprintf(text, sizeof text, "%s/out-%d-%d", place->folder, world_size, rank);
    file = open(text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0) {
        perror(text);
        return 1;
    }
    execl(place->program, place->program, (char *)NULL);
    perror(place->program);
    return 1;
}

static void read_output(const char *path, struct run *run)
{
    FILE *file = fopen(path, "r");
    char line[256];

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long weights;
        double loss;
        int number;

        if (sscanf(line, "step %d loss %lf", &number, &loss) == 2 && run->count < MOST_LOSSES) {
            run->steps[run->count] = number;
            run->losses[run->count++] = loss;
        } else if (sscanf(line, "rank %d weights %llx", &number, &weights) == 2) {
            assert_in_range(number, 0, MOST_RANKS - 1);
            run->weights[number] = weights;
        }
    }
    fclose(file);
}

static void run_trainer(struct place *place, int world_size, struct run *run)
{
    memset(run, 0, sizeof *run);
    assert_int_equal(run_ranks(world_size, run_rank, place), 0);
    for (int rank = 0; rank < world_size; rank++) {
        char path[4400];

        snprintf(path, sizeof path, "%s/out-%d-%d", place->folder, world_size, rank);
        read_output(path, run);
    }
    assert_int_equal(run->count, 11);
    for (int rank = 0; rank < world_size; rank++) {
        assert_true(run->weights[rank] != 0);
        assert_true(run->weights[rank] == run->weights[0]);
    }
}

static void assert_same_losses(const struct run *a, const struct run *b, double tolerance)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_int_equal(a->steps[i], b->steps[i]);
        if (fabs(a->losses[i] - b->losses[i]) > tolerance * fabs(a->losses[i])) {
            fail_msg("step %d: loss %.9g and %.9g", a->steps[i], a->losses[i], b->losses[i]);
        }
    }
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    char *folder = support_mkdtemp();
    static char program[4200];

    if (place == NULL || folder == NULL || getenv("CDDP_TEST_BUILD") == NULL) {
        fprintf(stderr, "CDDP_TEST_BUILD is not set\n");
        return 1;
    }
    snprintf(place->folder, sizeof place->folder, "%s", folder);
    snprintf(program, sizeof program, "%s/examples/embed_trainer", getenv("CDDP_TEST_BUILD"));
    place->program = program;
    free(folder);
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;

    support_rmdir(strdup(place->folder));
    free(place);
    return 0;
}

static void the_trainer_learns_alone(void **state)
{
    struct run alone;

    run_trainer(*state, 1, &alone);
    assert_true(alone.losses[0] > 0.6);
    assert_true(alone.losses[alone.count - 1] < 0.2);
}

/* 50 samples a step: 25 and 25; and 17, 17 and 16, which only a weighted mean gets right. */
static void two_and_three_ranks_follow_one(void **state)
{
    struct run alone;
    struct run two;
    struct run three;

    run_trainer(*state, 1, &alone);
    run_trainer(*state, 2, &two);
    run_trainer(*state, 3, &three);
    assert_same_losses(&alone, &two, 1e-5);
    assert_same_losses(&alone, &three, 1e-5);
}

static void two_runs_give_the_same_bits(void **state)
{
    struct run first;
    struct run second;

    run_trainer(*state, 3, &first);
    run_trainer(*state, 3, &second);
    assert_true(first.weights[0] == second.weights[0]);
    assert_same_losses(&first, &second, 0);
}

/* Write the trainer without what cddp added, to @path. Returns the number of lines left out. */
static int strip(const char *path)
{
    char line[1024];
    int added = 0;
    bool inside = false;
    FILE *from;
    FILE *to = fopen(path, "w");

    snprintf(line, sizeof line, "%s/examples/embed/trainer.c", getenv("CDDP_TEST_SOURCE"));
    from = fopen(line, "r");
    assert_non_null(from);
    assert_non_null(to);
    while (fgets(line, sizeof line, from) != NULL) {
        bool begins = strstr(line, "/* cddp: begin */") != NULL;
        bool ends = strstr(line, "/* cddp: end */") != NULL;

        inside = (inside || begins) && !ends;
        added += inside && !begins;
        if (!inside && !ends) {
            fputs(line, to);
        }
    }
    assert_false(inside);
    fclose(from);
    fclose(to);
    return added;
}

static void without_the_marked_lines_it_is_a_serial_trainer(void **state)
{
    struct place *place = *state;
    struct place serial = *place;
    char source[4200];
    char program[4200];
    char command[16384];
    struct run alone;
    struct run stripped;

    snprintf(source, sizeof source, "%s/serial.c", place->folder);
    snprintf(program, sizeof program, "%s/serial", place->folder);
    assert_in_range(strip(source), 1, 40);
    if (system("cc --version >/dev/null 2>&1") != 0) {
        skip();
    }
    snprintf(command, sizeof command, "cc -std=c11 -O2 -ffp-contract=off '%s' -o '%s' -lm", source,
             program);
    assert_int_equal(system(command), 0);
    serial.program = program;
    run_trainer(place, 1, &alone);
    run_trainer(&serial, 1, &stripped);
    assert_same_losses(&alone, &stripped, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_trainer_learns_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_and_three_ranks_follow_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_runs_give_the_same_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_the_marked_lines_it_is_a_serial_trainer, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
