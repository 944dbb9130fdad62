/* test_embed.c - the example of an embedding trainer: as built, on 1, 2 and 3 processes, and with
 * what cddp added taken out again. */
#include "support/embed.h"

static int set_up(void **state)
{
    return set_up_place(state, "examples/embed_trainer");
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
    assert_in_range(embed_strip("embed/trainer.c", source), 1, 40);
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
