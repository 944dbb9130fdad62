/* micro_bits.c - one micro-batch of each kind of model that examples/ train. */
#include "support/micro_bits.h"

#include "base/hash.h"

static const struct cddpi_layer lenet[] = {
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 5, .padding = 2},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_MAX_POOL, .kernel = 2},
    {.type = CDDPI_LAYER_CONV2D, .units = 16, .kernel = 5},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_MAX_POOL, .kernel = 2},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 120},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_LINEAR, .units = 84},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_LINEAR, .units = 10}};

static const struct cddpi_layer all_sorts[] = {
    {.type = CDDPI_LAYER_CONV2D, .units = 24, .kernel = 5, .stride = 2, .padding = 2},
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "bn"},
    {.type = CDDPI_LAYER_SILU},
    {.type = CDDPI_LAYER_CONV_TRANSPOSE2D, .units = 12, .kernel = 4, .stride = 2, .padding = 1},
    {.type = CDDPI_LAYER_TANH},
    {.type = CDDPI_LAYER_CONV2D, .units = 16, .kernel = 3, .padding = 1, .groups = 4},
    {.type = CDDPI_LAYER_RESPONSE_NORM, .kernel = 5},
    {.type = CDDPI_LAYER_AVG_POOL, .kernel = 2},
    {.type = CDDPI_LAYER_DROPOUT, .probability = 0.25},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 65},
    {.type = CDDPI_LAYER_SIGMOID},
    {.type = CDDPI_LAYER_LINEAR, .units = 10}};

#define IMAGES(channel_count, side)                                                                \
    .channels = (channel_count), .height = (side), .width = (side), .classes = 10
#define LAYERS(list) .layers = (list), .layer_count = COUNT_OF(list)
#define GPT2                                                                                       \
    .preset = "gpt2", .blocks = 2, .heads = 2, .embed = 128, .context = 64, .vocab = 301,          \
    .classes = 301, .dropout = 0.1
static const int lstm_hidden[] = {72, 72};
#define LSTM                                                                                       \
    .preset = "lstm_lm", .hidden = lstm_hidden, .hidden_count = 2, .context = 13, .vocab = 211,    \
    .classes = 211, .dropout = 0.2
static const int few_hidden[] = {32, 16};

const struct bits_kind bits_kinds[] = {
    {"mlp", {.preset = "mlp", IMAGES(1, 28)}, 64, false},
    {"mlp of few", {.preset = "mlp", IMAGES(1, 28), .dropout = 0.3}, 7, false},
    {"mlp bf16", {.preset = "mlp", IMAGES(1, 28), .precision = CDDPI_PRECISION_BF16}, 40, false},
    {"mse",
     {.preset = "mlp",
      .hidden = few_hidden,
      .hidden_count = 2,
      .loss = CDDPI_LOSS_MSE,
      .channels = 9,
      .height = 1,
      .width = 1,
      .classes = 1,
      .real_targets = true},
     50,
     false},
    {"l1",
     {.preset = "mlp",
      .hidden = few_hidden,
      .hidden_count = 2,
      .loss = CDDPI_LOSS_L1,
      .channels = 9,
      .height = 1,
      .width = 1,
      .classes = 3,
      .real_targets = true},
     33,
     false},
    {"lenet", {LAYERS(lenet), IMAGES(1, 28)}, 20, true},
    {"layers", {LAYERS(all_sorts), IMAGES(3, 22)}, 6, true},
    {"cnn", {.preset = "cnn", IMAGES(1, 28), .dropout = 0.2}, 12, true},
    {"resnet20", {.preset = "resnet20", IMAGES(3, 32)}, 6, true},
    {"resnet20 bf16",
     {.preset = "resnet20", IMAGES(3, 32), .precision = CDDPI_PRECISION_BF16},
     8,
     true},
    {"resnet50", {.preset = "resnet50", .stage_units = 8, IMAGES(3, 64)}, 4, true},
    {"resnet18", {.preset = "resnet18", .stage_units = 20, IMAGES(3, 57)}, 3, true},
    {"alexnet",
     {.preset = "alexnet",
      .stage_units = 12,
      .channels = 3,
      .height = 224,
      .width = 224,
      .classes = 10,
      .dropout = 0.5},
     2,
     true},
    {"vgg11",
     {.preset = "vgg11",
      .stage_units = 4,
      .channels = 3,
      .height = 64,
      .width = 64,
      .classes = 10,
      .dropout = 0.5},
     3,
     true},
    {"dcgan",
     {.preset = "dcgan",
      .latent = 6,
      .generator_units = 8,
      .discriminator_units = 8,
      IMAGES(1, 28)},
     5,
     true},
    {"gpt2", {GPT2}, 2, false},
    {"gpt2 bf16", {GPT2, .precision = CDDPI_PRECISION_BF16}, 2, false},
    {"gpt2 recomputed", {GPT2, .recompute = true}, 2, false},
    {"gpt2 by fma", {GPT2, .matmul = CDDPI_MATMUL_FMA}, 3, false},
    {"lstm_lm", {LSTM}, 8, false},
    {"lstm_lm tied", {LSTM, .tied = true}, 5, false},
};
const size_t bits_kind_count = COUNT_OF(bits_kinds);

static void bits_must(const struct bits_subject *subject, cddp_status status, const char *what)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "%s: %s: %s\n", subject->kind->name, what, cddp_last_error());
        abort(); /* also in processes that may not assert */
    }
}

static const cddp_param *tensor(const struct bits_subject *subject, size_t index)
{
    size_t buffers;
    const cddp_param *buffer = cddpi_model_buffers(subject->f.model, &buffers);

    return index < subject->f.param_count ? &subject->f.params[index]
                                          : &buffer[index - subject->f.param_count];
}

static size_t tensor_count(const struct bits_subject *subject)
{
    size_t buffers;

    (void)cddpi_model_buffers(subject->f.model, &buffers);
    return subject->f.param_count + buffers;
}

static size_t tensor_bytes(const struct bits_subject *subject, size_t index)
{
    return cddpi_tensor_elements(tensor(subject, index)) * sizeof(float);
}

void bits_open(struct bits_subject *subject, const struct bits_kind *kind,
               const struct cddpi_model_spec *given, cddp_group *group)
{
    struct cddpi_model_spec spec = *given;
    size_t count;

    *subject = (struct bits_subject){.kind = kind};
    bits_must(subject, cddpi_model_spec_complete(&spec), "its description");
    spec.invariant = true;
    if (!fixture_init(&subject->f, &spec, 11, group, 100, kind->samples)) {
        bits_must(subject, CDDP_ERR_CONFIG, "create");
    }
    subject->grads = subject->f.grads;
    count = tensor_count(subject);
    subject->saved = calloc(count, sizeof *subject->saved);
    for (size_t i = 0; i < count; i++) {
        subject->saved[i] = malloc(tensor_bytes(subject, i));
        memcpy(subject->saved[i], tensor(subject, i)->data, tensor_bytes(subject, i));
    }
}

void bits_close(struct bits_subject *subject)
{
    size_t count = tensor_count(subject);

    for (size_t i = 0; i < count; i++) {
        free(subject->saved[i]);
    }
    free(subject->saved);
    if (subject->grads != subject->f.grads) {
        free(subject->grads);
    }
    fixture_fini(&subject->f);
    free(subject->blocks[0]);
    free(subject->blocks[1]);
}

void bits_restore(struct bits_subject *subject)
{
    for (size_t i = 0; i < tensor_count(subject); i++) {
        memcpy(tensor(subject, i)->data, subject->saved[i], tensor_bytes(subject, i));
    }
    cddpi_model_params_changed(subject->f.model, false);
}

static uint64_t hash_bytes(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < bytes; i++) {
        hash = cddpi_hash_add(hash, at[i]);
    }
    return hash;
}

static void measure_evaluation(struct bits_subject *subject, struct bits_answer *out)
{
    struct cddpi_model *model = subject->f.model;
    struct cddpi_loss_result result = {0};
    size_t elements = (size_t)subject->f.batch.count * (size_t)cddpi_model_predictions(model) *
                      (size_t)model->classes;
    float *outputs = malloc(elements * sizeof *outputs);

    bits_must(subject, cddpi_model_forward(model, &subject->f.batch, false, &result), "evaluation");
    bits_must(subject,
              cddpi_model_read_outputs(model, 0, elements / (size_t)model->classes, outputs),
              "outputs");
    out->hashes[BITS_EVALUATION_LOSS] = hash_bytes(&result.loss_sum, sizeof result.loss_sum);
    out->hashes[BITS_CORRECT] = (uint64_t)result.correct;
    out->hashes[BITS_OUTPUTS] = hash_bytes(outputs, elements * sizeof *outputs);
    free(outputs);
}

static void backward(struct bits_subject *subject, double scale, bool accumulate)
{
    struct cddpi_model *model = subject->f.model;

    bits_must(subject, cddpi_model_backward(model, scale, accumulate, NULL, NULL), "backward");
    if (model->split) {
        bits_must(subject, cddpi_model_weights(model, accumulate, NULL, NULL), "weights");
    }
}

void bits_measure(struct bits_subject *subject, struct bits_answer *out)
{
    struct fixture *f = &subject->f;
    struct cddpi_loss_result result = {0};
    /* of a global batch of which this is a third */
    double scale = 1.0 / (3.0 * f->batch.count * cddpi_model_predictions(f->model));
    size_t tensors = tensor_count(subject);

    bits_restore(subject);
    memset(out, 0, sizeof *out);
    bits_must(subject, cddpi_model_forward(f->model, &f->batch, true, &result), "forward");
    if (subject->between != NULL) {
        subject->between(subject);
    }
    backward(subject, scale, false);
    out->hashes[BITS_TRAINING_LOSS] = hash_bytes(&result.loss_sum, sizeof result.loss_sum);
    out->count = BITS_FIRST;
    for (size_t i = f->param_count; i < tensors; i++) {
        out->hashes[out->count++] = hash_bytes(tensor(subject, i)->data, tensor_bytes(subject, i));
    }
    for (size_t i = 0; i < f->param_count; i++) {
        out->hashes[out->count++] = hash_bytes(subject->grads[i], tensor_bytes(subject, i));
    }
    if (out->count > BITS_MOST) {
        abort();
    }
    if (!f->model->split) { /* it keeps no outputs */
        measure_evaluation(subject, out);
    }
}

static void load_samples(struct bits_subject *subject, int first, int count)
{
    if (subject->f.model->tokens_in) {
        fixture_sequences(&subject->f, first, count);
    } else {
        fixture_batch(&subject->f, first, count);
    }
}

void bits_step(struct bits_subject *subject, int first, int count, bool accumulate)
{
    struct cddpi_loss_result result;

    load_samples(subject, first, count);
    subject->f.batch.step = 77;
    bits_must(subject, cddpi_model_forward(subject->f.model, &subject->f.batch, true, &result),
              "forward");
    backward(subject, 1.0 / (count + 1), accumulate);
    for (size_t i = 0; i < subject->f.param_count; i++) {
        float *data = tensor(subject, i)->data;

        for (size_t e = 0; e < tensor_bytes(subject, i) / sizeof *data; e++) {
            data[e] -= 0.01f * ((const float *)subject->grads[i])[e];
        }
    }
    cddpi_model_params_changed(subject->f.model, false);
    load_samples(subject, 100, subject->kind->samples);
}

void bits_evaluate(struct bits_subject *subject, int first, int count)
{
    struct cddpi_loss_result result;

    load_samples(subject, first, count);
    bits_must(subject, cddpi_model_forward(subject->f.model, &subject->f.batch, false, &result),
              "evaluation");
    load_samples(subject, 100, subject->kind->samples);
}

void bits_of_kind(const struct bits_kind *kind, cddp_group *group, struct bits_answer *out)
{
    struct bits_subject subject;

    bits_open(&subject, kind, &kind->spec, group);
    bits_measure(&subject, out);
    bits_close(&subject);
}

static void bits_name(const struct bits_kind *kind, int index, char *out, size_t out_bytes)
{
    static const char *const first[] = {"training loss", "evaluation loss", "correct", "outputs"};
    struct bits_subject subject;
    size_t tensors;
    size_t at;

    if (index < BITS_FIRST) {
        snprintf(out, out_bytes, "%s", first[index]);
        return;
    }
    bits_open(&subject, kind, &kind->spec, NULL);
    tensors = tensor_count(&subject);
    at = (subject.f.param_count + (size_t)index - BITS_FIRST) % tensors;
    snprintf(out, out_bytes, "%s", tensor(&subject, at)->name);
    bits_close(&subject);
}

int bits_compare(const struct bits_kind *kind, const char *circumstance,
                 const struct bits_answer *reference, const struct bits_answer *answer)
{
    int bad = reference->count != answer->count;
    int first = -1;
    char name[128];

    for (int i = 0; i < reference->count; i++) {
        if (reference->hashes[i] != answer->hashes[i]) {
            first = first < 0 ? i : first;
            bad++;
        }
    }
    if (first >= 0) {
        bits_name(kind, first, name, sizeof name);
        fprintf(stderr, "%s, %s: %d of %d differ, the first is %s\n", kind->name, circumstance, bad,
                reference->count, name);
    }
    return bad;
}
