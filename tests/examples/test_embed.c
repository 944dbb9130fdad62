/* test_embed.c - the examples of embedding trainers: as they were, and with their patches on 1, 2
 * and 3 processes. */
#include "support/embed.h"

/* One example, and what its patch may cost. */
struct example {
    const char *folder;
    double first_loss; /* at least */
    double last_loss;  /* at most */
    int added_lines;
};

static const struct example c = {"embed", 0.6, 0.2, 40};
static const struct example cpp = {"embed_cpp", 1.0, 0.5, 50};
static const struct example fortran = {"embed_fortran", 0.5, 0.15, 30};
static const struct example gpt2 = {"embed_gpt2", 5.0, 3.5, 80};

struct trainer {
    struct example example;
    struct place alone;
    struct place patched;
    char alone_program[4200];
    char patched_program[4200];
};

static int set_up(void **state)
{
    struct trainer *trainer = calloc(1, sizeof *trainer);
    struct place *place;
    const struct example *example = *state;

    if (trainer == NULL || set_up_place(state, "examples") != 0) {
        return 1;
    }
    place = *state;
    trainer->example = *example;
    trainer->alone = *place;
    trainer->patched = *place;
    free(place);
    snprintf(trainer->alone_program, sizeof trainer->alone_program, "%s/examples/%s_alone",
             getenv("CDDP_TEST_BUILD"), example->folder);
    snprintf(trainer->patched_program, sizeof trainer->patched_program, "%s/examples/%s_trainer",
             getenv("CDDP_TEST_BUILD"), example->folder);
    trainer->alone.program = trainer->alone_program;
    trainer->patched.program = trainer->patched_program;
    *state = trainer;
    return 0;
}

static int end(void **state)
{
    struct trainer *trainer = *state;

    support_rmdir(strdup(trainer->alone.folder));
    free(trainer);
    return 0;
}

/* Where a compiler or a tool is missing there is no such program. */
static void need_programs(const struct trainer *trainer)
{
    if (access(trainer->alone_program, X_OK) != 0 || access(trainer->patched_program, X_OK) != 0) {
        printf("%s was not built: its compiler or the program patch is missing\n",
               trainer->example.folder);
        skip();
    }
}

/* The batches of all examples divide unequally among 3, which only a weighted mean gets right. */
static void ranks_learn_what_the_trainer_learnt_before_its_patch(void **state)
{
    struct trainer *trainer = *state;
    struct run alone;

    need_programs(trainer);
    run_trainer(&trainer->alone, 1, &alone);
    assert_true(alone.losses[0] > trainer->example.first_loss);
    assert_true(alone.losses[alone.count - 1] < trainer->example.last_loss);
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct run run;

        run_trainer(&trainer->patched, ranks, &run);
        assert_same_losses(&alone, &run, 1e-5);
    }
}

static void two_runs_give_the_same_bits(void **state)
{
    struct trainer *trainer = *state;
    struct run first;
    struct run second;

    need_programs(trainer);
    run_trainer(&trainer->patched, 3, &first);
    run_trainer(&trainer->patched, 3, &second);
    assert_true(first.weights[0] == second.weights[0]);
    assert_same_losses(&first, &second, 0);
}

static void the_patch_is_short(void **state)
{
    struct trainer *trainer = *state;
    char path[4200];
    char line[1024];
    int added = 0;
    FILE *patch;

    snprintf(path, sizeof path, "%s/examples/%s/cddp.patch", getenv("CDDP_TEST_SOURCE"),
             trainer->example.folder);
    patch = fopen(path, "r");
    assert_non_null(patch);
    while (fgets(line, sizeof line, patch) != NULL) {
        added += line[0] == '+' && strncmp(line, "+++ ", 4) != 0 && line[1] != '\n';
    }
    fclose(patch);
    assert_in_range(added, 1, trainer->example.added_lines);
}

#define CASES(example)                                                                             \
    {#example ": ranks_learn_what_the_trainer_learnt_before_its_patch",                            \
     ranks_learn_what_the_trainer_learnt_before_its_patch, set_up, end, (void *)&example},         \
        {#example ": two_runs_give_the_same_bits", two_runs_give_the_same_bits, set_up, end,       \
         (void *)&example},                                                                        \
    {                                                                                              \
#example ": the_patch_is_short", the_patch_is_short, set_up, end, (void *)&example         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {CASES(c), CASES(cpp), CASES(fortran), CASES(gpt2)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
