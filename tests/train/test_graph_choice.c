/* test_graph_choice.c - which steps are replayed and timed before the choice between replaying and
 * launching, and the choice. */
#include "support/test.h"
#include "train/device/step_graphs.h"

#include <math.h>

/* Steps: kernels are chosen in the first, then two are captured, then all are timed. */
enum { PLAIN = 3, UNTIMED = 5, CHOICE = 15 };

/* Do all steps before the choice, of which those of either way take so long. */
static void do_steps(struct cddpi_graph_choice *choice, const int64_t plain_ns[5],
                     const int64_t replayed_ns[5])
{
    int plain = 0;
    int replayed = 0;

    for (int step = 0; step < CHOICE; step++) {
        struct cddpi_step_mode way;

        assert_false(cddpi_graph_choice_is_due(choice, true));
        way = cddpi_graph_choice_next(choice, true);
        if (way.timed && way.replays) {
            cddpi_graph_choice_time(choice, true, replayed_ns[replayed++]);
        } else if (way.timed) {
            cddpi_graph_choice_time(choice, false, plain_ns[plain++]);
        }
    }
    assert_int_equal(plain, 5);
    assert_int_equal(replayed, 5);
    assert_true(cddpi_graph_choice_is_due(choice, true));
    assert_false(cddpi_graph_choice_is_due(choice, false));
}

static cddp_group *make_group(void)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group = NULL;

    options.backend = "solo";
    options.world_size = 1;
    assert_int_equal(cddp_group_create(&options, &group), CDDP_OK);
    return group;
}

static void both_ways_are_timed_in_turns_before_the_choice(void **state)
{
    struct cddpi_graph_choice choice = {.steps = 0};

    (void)state;
    for (int step = 0; step < CHOICE; step++) {
        struct cddpi_step_mode way;

        way = cddpi_graph_choice_next(&choice, false); /* a smaller batch does not count */
        assert_false(way.replays || way.timed);
        way = cddpi_graph_choice_next(&choice, true);
        assert_int_equal(way.timed, step >= UNTIMED);
        assert_int_equal(way.replays,
                         step >= PLAIN && (step < UNTIMED || (step - UNTIMED) % 2 != 0));
    }
}

/* One step that was disturbed does not change the medians. */
static void the_faster_way_is_chosen(void **state)
{
    static const int64_t slow[] = {3000000, 3100000, 3200000, 2900000, 1000000};
    static const int64_t fast[] = {2000000, 2100000, 90000000, 1900000, 2050000};
    cddp_group *group = make_group();

    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        struct cddpi_graph_choice choice = {.steps = 0};
        bool replays = turn == 0;
        double ms[2];

        do_steps(&choice, replays ? slow : fast, replays ? fast : slow);
        assert_int_equal(cddpi_graph_choice_make(&choice, group, ms), CDDP_OK);
        assert_float_equal(ms[replays ? 0 : 1], 3.0, 1e-9);
        assert_float_equal(ms[replays ? 1 : 0], 2.05, 1e-9);
        for (int step = 0; step < 3; step++) {
            struct cddpi_step_mode way = cddpi_graph_choice_next(&choice, true);

            assert_int_equal(way.replays, replays);
            assert_false(way.timed);
        }
        assert_false(cddpi_graph_choice_is_due(&choice, true));
    }
    cddp_group_destroy(group);
}

static void steps_of_which_none_was_timed_are_not_replayed(void **state)
{
    struct cddpi_graph_choice choice = {.steps = CHOICE};
    cddp_group *group = make_group();
    double ms[2] = {0, 0};

    (void)state;
    cddpi_graph_choice_time(&choice, true, 1000000);
    assert_int_equal(cddpi_graph_choice_make(&choice, group, ms), CDDP_OK);
    assert_false(isfinite(ms[0]));
    assert_true(choice.off);
    assert_false(cddpi_graph_choice_next(&choice, true).replays);
    cddp_group_destroy(group);
}

static void without_a_choice_all_are_replayed_but_the_first_two(void **state)
{
    struct cddpi_graph_choice choice = {.always = true};

    (void)state;
    for (int step = 0; step < 2 * CHOICE; step++) {
        struct cddpi_step_mode way;

        assert_false(cddpi_graph_choice_is_due(&choice, true));
        way = cddpi_graph_choice_next(&choice, true);
        assert_int_equal(way.replays, step >= 2);
        assert_false(way.timed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_are_timed_in_turns_before_the_choice),
        cmocka_unit_test(the_faster_way_is_chosen),
        cmocka_unit_test(steps_of_which_none_was_timed_are_not_replayed),
        cmocka_unit_test(without_a_choice_all_are_replayed_but_the_first_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
