/* test_nn_cuda_step.c - what a step of a model on a CUDA device does besides computing:
 * allocations, waits, captured graphs, results, copies of parameters. */
#include "base/error.h"
#include "support/failure.h"
#include "support/nn_cuda.h"

/* What the tests count of a device's functions. */
static const struct cddpi_device_ops *real_ops;
static int allocations, waits;
static int failing;       /* which allocation fails, counted from 1; 0: none */
static size_t free_bytes; /* not 0: more for activations cannot be had */

static cddp_status counting_alloc(struct cddpi_device *where, size_t bytes, const char *what,
                                  void **out)
{
    allocations++;
    if (allocations == failing) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %s", what);
    }
    if (free_bytes != 0 && bytes > free_bytes && strcmp(what, "activations") == 0) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu bytes of %s", bytes, what);
    }
    return real_ops->alloc(where, bytes, what, out);
}

static cddp_status counting_pin(struct cddpi_device *where, size_t bytes, void **out)
{
    allocations++;
    if (allocations == failing) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to be pinned");
    }
    return real_ops->pin(where, bytes, out);
}

static cddp_status counting_wait(struct cddpi_device *where, struct cddpi_event *event,
                                 uint32_t timeout_ms)
{
    waits++;
    return real_ops->wait(where, event, timeout_ms);
}

static cddp_status counting_finish(struct cddpi_device *where, uint32_t timeout_ms)
{
    waits++;
    return real_ops->finish(where, timeout_ms);
}

static cddp_status told_memory(struct cddpi_device *where, struct cddpi_device_memory *out)
{
    cddp_status status = real_ops->memory(where, out);

    out->free_bytes = free_bytes != 0 ? free_bytes : out->free_bytes;
    return status;
}

static int count_calls(void **state)
{
    static struct cddpi_device_ops counting;

    (void)state;
    real_ops = device->ops;
    counting = *real_ops;
    counting.alloc = counting_alloc;
    counting.pin = counting_pin;
    counting.wait = counting_wait;
    counting.finish = counting_finish;
    counting.memory = told_memory;
    device->ops = &counting;
    return 0;
}

static int count_no_more(void **state)
{
    (void)state;
    device->ops = real_ops;
    free_bytes = 0;
    failing = 0;
    return 0;
}

static void a_step_neither_waits_nor_allocates_once_planned(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct device_fixture f;
        struct cddpi_model_spec spec = *presets[i].spec;

        spec.recompute = spec.vocab > 0;
        device_setup(&f, &spec, CDDPI_PRECISION_BF16, presets[i].count);
        device_step(&f, 1, false);
        device_step(&f, 1, true);
        allocations = waits = 0;
        cddpi_model_params_changed(f.model, false);
        device_step(&f, 1, false);
        device_step(&f, 1, true);
        device_check(cddpi_model_collect(f.model, 1));
        assert_int_equal(allocations, 0);
        assert_int_equal(waits, 0);
        device_fixture_fini(&f);
    }
}

/* Kernels would take half a mebibyte yet. */
static size_t half_a_mebibyte(struct cddpi_device *where, bool any_order)
{
    (void)where;
    (void)any_order;
    return 1 << 19;
}

static void too_large_a_batch_says_which_one_would_fit(void **state)
{
    const struct cddpi_cuda_kernels *real_kernels = device->kernels;
    static struct cddpi_cuda_kernels kernels;
    struct device_fixture f;
    char text[64];
    int fits = 0;

    (void)state;
    kernels = *real_kernels;
    kernels.first_use_bytes = half_a_mebibyte;
    device->kernels = &kernels;
    device_setup(&f, &cnn, CDDPI_PRECISION_F32, 64);
    for (int count = 1; count <= 64; count++) {
        struct cddpi_model_estimate estimate = {0};

        device_check(cddpi_model_estimate(f.model, count, false, &estimate));
        fits = estimate.activation_bytes <= 1 << 20 ? count : fits;
    }
    assert_true(fits > 0 && fits < 64);
    free_bytes = (1 << 20) + (1 << 19); /* the kernels', too */
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, NULL), CDDP_ERR_NO_MEMORY);
    snprintf(text, sizeof text, "(for 64 samples at once; about %d would fit", fits);
    if (!last_error_has(text) || !last_error_has("of activations")) {
        fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), text);
    }
    f.batch.count = fits;
    device_step(&f, 1, false);
    device_fixture_fini(&f);
    device->kernels = real_kernels;
}

/* Leaks show under a sanitizer, and in the emulated device. */
static void every_failing_allocation_of_the_device_is_an_error(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&resnet20, &gpt2};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct cddpi_model_spec spec = *specs[i];
        struct cddpi_model *model = NULL;
        cddp_status status = CDDP_ERR_NO_MEMORY;

        spec.device = device;
        spec.precision = CDDPI_PRECISION_BF16;
        for (failing = 1; status == CDDP_ERR_NO_MEMORY; failing++) {
            allocations = 0;
            status = cddpi_model_create(&spec, 1, NULL, &model);
            assert_true(status == CDDP_OK || model == NULL);
        }
        device_check(status);
        assert_true(failing > 4);
        allocations = 0;
        failing = 1;
        assert_int_equal(cddpi_model_prepare(model, 2, true), CDDP_ERR_NO_MEMORY);
        device_check(cddpi_model_prepare(model, 2, true));
        cddpi_model_destroy(model);
    }
}

static void a_recorded_step_does_the_same_with_each_replay(void **state)
{
    struct cddpi_captured_graph *captured = NULL;
    struct device_fixture f;
    double loss;
    char *direct;
    char *replayed;
    size_t bytes;

    (void)state;
    device_setup(&f, &gpt2, CDDPI_PRECISION_BF16, 3);
    device_step(&f, 0.5, false);
    direct = all_grads(&f, &bytes);
    loss = device_result(&f, 1).loss_sum;
    device_check(device->ops->capture_begin(device));
    device_step(&f, 0.5, false);
    device_check(device->ops->capture_end(device, &captured));
    assert_true(device_result(&f, 1).loss_sum == 0); /* nothing was done yet */
    for (size_t i = 0; i < f.host.param_count; i++) {
        device_check(
            device->ops->clear(device, CDDPI_STREAM_COMPUTE, f.grads[i], param_bytes(&f, i)));
    }
    for (int i = 0; i < 2; i++) {
        device_check(device->ops->replay(device, captured));
    }
    replayed = all_grads(&f, &bytes);
    assert_memory_equal(replayed, direct, bytes);
    assert_true(device_result(&f, 1).loss_sum == 2 * loss);
    device->ops->graph_destroy(device, captured);
    free(direct);
    free(replayed);
    device_fixture_fini(&f);
}

static void results_come_in_the_order_in_which_they_were_collected(void **state)
{
    struct device_fixture f;
    struct cddpi_loss_result result = {0};
    double loss = 0;

    (void)state;
    device_setup(&f, &mlp, CDDPI_PRECISION_F32, 4);
    assert_int_equal(cddpi_model_result(f.model, &result), CDDP_ERR_STATE);
    for (int i = 0; i < CDDPI_MODEL_COLLECTED; i++) {
        for (int micro = 0; micro < i; micro++) {
            device_step(&f, 1, false);
        }
        device_check(cddpi_model_collect(f.model, 4 * i));
    }
    assert_int_equal(cddpi_model_collect(f.model, 1), CDDP_ERR_STATE);
    for (int i = 0; i < CDDPI_MODEL_COLLECTED; i++) {
        device_check(cddpi_model_result(f.model, &result));
        loss = i == 1 ? result.loss_sum : loss;
        assert_int_equal(result.count, 4 * i);
        assert_true(fabs(result.loss_sum - i * loss) <= 1e-12 * i * loss);
    }
    assert_int_equal(cddpi_model_result(f.model, &result), CDDP_ERR_STATE);
    device_fixture_fini(&f);
}

/* On the host, where the two calls work as well. */
static void the_processor_collects_results_too(void **state)
{
    struct fixture f;
    struct cddpi_loss_result one = {0};
    struct cddpi_loss_result both = {0};

    (void)state;
    assert_true(fixture_init(&f, &mlp, 8, NULL, 0, 4));
    device_check(cddpi_model_forward(f.model, &f.batch, true, &one));
    device_check(cddpi_model_forward(f.model, &f.batch, true, NULL));
    device_check(cddpi_model_collect(f.model, 8));
    device_check(cddpi_model_result(f.model, &both));
    assert_true(both.loss_sum == 2 * one.loss_sum);
    assert_int_equal(both.correct, 2 * one.correct);
    assert_int_equal(both.count, 8);
    assert_int_equal(cddpi_model_result(f.model, &both), CDDP_ERR_STATE);
    fixture_fini(&f);
}

static void parameters_begin_as_on_the_processor(void **state)
{
    struct device_fixture f;

    (void)state;
    device_setup(&f, &resnet20, CDDPI_PRECISION_BF16, 1);
    for (size_t i = 0; i < f.host.param_count; i++) {
        float *there = device_get(device, f.params[i].data, param_bytes(&f, i));

        assert_string_equal(f.params[i].name, f.host.params[i].name);
        assert_memory_equal(there, f.host.params[i].data, param_bytes(&f, i));
        assert_true(device->ops->owns(device, f.params[i].data));
        free(there);
    }
    device_fixture_fini(&f);
}

/* Every parameter becomes three times what it was, on both. */
static void triple(struct device_fixture *f)
{
    for (size_t i = 0; i < f->host.param_count; i++) {
        float *data = f->host.params[i].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&f->host.params[i]); e++) {
            data[e] *= 3;
        }
        device_put(f->device, f->params[i].data, data, param_bytes(f, i));
    }
}

static double evaluate(struct device_fixture *f)
{
    device_check(cddpi_model_forward(f->model, &f->batch, false, NULL));
    return device_result(f, 1).loss_sum;
}

static void changed_parameters_are_read_once_told(void **state)
{
    struct cddpi_loss_result host = {0};
    struct device_fixture f;
    double before;
    double after;

    (void)state;
    device_setup(&f, &cnn, CDDPI_PRECISION_FP16, 4);
    before = evaluate(&f);
    triple(&f);
    cddpi_model_params_changed(f.model, false);
    after = evaluate(&f);
    device_check(cddpi_model_forward(f.host.model, &f.host.batch, false, &host));
    assert_true(fabs(after - host.loss_sum) < 1e-2 * host.loss_sum);
    assert_true(fabs(after - before) > 1e-2 * host.loss_sum);
    device_fixture_fini(&f);
}

static void an_update_may_write_the_copies_itself(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&cnn, &gpt2};

    (void)state;
    for (size_t s = 0; s < COUNT_OF(specs); s++) {
        struct device_fixture f;
        double told;
        int written = 0;

        device_setup(&f, specs[s], CDDPI_PRECISION_BF16, 3);
        evaluate(&f);
        triple(&f);
        cddpi_model_params_changed(f.model, false);
        told = evaluate(&f);
        for (size_t i = 0; i < f.host.param_count; i++) { /* as if nothing had been told */
            void *copy = cddpi_model_param_copy(f.model, i);

            if (copy != NULL) {
                device_check(
                    device->ops->clear(device, CDDPI_STREAM_COMPUTE, copy, param_bytes(&f, i) / 2));
                device_check(device->kernels->cast(device, CDDP_F32, f.params[i].data, CDDP_BF16,
                                                   copy, param_bytes(&f, i) / sizeof(float)));
                written++;
            }
        }
        assert_true(written > 0);
        cddpi_model_params_changed(f.model, true);
        device_check(cddpi_model_refresh_copies(f.model));
        assert_true(evaluate(&f) == told);
        device_fixture_fini(&f);
    }
}

/* Of the last training forward and backward; free(). */
static char *grads_after(struct device_fixture *f, struct cddpi_captured_graph *captured)
{
    size_t bytes;

    if (captured != NULL) {
        device_check(device->ops->replay(device, captured));
        cddpi_model_replayed(f->model);
    } else {
        device_step(f, 0.5, false);
    }
    return all_grads(f, &bytes);
}

/* Recorded while the copies that updates write were there, and those of convolutions were not. */
static void a_recording_may_leave_copies_to_updates(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&cnn, &gpt2};

    (void)state;
    for (size_t s = 0; s < COUNT_OF(specs); s++) {
        struct cddpi_captured_graph *captured = NULL;
        struct device_fixture f;
        char *grads[3];
        size_t bytes;

        device_setup(&f, specs[s], CDDPI_PRECISION_BF16, 3);
        device_step(&f, 0.5, false);
        cddpi_model_params_changed(f.model, true);
        device_check(device->ops->capture_begin(device));
        device_step(&f, 0.5, false);
        device_check(device->ops->capture_end(device, &captured));
        grads[0] = all_grads(&f, &bytes);
        triple(&f);
        cddpi_model_params_changed(f.model, false);
        device_check(cddpi_model_refresh_copies(f.model));
        grads[1] = grads_after(&f, captured);
        cddpi_model_params_changed(f.model, false);
        grads[2] = grads_after(&f, NULL);
        assert_memory_not_equal(grads[0], grads[1], bytes);
        assert_memory_equal(grads[1], grads[2], bytes);
        for (int i = 0; i < 3; i++) {
            free(grads[i]);
        }
        device->ops->graph_destroy(device, captured);
        device_fixture_fini(&f);
    }
}

static void float32_reads_parameters_themselves(void **state)
{
    struct device_fixture f;

    (void)state;
    device_setup(&f, &gpt2, CDDPI_PRECISION_F32, 1);
    for (size_t i = 0; i < f.host.param_count; i++) {
        assert_null(cddpi_model_param_copy(f.model, i));
        assert_null(cddpi_model_param_copy(f.host.model, i));
    }
    device_fixture_fini(&f);
}

static void parameters_may_live_elsewhere(void **state)
{
    struct device_fixture f;
    void **data;
    uint64_t version;
    double before;

    (void)state;
    device_setup(&f, &gpt2, CDDPI_PRECISION_BF16, 2);
    before = evaluate(&f);
    version = cddpi_model_memory_version(f.model);
    data = calloc(f.host.param_count, sizeof *data);
    for (size_t i = 0; i < f.host.param_count; i++) {
        data[i] = device_alloc(device, param_bytes(&f, i));
        device_check(device->ops->copy(device, CDDPI_STREAM_COMPUTE, data[i], f.params[i].data,
                                       param_bytes(&f, i)));
    }
    cddpi_model_bind_params(f.model, data);
    cddpi_model_params_changed(f.model, false);
    assert_true(cddpi_model_memory_version(f.model) > version);
    assert_true(evaluate(&f) == before);
    device_fixture_fini(&f);
    for (size_t i = 0; i < f.host.param_count; i++) {
        device->ops->release(device, data[i]);
    }
    free(data);
}

static void a_loss_scale_on_the_device_multiplies_gradients(void **state)
{
    const float factor = 8;
    struct device_fixture f;
    float *scale;

    (void)state;
    device_setup(&f, &gpt2, CDDPI_PRECISION_F32, 2);
    scale = device_alloc(device, sizeof *scale);
    device_put(device, scale, &factor, sizeof factor);
    cddpi_model_bind_loss_scale(f.model, scale);
    device_step(&f, 0.25, false);
    device_check(fixture_step(&f.host, 2, false));
    expect_below("gradient", "loss scale", CDDPI_PRECISION_F32, all_grads_distance(&f), 1e-5);
    device_fixture_fini(&f);
    device->ops->release(device, scale);
}

static void a_larger_batch_moves_the_arena(void **state)
{
    struct device_fixture f;
    uint64_t version;

    (void)state;
    device_setup(&f, &mlp, CDDPI_PRECISION_F32, 2);
    device_step(&f, 1, false);
    version = cddpi_model_memory_version(f.model);
    device_step(&f, 1, false);
    assert_true(cddpi_model_memory_version(f.model) == version);
    fixture_batch(&f.host, 0, 9);
    device_take_batch(&f);
    device_step(&f, 1, false);
    assert_true(cddpi_model_memory_version(f.model) > version);
    device_check(fixture_step(&f.host, 1, false));
    expect_below("gradient", "larger batch", CDDPI_PRECISION_F32, all_grads_distance(&f), 1e-5);
    device_fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_begin_as_on_the_processor),
        cmocka_unit_test_setup_teardown(a_step_neither_waits_nor_allocates_once_planned,
                                        count_calls, count_no_more),
        cmocka_unit_test_setup_teardown(too_large_a_batch_says_which_one_would_fit, count_calls,
                                        count_no_more),
        cmocka_unit_test_setup_teardown(every_failing_allocation_of_the_device_is_an_error,
                                        count_calls, count_no_more),
        cmocka_unit_test(a_recorded_step_does_the_same_with_each_replay),
        cmocka_unit_test(results_come_in_the_order_in_which_they_were_collected),
        cmocka_unit_test(the_processor_collects_results_too),
        cmocka_unit_test(changed_parameters_are_read_once_told),
        cmocka_unit_test(an_update_may_write_the_copies_itself),
        cmocka_unit_test(a_recording_may_leave_copies_to_updates),
        cmocka_unit_test(float32_reads_parameters_themselves),
        cmocka_unit_test(parameters_may_live_elsewhere),
        cmocka_unit_test(a_loss_scale_on_the_device_multiplies_gradients),
        cmocka_unit_test(a_larger_batch_moves_the_arena),
    };

    return run_on_device(tests);
}
