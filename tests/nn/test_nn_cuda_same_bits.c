/* test_nn_cuda_same_bits.c - on a CUDA device, too, a micro-batch has the same bits whatever its
 * process does besides: other batches, models and updates, and addresses of gradients. */
#include "base/hash.h"
#include "support/nn_cuda.h"

enum { SAMPLES = 3 };

struct device_kind {
    const char *name;
    struct cddpi_model_spec spec;
};

static const struct device_kind kinds[] = {
    {"mlp", {.preset = "mlp", DIGITS, .hidden = hidden, .hidden_count = 2}},
    {"mlp bf16",
     {.preset = "mlp",
      DIGITS,
      .hidden = hidden,
      .hidden_count = 2,
      .precision = CDDPI_PRECISION_BF16}},
    {"cnn", {.preset = "cnn", DIGITS, .dropout = 0.2}},
    {"resnet20", {.preset = "resnet20", COLOURS}},
    {"resnet50", {.preset = "resnet50", .stage_units = 4, LARGER}},
    {"gpt2", {.preset = "gpt2", WORDS, .dropout = 0.1}},
    {"gpt2 bf16", {.preset = "gpt2", WORDS, .precision = CDDPI_PRECISION_BF16}},
    {"lstm_lm",
     {.preset = "lstm_lm",
      .hidden = hidden,
      .hidden_count = 2,
      .context = 7,
      .vocab = 31,
      .classes = 31}},
};

/* Parameters, buffers and gradients of a model on a device, on the host. */
struct state {
    char **params, **buffers;
    size_t buffer_count;
};

static void keep_state(const struct device_fixture *f, struct state *out)
{
    const cddp_param *buffers = cddpi_model_buffers(f->model, &out->buffer_count);

    out->params = calloc(f->host.param_count, sizeof *out->params);
    out->buffers = calloc(out->buffer_count + 1, sizeof *out->buffers);
    for (size_t i = 0; i < f->host.param_count; i++) {
        out->params[i] = device_get(f->device, f->params[i].data, param_bytes(f, i));
    }
    for (size_t i = 0; i < out->buffer_count; i++) {
        out->buffers[i] = device_get(f->device, buffers[i].data,
                                     cddpi_tensor_elements(&buffers[i]) * sizeof(float));
    }
}

static void put_state(const struct device_fixture *f, const struct state *state)
{
    size_t count;
    const cddp_param *buffers = cddpi_model_buffers(f->model, &count);

    for (size_t i = 0; i < f->host.param_count; i++) {
        device_put(f->device, f->params[i].data, state->params[i], param_bytes(f, i));
    }
    for (size_t i = 0; i < count; i++) {
        device_put(f->device, buffers[i].data, state->buffers[i],
                   cddpi_tensor_elements(&buffers[i]) * sizeof(float));
    }
    cddpi_model_params_changed(f->model, false);
}

static void drop_state(const struct device_fixture *f, struct state *state)
{
    for (size_t i = 0; i < f->host.param_count; i++) {
        free(state->params[i]);
    }
    for (size_t i = 0; i < state->buffer_count; i++) {
        free(state->buffers[i]);
    }
    free(state->params);
    free(state->buffers);
}

static void take_samples(struct device_fixture *f, int first, int count)
{
    if (f->model->tokens_in) {
        fixture_sequences(&f->host, first, count);
    } else {
        fixture_batch(&f->host, first, count);
    }
    device_take_batch(f);
}

/* The gradients move parameters, too: as after an update. */
static void step_with(struct device_fixture *f, int first, int count, bool accumulate)
{
    take_samples(f, first, count);
    device_step(f, 0.1, accumulate);
    for (size_t i = 0; i < f->host.param_count; i++) {
        device_check(f->device->ops->copy(f->device, CDDPI_STREAM_COMPUTE, f->params[i].data,
                                          f->grads[i], param_bytes(f, i)));
    }
    cddpi_model_params_changed(f->model, false);
}

static void evaluate_with(struct device_fixture *f, int first, int count)
{
    take_samples(f, first, count);
    device_check(cddpi_model_forward(f->model, &f->batch, false, NULL));
}

static void small_batches(struct device_fixture *f)
{
    for (int count = 1; count < SAMPLES; count++) {
        step_with(f, 50, count, false);
        evaluate_with(f, 50, count);
    }
}

static void larger_batch(struct device_fixture *f)
{
    step_with(f, 50, 3 * SAMPLES, false);
}

static void accumulation(struct device_fixture *f)
{
    step_with(f, 50, SAMPLES, false);
    step_with(f, 60, SAMPLES, true);
}

static void memory_for_more(struct device_fixture *f)
{
    device_check(cddpi_model_prepare(f->model, 4 * SAMPLES, true));
}

static void other_model(struct device_fixture *f)
{
    struct device_fixture other;

    (void)f;
    device_setup(&other, &mlp, CDDPI_PRECISION_F32, SAMPLES);
    device_step(&other, 1, false);
    device_fixture_fini(&other);
}

/* As in buckets: at multiples of 64 bytes. */
static void grads_elsewhere(struct device_fixture *f)
{
    void **grads = calloc(f->host.param_count, sizeof *grads);

    for (size_t i = 0; i < f->host.param_count; i++) {
        grads[i] = device_alloc(f->device, param_bytes(f, i) + 64);
    }
    for (size_t i = 0; i < f->host.param_count; i++) {
        f->device->ops->release(f->device, f->grads[i]);
        f->grads[i] = grads[i];
    }
    free(grads);
    cddpi_model_bind_grads(f->model, f->grads);
}

static const struct {
    const char *name;
    void (*before)(struct device_fixture *f);
} circumstances[] = {
    {"nothing", NULL},
    {"nothing again", NULL},
    {"small batches before", small_batches},
    {"a larger batch", larger_batch},
    {"accumulation before", accumulation},
    {"memory for more", memory_for_more},
    {"another model", other_model},
    {"gradients elsewhere", grads_elsewhere},
};

enum { TRAINING, EVALUATION, OUTPUTS, BUFFERS, GRADIENTS, WHATS };
static const char *const whats[WHATS] = {"the training loss", "the evaluation loss", "outputs",
                                         "running statistics", "gradients"};

static uint64_t hash_of(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = cddpi_hash_add(hash, ((const unsigned char *)data)[i]);
    }
    return hash;
}

static uint64_t hash_of_device(const struct device_fixture *f, uint64_t hash, const void *data,
                               size_t bytes)
{
    char *here = device_get(f->device, data, bytes);

    hash = hash_of(hash, here, bytes);
    free(here);
    return hash;
}

static uint64_t hash_of_outputs(const struct device_fixture *f)
{
    size_t rows = (size_t)SAMPLES * (size_t)cddpi_model_predictions(f->model);
    size_t bytes = rows * (size_t)f->model->classes * sizeof(float);
    float *outputs = malloc(bytes);
    uint64_t hash;

    device_check(cddpi_model_read_outputs(f->model, 0, rows, outputs));
    hash = hash_of(cddpi_hash_start, outputs, bytes);
    free(outputs);
    return hash;
}

static void measure(struct device_fixture *f, uint64_t out[WHATS])
{
    struct cddpi_loss_result result;
    size_t count;
    const cddp_param *buffers = cddpi_model_buffers(f->model, &count);

    take_samples(f, 100, SAMPLES);
    device_check(cddpi_model_reset_sums(f->model));
    device_step(f, 0.125, false);
    result = device_result(f, SAMPLES);
    out[TRAINING] = hash_of(cddpi_hash_start, &result.loss_sum, sizeof result.loss_sum);
    out[BUFFERS] = out[GRADIENTS] = cddpi_hash_start;
    for (size_t i = 0; i < count; i++) {
        out[BUFFERS] = hash_of_device(f, out[BUFFERS], buffers[i].data,
                                      cddpi_tensor_elements(&buffers[i]) * sizeof(float));
    }
    for (size_t i = 0; i < f->host.param_count; i++) {
        out[GRADIENTS] = hash_of_device(f, out[GRADIENTS], f->grads[i], param_bytes(f, i));
    }
    evaluate_with(f, 100, SAMPLES);
    result = device_result(f, SAMPLES);
    out[EVALUATION] = hash_of(cddpi_hash_start, &result.loss_sum, sizeof result.loss_sum);
    out[OUTPUTS] = hash_of_outputs(f);
}

static int compare_kind(const struct device_kind *kind)
{
    uint64_t reference[WHATS];
    int bad = 0;

    for (size_t c = 0; c < COUNT_OF(circumstances); c++) {
        struct device_fixture f;
        struct state state;
        uint64_t hashes[WHATS];

        device_setup(&f, &kind->spec, kind->spec.precision, SAMPLES);
        keep_state(&f, &state);
        if (circumstances[c].before != NULL) {
            circumstances[c].before(&f);
        }
        put_state(&f, &state);
        measure(&f, hashes);
        if (c == 0) {
            memcpy(reference, hashes, sizeof reference);
        }
        for (int what = 0; what < WHATS; what++) {
            if (hashes[what] != reference[what]) {
                print_error("%s, %s: %s differ\n", kind->name, circumstances[c].name, whats[what]);
                bad++;
            }
        }
        drop_state(&f, &state);
        device_fixture_fini(&f);
    }
    return bad;
}

static void a_micro_batch_has_the_same_bits_in_all_circumstances(void **state)
{
    int bad = 0;

    (void)state;
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        bad += compare_kind(&kinds[k]);
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_micro_batch_has_the_same_bits_in_all_circumstances),
    };

    return run_on_device(tests);
}
