/* test_nn_sequence.c - models of tokens: what PyTorch computes, gradients against differences, a
 * table that is tied, what is computed again, ranks without samples. */
#include "nn_support.h"

static const struct cddpi_model_spec tiny = {.preset = "gpt2",
                                             .blocks = 2,
                                             .heads = 2,
                                             .embed = 16,
                                             .context = 8,
                                             .vocab = 37,
                                             .classes = 37};

static void setup(struct fixture *f, const struct cddpi_model_spec *spec, int first, int count)
{
    if (!fixture_init(f, spec, 8, NULL, first, count)) {
        fail_msg("%s", cddp_last_error());
    }
}

/* Larger values than those that training starts with, so that everything shows. */
static void spread_params(struct fixture *f)
{
    for (size_t i = 0; i < f->param_count; i++) {
        const char *name = f->params[i].name;
        bool norm = strstr(name, "ln_") != NULL && strstr(name, "weight") != NULL;
        float *data = f->params[i].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&f->params[i]); e++) {
            data[e] = 0.4f * test_number(200 + (uint32_t)i, e) + (norm ? 1.0f : 0.0f);
        }
    }
}

/* The vectors: see scripts/make_nn_gpt_vectors.py. */

static void expect_near(const char *what, double is, double should, double scale)
{
    if (!(fabs(is - should) <= 1e-4 * scale)) {
        fail_msg("%s is %.9g, PyTorch says %.9g", what, is, should);
    }
}

static void expect_outputs(const struct fixture *f, char *text)
{
    const float *outputs = cddpi_model_outputs(f->model);

    for (int i = 0; i < f->batch.count * tiny.context * tiny.vocab; i++) {
        expect_near("an output", (double)outputs[i], strtod(text, &text), 1);
    }
}

static void expect_grad(const struct fixture *f, size_t index, const char *line)
{
    const float *grad = f->grads[index];
    char name[200];
    double norm, product;
    double dot = 0;
    double squares = 0;

    assert_true(index < f->param_count);
    assert_int_equal(sscanf(line, "grad %199s %lf %lf", name, &norm, &product), 3);
    assert_string_equal(name, f->params[index].name);
    for (size_t i = 0; i < cddpi_tensor_elements(&f->params[index]); i++) {
        dot += (double)grad[i] * (double)test_number(100 + (uint32_t)index, i);
        squares += (double)grad[i] * (double)grad[i];
    }
    expect_near(name, sqrt(squares), norm, norm + 1e-3);
    expect_near(name, dot, product, norm + 1e-3);
}

static void compare_with_pytorch(const struct cddpi_model_spec *spec)
{
    char path[4096];
    static char line[65536];
    struct fixture f;
    struct cddpi_result result;
    size_t grads = 0;
    FILE *file;

    setup(&f, spec, 0, 3);
    spread_params(&f);
    snprintf(path, sizeof path, "%s/tests/data/nn_gpt_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        double loss;
        int correct;

        if (sscanf(line, "loss %lf %d", &loss, &correct) == 2) {
            assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
            expect_near("loss", result.loss_sum, loss, loss);
            assert_int_equal(result.correct, correct);
            assert_int_equal(result.count, 3 * tiny.context);
        } else if (strncmp(line, "outputs ", 8) == 0) {
            expect_outputs(&f, line + 8);
            assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
            assert_null(cddpi_model_outputs(f.model));
        } else if (strncmp(line, "grad ", 5) == 0) {
            expect_grad(&f, grads++, line);
        }
    }
    assert_int_equal(grads, f.param_count);
    fclose(file);
    fixture_fini(&f);
}

static void gpt2_computes_what_pytorch_does(void **state)
{
    (void)state;
    compare_with_pytorch(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_computes_what_pytorch_does),
    };

    return cmocka_run_group_tests_name("nn_sequence", tests, NULL, NULL);
}
