/* model.h - a network as a static graph, built once from a description. The model owns parameters,
 * buffers, and a compiled plan (shapes, primitives, memory) for each batch size and mode.
 *
 * Images enter and leave as N x C x H x W, float32, row-major; inside, the layout is oneDNN's own,
 * or channels last on a device. The other kind of data is tokens: each sample is a sequence of
 * `context` tokens, and values are rows of features. A model belongs to one thread.
 *
 * On a CUDA device the same graph runs in the device's compute stream. Parameters, gradients,
 * buffers and everything in a batch except its scalars are device memory. Forward and backward
 * enqueue their work in the stream and return. After the first step with a batch size (and the
 * first step that accumulates) they neither allocate nor wait, so both can be captured.
 * cddpi_model_collect() and cddpi_model_result() fetch the loss, cddpi_model_read_outputs() the
 * outputs; all three also work on the CPU. */
#ifndef CDDPI_NN_MODEL_H
#define CDDPI_NN_MODEL_H

#include "base/choices.h"

#include <cddp/ddp.h>

#include <stdio.h>

struct cddpi_device;

/* X(type, its word in train.conf). The table in src/trainer/nn/graph/graph_layers.c lists the
 * fields that each type accepts. */
#define CDDPI_LAYER_MAP(X)                                                                         \
    X(CDDPI_LAYER_LINEAR, "linear")                                                                \
    X(CDDPI_LAYER_CONV2D, "conv2d")                                                                \
    X(CDDPI_LAYER_BATCH_NORM, "batch_norm")                                                        \
    X(CDDPI_LAYER_RELU, "relu")                                                                    \
    X(CDDPI_LAYER_MAX_POOL, "max_pool")                                                            \
    X(CDDPI_LAYER_AVG_POOL, "avg_pool")                                                            \
    X(CDDPI_LAYER_GLOBAL_AVG_POOL, "global_avg_pool")                                              \
    X(CDDPI_LAYER_FLATTEN, "flatten")                                                              \
    X(CDDPI_LAYER_ADD, "add")                                                                      \
    X(CDDPI_LAYER_DROPOUT, "dropout")                                                              \
    X(CDDPI_LAYER_EMBEDDING, "embedding")                                                          \
    X(CDDPI_LAYER_LAYER_NORM, "layer_norm")                                                        \
    X(CDDPI_LAYER_GELU, "gelu")                                                                    \
    X(CDDPI_LAYER_SILU, "silu")                                                                    \
    X(CDDPI_LAYER_ATTENTION, "attention")                                                          \
    X(CDDPI_LAYER_RESPONSE_NORM, "local_response_norm")                                            \
    X(CDDPI_LAYER_LSTM, "lstm")                                                                    \
    X(CDDPI_LAYER_CONV_TRANSPOSE2D, "conv_transpose2d")                                            \
    X(CDDPI_LAYER_TANH, "tanh")                                                                    \
    X(CDDPI_LAYER_SIGMOID, "sigmoid")                                                              \
    X(CDDPI_LAYER_LEAKY_RELU, "leaky_relu")
enum cddpi_layer_type { CDDPI_LAYER_MAP(CDDPI_CHOICE_ID) CDDPI_LAYER_COUNT };

/* One layer. `name` NULL: type and number, e.g. "linear3". `input` NULL: the previous layer (for
 * the first layer: the data); "input": the data; otherwise the name of an earlier layer. In all
 * fields, zero means the default. */
struct cddpi_layer {
    enum cddpi_layer_type type;
    const char *name;
    const char *input;
    const char *input2; /* add: the second summand */
    int units;       /* linear, lstm: outputs; convolutions: output channels; embedding: features */
    int kernel;      /* convolutions, pools: height and width; pools default 2 */
    int stride;      /* default 1; pools: the kernel */
    int padding;     /* default 0 */
    bool no_bias;    /* linear, convolutions, lstm */
    bool sync;       /* batch_norm: statistics over all ranks */
    double epsilon;  /* batch_norm, layer_norm; 0: 1e-5 */
    double momentum; /* batch_norm: weight of the new batch in the running statistics; 0: 0.1 */
    double probability; /* dropout: probability that an element is zeroed; 0: 0.5 */
    int heads;          /* attention: number of heads that share the channels */
    bool exact;         /* gelu: true: by erf; false: by tanh, as in GPT-2 */
    const char *tied;   /* linear: the embedding whose table is also this layer's weight; NULL: a
                           weight of its own */
    /* embedding: name of the table of positions to add; NULL: no positions */
    const char *positions;
    double deviation; /* linear, embedding, convolutions, batch_norm: weights start as normal noise
                         with this standard deviation around 0 (batch_norm: around 1), biases as
                         zeros; 0: PyTorch's defaults */
    int groups;       /* conv2d: number of groups of channels, as in PyTorch; 0: 1 */
    double alpha, beta, offset; /* local_response_norm, over `kernel` channels (0: 5); each 0 means
                                   its default: 1e-4, 0.75, 1 */
    double slope;               /* leaky_relu: slope for negative inputs; 0: 0.01 */
    int segment; /* with recompute, consecutive layers with the same number are recomputed before
                    their backward; 0: never */
};

/* mse and binary_cross_entropy have one-hot targets, if labels are classes; mse and l1 are for real
 * targets. binary_cross_entropy takes the outputs as logits; with a single output, the target is
 * the label itself, 0 or 1. */
#define CDDPI_LOSS_MAP(X)                                                                          \
    X(CDDPI_LOSS_CROSS_ENTROPY, "cross_entropy")                                                   \
    X(CDDPI_LOSS_MSE, "mse")                                                                       \
    X(CDDPI_LOSS_BINARY_CROSS_ENTROPY, "binary_cross_entropy")                                     \
    X(CDDPI_LOSS_L1, "l1")
enum cddpi_loss { CDDPI_LOSS_MAP(CDDPI_CHOICE_ID) };

/* On the CPU, the type of the factors of products (linear, conv2d, attention); parameters,
 * activations, gradients and all sums are float32 in any case. On a device, activations and their
 * gradients also have this type. FP16 is for devices only. */
#define CDDPI_PRECISION_MAP(X)                                                                     \
    X(CDDPI_PRECISION_F32, "f32")                                                                  \
    X(CDDPI_PRECISION_BF16, "bf16")                                                                \
    X(CDDPI_PRECISION_FP16, "fp16")
enum cddpi_precision { CDDPI_PRECISION_MAP(CDDPI_CHOICE_ID) };

/* How float32 products are computed: "auto" uses AMX with bf16 parts where that is faster, "fma"
 * always uses FMA. */
#define CDDPI_MATMUL_MODE_MAP(X)                                                                   \
    X(CDDPI_MATMUL_AUTO, "auto")                                                                   \
    X(CDDPI_MATMUL_FMA, "fma")
enum cddpi_matmul_mode { CDDPI_MATMUL_MODE_MAP(CDDPI_CHOICE_ID) };

/* Layers [`first`, `end`) of a model, numbered from 0 in the order of its description. Both 0: all
 * layers. */
struct cddpi_layer_range {
    int first, end;
};

/* For a part with the last layer: with the loss, without it, or nothing but the loss. In the last
 * case the outputs arrive at the part's only edge. */
enum cddpi_part_loss { CDDPI_PART_WITH_LOSS, CDDPI_PART_WITHOUT_LOSS, CDDPI_PART_LOSS_ALONE };

struct cddpi_model_spec {
    const char *preset; /* "mlp", "cnn", "resnet18", "resnet20", "resnet34", "resnet50", "gpt2",
                           "alexnet", "vgg11", "lstm_lm", "dcgan"; NULL: the layers below */
    /* widths of the hidden layers (mlp) or of the LSTM layers (lstm_lm); NULL: 512, 512 */
    const int *hidden;
    int hidden_count;
    double dropout;       /* mlp, cnn, alexnet, vgg11: after each hidden layer; gpt2, lstm_lm: see
                             presets; 0: no dropout */
    bool sync_batch_norm; /* resnet*: batch_norm statistics over all ranks */
    int stage_units; /* resnet18, 34 and 50, vgg11: channels of the first stage, 0: 64; alexnet:
                        channels of the first layer, a multiple of 6, 0: 96. The other layers scale
                        in proportion */
    const struct cddpi_layer *layers;
    size_t layer_count;
    enum cddpi_loss loss;
    int channels, height, width; /* of the data */
    int classes;                 /* outputs of the last layer (mse: the targets are one-hot) */
    bool real_targets;           /* regression: a sample has `classes` real targets, and no class */
    const char *size; /* gpt2: "124M" ..., which sets the fields that are 0; NULL: no named size */
    int blocks, heads, embed; /* gpt2; lstm_lm: only embed, 0: the last of `hidden` */
    int context, vocab; /* token data only, and classes equals vocab; 0: the data are images */
    bool recompute;     /* keep only each block's input, and recompute the rest before backward */
    enum cddpi_precision precision;
    struct cddpi_device *device; /* borrowed, outlives the model; NULL: the CPU */
    enum cddpi_matmul_mode matmul;
    bool any_order; /* on a device: sums in the fastest order, which may differ from run to run */
    struct cddpi_layer_range part; /* create only these layers: see cddpi_model_edges() */
    bool tied; /* lstm_lm: the embedding's table is also the last layer's weight */
    enum cddpi_part_loss part_loss;
    bool own_edges; /* on a device: edges have the model's type and layout, not plain float32, so
                       the parts on both sides of an edge are on devices */
    /* dcgan: elements of a latent vector, 0: 100; channels of the widest inner images of the
     * generator and the discriminator, 0: 64 */
    int latent, generator_units, discriminator_units;
    int image_channels,
        image_side; /* dcgan: the original shape of the data, set by cddpi_model_spec_complete(),
                       which also replaces classes and loss; 0: not completed yet */
    bool split; /* on the CPU: backward leaves parameter gradients to cddpi_model_weights(), for the
                   layers where that pays off */
    bool no_values; /* leave parameters and buffers zero: all of them will be loaded */
    bool invariant; /* on the CPU: bits do not depend on the number of threads, so matrix products
                       use one thread, or AMX on all */
    int towers; /* alexnet: 2: the two towers are separate layers; 0 and 1: groups of channels */
};

struct cddpi_model;

/** Check the layers in @p spec, but not their shapes. CDDP_ERR_CONFIG says what is wrong. */
CDDP_CHECKED cddp_status cddpi_model_check_layers(const struct cddpi_model_spec *spec);

/** Fill in what the named size of @p spec implies for fields that are 0: blocks, heads, embed and
 *  context. The vocabulary comes from the data. dcgan: replace the data's shape by the shape of its
 *  images. cddpi_model_create() does the same; call this one if you need the context earlier.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the size is unknown, or the data are not square images. */
CDDP_CHECKED cddp_status cddpi_model_spec_complete(struct cddpi_model_spec *spec);

/** Check the description, infer shapes and initialise parameters. The values are a pure function of
 *  (given, seed), drawn from Philox with PyTorch's default distributions (linear, conv2d: uniform
 *  +-1/sqrt(fan_in); resnets' convolutions: normal, He et al., fan_out). For a device, the CPU
 *  computes the values, so they are the same.
 *  @param group  For batch_norm with sync (borrowed, outlives the model); may be NULL without it.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (names the layer and what does not fit), CDDP_ERR_NO_MEMORY,
 *          CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_model_create(const struct cddpi_model_spec *given, uint64_t seed,
                                            cddp_group *group, struct cddpi_model **out);
void cddpi_model_destroy(struct cddpi_model *model);

/** Parameters in registration order, with `grad` NULL; valid as long as the model. Names match
 *  PyTorch's state_dict where PyTorch has a counterpart: "fc1.weight" ... Tensors are plain
 *  row-major (linear weight: outputs x inputs; conv2d weight: O x I x H x W). */
const cddp_param *cddpi_model_params(const struct cddpi_model *model, size_t *out_count);
/** Running statistics and other buffers, in the same form. */
const cddp_param *cddpi_model_buffers(const struct cddpi_model *model, size_t *out_count);
/** Whether parameter @p index takes weight decay when the optimizer excludes biases and norms: true
 *  for matrices and filters. */
bool cddpi_model_param_decays(const struct cddpi_model *model, size_t index);

/** The order in which backward completes parameters: one index for each parameter. */
const size_t *cddpi_model_ready_order(const struct cddpi_model *model);

/** Let backward write gradient i to @p grads[i], memory of the caller. Any alignment is allowed. */
void cddpi_model_bind_grads(struct cddpi_model *model, void *const *grads);

/** Let the parameters live at @p data[i], where the caller has already copied their values. The
 *  memory stays the caller's, is 64-byte aligned and outlives the model's use. The model's own
 *  memory for parameters is released. */
void cddpi_model_bind_params(struct cddpi_model *model, void *const *data);

/* Running statistics of batch_norm that do not depend on how a step's samples are divided among
 * ranks: each batch's statistics are kept apart, the caller sums them over the step, and the
 * running statistics have one update a step. */

/** Let training forwards write their batch's statistics to @p statistics[i], memory of the caller
 *  with the elements of buffer i: the mean (running_mean) and the unbiased variance (running_var),
 *  each multiplied by the batch's weight. The running statistics then stay as they are. What a
 *  forward computes again before its backward is not written. Not for batch_norm with sync.
 *  @param statistics  As many pointers as the model has buffers; borrowed, with the memory, until
 *                     the next call. NULL: each forward updates the running statistics, as at
 *                     first. */
void cddpi_model_bind_statistics(struct cddpi_model *model, float *const *statistics);
/** Update the running statistics once, by each layer's momentum: (1 - momentum) x running +
 *  momentum x @p sums[i], where the sums are those of a step's batches. On a device, the sums are
 * in its memory, and the work is enqueued in the compute stream; values that are not finite change
 *  nothing there. */
CDDP_CHECKED cddp_status cddpi_model_blend_statistics(const struct cddpi_model *model,
                                                      float *const *sums);

/** On a device: parameters have new values, so each copy in the model's type, which products read,
 *  is refreshed before its next use. @p copies_written: the copies that cddpi_model_param_copy()
 *  returns are up to date already, wherever a parameter has changed. */
void cddpi_model_params_changed(struct cddpi_model *model, bool copies_written);
/** Where an update may also write parameter @p index in the model's type, in the same order of
 *  elements. NULL: there is no such copy, or its elements have another order. */
void *cddpi_model_param_copy(const struct cddpi_model *model, size_t index);
/** Elements of that copy: first the parameter's, then zeros. 0: there is no copy. */
size_t cddpi_model_param_copy_count(const struct cddpi_model *model, size_t index);
/** Let the copies live at @p copies[i] (NULL: where they are), zeroed memory of the caller that
 *  outlives the model's use. They are refreshed before their next use. */
void cddpi_model_bind_copies(struct cddpi_model *model, void *const *copies);
/** The type of these copies. */
cddp_type cddpi_model_copy_type(const struct cddpi_model *model);
/** Refresh the stale copies among those that cddpi_model_param_copy() returns, now. Call it before
 *  you capture a forward that relies on updates to write them. */
CDDP_CHECKED cddp_status cddpi_model_refresh_copies(struct cddpi_model *model);
/** On a device: a captured training forward and backward was replayed. The replay has refreshed the
 *  copies that were stale at capture time (e.g. after cddpi_model_params_changed()); no other copy
 *  may be stale. */
void cddpi_model_replayed(struct cddpi_model *model);
/** On a device: let backward multiply its scale by *@p scale (device memory; NULL: 1). */
void cddpi_model_bind_loss_scale(struct cddpi_model *model, const float *scale);
/** Grows whenever memory has moved, so that captures of steps must be repeated. The arena moves
 *  when a larger batch is prepared; parameters and gradients move when they are bound. */
uint64_t cddpi_model_memory_version(const struct cddpi_model *model);

/** Forward calls this before it reads parameter @p index. */
typedef cddp_status (*cddpi_param_wait_fn)(void *context, size_t index);
void cddpi_model_on_param(struct cddpi_model *model, cddpi_param_wait_fn wait, void *context);

/** Prepare for batches of @p count samples in @p training or evaluation mode, so that the first
 *  step does not pay for it. Optional: a run prepares what is missing. This may invalidate the last
 *  forward: then its outputs are NULL, and backward returns CDDP_ERR_STATE. */
CDDP_CHECKED cddp_status cddpi_model_prepare(struct cddpi_model *model, int count, bool training);

struct cddpi_batch {
    const float *input;   /* count x channels x height x width; keep the whole batch until backward,
                             which reads it again */
    const int32_t *label; /* count x predictions, each in [0, classes), or 0 or 1: see enum
                             cddpi_loss; real targets: floats, count x classes */
    int count;
    uint64_t step;              /* keys dropout's random numbers ... */
    const uint64_t *sample_ids; /* ... together with the ids of these samples (count of them) */
    const int32_t *tokens;      /* count x context, each in [0, vocab), instead of input */
    const uint32_t *draws;      /* on a device: made by cddpi_model_draws() from step and ids */
    double weight; /* of its statistics, if they are bound: its part of the step's samples, above 0
                    */
};

/** Check that labels and tokens of a batch in CPU memory are in range: CDDP_ERR_ARGUMENT. Forward
 *  does so on the CPU; on a device nothing does. */
CDDP_CHECKED cddp_status cddpi_model_check_batch(const struct cddpi_model *model,
                                                 const struct cddpi_batch *batch);

/** On a device: the streams of dropout's random numbers for a training batch, which the caller
 *  copies there along with the batch. They take cddpi_model_draw_words() words: 0 without dropout
 *  and on the CPU. */
size_t cddpi_model_draw_words(const struct cddpi_model *model, int count);
void cddpi_model_draws(const struct cddpi_model *model, uint64_t step, const uint64_t *sample_ids,
                       int count, uint32_t *out);

struct cddpi_exact_sum;

struct cddpi_loss_result {
    double loss_sum; /* over all predictions, as in PyTorch with reduction="sum" */
    int correct;     /* predictions whose largest output is that of the label; 0: real targets */
    int count;       /* predictions: samples, or the tokens of all sequences */
    /* of collected sums, until the next cddpi_model_collect(): loss_sum before it was rounded; else
     * NULL */
    const struct cddpi_exact_sum *exact;
};

/** Forward and loss. In training mode, activations are kept for backward. A batch may have 0
 *  samples: it takes part in the collectives of sync batch_norm, and its gradients are zero. On a
 *  device, losses and correct predictions are added to sums that stay there; in training, backward
 *  adds them, since it computes the loss together with its gradient. There, @p out receives only
 *  the count, and may be NULL. */
CDDP_CHECKED cddp_status cddpi_model_forward(struct cddpi_model *model,
                                             const struct cddpi_batch *batch, bool training,
                                             struct cddpi_loss_result *out);

/** Samples of the last forward in the current slot. */
int cddpi_model_batch_count(const struct cddpi_model *model);

/** Backward calls this once the gradient of parameter @p index is complete. */
typedef cddp_status (*cddpi_grad_ready_fn)(void *context, size_t index);

/** Compute the gradients of @p scale x (sum of the predictions' losses) of the last training
 *  forward. @p accumulate: add to the present gradients instead of replacing them. @p ready may be
 *  NULL. @p scale may differ between ranks: sync batch_norm removes it from what it shares. */
CDDP_CHECKED cddp_status cddpi_model_backward(struct cddpi_model *model, double scale,
                                              bool accumulate, cddpi_grad_ready_fn ready,
                                              void *context);

/** For a model whose spec says split: compute the parameter gradients that the last backward has
 *  left, and add them to the present ones (@p accumulate) or replace those. Backward has already
 *  added and reported the gradients that it makes itself (of normalisations, LSTMs and biases), so
 *  pass the same @p accumulate and @p ready to both. Sums over several batches have the same bits
 *  as without a split, if both passes take the batches in the same order.
 *  @return CDDP_OK; CDDP_ERR_STATE: there was no backward before. */
CDDP_CHECKED cddp_status cddpi_model_weights(struct cddpi_model *model, bool accumulate,
                                             cddpi_grad_ready_fn ready, void *context);

enum { CDDPI_MODEL_COLLECTED = 8 }; /* sums that may be collected and not yet taken */

/** Close the sums of losses and correct predictions over all forwards (on a device, in training:
 *  backwards) since the last call. @p count is the number of predictions in them, which the caller
 *  knows. On a device this enqueues their copy to the CPU in the compute stream, so it must not
 *  happen during a capture. CDDP_ERR_STATE: too many sums have not been taken. */
CDDP_CHECKED cddp_status cddpi_model_collect(struct cddpi_model *model, int count);
/** Take the oldest collected sums. On a device this waits for them; enqueue the next step first, so
 *  that the device stays busy meanwhile. CDDP_ERR_STATE: there are no collected sums. */
CDDP_CHECKED cddp_status cddpi_model_result(struct cddpi_model *model,
                                            struct cddpi_loss_result *out);
/** Restart the sums, and drop what was added since the last collect; in stream order. */
CDDP_CHECKED cddp_status cddpi_model_reset_sums(struct cddpi_model *model);

/* A part of a model (cddpi_model_spec.part) has the same parameters, names and initial values as
 * its layers have in the whole model, and computes the same bits. A part exchanges values with the
 * parts before and after it through edges, and gradients in the opposite direction: as float32,
 * plain N x C x H x W or rows of features (but see own_edges), in memory of the model's device. The
 * batch holds the
 * data only for the part with the first layer, and the labels only for the part with the last
 * layer, which has the loss; it holds count, step and sample ids for all parts. A tied weight is a
 * parameter of each part that reads it. */
enum cddpi_edge_side { CDDPI_EDGE_IN, CDDPI_EDGE_OUT };

struct cddpi_edge {
    const char *layer; /* the layer that makes the value; "input": the data */
    size_t elements;   /* of one sample */
    cddp_type type;    /* of the elements; CDDP_F32 without own_edges */
    bool has_grad;     /* false: no gradient comes back */
};

/** The edges at one side, ordered by the layers that make the values; the neighbouring part has the
 *  same order. *@p out_count is 0 for a whole model. */
const struct cddpi_edge *cddpi_model_edges(const struct cddpi_model *model,
                                           enum cddpi_edge_side side, size_t *out_count);
/** Bind edge @p index to @p data and its gradient to @p grad for the next forward and backward;
 *  both hold count x elements. IN: forward reads data, backward writes grad. OUT: forward writes
 *  data, backward reads grad. The memory stays the caller's and outlives both passes. */
void cddpi_model_bind_edge(struct cddpi_model *model, enum cddpi_edge_side side, size_t index,
                           void *data, void *grad);

/** Share parameter @p index of this part (a tied weight) with an earlier part @p owner, where it
 *  also exists: it lives in the owner's memory. @p shares_grad: both will be bound to one gradient;
 *  the owner's backward runs later, and adds to it.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: a model is not on the CPU. */
CDDP_CHECKED cddp_status cddpi_model_share_param(struct cddpi_model *model, size_t index,
                                                 struct cddpi_model *owner, size_t owner_index,
                                                 bool shares_grad);

/** Let parameter @p index live at @p data from now on, where the caller has already copied its
 *  value. The memory stays the caller's, and outlives the model. On the CPU only. */
void cddpi_model_place_param(struct cddpi_model *model, size_t index, void *data);
/** Before each backward, the gradient of parameter @p index (a tied weight) is that of a later
 * part: this part's backward adds to it, whatever its `accumulate` says. */
void cddpi_model_begin_grad(struct cddpi_model *model, size_t index);

/** Let the following calls work on slot @p slot (slot 0 is the default). Each slot has its own
 *  arena and remembers its own last forward, so several batches can be between forward and
 *  backward. CDDP_ERR_ARGUMENT: @p slot is not below CDDPI_MODEL_SLOTS. */
enum { CDDPI_MODEL_SLOTS = 256 };
CDDP_CHECKED cddp_status cddpi_model_use_slot(struct cddpi_model *model, int slot);

/* For a model whose spec says split: a batch needs all of its memory only from forward to backward,
 * and fewer batches are in that phase than wait for their parameter gradients. So each kind of
 * memory has slot numbers of its own. */
struct cddpi_model_slots {
    int batch; /* from forward to backward */
    int kept;  /* from forward to cddpi_model_weights(); also holds what the batch remembers */
    int grads; /* from backward to cddpi_model_weights() */
};
/** As cddpi_model_use_slot(), which uses one number for all three kinds. Forward does not use
 *  @p slots.grads yet, and cddpi_model_weights() no longer uses @p slots.batch. */
CDDP_CHECKED cddp_status cddpi_model_use_slots(struct cddpi_model *model,
                                               const struct cddpi_model_slots *slots);

/** The number of the first layer that @p name matches in the description @p spec (see
 *  cddpi_model_find_layers()), and how many layers there are.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer matches. */
CDDP_CHECKED cddp_status cddpi_model_find_layer(const struct cddpi_model_spec *spec,
                                                const char *name, int *out_layer, int *out_count);
/** Which layers @p name matches: the layer with that name; otherwise all layers whose names begin
 *  with it and a dot ("layer3": "layer3.0.conv1" ...); "input": the first layer; otherwise a
 *  layer's number, from 0.
 *  @param out    The range from the first match to the last, with any others in between.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer matches. */
CDDP_CHECKED cddp_status cddpi_model_find_layers(const struct cddpi_model_spec *spec,
                                                 const char *name, struct cddpi_layer_range *out);
/** Whether layer @p layer of that description has parameters or buffers, and how many layers there
 *  are. */
CDDP_CHECKED cddp_status cddpi_model_layer_has_params(const struct cddpi_model_spec *spec,
                                                      int layer, bool *out, int *out_count);
/** The name of layer @p layer of that description. */
CDDP_CHECKED cddp_status cddpi_model_layer_name(const struct cddpi_model_spec *spec, int layer,
                                                char *out, size_t out_bytes);
/** Measure forward and backward of each layer on this machine, in seconds, with @p samples samples
 *  of noise; each value is the minimum of a few steps. A layer that is fused into the previous one
 *  takes 0.
 *  @param out  One for each layer; release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_model_measure_layers(const struct cddpi_model_spec *spec,
                                                    int samples, double **out, int *out_count);

struct cddpi_layer_bytes {
    size_t parameters;  /* float32; a tied weight counts at the layer that owns it */
    size_t activations; /* its output, for the given number of samples */
    bool is_own;        /* false: it is fused into the previous layer */
};

/** The memory that each layer takes.
 *  @param out  One for each layer; release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_model_layer_bytes(const struct cddpi_model_spec *spec, int samples,
                                                 struct cddpi_layer_bytes **out, int *out_count);

/** Whether the model contains the loss: false only for parts without the last layer. */
bool cddpi_model_has_loss(const struct cddpi_model *model);
/** Whether the model reads the data: false only for parts without a layer that reads it. */
bool cddpi_model_reads_data(const struct cddpi_model *model);

/** Predictions of a sample: `context` for tokens, otherwise 1. */
int cddpi_model_predictions(const struct cddpi_model *model);
/** How many elements of a batch's label belong to a sample: its predictions, or real targets. */
int cddpi_model_labels(const struct cddpi_model *model);

/** The last layer's outputs of the last forward, (count x predictions) x classes, row-major; valid
 *  until the next forward. NULL on a device, for a split model, and after a training forward of
 *  tokens, where the loss overwrites them. */
const float *cddpi_model_outputs(const struct cddpi_model *model);
/** Copy @p rows rows of the outputs, from row @p first on, to @p out, after an evaluation forward.
 *  On a device this waits for the forward. CDDP_ERR_STATE: there are no outputs. */
CDDP_CHECKED cddp_status cddpi_model_read_outputs(struct cddpi_model *model, size_t first,
                                                  size_t rows, float *out);
/** Enqueue a copy of all outputs of the last forward in the compute stream, to CPU memory at
 *  @p out; also allowed between a training forward and its backward. If @p out is not pinned, the
 *  call waits. Only for image models in float32 whose outputs have no stride. CDDP_ERR_STATE: there
 *  are no outputs. */
CDDP_CHECKED cddp_status cddpi_model_send_outputs(struct cddpi_model *model, float *out);

struct cddpi_model_estimate {
    size_t activation_bytes; /* with workspace */
    double extra_work;       /* recomputed work as a fraction of one forward */
};

/** What training steps with @p count samples take, or would take, with or without recompute. */
CDDP_CHECKED cddp_status cddpi_model_estimate(struct cddpi_model *model, int count, bool recompute,
                                              struct cddpi_model_estimate *out);

/** Multiplications of one sample's forward in products, convolutions and attention (only its causal
 *  half). */
double cddpi_model_work(const struct cddpi_model *model);

/** Bytes of activations and workspace, which all plans share, over all slots (for --dry-run and
 *  statistics). */
size_t cddpi_model_arena_bytes(const struct cddpi_model *model);

/** How products are computed, in a few words. */
const char *cddpi_model_matmul_note(const struct cddpi_model *model);

/** What the model's bits depend on besides its inputs, in a few words: instructions, libraries, the
 *  kind of device. */
void cddpi_model_arithmetic(const struct cddpi_model *model, char *out, size_t bytes);

/** Why bf16 is not faster than float32 for this model on this machine. NULL: bf16 is faster, or the
 *  model uses float32. */
const char *cddpi_model_precision_note(const struct cddpi_model *model);

/** The first batch_norm without sync that has one value per channel in a sample: in training with a
 *  micro-batch of one sample, its output is only the bias. NULL: there is no such layer. */
const char *cddpi_model_lone_norm(const struct cddpi_model *model);

/** A readable table of layers, shapes and parameter counts; release with cddp_free(). NULL: out of
 *  memory. */
char *cddpi_model_describe(const struct cddpi_model *model);

/** Write a table of the implementation of each part of a step with @p count samples, and its
 *  expected time on one core of this machine, whose speed is measured for it. The table warns about
 *  parts that are slower than they could be. */
CDDP_CHECKED cddp_status cddpi_model_describe_plan(struct cddpi_model *model, int count,
                                                   FILE *file);

#endif
