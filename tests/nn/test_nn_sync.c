/* test_nn_sync.c - batch normalisation over ranks: together they compute what one rank computes
 * with all their samples, however unevenly these are distributed. */
#include "support/nn_sync.h"

static int compare_grads(cddp_group *group, const struct fixture *mine, const struct fixture *whole)
{
    for (size_t i = 0; i < mine->param_count; i++) {
        size_t count = cddpi_tensor_elements(&mine->params[i]);

        CHECK(cddp_all_reduce_weighted(group, mine->grads[i], mine->grads[i], count, CDDP_F32,
                                       mine->batch.count, NULL) == CDDP_OK);
        /* what is normalised away has a gradient of zero, but for rounding */
        CHECK(difference_over(whole->grads[i], mine->grads[i], count, 1e-3) < 1e-3);
    }
    return 0;
}

static int compare_buffers(cddp_group *group, const struct fixture *mine,
                           const struct fixture *whole)
{
    size_t count;
    const cddp_param *a = cddpi_model_buffers(mine->model, &count);
    const cddp_param *b = cddpi_model_buffers(whole->model, &count);

    for (size_t i = 0; i < count; i++) {
        float first[20];
        size_t bytes = cddpi_tensor_elements(&a[i]) * sizeof *first;

        /* the same bits everywhere */
        memcpy(first, a[i].data, bytes);
        CHECK(cddp_broadcast(group, first, cddpi_tensor_elements(&a[i]), CDDP_F32, 0, NULL) ==
              CDDP_OK);
        CHECK(memcmp(first, a[i].data, bytes) == 0);
        CHECK(difference_over(a[i].data, b[i].data, cddpi_tensor_elements(&a[i]), 1) < 1e-5);
    }
    return 0;
}

static int sync_rank(int rank, int n, void *argument)
{
    const struct spread *spread = argument;
    struct fixture mine, whole;
    cddp_group *group;
    int count = spread->counts[rank];
    int first = first_sample(spread, rank);

    CHECK(join(spread, "host", "cpu", NULL, rank, n, &group) == 0);
    CHECK(fixture_init(&whole, &spec, 3, NULL, 0, TOTAL));
    CHECK(fixture_init(&mine, &spec, 3, group, first, count));
    for (int step = 0; step < 2; step++) {
        /* each rank's own mean, as a trainer makes it that then weighs ranks by their samples */
        CHECK(fixture_step(&whole, 1.0 / TOTAL, false) == CDDP_OK);
        CHECK(fixture_step(&mine, count > 0 ? 1.0 / count : 1, false) == CDDP_OK);
        if (count > 0) {
            CHECK(relative_difference(cddpi_model_outputs(whole.model) + 3 * first,
                                      cddpi_model_outputs(mine.model), 3 * (size_t)count) < 1e-4);
        }
        CHECK(compare_grads(group, &mine, &whole) == 0);
        CHECK(compare_buffers(group, &mine, &whole) == 0);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    fixture_fini(&mine);
    fixture_fini(&whole);
    cddp_group_destroy(group);
    return 0;
}

static void two_ranks_normalise_as_one_does(void **state)
{
    (void)state;
    run_spread(2, (struct spread){NULL, {5, 2}}, sync_rank);
}

static void three_ranks_normalise_as_one_does(void **state)
{
    (void)state;
    run_spread(3, (struct spread){NULL, {1, 4, 2}}, sync_rank);
}

static void a_rank_without_samples_takes_part(void **state)
{
    (void)state;
    run_spread(3, (struct spread){NULL, {3, 0, 4}}, sync_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_normalise_as_one_does),
        cmocka_unit_test(three_ranks_normalise_as_one_does),
        cmocka_unit_test(a_rank_without_samples_takes_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
