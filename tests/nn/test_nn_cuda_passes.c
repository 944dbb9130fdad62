/* test_nn_cuda_passes.c - how many passes over activations a step of a model on a CUDA device
 * makes, and which it saves. */
#include "base/error.h"
#include "support/nn_cuda.h"

static void the_description_tells_what_is_done_in_one_pass(void **state)
{
    struct device_fixture f;
    char *text;

    (void)state;
    device_setup(&f, &resnet20, CDDPI_PRECISION_BF16, 1);
    text = cddpi_model_describe(f.model);
    assert_non_null(strstr(text, "batch_norm + add + relu"));
    cddp_free(text);
    device_fixture_fini(&f);
    device_setup(&f, &gpt2, CDDPI_PRECISION_BF16, 1);
    text = cddpi_model_describe(f.model);
    assert_non_null(strstr(text, "linear + gelu"));
    cddp_free(text);
    device_fixture_fini(&f);
}

/* Passes over activations that the tests count. */
static const struct cddpi_cuda_kernels *real_kernels;
static struct passes {
    int adds, norms_of_sums;
    int pointwise[CDDPI_POINTWISE_COUNT], pointwise_grads[CDDPI_POINTWISE_COUNT];
    int sums, sums_in_any_order; /* of products, convolutions and attention's gradient */
} passes;

static void count_sums(bool any_order)
{
    passes.sums++;
    passes.sums_in_any_order += any_order ? 1 : 0;
}

static cddp_status count_linear_weight(struct cddpi_device *where,
                                       const struct cddpi_cuda_linear *shape, const void *dy,
                                       const void *x, bool add, float *dweight, float *dbias)
{
    count_sums(shape->any_order);
    return real_kernels->linear_weight(where, shape, dy, x, add, dweight, dbias);
}

static cddp_status count_conv_weight(struct cddpi_device *where,
                                     const struct cddpi_cuda_conv *shape, const void *dy,
                                     const void *x, bool add, float *dweight)
{
    count_sums(shape->any_order);
    return real_kernels->conv_weight(where, shape, dy, x, add, dweight);
}

static cddp_status count_attention_grad(struct cddpi_device *where,
                                        const struct cddpi_cuda_attention *shape, const void *qkv,
                                        const void *out, const float *stats, const void *dout,
                                        void *dqkv)
{
    count_sums(shape->any_order);
    return real_kernels->attention_grad(where, shape, qkv, out, stats, dout, dqkv);
}

static cddp_status count_add(struct cddpi_device *where, cddp_type type, const void *a,
                             const void *b, bool relu, size_t count, void *out)
{
    passes.adds++;
    return real_kernels->add(where, type, a, b, relu, count, out);
}

static cddp_status count_pointwise(struct cddpi_device *where, cddp_type type,
                                   enum cddpi_pointwise function, float slope, const void *x,
                                   size_t count, void *y)
{
    passes.pointwise[function]++;
    return real_kernels->pointwise(where, type, function, slope, x, count, y);
}

static cddp_status count_pointwise_grad(struct cddpi_device *where, cddp_type type,
                                        enum cddpi_pointwise function, float slope, const void *dy,
                                        const void *saved, size_t count, void *dx)
{
    passes.pointwise_grads[function]++;
    return real_kernels->pointwise_grad(where, type, function, slope, dy, saved, count, dx);
}

static cddp_status count_norm(struct cddpi_device *where, cddp_type type, const void *x,
                              const void *residual, const float *weight, const float *bias,
                              float epsilon, size_t rows, size_t columns, void *sum, void *out,
                              float *mean, float *inverse)
{
    passes.norms_of_sums += residual != NULL ? 1 : 0;
    return real_kernels->layer_norm(where, type, x, residual, weight, bias, epsilon, rows, columns,
                                    sum, out, mean, inverse);
}

static int count_passes(void **state)
{
    static struct cddpi_cuda_kernels counting;

    (void)state;
    real_kernels = device->kernels;
    counting = *real_kernels;
    counting.add = count_add;
    counting.pointwise = count_pointwise;
    counting.pointwise_grad = count_pointwise_grad;
    counting.layer_norm = count_norm;
    counting.linear_weight = count_linear_weight;
    counting.conv_weight = count_conv_weight;
    counting.attention_grad = count_attention_grad;
    device->kernels = &counting;
    return 0;
}

static int count_passes_no_more(void **state)
{
    (void)state;
    device->kernels = real_kernels;
    return 0;
}

static struct passes passes_of(const struct cddpi_model_spec *spec)
{
    struct device_fixture f;

    device_setup(&f, spec, CDDPI_PRECISION_BF16, 2);
    passes = (struct passes){0};
    device_step(&f, 1, false);
    device_fixture_fini(&f);
    return passes;
}

static void sums_gelus_and_relus_take_no_passes_of_their_own(void **state)
{
    struct cddpi_model_spec again = gpt2;
    struct passes seen;

    (void)state;
    seen = passes_of(&gpt2);
    assert_int_equal(seen.adds, 0);
    assert_int_equal(
        seen.pointwise[CDDPI_POINTWISE_GELU] + seen.pointwise_grads[CDDPI_POINTWISE_GELU], 0);
    assert_int_equal(seen.norms_of_sums, 2 * gpt2.blocks);
    again.recompute = true;
    seen = passes_of(&again); /* of the sums, those inside of the blocks come again */
    assert_int_equal(seen.adds, 0);
    assert_int_equal(
        seen.pointwise[CDDPI_POINTWISE_GELU] + seen.pointwise_grads[CDDPI_POINTWISE_GELU], 0);
    assert_int_equal(seen.norms_of_sums, 3 * gpt2.blocks);
    seen = passes_of(&resnet20);
    assert_int_equal(
        seen.pointwise[CDDPI_POINTWISE_RELU] + seen.pointwise_grads[CDDPI_POINTWISE_RELU], 0);
    assert_int_equal(seen.adds, 0); /* batch_norm takes gradients in two parts */
}

static void sums_have_an_order_unless_the_model_wants_none(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&gpt2, &resnet20};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct cddpi_model_spec spec = *specs[i];
        struct passes seen = passes_of(&spec);

        assert_true(seen.sums > 0);
        assert_int_equal(seen.sums_in_any_order, 0);
        spec.any_order = true;
        seen = passes_of(&spec);
        assert_int_equal(seen.sums_in_any_order, seen.sums);
    }
}

static void plans_overlap_nothing_that_is_alive(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            struct cddpi_model_spec spec = *presets[i].spec;
            struct device_fixture f;

            spec.recompute = recompute == 1;
            device_setup(&f, &spec, CDDPI_PRECISION_BF16, 2);
            for (int training = 0; training < 2; training++) {
                struct cddpi_plan *plan = NULL;

                device_check(cddpi_plan_create(f.model, 3, training == 1, &plan));
                assert_true(nn_arena_is_valid(&plan->arena));
                for (int b = 0; b < plan->arena.count; b++) {
                    assert_int_equal(plan->arena.buffers[b].offset % 256, 0);
                }
                cddpi_plan_destroy(plan);
            }
            device_fixture_fini(&f);
        }
    }
}

/* Bytes that the plan's op @p index owns. */
static size_t owned_bytes(const struct cddpi_plan *plan, int index)
{
    size_t bytes = 0;

    for (int i = 0; i < plan->owned_count; i++) {
        if (plan->owned[i].op == index) {
            bytes += plan->arena.buffers[plan->owned[i].buffer].bytes;
        }
    }
    return bytes;
}

/* The input of ResNet-50's is its largest activation. */
static void of_a_maximum_a_byte_is_kept_for_backward_and_not_its_input(void **state)
{
    struct device_fixture f;
    int pool = 0;

    (void)state;
    device_setup(&f, &resnet50, CDDPI_PRECISION_BF16, 2);
    while (f.model->graph.ops[pool].ops != &cddpi_op_max_pool) {
        assert_true(++pool < f.model->graph.op_count);
    }
    for (int training = 0; training < 2; training++) {
        const struct cddpi_op *op = &f.model->graph.ops[pool];
        struct cddpi_plan *plan = NULL;

        device_check(cddpi_plan_create(f.model, 3, training == 1, &plan));
        assert_int_equal(owned_bytes(plan, pool),
                         training * (int)plan->values[op->output].elements);
        assert_int_equal(
            cddpi_arena_root(&plan->arena, plan->values[op->inputs[0]].activation)->last, pool);
        cddpi_plan_destroy(plan);
    }
    device_fixture_fini(&f);
}

static void every_layer_is_on_every_kind_of_device(void **state)
{
    (void)state;
    for (int type = 0; type < CDDPI_LAYER_COUNT; type++) {
        for (int kind = 0; kind < CDDPI_DEVICE_KINDS; kind++) {
            if (cddpi_layer_rows[type].ops->on[kind] == NULL) {
                fail_msg("%s is not on devices of kind %d", cddpi_layer_words[type], kind);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_description_tells_what_is_done_in_one_pass),
        cmocka_unit_test_setup_teardown(sums_gelus_and_relus_take_no_passes_of_their_own,
                                        count_passes, count_passes_no_more),
        cmocka_unit_test_setup_teardown(sums_have_an_order_unless_the_model_wants_none,
                                        count_passes, count_passes_no_more),
        cmocka_unit_test(plans_overlap_nothing_that_is_alive),
        cmocka_unit_test(of_a_maximum_a_byte_is_kept_for_backward_and_not_its_input),
        cmocka_unit_test(every_layer_is_on_every_kind_of_device),
    };

    return run_on_device(tests);
}
