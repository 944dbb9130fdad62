/* test_nn_recompute.c - networks of images whose blocks are recomputed before their backward: the
 * bits of networks that keep everything, running statistics included, in less memory. */
#include "support/nn_model.h"

/* Two batches whose gradients are added up. */
static void train(struct fixture *f, const struct cddpi_model_spec *spec, bool recompute,
                  enum cddpi_fallbacks fallbacks)
{
    struct cddpi_model_spec own = *spec;

    own.recompute = recompute;
    assert_true(fixture_init(f, &own, 45, NULL, 0, 4));
    f->model->fallbacks = fallbacks;
    assert_int_equal(fixture_step(f, 0.25, false), CDDP_OK);
    fixture_batch(f, 4, 4);
    assert_int_equal(fixture_step(f, 0.25, true), CDDP_OK);
}

static void expect_same_tensors(const cddp_param *a, const cddp_param *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(a[i].data, b[i].data, cddpi_tensor_elements(&a[i]) * sizeof(float));
    }
}

static void compare(const struct cddpi_model_spec *spec, enum cddpi_fallbacks fallbacks)
{
    struct fixture kept, recomputed;
    size_t count = 0;
    const cddp_param *buffers;

    train(&kept, spec, false, fallbacks);
    train(&recomputed, spec, true, fallbacks);
    for (size_t i = 0; i < kept.param_count; i++) {
        assert_memory_equal(kept.grads[i], recomputed.grads[i],
                            cddpi_tensor_elements(&kept.params[i]) * sizeof(float));
    }
    buffers = cddpi_model_buffers(kept.model, &count);
    assert_true(count > 0);
    expect_same_tensors(buffers, cddpi_model_buffers(recomputed.model, &count), count);
    assert_true(cddpi_model_arena_bytes(recomputed.model) < cddpi_model_arena_bytes(kept.model));
    fixture_fini(&kept);
    fixture_fini(&recomputed);
}

static void blocks_of_a_resnet_have_the_same_bits_in_less_memory(void **state)
{
    struct cddpi_model_spec spec;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        spec = i == 0 ? resnet20 : resnet50;
        compare(&spec, CDDPI_FALLBACKS_NEEDED);
        compare(&spec, CDDPI_FALLBACKS_OWN);
        spec.precision = CDDPI_PRECISION_BF16;
        compare(&spec, CDDPI_FALLBACKS_NEEDED);
    }
}

/* Everything before and inside blocks, but what ends one: nearly all multiplications. */
static void what_is_recomputed_is_counted(void **state)
{
    struct cddpi_model_estimate kept, recomputed;
    struct fixture f;

    (void)state;
    model_setup(&f, &resnet20, 4);
    assert_int_equal(cddpi_model_estimate(f.model, 4, false, &kept), CDDP_OK);
    assert_int_equal(cddpi_model_estimate(f.model, 4, true, &recomputed), CDDP_OK);
    assert_true(kept.extra_work == 0);
    assert_true(recomputed.extra_work > 0.5 && recomputed.extra_work <= 1);
    assert_true(recomputed.activation_bytes < kept.activation_bytes);
    fixture_fini(&f);
}

/* What ranks exchange in forward they exchange once. */
static void statistics_over_ranks_are_never_recomputed(void **state)
{
    struct cddpi_model_spec spec = resnet20;
    struct cddpi_model_estimate estimate;
    struct fixture f;

    (void)state;
    spec.sync_batch_norm = true;
    model_setup(&f, &spec, 4);
    assert_int_equal(cddpi_model_estimate(f.model, 4, true, &estimate), CDDP_OK);
    assert_true(estimate.extra_work == 0);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_resnet_have_the_same_bits_in_less_memory),
        cmocka_unit_test(what_is_recomputed_is_counted),
        cmocka_unit_test(statistics_over_ranks_are_never_recomputed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
