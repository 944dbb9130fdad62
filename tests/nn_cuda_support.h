/* nn_cuda_support.h - a model on a CUDA device beside the same one on the processor, for tests: on
 * whatever device "cuda" is, which may be an emulated one ($CDDP_CUDA_MODULE). */
#ifndef CDDP_TESTS_NN_CUDA_SUPPORT_H
#define CDDP_TESTS_NN_CUDA_SUPPORT_H

#include "nn/cuda.h"
#include "nn_support.h"

struct device_fixture {
    struct fixture host; /* the same model and batch on the processor */
    struct cddpi_device *device;
    struct cddpi_model *model;
    struct cddpi_batch batch; /* its arrays are memory of the device */
    void **grads;             /* likewise */
    const cddp_param *params;
    void *owned[8]; /* of the batch */
    int owned_count;
};

static inline void device_check(cddp_status status)
{
    if (status != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

static inline void *device_alloc(struct cddpi_device *device, size_t bytes)
{
    void *memory = NULL;

    device_check(device->ops->alloc(device, bytes, "a test", &memory));
    return memory;
}

static inline void device_put(struct cddpi_device *device, void *to, const void *from, size_t bytes)
{
    device_check(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes));
    device_check(device->ops->finish(device, 60000));
}

/* A copy on the host; free(). */
static inline void *device_get(struct cddpi_device *device, const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);

    device_check(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes));
    device_check(device->ops->finish(device, 60000));
    return to;
}

static inline void *device_own(struct device_fixture *f, const void *from, size_t bytes)
{
    void *memory;

    if (from == NULL || bytes == 0) {
        return NULL;
    }
    memory = device_alloc(f->device, bytes);
    device_put(f->device, memory, from, bytes);
    f->owned[f->owned_count++] = memory;
    return memory;
}

static inline void device_release_batch(struct device_fixture *f)
{
    while (f->owned_count > 0) {
        f->device->ops->release(f->device, f->owned[--f->owned_count]);
    }
}

/* The host's batch, over there. */
static inline void device_take_batch(struct device_fixture *f)
{
    const struct cddpi_batch *from = &f->host.batch;
    size_t samples = (size_t)from->count;
    size_t predictions = samples * (size_t)cddpi_model_predictions(f->model);
    size_t words = cddpi_model_draw_words(f->model, from->count);
    uint32_t *draws = malloc((words + 1) * sizeof *draws);

    device_release_batch(f);
    cddpi_model_draws(f->model, from->step, from->sample_ids, from->count, draws);
    f->batch = (struct cddpi_batch){
        .input = device_own(f, from->input, samples * f->host.sample_elements * sizeof(float)),
        .tokens = device_own(f, from->tokens, predictions * sizeof(int32_t)),
        .label = device_own(f, from->label, predictions * sizeof(int32_t)),
        .draws = device_own(f, draws, words * sizeof *draws),
        .count = from->count,
        .step = from->step,
    };
    free(draws);
}

static inline size_t param_bytes(const struct device_fixture *f, size_t i)
{
    return cddpi_tensor_elements(&f->host.params[i]) * sizeof(float);
}

static inline void device_fixture_init(struct device_fixture *f, struct cddpi_device *device,
                                       const struct cddpi_model_spec *spec, int count)
{
    struct cddpi_model_spec there = *spec;
    struct cddpi_model_spec here = *spec;
    size_t param_count;

    memset(f, 0, sizeof *f);
    here.precision = CDDPI_PRECISION_F32;
    if (!fixture_init(&f->host, &here, 8, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
    f->device = device;
    there.device = device;
    device_check(cddpi_model_create(&there, 8, NULL, &f->model));
    f->params = cddpi_model_params(f->model, &param_count);
    assert_int_equal(param_count, f->host.param_count);
    f->grads = calloc(param_count, sizeof *f->grads);
    for (size_t i = 0; i < param_count; i++) {
        f->grads[i] = device_alloc(device, param_bytes(f, i));
        device_check(
            device->ops->clear(device, CDDPI_STREAM_COMPUTE, f->grads[i], param_bytes(f, i)));
    }
    cddpi_model_bind_grads(f->model, f->grads);
    device_take_batch(f);
}

static inline void device_fixture_fini(struct device_fixture *f)
{
    cddpi_model_destroy(f->model);
    device_release_batch(f);
    for (size_t i = 0; i < f->host.param_count; i++) {
        f->device->ops->release(f->device, f->grads[i]);
    }
    free(f->grads);
    fixture_fini(&f->host);
}

/* What all forwards since the last one summed up. */
static inline struct cddpi_result device_result(struct device_fixture *f, int count)
{
    struct cddpi_result result = {0};

    device_check(cddpi_model_collect(f->model, count));
    device_check(cddpi_model_result(f->model, &result));
    return result;
}

static inline void device_step(struct device_fixture *f, double scale, bool accumulate)
{
    device_check(cddpi_model_forward(f->model, &f->batch, true, NULL));
    device_check(cddpi_model_backward(f->model, scale, accumulate, NULL, NULL));
}

/* |a - b| / |a| in the Euclidean norm, of gradient @p i: on the processor, on the device. */
struct distance {
    double difference, norm;
};

static inline void distance_add(struct distance *distance, const float *a, const float *b,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double difference = (double)a[i] - (double)b[i];

        distance->difference += difference * difference;
        distance->norm += (double)a[i] * (double)a[i];
    }
}

static inline double distance_of(struct distance distance)
{
    return sqrt(distance.difference) / (sqrt(distance.norm) + 1e-30);
}

static inline double grad_distance(struct device_fixture *f, size_t i)
{
    struct distance distance = {0};
    float *there = device_get(f->device, f->grads[i], param_bytes(f, i));

    distance_add(&distance, f->host.grads[i], there, cddpi_tensor_elements(&f->host.params[i]));
    free(there);
    return distance_of(distance);
}

/* Of all gradients as one. */
static inline double all_grads_distance(struct device_fixture *f)
{
    struct distance distance = {0};

    for (size_t i = 0; i < f->host.param_count; i++) {
        float *there = device_get(f->device, f->grads[i], param_bytes(f, i));

        distance_add(&distance, f->host.grads[i], there, cddpi_tensor_elements(&f->host.params[i]));
        free(there);
    }
    return distance_of(distance);
}

/* All gradients behind each other; free(). */
static inline char *all_grads(struct device_fixture *f, size_t *out_bytes)
{
    size_t bytes = 0;
    char *all;

    for (size_t i = 0; i < f->host.param_count; i++) {
        bytes += param_bytes(f, i);
    }
    all = malloc(bytes);
    bytes = 0;
    for (size_t i = 0; i < f->host.param_count; i++) {
        char *one = device_get(f->device, f->grads[i], param_bytes(f, i));

        memcpy(all + bytes, one, param_bytes(f, i));
        bytes += param_bytes(f, i);
        free(one);
    }
    *out_bytes = bytes;
    return all;
}

static struct cddpi_device *device;

#define DIGITS .channels = 1, .height = 12, .width = 12, .classes = 10
#define COLOURS .channels = 3, .height = 16, .width = 16, .classes = 10
#define LARGER .channels = 3, .height = 64, .width = 64, .classes = 10
#define WORDS .classes = 50, .vocab = 50, .context = 12, .blocks = 2, .heads = 2, .embed = 32

static const int hidden[] = {40, 24};
static const struct cddpi_model_spec mlp = {
    .preset = "mlp", DIGITS, .hidden = hidden, .hidden_count = 2};
static const struct cddpi_model_spec mlp_mse = {
    .preset = "mlp", DIGITS, .hidden = hidden, .hidden_count = 2, .loss = CDDPI_LOSS_MSE};
static const struct cddpi_model_spec cnn = {.preset = "cnn", DIGITS};
static const struct cddpi_model_spec resnet20 = {.preset = "resnet20", COLOURS};
static const struct cddpi_model_spec resnet50 = {.preset = "resnet50", .stage_units = 4, LARGER};
static const struct cddpi_model_spec gpt2 = {.preset = "gpt2", WORDS};

/* Layers that no preset has, in orders that stop what is done in one pass elsewhere. */
static const struct cddpi_layer odd_words[] = {
    {.type = CDDPI_LAYER_EMBEDDING, .name = "table", .units = 24},
    {.type = CDDPI_LAYER_LAYER_NORM, .name = "norm"},
    {.type = CDDPI_LAYER_ADD, .name = "behind", .input2 = "table"},
    {.type = CDDPI_LAYER_LINEAR, .units = 24},
    {.type = CDDPI_LAYER_GELU, .name = "curve"}, /* read twice */
    {.type = CDDPI_LAYER_LINEAR, .name = "branch", .units = 24},
    {.type = CDDPI_LAYER_GELU, .exact = true},
    {.type = CDDPI_LAYER_ADD, .input2 = "curve"},
    {.type = CDDPI_LAYER_LAYER_NORM},
    {.type = CDDPI_LAYER_LINEAR, .units = 24},
    {.type = CDDPI_LAYER_GELU, .name = "last_curve"}, /* read by no linear */
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 50, .tied = "table"},
};
static const struct cddpi_layer odd_images[] = {
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "whiten"},
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 3, .padding = 1, .name = "wide"},
    {.type = CDDPI_LAYER_AVG_POOL, .kernel = 3, .stride = 2, .padding = 1, .name = "average"},
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 1, .name = "narrow", .no_bias = true},
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "bn"},
    {.type = CDDPI_LAYER_ADD, .input2 = "average", .name = "sum"}, /* in the norm's pass, no relu */
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 3, .padding = 1, .no_bias = true},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_ADD, .input2 = "sum"},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2, .padding = 1},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 10},
    {.type = CDDPI_LAYER_RELU}, /* the loss may not write over what its backward reads */
};
static const struct cddpi_model_spec odd_sequence = {.layers = odd_words,
                                                     .layer_count = COUNT_OF(odd_words),
                                                     .classes = 50,
                                                     .vocab = 50,
                                                     .context = 12};
static const struct cddpi_model_spec odd_image = {
    .layers = odd_images, .layer_count = COUNT_OF(odd_images), COLOURS};

struct preset {
    const char *name;
    const struct cddpi_model_spec *spec;
    int count;
    /* Bounds of the relative error of the loss, and of the gradient (Euclidean, of all parameters
     * as one vector), in float32, bf16 and fp16, against float32 on the processor. Roundings grow
     * through the many batch_norms and relus of a resnet that was not trained: resnet50's first
     * gradient is off by 10^4 of them, and more where one opens a relu: that leaves nothing to
     * compare of 16 bits. */
    double loss[3], grad[3];
};

static const struct preset presets[] = {
    {"mlp", &mlp, 6, {1e-5, 1e-2, 2e-3}, {1e-5, 2e-2, 3e-3}},
    {"mlp, mse", &mlp_mse, 6, {1e-5, 1e-2, 2e-3}, {1e-5, 2e-2, 3e-3}},
    {"cnn", &cnn, 4, {1e-5, 1e-2, 2e-3}, {1e-5, 5e-2, 6e-3}},
    {"resnet20", &resnet20, 3, {1e-5, 1e-2, 2e-3}, {1e-4, 7e-1, 2e-1}},
    {"resnet50", &resnet50, 2, {1e-4, 1e-1, 5e-2}, {2e-1, INFINITY, INFINITY}},
    {"gpt2", &gpt2, 3, {1e-5, 1e-2, 2e-3}, {1e-5, 2e-2, 3e-3}},
    {"a sequence of odd layers", &odd_sequence, 3, {1e-5, 2e-2, 3e-3}, {1e-5, 5e-2, 1e-2}},
    {"images through odd layers", &odd_image, 3, {1e-5, 2e-2, 5e-3}, {1e-5, 1e-1, 2e-2}},
};

static inline void setup(struct device_fixture *f, const struct cddpi_model_spec *spec,
                         enum cddpi_precision precision, int count)
{
    struct cddpi_model_spec given = *spec;

    given.precision = precision;
    device_fixture_init(f, device, &given, count);
}

static inline void expect_below(const char *what, const char *name, enum cddpi_precision precision,
                                double is, double bound)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    if (getenv("CDDP_TEST_SHOW") != NULL) {
        fprintf(stderr, "%-28s %-5s %-9s %.2e of %.2e\n", name, precisions[precision], what, is,
                bound);
    }
    if (!(is <= bound)) {
        fail_msg("%s, %s: the %s is off by %.3g; %.3g is allowed", name, precisions[precision],
                 what, is, bound);
    }
}

static inline int open_device(void)
{
    if (cddpi_device_open("cuda", 0, 0, 1, true, &device) != CDDP_OK) {
        printf("skipped: %s\n", cddp_last_error());
        return -1;
    }
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    cddpi_device_close(device);
    return 0;
}

/* Skips, with the reason, where there is no device. */
#define run_on_device(tests)                                                                       \
    (open_device() == 0 ? cmocka_run_group_tests(tests, NULL, close_device) : 77)

#endif
