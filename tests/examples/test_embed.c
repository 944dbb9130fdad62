/* test_embed.c - the examples of embedding trainers: unpatched, and with their patches on 1, 2 and
 * 3 processes. */
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

/* The batches of all examples divide unequally among 3, which only a weighted mean gets right. */
static void ranks_learn_what_the_trainer_learnt_before_its_patch(void **state)
{
    struct trainer *trainer = *state;
    struct run alone;

    need_programs(trainer->alone_program, trainer->patched_program);
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

    need_programs(trainer->alone_program, trainer->patched_program);
    run_trainer(&trainer->patched, 3, &first);
    run_trainer(&trainer->patched, 3, &second);
    assert_true(first.weights[0] == second.weights[0]);
    assert_same_losses(&first, &second, 0);
}

/* Its second patch: a step is a sum over micro-batches. */
static void any_number_of_ranks_ends_with_the_same_weights(void **state)
{
    static const int more[] = {2, 3, 5, 7, 11};
    struct trainer *trainer = *state;
    struct place same = trainer->patched;
    struct run alone;
    struct run one;
    char program[4200];

    snprintf(program, sizeof program, "%s/examples/embed_same_bits", getenv("CDDP_TEST_BUILD"));
    need_programs(trainer->alone_program, program);
    same.program = program;
    run_trainer(&trainer->alone, 1, &alone);
    run_trainer(&same, 1, &one);
    assert_same_losses(&alone, &one, 1e-5);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        struct run run;

        run_trainer(&same, more[i], &run);
        assert_true(run.weights[0] == one.weights[0]);
        assert_same_losses(&run, &one, 0);
    }
}

/* Where nothing is lost, they print what they printed before: also without a launcher, which holds
 * no memory. */
static void ranks_that_may_be_lost_print_the_same(void **state)
{
    struct trainer *trainer = *state;
    struct place elastic = trainer->patched;
    char program[4200];

    snprintf(program, sizeof program, "%s/examples/embed_elastic_plain", getenv("CDDP_TEST_BUILD"));
    need_programs(trainer->patched_program, program);
    elastic.program = program;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct run before;
        struct run run;

        run_trainer(&trainer->patched, ranks, &before);
        run_trainer(&elastic, ranks, &run);
        assert_true(run.weights[0] == before.weights[0]);
        assert_same_losses(&run, &before, 0);
    }
}

static void the_patch_for_ranks_that_may_be_lost_is_short(void **state)
{
    (void)state;
    assert_short_patch("embed_elastic", 20);
}

static void the_patch_is_short(void **state)
{
    struct trainer *trainer = *state;

    assert_short_patch(trainer->example.folder, trainer->example.added_lines);
}

/* By the order of calls in each rank: see order_of_calls.c. */
static void buckets_travel_while_backward_computes(void **state)
{
    struct trainer *trainer = *state;
    struct place watched = trainer->patched;
    struct run run;

    snprintf(trainer->alone_program, sizeof trainer->alone_program,
             "%s/tests/examples/embed_gpt2_watched", getenv("CDDP_TEST_BUILD"));
    need_programs(trainer->alone_program, trainer->patched_program);
    watched.program = trainer->alone_program;
    run_trainer(&watched, 2, &run);
    for (int rank = 0; rank < 2; rank++) {
        char path[4400];
        char line[256];
        int backwards = 0;
        FILE *said;

        snprintf(path, sizeof path, "%s/out-2-%d", watched.folder, rank);
        said = fopen(path, "r");
        assert_non_null(said);
        while (fgets(line, sizeof line, said) != NULL) {
            int early;
            int all;

            if (sscanf(line, "%d of %d buckets began", &early, &all) == 2) {
                backwards++;
                assert_in_range(all, 4, 16); /* one or more for each layer, and what is left */
                assert_in_range(early, all - 2, all); /* the last one waits for the embedding */
            }
        }
        fclose(said);
        assert_true(backwards >= 10);
    }
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
    const struct CMUnitTest tests[] = {
        CASES(c),
        CASES(cpp),
        CASES(fortran),
        CASES(gpt2),
        {"c: any_number_of_ranks_ends_with_the_same_weights",
         any_number_of_ranks_ends_with_the_same_weights, set_up, end, (void *)&c},
        {"c: ranks_that_may_be_lost_print_the_same", ranks_that_may_be_lost_print_the_same, set_up,
         end, (void *)&c},
        cmocka_unit_test(the_patch_for_ranks_that_may_be_lost_is_short),
        {"gpt2: buckets_travel_while_backward_computes", buckets_travel_while_backward_computes,
         set_up, end, (void *)&gpt2}};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
