/* test_nn_steps.c - LeNet-5 and random networks of odd sizes follow PyTorch through 8 steps of SGD
 * with momentum. See scripts/make_nn_shapes_vectors.py, which chose seeds for which rounding never
 * decides what passes a ReLU or a pool. */
#include "support/nn.h"

enum { STEPS = 8, MOST_LAYERS = 32, NETWORKS = 17 };

/* float32 ends within 1e-6 here; another order of sums may make some times that. */
static const double tolerance = 5e-5;

struct network {
    struct cddpi_layer layers[MOST_LAYERS];
    struct cddpi_model_spec spec;
    char name[64];
    int batch;
    unsigned seed;
    struct fixture f;
    float **momenta;
    size_t params_seen, buffers_seen;
};

static enum cddpi_layer_type layer_type(const char *name)
{
    static const struct {
        const char *name;
        enum cddpi_layer_type type;
    } all[] = {{"linear", CDDPI_LAYER_LINEAR},
               {"conv2d", CDDPI_LAYER_CONV2D},
               {"batch_norm", CDDPI_LAYER_BATCH_NORM},
               {"relu", CDDPI_LAYER_RELU},
               {"max_pool", CDDPI_LAYER_MAX_POOL},
               {"avg_pool", CDDPI_LAYER_AVG_POOL},
               {"flatten", CDDPI_LAYER_FLATTEN},
               {"global_avg_pool", CDDPI_LAYER_GLOBAL_AVG_POOL},
               {"gelu", CDDPI_LAYER_GELU}};

    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (strcmp(all[i].name, name) == 0) {
            return all[i].type;
        }
    }
    fail_msg("the vectors hold a layer \"%s\"", name);
    return CDDPI_LAYER_RELU;
}

static void add_layer(struct network *n, const char *line)
{
    struct cddpi_layer *layer = &n->layers[n->spec.layer_count];
    char type[32];
    int no_bias;

    assert_true(n->spec.layer_count < MOST_LAYERS);
    n->spec.layer_count++;
    memset(layer, 0, sizeof *layer);
    assert_int_equal(sscanf(line, "layer %31s %d %d %d %d %d", type, &layer->units, &layer->kernel,
                            &layer->stride, &layer->padding, &no_bias),
                     6);
    layer->type = layer_type(type);
    layer->no_bias = no_bias != 0;
}

static void expect_near(const struct network *n, const char *what, size_t index, double is,
                        double should, double scale)
{
    if (!(fabs(is - should) <= tolerance * scale)) {
        fail_msg("%s: %s %zu is %.9g, PyTorch says %.9g", n->name, what, index, is, should);
    }
}

static void update(struct network *n, float lr, float momentum)
{
    for (size_t p = 0; p < n->f.param_count; p++) {
        const float *grad = n->f.grads[p];
        float *data = n->f.params[p].data;

        for (size_t i = 0; i < cddpi_tensor_elements(&n->f.params[p]); i++) {
            n->momenta[p][i] = momentum * n->momenta[p][i] + grad[i];
            data[i] -= lr * n->momenta[p][i];
        }
    }
}

static void train(struct network *n, char *losses)
{
    n->spec.layers = n->layers;
    if (!fixture_init(&n->f, &n->spec, n->seed, NULL, 0, n->batch)) {
        fail_msg("%s: %s", n->name, cddp_last_error());
    }
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
        update(n, 0.05f, 0.9f);
    }
}

static double length(const float *values, size_t count)
{
    double squares = 0;

    for (size_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i];
    }
    return sqrt(squares);
}

static void expect_param(struct network *n, const char *line)
{
    size_t index = n->params_seen++;
    const float *data;
    size_t count;
    double norm, product;
    double dot = 0;

    assert_true(index < n->f.param_count);
    data = n->f.params[index].data;
    count = cddpi_tensor_elements(&n->f.params[index]);
    assert_int_equal(sscanf(line, "param %lf %lf", &norm, &product), 2);
    for (size_t i = 0; i < count; i++) {
        dot += (double)data[i] * (double)test_number(100 + (uint32_t)index, i);
    }
    expect_near(n, "length of parameter", index, length(data, count), norm, norm);
    expect_near(n, "product with parameter", index, dot, product, norm);
}

static void expect_buffer(struct network *n, const char *line)
{
    size_t index = n->buffers_seen++;
    size_t count;
    const cddp_param *buffers = cddpi_model_buffers(n->f.model, &count);
    double norm;

    assert_true(index < count);
    assert_int_equal(sscanf(line, "buffer %lf", &norm), 1);
    expect_near(n, "length of buffer", index,
                length(buffers[index].data, cddpi_tensor_elements(&buffers[index])), norm, norm);
}

static void finish(struct network *n)
{
    size_t buffers;

    (void)cddpi_model_buffers(n->f.model, &buffers);
    assert_int_equal(n->params_seen, n->f.param_count);
    assert_int_equal(n->buffers_seen, buffers);
    for (size_t p = 0; p < n->f.param_count; p++) {
        free(n->momenta[p]);
    }
    free(n->momenta);
    fixture_fini(&n->f);
}

static void networks_of_odd_sizes_follow_pytorch(void **state)
{
    char path[4096];
    char line[1024];
    static struct network n;
    int networks = 0;
    FILE *file;

    (void)state;
    snprintf(path, sizeof path, "%s/tests/vectors/nn_shapes_vectors.txt",
             getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "network ", 8) == 0) {
            memset(&n, 0, sizeof n);
            assert_int_equal(sscanf(line, "network %63s %u %d %d %d %d %d", n.name, &n.seed,
                                    &n.batch, &n.spec.channels, &n.spec.height, &n.spec.width,
                                    &n.spec.classes),
                             7);
        } else if (strncmp(line, "layer ", 6) == 0) {
            add_layer(&n, line);
        } else if (strncmp(line, "losses ", 7) == 0) {
            train(&n, line + 7);
        } else if (strncmp(line, "param ", 6) == 0) {
            expect_param(&n, line);
        } else if (strncmp(line, "buffer ", 7) == 0) {
            expect_buffer(&n, line);
        } else if (strncmp(line, "done", 4) == 0) {
            finish(&n);
            networks++;
        }
    }
    assert_int_equal(networks, NETWORKS);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(networks_of_odd_sizes_follow_pytorch)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
