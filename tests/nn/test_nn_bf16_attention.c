/* test_nn_bf16_attention.c - attention with bf16 factors against attention in float32. */
#include "nn/cpu/cpu_attention.h"
#include "nn/cpu/dnnl.h"
#include "support/nn.h"

/* An attention of its own: the model around it only lends it oneDNN and memory. Its buffers have no
 * dates, so that none shares memory with another. */
struct bench {
    struct cddpi_model *model;
    struct cddpi_plan plan;
    struct cddpi_exec exec;
    struct cddpi_attention_bf16 *state;
};

static void bench_init(struct bench *bench, const struct cddpi_attention *shape)
{
    const struct cddpi_model_spec spec = {.preset = "mlp",
                                          .channels = 1,
                                          .height = 2,
                                          .width = 2,
                                          .classes = 2,
                                          .precision = CDDPI_PRECISION_BF16};

    *bench = (struct bench){0};
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &bench->model), CDDP_OK);
    bench->plan = (struct cddpi_plan){.model = bench->model, .count = 1, .training = true};
    assert_int_equal(cddpi_attention_bf16_plan(&bench->plan, 0, shape, &bench->state), CDDP_OK);
    assert_int_equal(cddpi_arena_place(&bench->plan.arena), CDDP_OK);
    bench->model->regions[CDDPI_REGION_BATCH].data = cddpi_alloc_aligned(
        bench->plan.arena.bytes[CDDPI_REGION_BATCH] + 64);
    bench->exec = (struct cddpi_exec){.model = bench->model, .plan = &bench->plan};
}

static void bench_fini(struct bench *bench)
{
    cddpi_attention_bf16_destroy(bench->state);
    cddpi_mds_drop(&bench->plan.layouts);
    cddpi_arena_fini(&bench->plan.arena);
    cddpi_free(bench->plan.owned);
    cddpi_free(bench->plan.parts);
    cddpi_model_destroy(bench->model);
}

static float *made_up(size_t count, uint32_t stream)
{
    float *values = malloc((count + 1) * sizeof *values);

    for (size_t i = 0; i < count; i++) {
        values[i] = 2 * test_number(stream, i);
    }
    return values;
}

/* |a - b| over |b|, as vectors. */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0;
    double length = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        length += (double)b[i] * b[i];
    }
    return sqrt(difference / length);
}

/* What forward and backward make; the gradients of queries, keys and values come last. */
struct made {
    float *out, *kept, *grad;
};

static struct made make(const struct cddpi_attention *shape)
{
    size_t elements = shape->samples * shape->context * shape->heads * shape->width;

    return (struct made){malloc(elements * sizeof(float)),
                         malloc(cddpi_attention_kept(shape) * sizeof(float)),
                         malloc(3 * elements * sizeof(float))};
}

static void unmake(struct made *made)
{
    free(made->out);
    free(made->kept);
    free(made->grad);
}

static void check_shape(const struct cddpi_attention *shape)
{
    size_t elements = shape->samples * shape->context * shape->heads * shape->width;
    float *qkv = made_up(3 * elements, 1);
    float *grad_out = made_up(elements, 2);
    float *scratch = malloc(cddpi_attention_scratch(shape) * sizeof *scratch);
    struct made made[3];
    struct bench bench;

    for (int i = 0; i < 3; i++) {
        made[i] = make(shape);
    }
    bench_init(&bench, shape);
    assert_non_null(bench.state);
    assert_int_equal(cddpi_attention_forward(shape, qkv, made[0].out, made[0].kept, scratch),
                     CDDP_OK);
    assert_int_equal(cddpi_attention_backward(shape, qkv, made[0].out, grad_out, made[0].kept,
                                              made[0].grad, scratch),
                     CDDP_OK);
    for (int i = 1; i < 3; i++) {
        /* whatever was there before */
        memset(made[i].grad, i == 1 ? 0xff : 0x11, 3 * elements * sizeof(float));
        memset(bench.model->regions[CDDPI_REGION_BATCH].data, i == 1 ? 0xff : 0x22,
               bench.plan.arena.bytes[CDDPI_REGION_BATCH]);
        assert_int_equal(
            cddpi_attention_bf16_forward(&bench.exec, bench.state, qkv, made[i].out, made[i].kept),
            CDDP_OK);
        assert_int_equal(cddpi_attention_bf16_backward(&bench.exec, bench.state, qkv, made[i].out,
                                                       grad_out, made[i].kept, made[i].grad),
                         CDDP_OK);
    }
    assert_true(distance(made[1].out, made[0].out, elements) < 1.0 / 128);
    assert_true(shape->context == 1 || distance(made[1].out, made[0].out, elements) > 1e-4);
    assert_true(shape->context == 1 || distance(made[1].grad, made[0].grad, 3 * elements) < 0.02);
    assert_memory_equal(made[1].out, made[2].out, elements * sizeof(float));
    assert_memory_equal(made[1].grad, made[2].grad, 3 * elements * sizeof(float));
    bench_fini(&bench);
    for (int i = 0; i < 3; i++) {
        unmake(&made[i]);
    }
    free(qkv);
    free(grad_out);
    free(scratch);
}

static bool has_amx(void)
{
    const struct cddpi_attention shape = {1, 64, 1, 64, false};
    struct bench bench;
    bool has;

    bench_init(&bench, &shape);
    has = bench.model->bf16 == CDDPI_BF16_AMX;
    assert_int_equal(bench.state != NULL, has);
    bench_fini(&bench);
    return has;
}

static void attention_in_bf16_is_near_that_of_f32_and_has_the_same_bits_twice(void **state)
{
    static const struct cddpi_attention shapes[] = {{2, 64, 2, 64, false},  {1, 100, 3, 16, false},
                                                    {2, 1, 1, 8, false},    {3, 130, 2, 64, false},
                                                    {1, 256, 4, 32, false}, {1, 193, 1, 33, false},
                                                    {2, 17, 2, 64, false},  {1, 64, 1, 1, false}};

    (void)state;
    if (!has_amx()) {
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        check_shape(&shapes[i]);
    }
}

static void wide_heads_are_left_to_f32(void **state)
{
    const struct cddpi_attention shape = {1, 64, 1, 65, false};
    struct bench bench;

    (void)state;
    bench_init(&bench, &shape);
    assert_null(bench.state);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_in_bf16_is_near_that_of_f32_and_has_the_same_bits_twice),
        cmocka_unit_test(wide_heads_are_left_to_f32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
