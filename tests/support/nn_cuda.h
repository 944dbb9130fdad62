/* nn_cuda.h - a model on a CUDA device and the same model on the CPU, for tests. The device "cuda"
 * may be real or emulated ($CDDP_CUDA_MODULE). */
#ifndef CDDP_TESTS_SUPPORT_NN_CUDA_H
#define CDDP_TESTS_SUPPORT_NN_CUDA_H

#include "nn/cuda/model_cuda.h"
#include "support/nn.h"

struct device_fixture {
    struct fixture host; /* the same model and batch on the CPU */
    struct cddpi_device *device;
    struct cddpi_model *model;
    struct cddpi_batch batch; /* its arrays are device memory */
    void **grads;             /* also device memory */
    const cddp_param *params;
    void *owned[8]; /* the batch's memory */
    int owned_count;
};

void device_check(cddp_status status);
void *device_alloc(struct cddpi_device *on, size_t bytes);
void device_put(struct cddpi_device *on, void *to, const void *from, size_t bytes);

/* A copy on the host; release with free(). */
void *device_get(struct cddpi_device *on, const void *from, size_t bytes);

/* Copy the host's batch to the device. */
void device_take_batch(struct device_fixture *f);
size_t param_bytes(const struct device_fixture *f, size_t i);
void device_fixture_fini(struct device_fixture *f);

/* The sum over all forward passes since the last call. */
struct cddpi_loss_result device_result(struct device_fixture *f, int count);
void device_step(struct device_fixture *f, double scale, bool accumulate);

/* |a - b| / |a| in the Euclidean norm, where a is a gradient on the CPU and b the same gradient on
 * the device. */
struct distance {
    double difference, norm;
};

void distance_add_array(struct distance *distance, const float *a, const float *b, size_t count);
double distance_of(struct distance distance);
double grad_distance(struct device_fixture *f, size_t i);

/* The distance of all gradients, as one vector. */
double all_grads_distance(struct device_fixture *f);

/* All gradients, concatenated; release with free(). */
char *all_grads(struct device_fixture *f, size_t *out_bytes);

extern struct cddpi_device *device;

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

/* Layers that no preset has, in orders that prevent fused passes. */
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
    {.type = CDDPI_LAYER_SILU},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 50, .tied = "table"},
};

static const struct cddpi_layer odd_images[] = {
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "whiten"},
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 3, .padding = 1, .name = "wide"},
    {.type = CDDPI_LAYER_AVG_POOL, .kernel = 3, .stride = 2, .padding = 1, .name = "average"},
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 1, .name = "narrow", .no_bias = true},
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "bn"},
    {.type = CDDPI_LAYER_ADD, .input2 = "average", .name = "sum"}, /* fused with the norm, without
                                                                      relu */
    {.type = CDDPI_LAYER_CONV2D, .units = 6, .kernel = 3, .padding = 1, .no_bias = true},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_ADD, .input2 = "sum"},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2, .padding = 1},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 10},
    {.type = CDDPI_LAYER_RELU}, /* the loss must not overwrite what the relu's backward pass
                                   reads */
};

static const struct cddpi_model_spec odd_sequence = {.layers = odd_words,
                                                     .layer_count = COUNT_OF(odd_words),
                                                     .classes = 50,
                                                     .vocab = 50,
                                                     .context = 12};

static const struct cddpi_model_spec odd_image = {
    .layers = odd_images, .layer_count = COUNT_OF(odd_images), COLOURS};

static const struct cddpi_model_spec alexnet = {
    .preset = "alexnet", .stage_units = 6, .channels = 3, .height = 63, .width = 63, .classes = 10};
static const struct cddpi_model_spec lstm_lm = {.preset = "lstm_lm",
                                                .hidden = hidden,
                                                .hidden_count = 2,
                                                .embed = 24,
                                                .tied = true,
                                                .classes = 50,
                                                .vocab = 50,
                                                .context = 7};
/* Generator and discriminator as one network. */
static const struct cddpi_model_spec dcgan = {.preset = "dcgan",
                                              .channels = 6,
                                              .height = 1,
                                              .width = 1,
                                              .classes = 1,
                                              .latent = 6,
                                              .generator_units = 8,
                                              .discriminator_units = 6,
                                              .image_channels = 3,
                                              .image_side = 16,
                                              .loss = CDDPI_LOSS_BINARY_CROSS_ENTROPY};

/* Grouped convolutions: filters at odd addresses, one channel per group, and 1 x 1; transposed
 * convolutions with a bias and with one channel; functions after layers that do not keep their
 * outputs. */
static const struct cddpi_layer grouped_layers[] = {
    {.type = CDDPI_LAYER_CONV2D, .units = 9, .kernel = 3, .padding = 1, .groups = 3, .name = "odd"},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_RESPONSE_NORM, .kernel = 4, .alpha = 0.3, .beta = 0.6, .offset = 1.5},
    {.type = CDDPI_LAYER_CONV2D, .units = 18, .kernel = 3, .stride = 2, .groups = 9},
    {.type = CDDPI_LAYER_TANH},
    {.type = CDDPI_LAYER_CONV2D, .units = 16, .kernel = 1, .groups = 2, .no_bias = true},
    {.type = CDDPI_LAYER_SIGMOID},
    {.type = CDDPI_LAYER_CONV_TRANSPOSE2D, .units = 5, .kernel = 3, .stride = 2, .padding = 1},
    {.type = CDDPI_LAYER_LEAKY_RELU, .slope = 0.3},
    {.type = CDDPI_LAYER_CONV_TRANSPOSE2D, .units = 1, .kernel = 2, .no_bias = true},
    {.type = CDDPI_LAYER_RESPONSE_NORM},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 10},
};
static const struct cddpi_model_spec grouped = {.layers = grouped_layers,
                                                .layer_count = COUNT_OF(grouped_layers),
                                                .loss = CDDPI_LOSS_BINARY_CROSS_ENTROPY,
                                                COLOURS};

struct preset {
    const char *name;
    const struct cddpi_model_spec *spec;
    int count;
    /* Bounds of the relative error of the loss, and of the gradient (Euclidean norm, all parameters
     * as one vector), in float32, bf16 and fp16, against float32 on the CPU. Rounding errors grow
     * through the many batch_norms and relus of an untrained resnet: resnet50's first gradient is
     * off by 10^4 of them, and by more where an error opens a relu. So in 16 bits there is nothing
     * left to compare. */
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
    {"alexnet", &alexnet, 2, {1e-5, 1e-2, 2e-3}, {1e-5, 2e-2, 3e-3}},
    {"lstm_lm", &lstm_lm, 3, {1e-5, 1e-2, 2e-3}, {1e-5, 5e-2, 6e-3}},
    {"dcgan", &dcgan, 3, {1e-5, 1e-2, 2e-3}, {1e-5, 2e-1, 3e-2}},
    {"images through groups", &grouped, 3, {1e-5, 2e-2, 5e-3}, {1e-5, 1e-1, 2e-2}},
    {"images through odd layers", &odd_image, 3, {1e-5, 2e-2, 5e-3}, {1e-5, 1e-1, 2e-2}},
};

void device_setup(struct device_fixture *f, const struct cddpi_model_spec *spec,
                  enum cddpi_precision precision, int count);
void expect_below(const char *what, const char *name, enum cddpi_precision precision, double is,
                  double bound);
int open_device(void);
int close_device(void **state);

/* Skips the program, and prints why, if there is no device. */
#define run_on_device(tests)                                                                       \
    (open_device() == 0 ? cmocka_run_group_tests(tests, NULL, close_device) : 77)

#endif
