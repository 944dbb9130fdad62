/* model.h - a network as a static graph: built once from a description, with parameters, buffers,
 * and one compiled plan (shapes, primitives, memory) for each batch size and mode it is run with.
 *
 * Images are N x C x H x W, float32, row-major at the edges; inside, oneDNN's own layouts, or
 * channels last on a device. The alternative are tokens: each sample is a sequence of `context` of
 * them, whose values are rows of features. A model belongs to one thread.
 *
 * On a CUDA device the same graph runs in the device's compute stream. Parameters, gradients,
 * buffers and all of a batch but its numbers are memory of the device, forward and backward put
 * their work into the stream and return, and after the first step with a batch size (and the first
 * one that accumulates) nothing is allocated and nobody waits: the two can be captured. Results are
 * fetched by cddpi_model_collect() and cddpi_model_result(), outputs by cddpi_model_read_outputs();
 * all three work on the processor, too. */
#ifndef CDDPI_NN_MODEL_H
#define CDDPI_NN_MODEL_H

#include "base/choices.h"

#include <cddp/ddp.h>

#include <stdio.h>

struct cddpi_device;

/* X(type, its word in train.conf); the table of src/trainer/nn/graph/graph_layers.c says what each
 * takes. */
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

/* One layer. `name` NULL: type and number, e.g. "linear3". `input` NULL: the layer before (the
 * first one: the data), "input": the data; else the name of an earlier layer. Zero
 * means default. */
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
    double probability; /* dropout: of an element to be zeroed; 0: 0.5 */
    int heads;          /* attention: among which the channels are divided */
    bool exact;         /* gelu: by the error function; false: by tanh, as GPT-2 has it */
    const char *tied;   /* linear: the embedding whose table is its weight; NULL: it has its own */
    const char *positions; /* embedding: name of the table of positions that is added; NULL: none */
    double deviation;      /* linear, embedding, convolutions, batch_norm: the weights start normal,
                              with this standard deviation around 0 (batch_norm: around 1), and the
                              bias zero; 0: as PyTorch has it */
    int groups;            /* conv2d: channels are divided into so many, which do not see each
                              other; 0: 1 */
    double alpha, beta, offset; /* local_response_norm, over `kernel` channels (0: 5): 0: 1e-4, 0.75
                                   and 1 */
    double slope;               /* leaky_relu: of its left half; 0: 0.01 */
    int segment; /* with recompute, layers of one number, which follow each other, are
                    recomputed before their backward; 0: never */
};

/* Of the last two the targets are one-hot; binary cross-entropy, which takes the outputs as logits,
 * has the label itself, 0 or 1, where there is one output. */
#define CDDPI_LOSS_MAP(X)                                                                          \
    X(CDDPI_LOSS_CROSS_ENTROPY, "cross_entropy")                                                   \
    X(CDDPI_LOSS_MSE, "mse")                                                                       \
    X(CDDPI_LOSS_BINARY_CROSS_ENTROPY, "binary_cross_entropy")
enum cddpi_loss { CDDPI_LOSS_MAP(CDDPI_CHOICE_ID) };

/* On the processor, that of the factors of products (linear, conv2d, attention): parameters,
 * activations, gradients and all sums are float32 in either. On a device, that of all activations
 * and their gradients, too. FP16 is for devices only. */
#define CDDPI_PRECISION_MAP(X)                                                                     \
    X(CDDPI_PRECISION_F32, "f32")                                                                  \
    X(CDDPI_PRECISION_BF16, "bf16")                                                                \
    X(CDDPI_PRECISION_FP16, "fp16")
enum cddpi_precision { CDDPI_PRECISION_MAP(CDDPI_CHOICE_ID) };

/* How those of float32 are made: on AMX in parts of bf16 where that is faster, or always by FMA. */
#define CDDPI_MATMUL_MODE_MAP(X)                                                                   \
    X(CDDPI_MATMUL_AUTO, "auto")                                                                   \
    X(CDDPI_MATMUL_FMA, "fma")
enum cddpi_matmul_mode { CDDPI_MATMUL_MODE_MAP(CDDPI_CHOICE_ID) };

/* Layers of a model, numbered from 0 in the order of its description: `first` up to and not
 * including `end`. Both 0: all of them. */
struct cddpi_layer_range {
    int first, end;
};

/* Of a part with the last layer: whether it has the loss, too; or nothing but the loss, which then
 * comes from the outputs at the one edge. */
enum cddpi_part_loss { CDDPI_PART_WITH_LOSS, CDDPI_PART_WITHOUT_LOSS, CDDPI_PART_LOSS_ALONE };

struct cddpi_model_spec {
    const char *preset; /* "mlp", "cnn", "resnet20", "resnet50", "gpt2", "alexnet", "vgg11",
                           "lstm_lm", "dcgan"; NULL: the layers below */
    /* mlp: widths of the hidden layers; lstm_lm: of the LSTM layers; NULL: 512, 512 */
    const int *hidden;
    int hidden_count;
    double dropout;       /* mlp, cnn, alexnet, vgg11: after each hidden layer; gpt2, lstm_lm: see
                             presets; 0: none */
    bool sync_batch_norm; /* resnet20, resnet50: batch_norm with sync */
    int stage_units;      /* resnet50, vgg11: channels of the first stage; 0: 64; alexnet: of the
                             first layer, a multiple of 6; 0: 96. Others in proportion */
    const struct cddpi_layer *layers;
    size_t layer_count;
    enum cddpi_loss loss;
    int channels, height, width; /* of the data */
    int classes;                 /* outputs of the last layer (mse: its targets are one-hot) */
    const char *size;            /* gpt2: "124M" ..., for the numbers that are 0; NULL: none */
    int blocks, heads, embed;    /* gpt2; lstm_lm: embed, 0: as many as the last of hidden */
    int context, vocab;          /* of data of tokens; 0: the data are images. classes is vocab */
    bool recompute; /* keep each block's input only, and recompute the rest before backward */
    enum cddpi_precision precision;
    struct cddpi_device *device; /* borrowed, outlives the model; NULL: the processor */
    enum cddpi_matmul_mode matmul;
    bool any_order; /* on a device: sums in the order that is fastest, which need not be the same in
                       every run */
    struct cddpi_layer_range part; /* create these layers only: see cddpi_model_edges() */
    bool tied; /* lstm_lm: the embedding's table is the last layer's weight, too */
    enum cddpi_part_loss part_loss;
    /* dcgan: numbers of a latent vector, 0: 100; channels of the widest images that the generator
     * and the discriminator have inside, 0: 64 */
    int latent, generator_units, discriminator_units;
    int image_channels,
        image_side; /* dcgan: what the data's shape was, and classes and loss are its
                       own: cddpi_model_spec_complete(); 0: it is not complete */
    bool split;     /* on the processor: backward leaves gradients of parameters to
                       cddpi_model_weights(), as far as that makes sense */
    int towers; /* alexnet: 2: its two towers are layers of their own; 0 and 1: groups of channels
                 */
};

struct cddpi_model;

/** What is wrong about the layers that @p spec describes, apart from their shapes: CDDP_ERR_CONFIG.
 */
CDDP_CHECKED cddp_status cddpi_model_check_layers(const struct cddpi_model_spec *spec);

/** Fill in the numbers that @p spec leaves 0 and its size stands for: blocks, heads, embed and
 *  context; the vocabulary is the data's. dcgan: make the data's shape that of its images.
 * cddpi_model_create() does it, too; this is for callers that need the context earlier. @return
 * CDDP_OK, CDDP_ERR_CONFIG: there is no such size, or the data are no square images. */
CDDP_CHECKED cddp_status cddpi_model_spec_complete(struct cddpi_model_spec *spec);

/** Check the description, infer shapes and initialise parameters: a pure function of (given, seed),
 * as PyTorch's defaults do it (linear, conv2d: uniform +-1/sqrt(fan_in); resnets' convolutions:
 * normal, He et al., fan_out), drawn from Philox.
 *  On a device the values are made by the processor, and are the same.
 *  @param group  For batch_norm with sync (borrowed, outlives the model); may be NULL without it.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (names the layer and what does not fit), CDDP_ERR_NO_MEMORY,
 *          CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_model_create(const struct cddpi_model_spec *given, uint64_t seed,
                                            cddp_group *group, struct cddpi_model **out);
void cddpi_model_destroy(struct cddpi_model *model);

/** Parameters in registration order, `grad` NULL; valid as long as the model. Names as in PyTorch's
 *  state_dict where there is a counterpart: "fc1.weight" ... Tensors are plain row-major (linear
 * weight: outputs x inputs; conv2d weight: O x I x H x W). */
const cddp_param *cddpi_model_params(const struct cddpi_model *model, size_t *out_count);
/** Running statistics and the like, likewise. */
const cddp_param *cddpi_model_buffers(const struct cddpi_model *model, size_t *out_count);
/** Whether parameter @p index takes weight decay (matrices and filters do; biases and norms do not,
 *  when the optimizer is told to leave them). */
bool cddpi_model_param_decays(const struct cddpi_model *model, size_t index);

/** In which order backward completes parameters: as many indices as there are parameters. */
const uint32_t *cddpi_model_ready_order(const struct cddpi_model *model);

/** Let backward write gradient i to @p grads[i] (each 64-byte aligned or not, memory of the
 * caller). */
void cddpi_model_bind_grads(struct cddpi_model *model, void *const *grads);

/** Let the parameters live at @p data[i], where the caller has copied their
 * values (memory of the caller, 64-byte aligned, that outlives the model's use). The model's own
 * memory for them is released. */
void cddpi_model_bind_params(struct cddpi_model *model, void *const *data);

/** On a device: parameters have new values, so that the copies of them that products read (of the
 *  model's type) are made again, each before it is next read. @p copies_written: those that
 *  cddpi_model_param_copy() tells have them already, wherever the parameter has changed. */
void cddpi_model_params_changed(struct cddpi_model *model, bool copies_written);
/** Where an update may write parameter @p index in the model's type, too (the same order of
 *  elements); NULL: nowhere, there is no such copy, or it has another order. */
void *cddpi_model_param_copy(const struct cddpi_model *model, size_t index);
/** How many elements that copy has, those of the parameter first, then zeros; 0: there is none. */
size_t cddpi_model_param_copy_count(const struct cddpi_model *model, size_t index);
/** Let these copies live at @p copies[i] (NULL: where they are), memory of zeros of the caller's
 * that outlives the model's use. They are made again before they are next read. */
void cddpi_model_bind_copies(struct cddpi_model *model, void *const *copies);
/** The type of all these copies. */
cddp_type cddpi_model_copy_type(const struct cddpi_model *model);
/** Make those stale copies now that cddpi_model_param_copy() tells: before a capture of a forward
 *  that leaves them to updates. */
CDDP_CHECKED cddp_status cddpi_model_refresh_copies(struct cddpi_model *model);
/** On a device: a capture of a training forward and backward was replayed. Copies that were stale
 *  when it was captured (as after cddpi_model_params_changed()) it has made; the others must not be
 *  stale. */
void cddpi_model_replayed(struct cddpi_model *model);
/** On a device: let backward multiply its scale by *@p scale (memory of the device; NULL: 1). */
void cddpi_model_bind_loss_scale(struct cddpi_model *model, const float *scale);
/** Grows whenever memory moved, so that captures of steps must be made again: the arena (a larger
 *  batch was prepared), and what was bound. */
uint64_t cddpi_model_memory_version(const struct cddpi_model *model);

/** Called by a forward before it reads parameter @p index. */
typedef cddp_status (*cddpi_param_wait_fn)(void *context, size_t index);
void cddpi_model_on_param(struct cddpi_model *model, cddpi_param_wait_fn wait, void *context);

/** Prepare for batches of @p count samples in @p training or evaluation mode, so that the first
 * step does not pay for it. Optional: running prepares what is missing. May end the validity of the
 * last forward: its outputs are NULL then, and backward is CDDP_ERR_STATE. */
CDDP_CHECKED cddp_status cddpi_model_prepare(struct cddpi_model *model, int count, bool training);

struct cddpi_batch {
    const float *input; /* count x channels x height x width; backward reads all of this, too */
    const int32_t
        *label; /* count x predictions, each in [0, classes), or 0 or 1, see enum cddpi_loss */
    int count;
    uint64_t step;              /* for dropout's random numbers ... */
    const uint64_t *sample_ids; /* ... together with which samples these are; count */
    const int32_t *tokens;      /* count x context, each in [0, vocab), instead of input */
    const uint32_t *draws;      /* on a device: what cddpi_model_draws() made of step and ids */
};

/** Whether labels and tokens of a batch in the processor's memory are in their ranges:
 *  CDDP_ERR_ARGUMENT. Forward checks this on the processor; on a device nothing does. */
CDDP_CHECKED cddp_status cddpi_model_check_batch(const struct cddpi_model *model,
                                                 const struct cddpi_batch *batch);

/** On a device: the streams of dropout's random numbers for a training batch, to be copied there
 *  along with it: cddpi_model_draw_words() words, 0 without dropout and on the processor. */
size_t cddpi_model_draw_words(const struct cddpi_model *model, int count);
void cddpi_model_draws(const struct cddpi_model *model, uint64_t step, const uint64_t *sample_ids,
                       int count, uint32_t *out);

struct cddpi_loss_result {
    double loss_sum; /* of the predictions' losses, as in PyTorch with reduction="sum" */
    int correct;     /* predictions whose largest output is the label's */
    int count;       /* predictions: samples, or tokens of all sequences */
};

/** Forward and loss. In training mode activations are kept for backward. A batch of 0 samples is
 * allowed: it takes part in what sync batch_norm does over ranks, and its gradients are zero.
 * On a device, losses and correct predictions are added to sums that stay there (in training by
 * backward, which makes the loss and its gradient at once); @p out gets the count only, and may be
 * NULL. */
CDDP_CHECKED cddp_status cddpi_model_forward(struct cddpi_model *model,
                                             const struct cddpi_batch *batch, bool training,
                                             struct cddpi_loss_result *out);

/** Samples of the last forward that there was in the current slot. */
int cddpi_model_batch_count(const struct cddpi_model *model);

/** Called by backward as parameter @p index has its whole gradient. */
typedef cddp_status (*cddpi_grad_ready_fn)(void *context, size_t index);

/** Gradients of @p scale x (sum of the predictions' losses) of the last training forward. @p
 * accumulate: add to what the gradients hold instead of replacing it. @p ready may be NULL. Each
 * rank may have a @p scale of its own (sync batch_norm takes it out of what it shares). */
CDDP_CHECKED cddp_status cddpi_model_backward(struct cddpi_model *model, double scale,
                                              bool accumulate, cddpi_grad_ready_fn ready,
                                              void *context);

/** Of a model whose spec says split: the gradients of parameters that the last backward has left,
 *  added (@p accumulate) to what they hold or in its place. What backward has made already (of
 *  normalisations, of an lstm, of biases) it has added and reported; so both are called with the
 *  same @p accumulate and @p ready. Sums over several batches have the bits that they have without
 *  a split, if each of the two passes takes the batches in the same order.
 *  @return CDDP_OK; CDDP_ERR_STATE: no backward came before it. */
CDDP_CHECKED cddp_status cddpi_model_weights(struct cddpi_model *model, bool accumulate,
                                             cddpi_grad_ready_fn ready, void *context);

enum { CDDPI_MODEL_COLLECTED = 8 }; /* collected and not yet taken */

/** Close the sums of losses and correct predictions over all forwards (on a device, in training:
 *  backwards) since the last call; they are over @p count predictions, as the caller says. On a
 *  device their copy to the processor is put into the compute stream: not while that is captured.
 *  CDDP_ERR_STATE: too many wait to be taken. */
CDDP_CHECKED cddp_status cddpi_model_collect(struct cddpi_model *model, int count);
/** Take the oldest sums that were collected. On a device this waits for them; when the next step's
 *  work has been put into the stream before, the device meanwhile does that. CDDP_ERR_STATE: there
 *  are none. */
CDDP_CHECKED cddp_status cddpi_model_result(struct cddpi_model *model,
                                            struct cddpi_loss_result *out);
/** Begin the sums anew, without what was added since the last collect; in stream order. */
CDDP_CHECKED cddp_status cddpi_model_reset_sums(struct cddpi_model *model);

/* A part of a model (cddpi_model_spec.part) has the parameters, names and first values that its
 * layers have in the whole one, and computes the same bits. What the parts before and after it
 * compute comes and goes through edges: values, and gradients in the opposite direction, as
 * float32, plain N x C x H x W or rows of features, in memory of the model's device. The batch has
 * the data for the part with the first layer and labels for the one with the last, which has the
 * loss; count, step and sample ids for all. A tied weight is a parameter of each part that reads
 * it. */
enum cddpi_edge_side { CDDPI_EDGE_IN, CDDPI_EDGE_OUT };

struct cddpi_edge {
    const char *layer; /* that makes the value; "input": the data */
    size_t elements;   /* of one sample */
    bool has_grad;     /* else no gradient comes back */
};

/** The edges at one side, in the order of the layers that make the values, which is the same for
 * the part after it; *@p out_count is 0 for a whole model. */
const struct cddpi_edge *cddpi_model_edges(const struct cddpi_model *model,
                                           enum cddpi_edge_side side, size_t *out_count);
/** Let the next forward and backward find edge @p index at @p data and its gradient at @p grad, of
 *  count x elements each: IN: forward reads data, backward writes grad; OUT: forward writes data,
 *  backward reads grad. Memory of the caller's that outlives them. */
void cddpi_model_bind_edge(struct cddpi_model *model, enum cddpi_edge_side side, size_t index,
                           float *data, float *grad);

/** Let parameter @p index of a part, which another part @p owner before it has, too (a tied
 * weight), live there. @p shares_grad: both will be bound to one gradient, to which the backward of
 * the owner, which comes later, adds.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: a model is not on the processor. */
CDDP_CHECKED cddp_status cddpi_model_share_param(struct cddpi_model *model, size_t index,
                                                 struct cddpi_model *owner, size_t owner_index,
                                                 bool shares_grad);

/** Let the following calls work on slot @p slot (from 0, which is chosen first): each has an arena
 *  of its own, and remembers its last forward, so that several batches can be between forward and
 *  backward. CDDP_ERR_ARGUMENT: there are CDDPI_MODEL_SLOTS. */
enum { CDDPI_MODEL_SLOTS = 256 };
CDDP_CHECKED cddp_status cddpi_model_use_slot(struct cddpi_model *model, int slot);

/* Of a model whose spec says split: a batch needs all of its memory from forward to backward only,
 * and fewer batches are between those two than have their gradients of parameters still to come.
 * The numbers of each kind are divided anew among batches. */
struct cddpi_model_slots {
    int batch; /* from forward to backward */
    int kept;  /* from forward to cddpi_model_weights(): what the batch remembers, too */
    int grads; /* from backward to that */
};
/** As cddpi_model_use_slot(), which takes one number for all three. In forward @p slots.grads is
 * not used yet, and in cddpi_model_weights() @p slots.batch is not any more. */
CDDP_CHECKED cddp_status cddpi_model_use_slots(struct cddpi_model *model,
                                               const struct cddpi_model_slots *slots);

/** The number of the first layer that @p name names in the description of @p spec, as
 *  cddpi_model_find_layers() finds it, and how many layers there are.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: none. */
CDDP_CHECKED cddp_status cddpi_model_find_layer(const struct cddpi_model_spec *spec,
                                                const char *name, int *out_layer, int *out_count);
/** Which layers @p name names: the one with that name; else all whose names begin with it and a
 *  dot ("layer3": "layer3.0.conv1" ...); "input": the first; else the number of one, from 0.
 *  @param out    Of those layers, with any others in between.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: none. */
CDDP_CHECKED cddp_status cddpi_model_find_layers(const struct cddpi_model_spec *spec,
                                                 const char *name, struct cddpi_layer_range *out);
/** Whether layer @p layer of that description has parameters or buffers; and how many layers there
 *  are. */
CDDP_CHECKED cddp_status cddpi_model_layer_has_params(const struct cddpi_model_spec *spec,
                                                      int layer, bool *out, int *out_count);
/** The name of layer @p layer of that description. */
CDDP_CHECKED cddp_status cddpi_model_layer_name(const struct cddpi_model_spec *spec, int layer,
                                                char *out, size_t out_bytes);
/** Measure what forward and backward of each layer take here, in seconds, with @p samples samples
 *  of noise, as the fastest of a few steps; a layer that is done along with the one before takes 0.
 *  @param out  One a layer; release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_model_measure_layers(const struct cddpi_model_spec *spec,
                                                    int samples, double **out, int *out_count);

struct cddpi_layer_bytes {
    size_t parameters;  /* float32, those of a tied layer where it is tied to */
    size_t activations; /* its output, of so many samples */
    bool is_own;        /* else it is done along with the layer before */
};

/** What each layer takes of memory.
 *  @param out  One a layer; release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_model_layer_bytes(const struct cddpi_model_spec *spec, int samples,
                                                 struct cddpi_layer_bytes **out, int *out_count);

/** Whether the loss is in the model: in all, but parts without the last layer. */
bool cddpi_model_has_loss(const struct cddpi_model *model);
/** Whether the data are read: by all, but parts without a layer that does. */
bool cddpi_model_reads_data(const struct cddpi_model *model);

/** How many predictions a sample has: `context` of tokens, else 1. */
int cddpi_model_predictions(const struct cddpi_model *model);

/** The last layer's outputs of the last forward, (count x predictions) x classes, row-major; valid
 *  until the next. NULL after a training forward of tokens: the loss works in their place; or of a
 *  split model; and on a device. */
const float *cddpi_model_outputs(const struct cddpi_model *model);
/** Copy @p rows of those, from row @p first on, to @p out, after an evaluation forward. On a device
 *  this waits for it. CDDP_ERR_STATE: there are no outputs. */
CDDP_CHECKED cddp_status cddpi_model_read_outputs(struct cddpi_model *model, size_t first,
                                                  size_t rows, float *out);
/** Put a copy of all outputs of the last forward into the compute stream, also between a training
 *  forward and its backward: to @p out, memory of the processor (pinned, if the call is not to
 *  wait). Of models of images in float32, without a stride. CDDP_ERR_STATE: there are none. */
CDDP_CHECKED cddp_status cddpi_model_send_outputs(struct cddpi_model *model, float *out);

struct cddpi_model_estimate {
    size_t activation_bytes; /* and workspace */
    double extra_work;       /* what is recomputed, as a part of one forward */
};

/** What training steps with @p count samples take, or would take, with recompute or without. */
CDDP_CHECKED cddp_status cddpi_model_estimate(struct cddpi_model *model, int count, bool recompute,
                                              struct cddpi_model_estimate *out);

/** Multiplications of one sample's forward: those of products, of convolutions and of attention
 *  (whose causal half is counted). */
double cddpi_model_work(const struct cddpi_model *model);

/** Bytes of activations and workspace that all plans share, in all slots (for --dry-run and
 *  statistics). */
size_t cddpi_model_arena_bytes(const struct cddpi_model *model);

/** How factors of products are multiplied, in a few words. */
const char *cddpi_model_matmul_note(const struct cddpi_model *model);

/** Why bf16 is not faster than float32 for this model on this machine; NULL: it is, or the model is
 *  one of float32. */
const char *cddpi_model_precision_note(const struct cddpi_model *model);

/** The first batch_norm that has one value a channel in a sample, so that in training nothing is
 * left of a micro-batch of one sample but the bias; those that normalise over all ranks do not
 * count. NULL: there is none. */
const char *cddpi_model_lone_norm(const struct cddpi_model *model);

/** A readable table of layers, shapes and parameter counts; release with cddp_free(). NULL: no
 * memory. */
char *cddpi_model_describe(const struct cddpi_model *model);

/** Write a table of what does each part of a step of @p count samples, and how long that is
 * expected to take on one core of this machine, which is measured for it; with a warning for what
 * takes longer than it need. */
CDDP_CHECKED cddp_status cddpi_model_describe_plan(struct cddpi_model *model, int count,
                                                   FILE *file);

#endif
