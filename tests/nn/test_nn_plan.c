/* test_nn_plan.c - models' plans and their memory: live buffers do not overlap, and other batch
 * sizes change nothing. */
#include "support/nn_model.h"

static void plans_overlap_nothing_that_is_alive_and_share_the_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        for (int training = 0; training < 2; training++) {
            struct fixture f;
            struct cddpi_plan *plan;

            model_setup(&f, presets[i], 4);
            assert_int_equal(cddpi_model_plan(f.model, 4, training, &plan), CDDP_OK);
            assert_true(nn_arena_is_valid(&plan->arena));
            assert_true(plan->arena.bytes[CDDPI_REGION_BATCH] < nn_arena_sum(&plan->arena));
            assert_true(cddpi_model_arena_bytes(f.model) >= plan->arena.bytes[CDDPI_REGION_BATCH]);
            assert_int_equal((uintptr_t)f.model->regions[CDDPI_REGION_BATCH].data % CDDPI_ALIGNMENT,
                             0);
            fixture_fini(&f);
        }
    }
}

static void placing_keeps_what_is_alive_together_apart(void **state)
{
    struct cddpi_arena memory = {0};
    int a = cddpi_arena_add(&memory, 1000, 0, 3);
    int b = cddpi_arena_add(&memory, 500, 2, 5);
    int c = cddpi_arena_add(&memory, 700, 4, 9);
    int d = cddpi_arena_add(&memory, 500, 5, 6);

    (void)state;
    assert_false(cddpi_arena_replace(&memory, d, a, 2)); /* a is read at 3 */
    assert_true(cddpi_arena_replace(&memory, d, b, 5));
    assert_int_equal(cddpi_arena_place(&memory), CDDP_OK);
    assert_true(nn_arena_is_valid(&memory));
    assert_int_equal(memory.buffers[d].offset, memory.buffers[b].offset);
    assert_int_equal(memory.buffers[a].offset, memory.buffers[c].offset);
    assert_true(memory.bytes[CDDPI_REGION_BATCH] < nn_arena_sum(&memory));
    memory.buffers[b].offset = memory.buffers[a].offset; /* the check can fail */
    assert_false(nn_arena_is_valid(&memory));
    cddpi_arena_fini(&memory);
}

static void the_first_layer_makes_no_gradient_of_the_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct cddpi_plan *plan;
        struct fixture f;

        model_setup(&f, presets[i], 2);
        assert_int_equal(cddpi_model_plan(f.model, 2, true, &plan), CDDP_OK);
        for (int op = 0; op < f.model->graph.op_count; op++) {
            bool of_data = !f.model->graph.values[f.model->graph.ops[op].inputs[0]].needs_grad;

            assert_int_equal(plan->ops[op].grad_inputs[0] < 0, of_data);
        }
        assert_int_equal(f.model->graph.values[CDDPI_VALUE_INPUT].needs_grad, false);
        fixture_fini(&f);
    }
}

static void expect_same(const struct fixture *a, const struct fixture *b)
{
    assert_int_equal(a->param_count, b->param_count);
    for (size_t i = 0; i < a->param_count; i++) {
        assert_memory_equal(a->grads[i], b->grads[i],
                            cddpi_tensor_elements(&a->params[i]) * sizeof(float));
    }
    assert_memory_equal(cddpi_model_outputs(a->model), cddpi_model_outputs(b->model),
                        (size_t)a->batch.count * 10 * sizeof(float));
}

static void other_batch_sizes_in_between_change_nothing(void **state)
{
    static const int counts[] = {13, 5, 13};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct fixture used;

        model_setup(&used, presets[i], 13);
        for (size_t j = 0; j < COUNT_OF(counts); j++) {
            struct fixture fresh;
            struct cddpi_loss_result result;

            model_setup(&fresh, presets[i], counts[j]);
            fixture_batch(&used, 0, counts[j]);
            assert_int_equal(cddpi_model_forward(used.model, &used.batch, false, &result), CDDP_OK);
            assert_int_equal(fixture_step(&used, 0.5, false), CDDP_OK);
            assert_int_equal(fixture_step(&fresh, 0.5, false), CDDP_OK);
            expect_same(&used, &fresh);
            fixture_fini(&fresh);
        }
        fixture_fini(&used);
    }
}

static void more_batch_sizes_than_are_kept_still_work(void **state)
{
    struct fixture f;

    (void)state;
    model_setup(&f, &mlp, 1);
    for (int count = 1; count <= 2 * CDDPI_MODEL_PLANS; count++) {
        fixture_batch(&f, 0, count);
        assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    }
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_overlap_nothing_that_is_alive_and_share_the_rest),
        cmocka_unit_test(placing_keeps_what_is_alive_together_apart),
        cmocka_unit_test(the_first_layer_makes_no_gradient_of_the_data),
        cmocka_unit_test(other_batch_sizes_in_between_change_nothing),
        cmocka_unit_test(more_batch_sizes_than_are_kept_still_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
