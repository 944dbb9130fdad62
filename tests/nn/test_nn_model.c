/* test_nn_model.c - whole models: PyTorch's results, dropout, modes, the order of gradients,
 * initial values. */
#include "support/nn_model.h"

static const struct cddpi_model_spec *preset_named(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        if (strcmp(presets[i]->preset, name) == 0) {
            return presets[i];
        }
    }
    fail_msg("the vectors hold a model \"%s\"", name);
    return NULL;
}

/* Roundings of float32 grow in a deep network, and of the numbers that go into resnet50's ReLUs
 * some lie within one of zero: a processor that adds in another order may see them on the other
 * side. */
static double tolerance;

static void expect_near(const char *what, double is, double should, double scale)
{
    if (!(fabs(is - should) <= tolerance * scale)) {
        fail_msg("%s is %.9g, PyTorch says %.9g", what, is, should);
    }
}

static void expect_outputs(const struct fixture *f, char *text)
{
    const float *outputs = cddpi_model_outputs(f->model);

    for (int i = 0; i < f->batch.count * 10; i++) {
        expect_near("an output", (double)outputs[i], strtod(text, &text), 1);
    }
}

static double norm_of(const float *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sqrt(sum);
}

static void expect_grad(const struct fixture *f, size_t index, const char *line)
{
    const float *grad = f->grads[index];
    size_t count = cddpi_tensor_elements(&f->params[index]);
    char name[200];
    double norm, product;
    double dot = 0;

    assert_int_equal(sscanf(line, "grad %199s %lf %lf", name, &norm, &product), 3);
    assert_string_equal(name, f->params[index].name);
    for (size_t i = 0; i < count; i++) {
        dot += (double)grad[i] * (double)test_number(100 + (uint32_t)index, i);
    }
    expect_near(name, norm_of(grad, count), norm, norm + 1e-3);
    expect_near(name, dot, product, norm + 1e-3);
}

static void expect_buffer(const struct fixture *f, size_t index, const char *line)
{
    size_t count;
    const cddp_param *buffer = &cddpi_model_buffers(f->model, &count)[index];
    char name[200];
    double norm;

    assert_true(index < count);
    assert_int_equal(sscanf(line, "buffer %199s %lf", name, &norm), 2);
    assert_string_equal(name, buffer->name);
    expect_near(name, norm_of(buffer->data, cddpi_tensor_elements(buffer)), norm, norm);
}

/* What make_nn_vectors.py does to resnet50, which has batch norms of this name alone: see there. */
static void weaken_branches(const struct fixture *f)
{
    for (size_t p = 0; p < f->param_count; p++) {
        if (strstr(f->params[p].name, "bn3.weight") != NULL) {
            for (size_t i = 0; i < cddpi_tensor_elements(&f->params[p]); i++) {
                ((float *)f->params[p].data)[i] = 0.1f;
            }
        }
    }
}

static void presets_compute_what_pytorch_does(void **state)
{
    char path[4096];
    char line[8192];
    struct fixture f = {0};
    size_t grads = 0;
    size_t buffers = 0;
    int models = 0;
    FILE *file;

    (void)state;
    snprintf(path, sizeof path, "%s/tests/vectors/nn_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char name[64];
        double loss;
        int count;

        if (sscanf(line, "model %63s %d %lf", name, &count, &loss) == 3) {
            model_setup(&f, preset_named(name), count);
            weaken_branches(&f);
            tolerance = strcmp(name, "resnet50") == 0 ? 1e-2 : 1e-4;
            expect_near("loss", fixture_loss(&f), loss, loss);
            grads = buffers = 0;
            models++;
        } else if (strncmp(line, "outputs ", 8) == 0) {
            expect_outputs(&f, line + 8);
            assert_int_equal(cddpi_model_backward(f.model, 1, false, NULL, NULL), CDDP_OK);
        } else if (strncmp(line, "grad ", 5) == 0) {
            assert_true(grads < f.param_count);
            expect_grad(&f, grads++, line);
        } else if (strncmp(line, "buffer ", 7) == 0) {
            expect_buffer(&f, buffers++, line);
        } else if (strncmp(line, "evaluated ", 10) == 0) {
            struct cddpi_loss_result result;

            assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
            expect_outputs(&f, line + 10);
            assert_int_equal(grads, f.param_count);
            fixture_fini(&f);
        }
    }
    assert_int_equal(models, 4);
    fclose(file);
}

static void accumulated_gradients_are_added_to_what_is_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct fixture once, twice;

        model_setup(&once, presets[i], 3);
        model_setup(&twice, presets[i], 3);
        assert_int_equal(fixture_step(&once, 3, false), CDDP_OK);
        assert_int_equal(fixture_step(&twice, 1, false), CDDP_OK);
        assert_int_equal(fixture_step(&twice, 2, true), CDDP_OK);
        for (size_t p = 0; p < once.param_count; p++) {
            assert_true(relative_difference(once.grads[p], twice.grads[p],
                                            cddpi_tensor_elements(&once.params[p])) < 1e-4);
        }
        fixture_fini(&once);
        fixture_fini(&twice);
    }
}

static void running_statistics_are_those_of_a_scalar_loop(void **state)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_BATCH_NORM, .momentum = 0.3},
        {.type = CDDPI_LAYER_FLATTEN},
        {.type = CDDPI_LAYER_LINEAR, .units = 2},
    };
    struct cddpi_model_spec spec = {
        .layers = layers, .layer_count = 3, .channels = 5, .height = 3, .width = 4, .classes = 2};
    struct fixture f;
    size_t count;
    const cddp_param *buffers;

    (void)state;
    model_setup(&f, &spec, 6);
    buffers = cddpi_model_buffers(f.model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(buffers[0].name, "batch_norm1.running_mean");
    assert_string_equal(buffers[1].name, "batch_norm1.running_var");
    assert_false(isnan(fixture_loss(&f)));
    for (int c = 0; c < 5; c++) {
        double sum = 0;
        double squares = 0;

        for (int i = 0; i < 6 * 12; i++) {
            sum += (double)f.input[i / 12 * 60 + c * 12 + i % 12];
        }
        for (int i = 0; i < 6 * 12; i++) {
            squares += pow((double)f.input[i / 12 * 60 + c * 12 + i % 12] - sum / 72, 2);
        }
        assert_float_equal(((const float *)buffers[0].data)[c], 0.3 * sum / 72, 1e-6);
        assert_float_equal(((const float *)buffers[1].data)[c], 0.7 + 0.3 * squares / 71, 1e-6);
    }
    fixture_fini(&f);
}

static void evaluation_leaves_running_statistics_alone_and_uses_them(void **state)
{
    struct fixture f;
    struct cddpi_loss_result result;
    const cddp_param *buffers;
    size_t count;
    float before[16];
    float *outputs;

    (void)state;
    model_setup(&f, &resnet20, 4);
    assert_false(isnan(fixture_loss(&f)));
    buffers = cddpi_model_buffers(f.model, &count);
    memcpy(before, buffers[0].data, sizeof before);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_memory_equal(before, buffers[0].data, sizeof before);
    outputs = malloc(40 * sizeof *outputs);
    memcpy(outputs, cddpi_model_outputs(f.model), 40 * sizeof *outputs);
    fixture_batch(&f, 1, 1); /* alone a sample gets the same outputs as in company */
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_true(relative_difference(outputs + 10, cddpi_model_outputs(f.model), 10) < 1e-5);
    ((float *)buffers[1].data)[0] *= 4;
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_true(relative_difference(outputs + 10, cddpi_model_outputs(f.model), 10) > 1e-4);
    free(outputs);
    fixture_fini(&f);
}

static const struct cddpi_layer dropped[] = {
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 500},
    {.type = CDDPI_LAYER_DROPOUT, .probability = 0.2},
};
static const struct cddpi_model_spec dropping = {
    .layers = dropped, .layer_count = 3, .channels = 1, .height = 4, .width = 4, .classes = 500};

static uint8_t *zeros_of(struct fixture *f, int first, int count, uint64_t step)
{
    uint8_t *zeros = malloc((size_t)count * 500);

    fixture_batch(f, first, count);
    f->batch.step = step;
    assert_false(isnan(fixture_loss(f)));
    for (int i = 0; i < count * 500; i++) {
        zeros[i] = cddpi_model_outputs(f->model)[i] == 0;
    }
    return zeros;
}

static void a_sample_is_dropped_alike_in_any_batch(void **state)
{
    struct fixture f;
    uint8_t *whole, *half, *later;
    int dropped_count = 0;
    int different = 0;

    (void)state;
    model_setup(&f, &dropping, 1);
    whole = zeros_of(&f, 0, 4, 3);
    half = zeros_of(&f, 2, 2, 3);
    later = zeros_of(&f, 0, 4, 4);
    assert_memory_equal(whole + 1000, half, 1000);
    for (int i = 0; i < 2000; i++) {
        dropped_count += whole[i];
        different += whole[i] != later[i];
    }
    assert_in_range(dropped_count, 330,
                    470);                 /* of 2000, with probability 0.2: within 4 deviations */
    assert_in_range(different, 550, 730); /* 2 x 0.2 x 0.8 */
    assert_memory_not_equal(whole, whole + 500, 500);
    free(whole);
    free(half);
    free(later);
    fixture_fini(&f);
}

static void evaluation_drops_nothing_and_training_scales_up(void **state)
{
    struct fixture f;
    struct cddpi_loss_result result;
    float outputs[500];

    (void)state;
    model_setup(&f, &dropping, 1);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    memcpy(outputs, cddpi_model_outputs(f.model), sizeof outputs);
    assert_false(isnan(fixture_loss(&f)));
    for (int i = 0; i < 500; i++) {
        float y = cddpi_model_outputs(f.model)[i];

        assert_true(outputs[i] != 0);
        assert_true(y == 0 || fabsf(y - outputs[i] * 1.25f) < 1e-5f);
    }
    fixture_fini(&f);
}

struct arrivals {
    struct fixture *f;
    size_t count;
    size_t order[256];
    float first[256]; /* each gradient's first element as it was reported */
    cddp_status answer;
};

static cddp_status arrive(void *context, size_t index)
{
    struct arrivals *arrivals = context;

    arrivals->first[arrivals->count] = *(float *)arrivals->f->grads[index];
    arrivals->order[arrivals->count++] = index;
    return arrivals->answer;
}

static void gradients_are_reported_complete_once_and_in_the_order_announced(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct fixture f;
        struct arrivals arrivals = {.f = &f, .answer = CDDP_OK};

        model_setup(&f, presets[i], 2);
        assert_false(isnan(fixture_loss(&f)));
        assert_int_equal(cddpi_model_backward(f.model, 1, false, arrive, &arrivals), CDDP_OK);
        assert_int_equal(arrivals.count, f.param_count);
        assert_memory_equal(arrivals.order, cddpi_model_ready_order(f.model),
                            f.param_count * sizeof *arrivals.order);
        for (size_t p = 0; p < f.param_count; p++) {
            assert_true(arrivals.first[p] == *(float *)f.grads[arrivals.order[p]]);
        }
        fixture_fini(&f);
    }
}

static void a_failure_of_the_receiver_ends_backward(void **state)
{
    struct fixture f;
    struct arrivals arrivals = {.f = &f, .answer = CDDP_ERR_PEER};

    (void)state;
    model_setup(&f, &mlp, 2);
    assert_false(isnan(fixture_loss(&f)));
    assert_int_equal(cddpi_model_backward(f.model, 1, false, arrive, &arrivals), CDDP_ERR_PEER);
    assert_int_equal(arrivals.count, 1);
    fixture_fini(&f);
}

static void a_batch_without_samples_gives_zeros_in_the_same_order(void **state)
{
    struct fixture f;
    struct arrivals arrivals = {.f = &f, .answer = CDDP_OK};

    (void)state;
    model_setup(&f, &resnet20, 2);
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    fixture_batch(&f, 0, 0);
    assert_true(fixture_loss(&f) == 0);
    assert_int_equal(cddpi_model_backward(f.model, 1, true, NULL, NULL), CDDP_OK);
    assert_true(*(float *)f.grads[0] != 0);
    assert_true(fixture_loss(&f) == 0);
    assert_int_equal(cddpi_model_backward(f.model, 1, false, arrive, &arrivals), CDDP_OK);
    assert_memory_equal(arrivals.order, cddpi_model_ready_order(f.model),
                        f.param_count * sizeof *arrivals.order);
    assert_true(*(float *)f.grads[0] == 0);
    fixture_fini(&f);
}

static void initial_values_have_their_mean_and_spread(void **state)
{
    struct fixture f;

    (void)state;
    model_setup(&f, &resnet20, 1);
    for (size_t p = 0; p < f.param_count; p++) {
        const cddp_param *param = &f.params[p];
        size_t count = cddpi_tensor_elements(param);
        double deviation = sqrt(2.0 / (double)(param->shape[0] * 9));
        double sum = 0;

        for (size_t i = 0; i < count; i++) {
            sum += (double)((float *)param->data)[i];
        }
        assert_int_equal(cddpi_model_param_decays(f.model, p), param->dims > 1);
        if (param->dims == 4 && param->shape[2] == 3 && param->shape[1] > 1) {
            double spread = norm_of(param->data, count) / sqrt((double)count);

            assert_true(fabs(sum / (double)count) < 4.5 * deviation / sqrt((double)count));
            assert_true(fabs(spread / deviation - 1) < 4.5 / sqrt(2.0 * (double)count));
        }
    }
    fixture_fini(&f);
}

static void initial_values_depend_on_the_seed_alone(void **state)
{
    struct fixture a, b, c;
    size_t bytes;

    (void)state;
    assert_true(fixture_init(&a, &mlp, 1, NULL, 0, 1));
    assert_true(fixture_init(&b, &mlp, 1, NULL, 0, 9));
    assert_true(fixture_init(&c, &mlp, 2, NULL, 0, 1));
    bytes = cddpi_tensor_elements(&a.params[0]) * sizeof(float);
    assert_memory_equal(a.params[0].data, b.params[0].data, bytes);
    assert_memory_not_equal(a.params[0].data, c.params[0].data, bytes);
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        assert_true(fabsf(((float *)a.params[0].data)[i]) <= 1 / 28.0f);
    }
    fixture_fini(&a);
    fixture_fini(&b);
    fixture_fini(&c);
}

static void outputs_are_counted_as_correct_by_their_largest(void **state)
{
    struct fixture f;
    struct cddpi_loss_result result;
    int correct = 0;

    (void)state;
    model_setup(&f, &mlp, 50);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    for (int i = 0; i < 50; i++) {
        const float *row = cddpi_model_outputs(f.model) + 10 * i;
        int best = 0;

        for (int c = 1; c < 10; c++) {
            best = row[c] > row[best] ? c : best;
        }
        correct += best == f.label[i];
    }
    assert_int_equal(result.correct, correct);
    assert_int_equal(result.count, 50);
    f.input[0] = NAN;
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_true(isnan(result.loss_sum));
    fixture_fini(&f);
}

/* To the bit, whichever way the processor is named and the results are asked for. */
static void a_model_of_no_device_is_on_the_processor(void **state)
{
    struct cddpi_model_spec named = cnn;
    struct fixture f;
    struct fixture g;
    struct cddpi_loss_result direct;
    struct cddpi_loss_result sum = {0};
    struct cddpi_loss_result taken;
    float rows[2 * 10];

    (void)state;
    named.device = cddpi_device_cpu();
    model_setup(&f, &cnn, 4);
    model_setup(&g, &named, 4);
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(cddpi_model_forward(f.model, &f.batch, turn < 2, &direct), CDDP_OK);
        assert_int_equal(cddpi_model_forward(g.model, &g.batch, turn < 2, NULL), CDDP_OK);
        sum.loss_sum += direct.loss_sum;
        sum.correct += direct.correct;
        sum.count += direct.count;
    }
    assert_memory_equal(cddpi_model_outputs(f.model), cddpi_model_outputs(g.model),
                        4 * 10 * sizeof(float));
    assert_int_equal(cddpi_model_read_outputs(g.model, 1, 2, rows), CDDP_OK);
    assert_memory_equal(rows, cddpi_model_outputs(f.model) + 10, sizeof rows);
    assert_int_equal(cddpi_model_read_outputs(g.model, 4, 0, rows), CDDP_OK);
    assert_int_equal(cddpi_model_collect(g.model, sum.count), CDDP_OK);
    assert_int_equal(cddpi_model_collect(g.model, 0), CDDP_OK); /* begins anew */
    assert_int_equal(cddpi_model_result(g.model, &taken), CDDP_OK);
    assert_memory_equal(&taken.loss_sum, &sum.loss_sum, sizeof sum.loss_sum);
    assert_int_equal(taken.correct, sum.correct);
    assert_int_equal(taken.count, sum.count);
    assert_int_equal(cddpi_model_result(g.model, &taken), CDDP_OK);
    assert_true(taken.loss_sum == 0);
    assert_int_equal(cddpi_model_draw_words(g.model, 4), 0);
    assert_null(cddpi_model_param_copy(g.model, 0));
    assert_int_equal(cddpi_model_copy_type(g.model), CDDP_F32);
    fixture_fini(&f);
    fixture_fini(&g);
}

static void the_description_shows_layers_shapes_and_counts(void **state)
{
    struct fixture f;
    char *text;

    (void)state;
    model_setup(&f, &resnet20, 1);
    text = cddpi_model_describe(f.model);
    assert_non_null(text);
    assert_non_null(strstr(text, "layer2.0.shortcut.0"));
    assert_non_null(strstr(text, "32 x 14 x 14"));
    assert_non_null(strstr(text, "batch_norm + relu"));
    assert_non_null(strstr(text, "resnet20: 272186 parameters in 65 tensors"));
    cddp_free(text);
    fixture_fini(&f);
}

static void resnet50_has_the_parameters_of_torchvision(void **state)
{
    const struct cddpi_model_spec spec = {
        .preset = "resnet50", .channels = 3, .height = 224, .width = 224, .classes = 1000};
    static const char *const names[] = {"conv1.weight",
                                        "bn1.weight",
                                        "bn1.bias",
                                        "layer1.0.conv1.weight",
                                        "layer1.0.bn1.weight",
                                        "layer1.0.bn1.bias",
                                        "layer1.0.conv2.weight",
                                        "layer1.0.bn2.weight",
                                        "layer1.0.bn2.bias",
                                        "layer1.0.conv3.weight",
                                        "layer1.0.bn3.weight",
                                        "layer1.0.bn3.bias",
                                        "layer1.0.downsample.0.weight",
                                        "layer1.0.downsample.1.weight"};
    struct cddpi_model *model = NULL;
    const cddp_param *params;
    size_t count;
    size_t elements = 0;
    char *text;

    (void)state;
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_OK);
    params = cddpi_model_params(model, &count);
    assert_int_equal(count, 161);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_string_equal(params[i].name, names[i]);
    }
    for (size_t i = 0; i < count; i++) {
        elements += cddpi_tensor_elements(&params[i]);
    }
    assert_int_equal(elements, 25557032);
    assert_string_equal(params[159].name, "fc.weight");
    text = cddpi_model_describe(model);
    assert_non_null(text);
    assert_non_null(strstr(text, "2048 x 7 x 7"));
    cddp_free(text);
    cddpi_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_compute_what_pytorch_does),
        cmocka_unit_test(accumulated_gradients_are_added_to_what_is_there),
        cmocka_unit_test(running_statistics_are_those_of_a_scalar_loop),
        cmocka_unit_test(evaluation_leaves_running_statistics_alone_and_uses_them),
        cmocka_unit_test(a_sample_is_dropped_alike_in_any_batch),
        cmocka_unit_test(evaluation_drops_nothing_and_training_scales_up),
        cmocka_unit_test(gradients_are_reported_complete_once_and_in_the_order_announced),
        cmocka_unit_test(a_failure_of_the_receiver_ends_backward),
        cmocka_unit_test(a_batch_without_samples_gives_zeros_in_the_same_order),
        cmocka_unit_test(initial_values_have_their_mean_and_spread),
        cmocka_unit_test(initial_values_depend_on_the_seed_alone),
        cmocka_unit_test(outputs_are_counted_as_correct_by_their_largest),
        cmocka_unit_test(a_model_of_no_device_is_on_the_processor),
        cmocka_unit_test(the_description_shows_layers_shapes_and_counts),
        cmocka_unit_test(resnet50_has_the_parameters_of_torchvision),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
