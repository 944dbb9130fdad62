/* test_alexnet.c - grouped and transposed convolutions, local response normalisation, tanh,
 * sigmoid, leaky relu and binary cross-entropy, separately and in narrow forms of the presets
 * alexnet and vgg11, follow PyTorch through 20 steps of SGD with momentum:
 * scripts/make_alexnet_vectors.py. With oneDNN's kernels, and with only our own. */
#include "support/failure.h"
#include "support/nn.h"

enum { STEPS = 20, MOST_LAYERS = 32, NETWORKS = 8 };

/* float32 ends within 3e-7 in PyTorch; another order of sums may make some times that. */
static const double tolerance = 2e-5;

struct network {
    struct cddpi_layer layers[MOST_LAYERS];
    struct cddpi_model_spec spec;
    char name[64], preset[32];
    int batch;
    float lr;
    enum cddpi_fallbacks fallbacks;
    struct fixture f;
    float **momenta;
    size_t params_seen;
};

static enum cddpi_layer_type layer_type(const char *name)
{
    for (int type = 0; type < CDDPI_LAYER_COUNT; type++) {
        if (strcmp(cddpi_layer_words[type], name) == 0) {
            return (enum cddpi_layer_type)type;
        }
    }
    fail_msg("the vectors hold a layer \"%s\"", name);
    return CDDPI_LAYER_RELU;
}

static void add_layer(struct network *n, const char *line)
{
    struct cddpi_layer *layer = &n->layers[n->spec.layer_count];
    char type[32];

    assert_true(n->spec.layer_count < MOST_LAYERS);
    memset(layer, 0, sizeof *layer);
    assert_int_equal(sscanf(line, "layer %31s %d %d %d %d %d %lf %lf %lf", type, &layer->units,
                            &layer->kernel, &layer->stride, &layer->padding, &layer->groups,
                            &layer->alpha, &layer->beta, &layer->offset),
                     9);
    layer->type = layer_type(type);
    if (layer->type == CDDPI_LAYER_LEAKY_RELU) {
        layer->slope = layer->alpha;
        layer->alpha = 0;
    }
    n->spec.layer_count++;
}

static void set_params(struct network *n)
{
    for (size_t p = 0; p < n->f.param_count; p++) {
        const cddp_param *param = &n->f.params[p];
        float *data = param->data;
        double inputs = 1;
        float scale = 0.125f;

        for (int d = 1; d < param->dims; d++) {
            inputs *= (double)param->shape[d];
        }
        if (param->dims > 1) {
            scale = (float)(2 / sqrt(inputs));
        }
        for (size_t i = 0; i < cddpi_tensor_elements(param); i++) {
            data[i] = test_number(300 + (uint32_t)p, i) * scale;
        }
    }
}

static void update(struct network *n)
{
    for (size_t p = 0; p < n->f.param_count; p++) {
        const float *grad = n->f.grads[p];
        float *data = n->f.params[p].data;

        for (size_t i = 0; i < cddpi_tensor_elements(&n->f.params[p]); i++) {
            n->momenta[p][i] = 0.9f * n->momenta[p][i] + grad[i];
            data[i] -= n->lr * n->momenta[p][i];
        }
    }
}

static void expect_near(const struct network *n, const char *what, size_t index, double is,
                        double should, double scale)
{
    if (!(fabs(is - should) <= tolerance * scale)) {
        fail_msg("%s (fallbacks %d): %s %zu is %.9g, PyTorch says %.9g", n->name, n->fallbacks,
                 what, index, is, should);
    }
}

static void train(struct network *n, char *losses)
{
    if (strcmp(n->preset, "layers") == 0) {
        n->spec.layers = n->layers;
    } else {
        n->spec.preset = n->preset;
        n->spec.layer_count = 0;
    }
    if (!fixture_init(&n->f, &n->spec, 1, NULL, 0, n->batch)) {
        fail_msg("%s: %s", n->name, cddp_last_error());
    }
    n->f.model->fallbacks = n->fallbacks;
    set_params(n);
    n->momenta = calloc(n->f.param_count, sizeof *n->momenta);
    for (size_t p = 0; p < n->f.param_count; p++) {
        n->momenta[p] = calloc(cddpi_tensor_elements(&n->f.params[p]), sizeof **n->momenta);
    }
    for (int step = 0; step < STEPS; step++) {
        struct cddpi_loss_result result;
        double loss = strtod(losses, &losses);

        fixture_batch(&n->f, step * n->batch, n->batch);
        if (cddpi_model_forward(n->f.model, &n->f.batch, true, &result) != CDDP_OK ||
            cddpi_model_backward(n->f.model, 1.0 / n->batch, false, NULL, NULL) != CDDP_OK) {
            fail_msg("%s: %s", n->name, cddp_last_error());
        }
        expect_near(n, "loss of step", (size_t)step, result.loss_sum / n->batch, loss, loss);
        update(n);
    }
}

static void expect_param(struct network *n, const char *line)
{
    size_t index = n->params_seen++;
    const float *data;
    double norm, product;
    double squares = 0;
    double dot = 0;

    assert_true(index < n->f.param_count);
    data = n->f.params[index].data;
    assert_int_equal(sscanf(line, "param %lf %lf", &norm, &product), 2);
    for (size_t i = 0; i < cddpi_tensor_elements(&n->f.params[index]); i++) {
        squares += (double)data[i] * (double)data[i];
        dot += (double)data[i] * (double)test_number(100 + (uint32_t)index, i);
    }
    expect_near(n, "length of parameter", index, sqrt(squares), norm, norm);
    expect_near(n, "product with parameter", index, dot, product, norm);
}

static void finish(struct network *n)
{
    assert_int_equal(n->params_seen, n->f.param_count);
    for (size_t p = 0; p < n->f.param_count; p++) {
        free(n->momenta[p]);
    }
    free(n->momenta);
    fixture_fini(&n->f);
}

static void follow(enum cddpi_fallbacks fallbacks)
{
    char path[4096];
    char line[1024];
    static struct network n;
    int networks = 0;
    int loss;
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/vectors/alexnet_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "network ", 8) == 0) {
            memset(&n, 0, sizeof n);
            n.fallbacks = fallbacks;
            assert_int_equal(sscanf(line, "network %63s %31s %d %d %d %d %d %d %f %d", n.name,
                                    n.preset, &n.spec.stage_units, &n.batch, &n.spec.channels,
                                    &n.spec.height, &n.spec.width, &n.spec.classes, &n.lr, &loss),
                             10);
            n.spec.loss = (enum cddpi_loss)loss;
        } else if (strncmp(line, "layer ", 6) == 0) {
            add_layer(&n, line);
        } else if (strncmp(line, "losses ", 7) == 0) {
            train(&n, line + 7);
        } else if (strncmp(line, "param ", 6) == 0) {
            expect_param(&n, line);
        } else if (strncmp(line, "done", 4) == 0) {
            finish(&n);
            networks++;
        }
    }
    assert_int_equal(networks, NETWORKS);
    fclose(file);
}

static void networks_of_the_classic_examples_follow_pytorch(void **state)
{
    (void)state;
    follow(CDDPI_FALLBACKS_NEEDED);
}

static void they_follow_it_with_our_own_products_too(void **state)
{
    (void)state;
    follow(CDDPI_FALLBACKS_OWN);
}

static void they_follow_it_with_gradients_in_other_layouts_too(void **state)
{
    (void)state;
    follow(CDDPI_FALLBACKS_REORDERED);
    follow(CDDPI_FALLBACKS_PADDED);
}

static void count_params(const char *preset, int units, size_t expected, const char *name,
                         int64_t inputs)
{
    const struct cddpi_model_spec spec = {.preset = preset,
                                          .stage_units = units,
                                          .channels = 3,
                                          .height = 224,
                                          .width = 224,
                                          .classes = 1000};
    struct cddpi_model *model = NULL;
    const cddp_param *params;
    size_t count;
    size_t elements = 0;
    bool found = false;

    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_OK);
    params = cddpi_model_params(model, &count);
    for (size_t i = 0; i < count; i++) {
        elements += cddpi_tensor_elements(&params[i]);
        if (strcmp(params[i].name, name) == 0) {
            found = true;
            assert_int_equal(params[i].shape[1], inputs);
        }
    }
    assert_true(found);
    assert_int_equal(elements, expected);
    cddpi_model_destroy(model);
}

/* The paper of alexnet says 60 million. vgg11, of which torchvision's has 132,863,336, is created
 * with a quarter of its channels, which takes less memory. */
static void the_presets_have_the_numbers_of_parameters_of_their_papers(void **state)
{
    (void)state;
    count_params("alexnet", 0, 60965224, "conv2.weight", 48);
    count_params("vgg11", 16, 9075272, "fc1.weight", 6272);
}

static void expect_refused(struct cddpi_layer layer, const char *words)
{
    struct cddpi_layer layers[] = {layer, {.type = CDDPI_LAYER_FLATTEN}};
    const struct cddpi_model_spec spec = {
        .layers = layers, .layer_count = 2, .channels = 6, .height = 4, .width = 4, .classes = 96};
    struct cddpi_model *model = NULL;

    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
    if (!last_error_has(words)) {
        fail_msg("\"%s\" lacks \"%s\"", cddp_last_error(), words);
    }
}

static void channels_that_groups_do_not_divide_are_refused(void **state)
{
    (void)state;
    expect_refused(
        (struct cddpi_layer){
            .type = CDDPI_LAYER_CONV2D, .name = "odd", .units = 8, .kernel = 1, .groups = 3},
        "6 input channels and 8 output channels cannot be divided into 3 groups");
    expect_refused((struct cddpi_layer){.type = CDDPI_LAYER_RESPONSE_NORM, .groups = 2},
                   "local_response_norm takes no groups");
    expect_refused((struct cddpi_layer){.type = CDDPI_LAYER_RESPONSE_NORM, .beta = -1}, "beta -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_of_the_classic_examples_follow_pytorch),
        cmocka_unit_test(they_follow_it_with_our_own_products_too),
        cmocka_unit_test(they_follow_it_with_gradients_in_other_layouts_too),
        cmocka_unit_test(the_presets_have_the_numbers_of_parameters_of_their_papers),
        cmocka_unit_test(channels_that_groups_do_not_divide_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
