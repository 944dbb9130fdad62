/* test_nn_gpt_layers.c - layer_norm, gelu and attention as layers of a model: gradients against
 * finite differences and PyTorch, accumulation, and wrong descriptions. */
#include "nn/cpu/cpu_attention.h"
#include "support/failure.h"
#include "support/kernel.h"

#define LAYER(kind, ...)                                                                           \
    {                                                                                              \
        .type = CDDPI_LAYER_##kind, __VA_ARGS__                                                    \
    }

enum { VOCAB = 11 };

static const struct cddpi_layer block[] = {
    LAYER(EMBEDDING, .name = "e", .units = 12, .positions = "p", .deviation = 1),
    LAYER(LAYER_NORM, .name = "n1"),
    LAYER(LINEAR, .name = "qkv", .units = 36),
    LAYER(ATTENTION, .name = "a", .heads = 3),
    LAYER(LAYER_NORM, .name = "n2", .epsilon = 1e-3),
    LAYER(LINEAR, .name = "up", .units = 20),
    LAYER(GELU, .name = "g1"),
    LAYER(LINEAR, .name = "down", .units = 12),
    LAYER(ADD, .name = "sum", .input2 = "a"),
    LAYER(GELU, .name = "g2", .exact = true),
    LAYER(LINEAR, .name = "head", .units = VOCAB),
};

static const struct cddpi_layer features[] = {
    LAYER(FLATTEN, .name = "f"),
    LAYER(LAYER_NORM, .name = "n1"),
    LAYER(LINEAR, .name = "l1", .units = 21),
    LAYER(LAYER_NORM, .name = "n2"),
    LAYER(GELU, .name = "g1"),
    LAYER(LINEAR, .name = "l2", .units = 17),
    LAYER(GELU, .name = "g2", .exact = true),
    LAYER(LINEAR, .name = "l3", .units = VOCAB),
};

static const struct cddpi_layer image[] = {
    LAYER(CONV2D, .name = "c", .units = 5, .kernel = 2),
    LAYER(GELU, .name = "g"),
    LAYER(FLATTEN, .name = "f"),
    LAYER(LINEAR, .name = "l", .units = VOCAB),
};

static const struct cddpi_model_spec specs[] = {
    {.layers = block,
     .layer_count = COUNT_OF(block),
     .context = 9,
     .vocab = VOCAB,
     .classes = VOCAB},
    {.layers = block,
     .layer_count = COUNT_OF(block),
     .context = 70,
     .vocab = VOCAB,
     .classes = VOCAB},
    {.layers = block,
     .layer_count = COUNT_OF(block),
     .context = 1,
     .vocab = VOCAB,
     .classes = VOCAB},
    {.layers = features,
     .layer_count = COUNT_OF(features),
     .channels = 2,
     .height = 3,
     .width = 4,
     .classes = VOCAB},
    {.layers = image,
     .layer_count = COUNT_OF(image),
     .channels = 2,
     .height = 3,
     .width = 4,
     .classes = VOCAB},
};

/* Norms' parameters elsewhere than where they start, so that their gradients show. */
static void setup(struct fixture *f, const struct cddpi_model_spec *spec, int count)
{
    if (!fixture_init(f, spec, 12, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
    for (size_t i = 0; i < f->param_count; i++) {
        float *data = f->params[i].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&f->params[i]); e++) {
            data[e] += 0.3f * test_number(50 + (uint32_t)i, e);
        }
    }
}

static double numeric_gradient(struct fixture *f, float *element, double step)
{
    float kept = *element;
    float high = (float)((double)kept + step);
    float low = (float)((double)kept - step);
    double rise;

    *element = high;
    rise = fixture_loss(f);
    *element = low;
    rise -= fixture_loss(f);
    *element = kept;
    return rise / ((double)high - (double)low);
}

/* As in test_nn.c: compared as vectors, less what the rounding of the loss explains. */
static void check_param(struct fixture *f, size_t index, double loss)
{
    const double step = 4e-3;
    const cddp_param *param = &f->params[index];
    const float *grad = f->grads[index];
    size_t count = cddpi_tensor_elements(param);
    double noise = 3e-7 * fmax(loss, 1) / step;
    double length = 0;
    double error = 0;

    for (size_t i = 0; i<count; i += count> 40 ? count / 30 : 1) {
        double numeric = numeric_gradient(f, (float *)param->data + i, step);

        length += (double)grad[i] * (double)grad[i];
        error += pow(fmax(fabs(numeric - (double)grad[i]) - noise, 0), 2);
    }
    if (!(length > 0) || !(sqrt(error) <= 5e-3 * sqrt(length))) {
        fail_msg("%s: backward and differences are %g apart, of a gradient %g long", param->name,
                 sqrt(error), sqrt(length));
    }
}

static void gradients_are_those_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct fixture f;
        double loss;

        setup(&f, &specs[i], 3);
        assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
        assert_true(nn_arena_is_valid(&f.model->last.pending->arena));
        loss = fixture_loss(&f);
        for (size_t k = 0; k < f.param_count; k++) {
            check_param(&f, k, loss);
        }
        fixture_fini(&f);
    }
}

static void gradients_accumulate_and_are_the_same_bits_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct fixture once, twice;

        setup(&once, &specs[i], 2);
        setup(&twice, &specs[i], 2);
        assert_int_equal(fixture_step(&once, 0.5, false), CDDP_OK);
        assert_int_equal(fixture_step(&twice, 0.5, false), CDDP_OK);
        for (size_t k = 0; k < once.param_count; k++) {
            assert_memory_equal(once.grads[k], twice.grads[k],
                                cddpi_tensor_elements(&once.params[k]) * sizeof(float));
        }
        assert_int_equal(fixture_step(&twice, 0.5, true), CDDP_OK);
        for (size_t k = 0; k < once.param_count; k++) {
            size_t count = cddpi_tensor_elements(&once.params[k]);
            float *sum = once.grads[k];

            for (size_t e = 0; e < count; e++) {
                sum[e] *= 2;
            }
            assert_true(difference_over(sum, twice.grads[k], count, 1e-3) < 1e-5);
        }
        fixture_fini(&once);
        fixture_fini(&twice);
    }
}

static void an_evaluation_gives_the_loss_of_training(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct cddpi_loss_result result;
        struct fixture f;
        double loss;

        setup(&f, &specs[i], 2);
        loss = fixture_loss(&f);
        assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
        assert_true(fabs(result.loss_sum - loss) <= 1e-6 * loss);
        fixture_fini(&f);
    }
}

static void norms_start_as_the_identity_and_take_no_decay(void **state)
{
    struct fixture f;
    int norms = 0;

    (void)state;
    assert_true(fixture_init(&f, &specs[0], 1, NULL, 0, 1));
    for (size_t i = 0; i < f.param_count; i++) {
        const float *data = f.params[i].data;
        bool weight = strcmp(f.params[i].name, "n2.weight") == 0;

        if (!weight && strcmp(f.params[i].name, "n2.bias") != 0) {
            continue;
        }
        norms++;
        assert_int_equal(cddpi_tensor_elements(&f.params[i]), 12);
        assert_false(cddpi_model_param_decays(f.model, i));
        for (size_t e = 0; e < 12; e++) {
            assert_true(data[e] == (weight ? 1.0f : 0.0f));
        }
    }
    assert_int_equal(norms, 2);
    fixture_fini(&f);
}

struct wrong {
    struct cddpi_layer layers[3];
    const char *text; /* part of the error's */
};

static void descriptions_that_do_not_fit_name_the_layer(void **state)
{
    static const struct wrong images[] = {
        {{LAYER(LAYER_NORM, .name = "layer_norm1")},
         "layer \"layer_norm1\": layer_norm takes flat inputs or sequences, but its input is 2 x 3 "
         "x "
         "4 (channels x height x width)"},
        {{LAYER(ATTENTION, .heads = 1)},
         "layer \"attention1\": attention takes sequences, but its input is 2 x 3 x 4"},
        {{LAYER(ATTENTION, .name = "attention1")},
         "layer \"attention1\": heads is 0; 1 to 4096 are possible"},
        {{LAYER(GELU, .heads = 2)}, "layer \"gelu1\": gelu takes no heads"},
        {{LAYER(LAYER_NORM, .exact = true)}, "layer \"layer_norm1\": layer_norm takes no exact"},
        {{LAYER(LAYER_NORM, .epsilon = 2)}, "layer \"layer_norm1\": epsilon is 2"},
    };
    static const struct wrong tokens[] = {
        {{LAYER(EMBEDDING, .units = 12), LAYER(ATTENTION, .heads = 5)},
         "layer \"attention2\": attention takes queries, keys and values side by side, each "
         "divided "
         "among its 5 heads, but the 12 channels of its input are no multiple of 3 x 5"},
        {{LAYER(EMBEDDING, .units = 10), LAYER(ATTENTION, .heads = 1)},
         "but the 10 channels of its input are no multiple of 3 x 1"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(images) + COUNT_OF(tokens); i++) {
        bool is_image = i < COUNT_OF(images);
        const struct wrong *wrong = is_image ? &images[i] : &tokens[i - COUNT_OF(images)];
        struct cddpi_model_spec spec = is_image ? specs[3] : specs[0];
        struct cddpi_model *model = NULL;

        spec.layers = wrong->layers;
        spec.layer_count = is_image ? 1 : 2;
        assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
        if (!last_error_has(wrong->text)) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), wrong->text);
        }
    }
}

/* The vectors: see scripts/make_nn_gpt_ops_vectors.py. */

static void expect(const char *name, const float *values, size_t count)
{
    char path[4096], line[400], found[200];
    double norm, product;
    double squares = 0;
    double dot = 0;
    bool known = false;
    FILE *file;

    for (size_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i];
        dot += (double)values[i] * (double)test_number(9, i);
    }
    snprintf(path, sizeof path, "%s/tests/vectors/nn_gpt_ops_vectors.txt",
             getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (!known && fgets(line, sizeof line, file) != NULL) {
        known = sscanf(line, "%199s %lf %lf", found, &norm, &product) == 3 &&
                strcmp(found, name) == 0;
    }
    fclose(file);
    if (!known || !(fabs(sqrt(squares) - norm) <= 1e-6 * norm) ||
        !(fabs(dot - product) <= 2e-6 * norm)) {
        fail_msg("%s: %.9g and %.9g; PyTorch says %.9g and %.9g", name, sqrt(squares), dot, norm,
                 product);
    }
}

static void layer_norm_computes_what_pytorch_does(void **state)
{
    const struct cddpi_layer_norm_kernels *kernels = cddpi_transformer_kernels()->layer_norm;
    float *x = numbers(1, 600, 2, 0.5f);
    float *dy = numbers(2, 600, 1, 0);
    float *weight = numbers(3, 100, 1, 1);
    float *bias = numbers(4, 100, 1, 0);
    float out[600], dx[600], mean[6], inverse[6];
    double scratch[CDDPI_LAYER_NORM_SCRATCH(100)];
    float dweight[100] = {0}, dbias[100] = {0};

    (void)state;
    kernels->forward(x, weight, bias, 1e-5f, 6, 100, out, mean, inverse);
    kernels->backward(dy, x, weight, mean, inverse, 6, 100, dx, dweight, dbias, scratch);
    expect("layer_norm.out", out, 600);
    expect("layer_norm.dx", dx, 600);
    expect("layer_norm.dweight", dweight, 100);
    expect("layer_norm.dbias", dbias, 100);
    free(x);
    free(dy);
    free(weight);
    free(bias);
}

static void gelu_computes_what_pytorch_does(void **state)
{
    const struct cddpi_gelu_kernels *kernels = cddpi_transformer_kernels()->gelu;
    float *x = numbers(1, 1000, 5, 0);
    float *dy = numbers(2, 1000, 1, 0);
    float out[1000];

    (void)state;
    kernels->forward(x, false, out, 1000);
    expect("gelu.tanh.out", out, 1000);
    kernels->backward(dy, x, false, out, 1000);
    expect("gelu.tanh.dx", out, 1000);
    kernels->forward(x, true, out, 1000);
    expect("gelu.none.out", out, 1000);
    kernels->backward(dy, x, true, out, 1000);
    expect("gelu.none.dx", out, 1000);
    free(x);
    free(dy);
}

static void attention_computes_what_pytorch_does(void **state)
{
    static const struct cddpi_attention shapes[] = {{2, 150, 3, 16, false}, {1, 300, 2, 24, false}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const struct cddpi_attention *shape = &shapes[i];
        size_t count = shape->samples * shape->context * shape->heads * shape->width;
        float *qkv = numbers(1, 3 * count, 2, 0);
        float *dy = numbers(2, count, 1, 0);
        float *out = malloc(count * sizeof *out);
        float *dqkv = malloc(3 * count * sizeof *dqkv);
        float *kept = malloc(cddpi_attention_kept(shape) * sizeof *kept);
        float *scratch = malloc(cddpi_attention_scratch(shape) * sizeof *scratch);
        char name[2][40];

        snprintf(name[0], sizeof name[0], "attention.%zu.out", shape->context);
        snprintf(name[1], sizeof name[1], "attention.%zu.dqkv", shape->context);
        assert_int_equal(cddpi_attention_forward(shape, qkv, out, kept, scratch), CDDP_OK);
        assert_int_equal(cddpi_attention_backward(shape, qkv, out, dy, kept, dqkv, scratch),
                         CDDP_OK);
        expect(name[0], out, count);
        expect(name[1], dqkv, 3 * count);
        free(qkv);
        free(dy);
        free(out);
        free(dqkv);
        free(kept);
        free(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_differences),
        cmocka_unit_test(gradients_accumulate_and_are_the_same_bits_again),
        cmocka_unit_test(an_evaluation_gives_the_loss_of_training),
        cmocka_unit_test(norms_start_as_the_identity_and_take_no_decay),
        cmocka_unit_test(descriptions_that_do_not_fit_name_the_layer),
        cmocka_unit_test(layer_norm_computes_what_pytorch_does),
        cmocka_unit_test(gelu_computes_what_pytorch_does),
        cmocka_unit_test(attention_computes_what_pytorch_does),
    };

    cddpi_compute_threads();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
