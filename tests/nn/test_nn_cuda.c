/* test_nn_cuda.c - models on a CUDA device against the same models on the CPU: losses, gradients,
 * evaluation, dropout. */
#include "support/failure.h"
#include "support/nn_cuda.h"

static void compare(const struct preset *preset, enum cddpi_precision precision)
{
    struct device_fixture f;
    struct cddpi_loss_result host = {0};
    struct cddpi_loss_result there;
    double scale;

    device_setup(&f, preset->spec, precision, preset->count);
    assert_int_equal(cddpi_model_forward(f.host.model, &f.host.batch, true, &host), CDDP_OK);
    scale = 1.0 / host.count;
    assert_int_equal(cddpi_model_backward(f.host.model, scale, false, NULL, NULL), CDDP_OK);
    device_step(&f, scale, false);
    there = device_result(&f, host.count);
    assert_int_equal(there.count, host.count);
    expect_below("loss", preset->name, precision,
                 fabs(there.loss_sum - host.loss_sum) / fabs(host.loss_sum),
                 preset->loss[precision]);
    expect_below("gradient", preset->name, precision, all_grads_distance(&f),
                 preset->grad[precision]);
    if (precision == CDDPI_PRECISION_F32) {
        assert_int_equal(there.correct, host.correct);
        for (size_t i = 0; i < f.host.param_count; i++) {
            expect_below(f.params[i].name, preset->name, precision, grad_distance(&f, i),
                         100 * preset->grad[precision]);
        }
    }
    device_fixture_fini(&f);
}

static void losses_and_gradients_are_the_processors(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        compare(&presets[i], CDDPI_PRECISION_F32);
    }
}

static void sixteen_bits_stay_within_their_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        compare(&presets[i], CDDPI_PRECISION_BF16);
        compare(&presets[i], CDDPI_PRECISION_FP16);
    }
}

/* Other numbers would give other losses: half of all elements are dropped. */
static void dropout_draws_the_processors_numbers(void **state)
{
    struct cddpi_model_spec specs[] = {mlp, cnn, gpt2};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        specs[i].dropout = 0.5;
        compare(&(struct preset){"with dropout", &specs[i], 3, {1e-5}, {1e-5}},
                CDDPI_PRECISION_F32);
    }
}

static void dropout_without_draws_is_an_error(void **state)
{
    struct cddpi_model_spec spec = mlp;
    struct device_fixture f;

    (void)state;
    spec.dropout = 0.5;
    device_setup(&f, &spec, CDDPI_PRECISION_F32, 2);
    f.batch.draws = NULL;
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, NULL), CDDP_ERR_ARGUMENT);
    assert_string_equal(cddp_last_error(), "layer \"dropout1\": dropout needs the batch's draws");
    device_fixture_fini(&f);
}

static void expect_outputs(struct device_fixture *f, double bound)
{
    size_t rows = (size_t)f->batch.count * (size_t)cddpi_model_predictions(f->model);
    size_t columns = (size_t)f->host.model->classes;
    float *host = malloc(rows * columns * sizeof *host);
    float *there = malloc(rows * columns * sizeof *there);
    struct distance distance = {0};

    device_check(cddpi_model_read_outputs(f->host.model, 0, rows, host));
    device_check(cddpi_model_read_outputs(f->model, 0, 1, there));
    device_check(cddpi_model_read_outputs(f->model, 1, rows - 1, there + columns));
    distance_add_array(&distance, host, there, rows * columns);
    assert_true(distance_of(distance) <= bound);
    assert_int_equal(cddpi_model_read_outputs(f->model, rows, 1, there), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddpi_model_read_outputs(f->host.model, rows, 1, there), CDDP_ERR_ARGUMENT);
    free(host);
    free(there);
}

static void expect_buffers(struct device_fixture *f, enum cddpi_precision precision, double bound)
{
    size_t count;
    const cddp_param *host = cddpi_model_buffers(f->host.model, &count);
    const cddp_param *there = cddpi_model_buffers(f->model, &count);

    for (size_t i = 0; i < count; i++) {
        size_t elements = cddpi_tensor_elements(&host[i]);
        float *data = device_get(f->device, there[i].data, elements * sizeof *data);

        expect_below(host[i].name, "running statistics", precision,
                     difference_over(host[i].data, data, elements, 0.1), bound);
        free(data);
    }
}

static void evaluation_is_the_processors_after_steps_of_training(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        for (int precision = 0; precision < 2; precision++) {
            double bound = precision == 0 ? 1e-3 : 0.1;
            struct cddpi_loss_result host = {0};
            struct cddpi_loss_result there;
            struct device_fixture f;

            if (precision > 0 && !isfinite(presets[i].grad[precision])) {
                continue; /* see there */
            }
            device_setup(&f, presets[i].spec, (enum cddpi_precision)precision, presets[i].count);
            for (int step = 0; step < 2; step++) {
                device_step(&f, 1, false);
                device_check(fixture_step(&f.host, 1, false));
            }
            device_result(&f, 1);
            expect_buffers(&f, (enum cddpi_precision)precision, bound);
            device_check(cddpi_model_forward(f.host.model, &f.host.batch, false, &host));
            device_check(cddpi_model_forward(f.model, &f.batch, false, NULL));
            device_check(cddpi_model_forward(f.model, &f.batch, false, NULL));
            there = device_result(&f, 2 * host.count);
            assert_true(fabs(there.loss_sum - 2 * host.loss_sum) <=
                        bound * fabs(2 * host.loss_sum));
            expect_outputs(&f, bound);
            assert_null(cddpi_model_outputs(f.model));
            device_fixture_fini(&f);
        }
    }
}

static void training_leaves_no_outputs_to_read(void **state)
{
    struct device_fixture f;
    float out[10];

    (void)state;
    device_setup(&f, &mlp, CDDPI_PRECISION_F32, 2);
    device_step(&f, 1, false);
    assert_int_equal(cddpi_model_read_outputs(f.model, 0, 1, out), CDDP_ERR_STATE);
    device_fixture_fini(&f);
}

static void two_runs_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        char *grads[2];
        double losses[2];
        size_t bytes = 0;

        for (int run = 0; run < 2; run++) {
            struct device_fixture f;

            device_setup(&f, presets[i].spec, CDDPI_PRECISION_BF16, presets[i].count);
            device_step(&f, 0.25, false);
            losses[run] = device_result(&f, 1).loss_sum;
            grads[run] = all_grads(&f, &bytes);
            device_fixture_fini(&f);
        }
        assert_true(losses[0] == losses[1]);
        assert_memory_equal(grads[0], grads[1], bytes);
        free(grads[0]);
        free(grads[1]);
    }
}

/* Running statistics behind each other; free(). */
static char *all_buffers(struct device_fixture *f, size_t *out_bytes)
{
    size_t count;
    const cddp_param *buffers = cddpi_model_buffers(f->model, &count);
    char *all = NULL;

    *out_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddpi_tensor_elements(&buffers[i]) * sizeof(float);
        void *data = device_get(f->device, buffers[i].data, bytes);

        all = realloc(all, *out_bytes + bytes);
        memcpy(all + *out_bytes, data, bytes);
        *out_bytes += bytes;
        free(data);
    }
    return all;
}

static void compare_recomputed(const struct cddpi_model_spec *spec)
{
    char *grads[2];
    char *buffers[2];
    size_t arena[2];
    size_t bytes[2] = {0, 0};

    for (int run = 0; run < 2; run++) {
        struct cddpi_model_spec own = *spec;
        struct device_fixture f;

        own.recompute = run == 1;
        device_setup(&f, &own, CDDPI_PRECISION_BF16, 3);
        device_step(&f, 0.25, false);
        device_step(&f, 0.25, true);
        grads[run] = all_grads(&f, &bytes[0]);
        buffers[run] = all_buffers(&f, &bytes[1]);
        arena[run] = cddpi_model_arena_bytes(f.model);
        device_fixture_fini(&f);
    }
    assert_memory_equal(grads[0], grads[1], bytes[0]);
    if (bytes[1] > 0) {
        assert_memory_equal(buffers[0], buffers[1], bytes[1]);
    }
    assert_true(arena[1] < arena[0]);
    for (int run = 0; run < 2; run++) {
        free(grads[run]);
        free(buffers[run]);
    }
}

static void recomputing_gives_the_same_bits_in_less_memory(void **state)
{
    struct cddpi_model_spec again = gpt2;

    (void)state;
    again.dropout = 0.1;
    again.blocks = 4;
    compare_recomputed(&again);
    compare_recomputed(&resnet20);
    compare_recomputed(&resnet50);
}

static void recomputing_gives_the_processors_gradients(void **state)
{
    struct cddpi_model_spec again = gpt2;

    (void)state;
    again.recompute = true;
    compare(&(struct preset){"recompute", &again, 3, {1e-5}, {1e-5}}, CDDPI_PRECISION_F32);
}

static void expect_micro_batches_to_add_up(const struct preset *preset,
                                           enum cddpi_precision precision)
{
    struct device_fixture f;
    double loss = 0;

    device_setup(&f, preset->spec, precision, preset->count);
    for (int micro = 0; micro < 2; micro++) {
        struct cddpi_loss_result result = {0};

        device_check(cddpi_model_forward(f.host.model, &f.host.batch, true, &result));
        device_check(cddpi_model_backward(f.host.model, 0.25, micro > 0, NULL, NULL));
        loss += result.loss_sum;
        device_step(&f, 0.25, micro > 0);
    }
    expect_below("sum of losses", preset->name, precision,
                 fabs(device_result(&f, 1).loss_sum - loss) / fabs(loss), preset->loss[precision]);
    expect_below("sum of gradients", preset->name, precision, all_grads_distance(&f),
                 preset->grad[precision]);
    device_fixture_fini(&f);
}

static void micro_batches_add_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        expect_micro_batches_to_add_up(&presets[i], CDDPI_PRECISION_F32);
        expect_micro_batches_to_add_up(&presets[i], CDDPI_PRECISION_BF16);
    }
}

struct order {
    size_t seen[512];
    size_t count;
};

static cddp_status note(void *context, size_t index)
{
    struct order *order = context;

    order->seen[order->count++] = index;
    return CDDP_OK;
}

static void gradients_are_reported_in_the_processors_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        for (int count = 0; count <= 2; count += 2) { /* without samples, too */
            struct device_fixture f;
            struct order order = {.count = 0};

            device_setup(&f, presets[i].spec, CDDPI_PRECISION_BF16, 2);
            f.batch.count = count;
            device_check(cddpi_model_forward(f.model, &f.batch, true, NULL));
            device_check(cddpi_model_backward(f.model, 1, false, note, &order));
            assert_int_equal(order.count, f.host.param_count);
            assert_memory_equal(order.seen, cddpi_model_ready_order(f.host.model),
                                order.count * sizeof *order.seen);
            device_fixture_fini(&f);
        }
    }
}

static void a_batch_without_samples_gives_zeros(void **state)
{
    struct device_fixture f;
    size_t bytes;
    char *grads;

    (void)state;
    device_setup(&f, &cnn, CDDPI_PRECISION_BF16, 2);
    device_step(&f, 1, false);
    f.batch.count = 0;
    device_step(&f, 1, false);
    grads = all_grads(&f, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(grads[i], 0);
    }
    free(grads);
    device_fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_are_the_processors),
        cmocka_unit_test(sixteen_bits_stay_within_their_bounds),
        cmocka_unit_test(dropout_draws_the_processors_numbers),
        cmocka_unit_test(dropout_without_draws_is_an_error),
        cmocka_unit_test(evaluation_is_the_processors_after_steps_of_training),
        cmocka_unit_test(training_leaves_no_outputs_to_read),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(recomputing_gives_the_same_bits_in_less_memory),
        cmocka_unit_test(recomputing_gives_the_processors_gradients),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(gradients_are_reported_in_the_processors_order),
        cmocka_unit_test(a_batch_without_samples_gives_zeros),
    };

    return run_on_device(tests);
}
