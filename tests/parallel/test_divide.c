/* test_divide.c - which layers each stage gets: by cost, by name, by measured times. */
#include "base/alloc.h"
#include "parallel/divide.h"
#include "support/failure.h"
#include "support/nn_model.h"
#include "support/sequence.h"

static void expect_learning(const double *costs, const bool *learns, int count, int stages,
                            const int *ends)
{
    struct cddpi_layer_range ranges[16];

    if (cddpi_divide_layers(costs, learns, count, stages, ranges) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    for (int s = 0; s < stages; s++) {
        assert_int_equal(ranges[s].first, s == 0 ? 0 : ends[s - 1]);
        assert_int_equal(ranges[s].end, ends[s]);
    }
}

static void expect_division(const double *costs, int count, int stages, const int *ends)
{
    expect_learning(costs, NULL, count, stages, ends);
}

static void the_longest_stage_is_as_short_as_can_be(void **state)
{
    (void)state;
    expect_division((double[]){1, 1, 1, 1}, 4, 2, (int[]){2, 4});
    expect_division((double[]){5, 1, 1, 1}, 4, 2, (int[]){1, 4});
    expect_division((double[]){1, 1, 1, 5}, 4, 3, (int[]){1, 3, 4});
    expect_division((double[]){1, 2}, 2, 1, (int[]){2});
}

static double longest_of(const double *costs, const struct cddpi_layer_range *ranges, int stages)
{
    double longest = 0;

    for (int s = 0; s < stages; s++) {
        double sum = 0;

        for (int i = ranges[s].first; i < ranges[s].end; i++) {
            sum += costs[i];
        }
        longest = sum > longest ? sum : longest;
    }
    return longest;
}

/* Every way to cut nine layers in four. */
static void no_other_division_is_shorter(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 200; seed++) {
        double costs[9];
        double best = 1e9;
        struct cddpi_layer_range ranges[4];

        for (int i = 0; i < 9; i++) {
            costs[i] = fabs((double)test_number(seed, (uint64_t)i)) + 0.01;
        }
        for (int a = 1; a < 7; a++) {
            for (int b = a + 1; b < 8; b++) {
                for (int c = b + 1; c < 9; c++) {
                    const struct cddpi_layer_range way[] = {{0, a}, {a, b}, {b, c}, {c, 9}};

                    best = fmin(best, longest_of(costs, way, 4));
                }
            }
        }
        assert_int_equal(cddpi_divide_layers(costs, NULL, 9, 4, ranges), CDDP_OK);
        assert_true(fabs(longest_of(costs, ranges, 4) - best) < 1e-12);
    }
}

/* The first stage of 1f1b keeps two micro-batches, the last one one. */
static void by_memory_the_largest_stage_is_as_small_as_can_be(void **state)
{
    static const struct cddpi_layer_bytes layers[] = {{0, 5, true},   {100, 10, true},
                                                      {0, 10, false}, {10, 50, true},
                                                      {10, 50, true}, {100, 10, true}};
    static const struct cddpi_stage_memory memory[] = {{2, 2}, {2, 1}};
    struct cddpi_layer_range ranges[2];

    (void)state;
    assert_int_equal(cddpi_divide_by_memory(layers, 6, memory, 2, ranges), CDDP_OK);
    assert_int_equal(ranges[0].first, 0);
    assert_int_equal(ranges[0].end, 3); /* with one layer more, 370 and 280 */
    assert_int_equal(ranges[1].end, 6);
    assert_int_equal(cddpi_stage_bytes(layers, ranges[0], &memory[0]), 250);
    assert_int_equal(cddpi_stage_bytes(layers, ranges[1], &memory[1]), 350);
}

static void no_stage_begins_with_a_layer_that_the_one_before_does(void **state)
{
    (void)state;
    expect_division((double[]){4, 0, 4, 0, 4, 0}, 6, 3, (int[]){2, 4, 6});
    expect_division((double[]){0, 4, 0, 4}, 4, 2, (int[]){3, 4});
}

/* As flatten, and a last pooling, where they happen to take long; a rank with such a layer alone
 * would have nothing to train. */
static void each_stage_has_a_layer_that_learns(void **state)
{
    (void)state;
    expect_learning((double[]){9, 1, 1, 1}, (bool[]){false, true, true, true}, 4, 2, (int[]){2, 4});
    expect_learning((double[]){1, 1, 9}, (bool[]){true, true, false}, 3, 2, (int[]){1, 3});
    expect_learning((double[]){9, 1, 9, 1}, (bool[]){false, true, false, true}, 4, 2,
                    (int[]){2, 4});
    expect_learning((double[]){1, 1, 1}, (bool[]){true, true, true}, 3, 3, (int[]){1, 2, 3});
    expect_learning((double[]){1, 1}, (bool[]){true, false}, 2, 2, (int[]){1, 2}); /* not enough */
}

static void more_stages_than_layers_are_refused(void **state)
{
    struct cddpi_layer_range ranges[4];

    (void)state;
    assert_true(failure_is(cddpi_divide_layers((double[]){1, 0, 1}, NULL, 3, 3, ranges),
                           CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("3 stages are more than the model's 2 layers"));
}

static void stages_begin_where_they_are_told_to(void **state)
{
    struct cddpi_layer_range ranges[3];

    (void)state;
    assert_int_equal(cddpi_stages_from_names(&cnn, (char *[]){"conv2", "fc1"}, 2, ranges), CDDP_OK);
    assert_int_equal(ranges[0].first, 0);
    assert_int_equal(ranges[0].end, ranges[1].first);
    assert_int_equal(ranges[1].end, ranges[2].first);
    assert_true(ranges[2].end > ranges[2].first);
    assert_true(failure_is(cddpi_stages_from_names(&cnn, (char *[]){"fc1", "conv2"}, 2, ranges),
                           CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("a stage cannot begin with \"conv2\""));
    assert_true(failure_is(cddpi_stages_from_names(&cnn, (char *[]){"nowhere"}, 1, ranges),
                           CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("\"nowhere\""));
}

/* As PyTorch's split_spec={"layer3": SplitPoint.BEGINNING}: "layer3.0.conv1" is its first layer. */
static void a_stage_may_begin_with_a_module_of_several_layers(void **state)
{
    struct cddpi_layer_range by_module[3], by_layer[3];
    char first[64];

    (void)state;
    assert_int_equal(
        cddpi_stages_from_names(&resnet20, (char *[]){"layer2", "layer3.1"}, 2, by_module),
        CDDP_OK);
    assert_int_equal(cddpi_model_layer_name(&resnet20, by_module[1].first, first, sizeof first),
                     CDDP_OK);
    assert_string_equal(first, "layer2.0.conv1");
    assert_int_equal(cddpi_stages_from_names(
                         &resnet20, (char *[]){"layer2.0.conv1", "layer3.1.conv1"}, 2, by_layer),
                     CDDP_OK);
    assert_memory_equal(by_module, by_layer, sizeof by_layer);
    for (int i = 0; i < 3; i++) { /* part of a name, or nothing, is no module */
        static char *const names[] = {"layer", "layer2.", ""};

        assert_int_equal(cddpi_stages_from_names(&resnet20, &names[i], 1, by_module),
                         CDDP_ERR_CONFIG);
    }
}

static void expect_measured(const struct cddpi_model_spec *whole)
{
    struct cddpi_layer_range ranges[3];

    if (cddpi_stages_measured(whole, 2, 3, ranges) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    for (int s = 0; s < 3; s++) {
        struct cddpi_model_spec part = *whole;
        struct fixture f;

        part.part = ranges[s];
        assert_int_equal(ranges[s].first, s == 0 ? 0 : ranges[s - 1].end);
        model_setup(&f, &part, 2); /* each is a part that can be made */
        fixture_fini(&f);
    }
}

static void measured_stages_are_parts_of_the_model(void **state)
{
    (void)state;
    expect_measured(&cnn);
    expect_measured(&resnet20);
    expect_measured(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_stage_is_as_short_as_can_be),
        cmocka_unit_test(no_other_division_is_shorter),
        cmocka_unit_test(by_memory_the_largest_stage_is_as_small_as_can_be),
        cmocka_unit_test(no_stage_begins_with_a_layer_that_the_one_before_does),
        cmocka_unit_test(each_stage_has_a_layer_that_learns),
        cmocka_unit_test(more_stages_than_layers_are_refused),
        cmocka_unit_test(stages_begin_where_they_are_told_to),
        cmocka_unit_test(a_stage_may_begin_with_a_module_of_several_layers),
        cmocka_unit_test(measured_stages_are_parts_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
