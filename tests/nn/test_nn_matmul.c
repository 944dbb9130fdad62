/* test_nn_matmul.c - models with products on AMX, compared with plain float32 arithmetic. On a CPU
 * without AMX both are the same. */
#include "nn/cpu/matmul.h"
#include "support/nn.h"

static struct cddpi_model_spec mlp(enum cddpi_matmul_mode matmul)
{
    static const int hidden[] = {136, 128};

    return (struct cddpi_model_spec){.preset = "mlp",
                                     .hidden = hidden,
                                     .hidden_count = 2,
                                     .channels = 1,
                                     .height = 9,
                                     .width = 11,
                                     .classes = 70,
                                     .matmul = matmul};
}

static struct cddpi_model_spec gpt2(enum cddpi_matmul_mode matmul, bool recompute)
{
    return (struct cddpi_model_spec){.preset = "gpt2",
                                     .blocks = 2,
                                     .heads = 2,
                                     .embed = 128,
                                     .context = 96,
                                     .vocab = 150,
                                     .classes = 150,
                                     .recompute = recompute,
                                     .matmul = matmul};
}

/* Of two steps, the second of which adds its gradients to the first's. */
static void make_gradients(struct fixture *f, const struct cddpi_model_spec *spec, int count)
{
    assert_true(fixture_init(f, spec, 5, NULL, 0, count));
    assert_int_equal(f->model->amx,
                     spec->matmul == CDDPI_MATMUL_AUTO && cddpi_amx_gemm_available());
    assert_int_equal(fixture_step(f, 0.25, false), CDDP_OK);
    assert_int_equal(fixture_step(f, 0.5, true), CDDP_OK);
}

static void compare_gradients(const struct cddpi_model_spec *tiles,
                              const struct cddpi_model_spec *plain, int count)
{
    struct fixture a, b;

    make_gradients(&a, tiles, count);
    make_gradients(&b, plain, count);
    for (size_t i = 0; i < a.param_count; i++) {
        size_t elements = cddpi_tensor_elements(&a.params[i]);
        double difference = relative_difference(b.grads[i], a.grads[i], elements);

        if (!(difference < 2e-5)) {
            fail_msg("%s: gradients differ by %g", a.params[i].name, difference);
        }
    }
    fixture_fini(&a);
    fixture_fini(&b);
}

static void gradients_do_not_depend_on_how_products_are_made(void **state)
{
    const struct cddpi_model_spec mlps[] = {mlp(CDDPI_MATMUL_AUTO), mlp(CDDPI_MATMUL_FMA)};
    const struct cddpi_model_spec gpts[] = {
        gpt2(CDDPI_MATMUL_AUTO, false), gpt2(CDDPI_MATMUL_FMA, false),
        gpt2(CDDPI_MATMUL_AUTO, true), gpt2(CDDPI_MATMUL_FMA, true)};

    (void)state;
    compare_gradients(&mlps[0], &mlps[1], 150);
    compare_gradients(&gpts[0], &gpts[1], 3);
    compare_gradients(&gpts[2], &gpts[3], 3);
    compare_gradients(&gpts[2], &gpts[1], 3);
}

static void gradients_are_the_same_bits_again(void **state)
{
    const struct cddpi_model_spec spec = gpt2(CDDPI_MATMUL_AUTO, false);
    struct fixture a, b;

    (void)state;
    make_gradients(&a, &spec, 3);
    make_gradients(&b, &spec, 3);
    for (size_t i = 0; i < a.param_count; i++) {
        assert_memory_equal(a.grads[i], b.grads[i],
                            cddpi_tensor_elements(&a.params[i]) * sizeof(float));
    }
    fixture_fini(&a);
    fixture_fini(&b);
}

static float *evaluate(struct fixture *f, int first, int count)
{
    size_t elements = (size_t)count * 70;
    struct cddpi_loss_result result;
    float *copy = malloc(elements * sizeof *copy);

    fixture_batch(f, first, count);
    assert_int_equal(cddpi_model_forward(f->model, &f->batch, false, &result), CDDP_OK);
    memcpy(copy, cddpi_model_outputs(f->model), elements * sizeof *copy);
    return copy;
}

static void a_sample_has_the_same_outputs_in_another_batch(void **state)
{
    const struct cddpi_model_spec spec = mlp(CDDPI_MATMUL_AUTO);
    float *all, *some;
    struct fixture f;

    (void)state;
    if (!cddpi_amx_gemm_available()) {
        print_message("skipped: no AMX here, and sgemm promises nothing of the kind\n");
        skip();
    }
    assert_true(fixture_init(&f, &spec, 5, NULL, 0, 1));
    all = evaluate(&f, 0, 300);
    some = evaluate(&f, 120, 141);
    assert_memory_equal(all + 120 * 70, some, 141 * 70 * sizeof *some);
    free(all);
    free(some);
    fixture_fini(&f);
}

static void amx_is_for_products_that_are_large_in_all_three_sizes(void **state)
{
    (void)state;
    assert_true(cddpi_matmul_fits_amx(128, 128, 64));
    assert_true(cddpi_matmul_fits_amx(64, 256, 64));
    assert_true(cddpi_matmul_fits_amx(64, 64, 256));
    assert_false(cddpi_matmul_fits_amx(64, 64, 64));
    assert_false(cddpi_matmul_fits_amx(1024, 10, 1024));
    assert_false(cddpi_matmul_fits_amx(10, 1024, 1024));
    assert_false(cddpi_matmul_fits_amx(1024, 1024, 10));
}

static void several_threads_and_fma_do_without_amx(void **state)
{
    (void)state;
    assert_int_equal(cddpi_matmul_has_amx(CDDPI_MATMUL_AUTO, false), cddpi_amx_gemm_available());
    assert_false(cddpi_matmul_has_amx(CDDPI_MATMUL_FMA, true));
    setenv("CDDP_THREADS", "2", 1);
    assert_false(cddpi_matmul_has_amx(CDDPI_MATMUL_AUTO, false));
    assert_int_equal(cddpi_matmul_has_amx(CDDPI_MATMUL_AUTO, true), cddpi_amx_gemm_available());
    unsetenv("CDDP_THREADS");
}

static void the_table_of_a_model_tells_how_f32_is_multiplied(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct cddpi_model_spec spec = mlp((enum cddpi_matmul_mode)i);
        bool tiles = i == 0 && cddpi_amx_gemm_available();
        struct fixture f;
        const char *line;
        char *table;

        assert_true(fixture_init(&f, &spec, 2, NULL, 0, 50));
        table = cddpi_model_describe(f.model);
        assert_non_null(table);
        line = strstr(table, "products of f32 factors: ");
        assert_non_null(line);
        assert_string_equal(strchr(line, ':') + 2,
                            tiles ? "AMX, in three parts of bf16 each, where large; else FMA\n"
                                  : "FMA\n");
        cddp_free(table);
        fixture_fini(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_do_not_depend_on_how_products_are_made),
        cmocka_unit_test(gradients_are_the_same_bits_again),
        cmocka_unit_test(a_sample_has_the_same_outputs_in_another_batch),
        cmocka_unit_test(amx_is_for_products_that_are_large_in_all_three_sizes),
        cmocka_unit_test(several_threads_and_fma_do_without_amx),
        cmocka_unit_test(the_table_of_a_model_tells_how_f32_is_multiplied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
