/* model_state.h - what a model holds, for the files of src/trainer/nn. */
#ifndef CDDPI_NN_MODEL_STATE_H
#define CDDPI_NN_MODEL_STATE_H

#include "kernels/cuda/cuda_kernels.h"
#include "nn/graph/graph.h"
#include "nn/plan/model_plan.h"

enum cddpi_init {
    CDDPI_INIT_ZERO,
    CDDPI_INIT_ONE,
    CDDPI_INIT_UNIFORM,
    CDDPI_INIT_NORMAL,
    CDDPI_INIT_NORMAL_AROUND_ONE
};

struct cddpi_tensors {
    cddp_param *items;
    size_t count, capacity;
};

struct cddpi_param_info {
    enum cddpi_init init;
    double spread; /* uniform: the bound; normal: the standard deviation */
    bool decays;
};

/* What a model holds for each parameter besides its tensor. */
struct cddpi_param_state {
    struct cddpi_param_info info;
    void *grad; /* the caller's memory */
    /* how many ops contribute to the gradient, and how many of them have in this backward */
    uint32_t grads_expected, grads_arrived;
    /* of a parameter that is shared with another part of the model: the memory belongs to that
     * part; that part's backward has already written its share of the gradient */
    bool is_shared, is_begun;
};

struct cddpi_dnnl;

/* How this machine multiplies bf16: factors are rounded, then multiplied as float32; by dot
 * products of pairs (AVX512_BF16); or in tiles (AMX). */
enum cddpi_bf16 { CDDPI_BF16_ROUNDED, CDDPI_BF16_PAIRS, CDDPI_BF16_AMX };

/* Fallbacks for oneDNN's kernels on the CPU: our own loops and products, other layouts with copies,
 * and padding channels to whole blocks. Normally they are used where needed; tests can turn each on
 * everywhere, to cover on any CPU what other CPUs need. */
enum cddpi_fallbacks {
    CDDPI_FALLBACKS_NEEDED,
    CDDPI_FALLBACKS_OWN,
    CDDPI_FALLBACKS_REORDERED,
    CDDPI_FALLBACKS_PADDED
};

struct cddpi_model_cuda;

/* What differs between a model on the CPU and on a device; NULL: nothing to do, or no note. */
struct cddpi_model_ops {
    bool takes_fp16;
    bool keeps_outputs; /* of a training forward, except for tokens, where the loss overwrites them
                         */
    /* Move a model that was created on the CPU to the device of @p spec. destroy() also releases a
     * half-moved model. */
    cddp_status (*create)(struct cddpi_model *model, const struct cddpi_model_spec *spec);
    void (*destroy)(struct cddpi_model *model);
    /* Release the model's own memory for parameters. */
    void (*release_params)(struct cddpi_model *model);
    /* Grow the arena to at least @p bytes, for @p count samples; the last forward is forgotten. */
    cddp_status (*grow_arena)(struct cddpi_model *model, size_t bytes, int count, bool training);
    /* Whether the model can take @p batch. */
    cddp_status (*check_batch)(const struct cddpi_model *model, const struct cddpi_batch *batch);
    /* Choose the form of the images before the ops are planned, and convert a batch to that form.
     */
    void (*plan_data)(struct cddpi_plan *plan);
    cddp_status (*data)(struct cddpi_exec *exec);
    /* out = a + b */
    cddp_status (*add)(const struct cddpi_model *model, const void *a, const void *b, size_t count,
                       void *out);
    /* @p count outputs from element @p index on, in CPU memory: valid until the next call. */
    cddp_status (*read)(struct cddpi_model *model, size_t index, size_t count, const float **out);
    const char *(*matmul_note)(const struct cddpi_model *model);
    void (*arithmetic)(const struct cddpi_model *model, char *out, size_t bytes); /* NULL: the
                                                                                     device */
    const char *(*precision_note)(const struct cddpi_model *model);
    cddp_status (*describe_plan)(struct cddpi_model *model, int count, FILE *file);
};

extern const struct cddpi_model_ops cddpi_model_on_cpu, cddpi_model_on_cuda;

/* A parameter in the form that products on a device read. */
struct cddpi_param_copy {
    enum cddpi_copy form;
    void *data;   /* NULL: products read the parameter itself */
    bool stale;   /* refreshed before it is next read */
    size_t count; /* of its elements: those of the parameter, then zeros */
};

/* Sums of losses and correct predictions, and collected sums that were not taken yet. */
struct cddpi_loss_sums {
    struct cddpi_loss_totals *now; /* device memory: since the last collect */
    struct cddpi_collected {
        struct cddpi_loss_totals *sums; /* pinned */
        struct cddpi_event *event;      /* fires when the sums have arrived */
        struct cddpi_loss_result result;
    } collected[CDDPI_MODEL_COLLECTED];
    unsigned first, count;
};

struct cddpi_region_memory {
    char *data;
    size_t bytes;
};

/* A batch between its passes: what its forward leaves. */
struct cddpi_last_forward {
    struct cddpi_batch batch;
    const void *outputs;   /* in the type of activations */
    size_t outputs_stride; /* elements between rows */
    /* the plan that backward will run; NULL: nothing to run, or no samples */
    struct cddpi_plan *pending;
    bool pending_backward, pending_weights;
};

/* A batch other than the current one. Each region has slot numbers of its own; `last` belongs to
 * the number of CDDPI_REGION_KEPT. */
struct cddpi_model_slot {
    struct cddpi_region_memory memory[CDDPI_REGION_SCRATCH];
    struct cddpi_last_forward last;
};

enum { CDDPI_MODEL_PLANS = 16 }; /* cached plans; a new one evicts the least recently used */

struct cddpi_model {
    struct cddpi_layer_list list; /* owns the strings that the graph borrows */
    struct cddpi_graph graph;
    struct cddpi_part *part; /* NULL: the graph covers the whole model */
    char *title;             /* the preset's name, or "layers" */
    int classes;             /* for tokens: the size of the vocabulary */
    int predictions;         /* of a sample */
    bool real_targets;       /* a sample has `classes` of them, and no class */
    bool tokens_in;          /* the data are tokens */
    enum cddpi_loss loss;
    bool recompute;
    bool split; /* parameter gradients are computed separately from backward */
    enum cddpi_precision precision;
    enum cddpi_bf16 bf16; /* how bf16 is multiplied, with that precision */
    bool amx;             /* float32 products may use AMX */
    bool invariant;       /* bits do not depend on the number of threads */
    enum cddpi_fallbacks fallbacks;
    uint64_t seed;
    cddp_group *group;
    struct cddpi_device *device;       /* the CPU or a CUDA device */
    const struct cddpi_model_ops *ops; /* for that kind of device */
    cddp_type type;                    /* of activations, and of copies of parameters */
    struct cddpi_tensors params, buffers;
    bool params_bound;              /* parameters live in the caller's memory */
    cddpi_param_wait_fn param_wait; /* NULL: parameters can be read at any time */
    void *param_wait_context;
    struct cddpi_param_state *param_states; /* one for each parameter */
    float *first_values;                    /* one for each buffer: the value of all its elements */
    float *const *statistics; /* the caller's, one for each buffer; NULL: forwards update buffers */
    size_t *ready_order;
    struct cddpi_dnnl *dnnl;         /* made when an op first needs it */
    struct cddpi_model_cuda *cuda;   /* what only models on a CUDA device have */
    struct cddpi_param_copy *copies; /* of the first copy_count parameters: all of them or none */
    size_t copy_count;
    const float *loss_scale; /* device memory; NULL: 1. Unused on the CPU */
    int dropouts;            /* how many ops use the draws of a batch; 0 on the CPU */
    struct cddpi_plan *plans[CDDPI_MODEL_PLANS];
    uint64_t runs;
    /* the first is the arena, in the device's memory; the others are a split model's */
    struct cddpi_region_memory regions[CDDPI_REGIONS];
    struct cddpi_last_forward last;
    double *op_seconds; /* one for each op: the time of its passes is added; NULL: do not measure */
    struct cddpi_model_slot
        *slots; /* the current slot's row is out of date; NULL: there is only one slot */
    int places[CDDPI_REGION_SCRATCH]; /* the current slot numbers, by region */
    struct cddpi_loss_sums sums;
    uint32_t timeout_ms; /* limit for waiting on the device */
    uint64_t memory_version;
};

/** Register a parameter of @p op under "<layer>.<suffix>"; memory is allocated once all are known.
 */
CDDP_CHECKED cddp_status cddpi_model_add_param(struct cddpi_model *model, struct cddpi_op *op,
                                               int k, const char *suffix, int dims,
                                               const int64_t *shape, struct cddpi_param_info info);
/** The same, with a given layer name instead of the op's. */
CDDP_CHECKED cddp_status cddpi_model_add_param_of(struct cddpi_model *model, struct cddpi_op *op,
                                                  int k, const char *layer, const char *suffix,
                                                  int dims, const int64_t *shape,
                                                  struct cddpi_param_info info);
/** Register a buffer in the same way: @p count elements, each @p value. */
CDDP_CHECKED cddp_status cddpi_model_add_buffer(struct cddpi_model *model, struct cddpi_op *op,
                                                int k, const char *suffix, int64_t count,
                                                float value);
/** Reduce the graph to the part that @p spec selects. */
CDDP_CHECKED cddp_status cddpi_model_cut(struct cddpi_model *model,
                                         const struct cddpi_model_spec *spec);
/** Release what the slots hold, the current one's regions included, but not the arena. */
void cddpi_model_release_slots(struct cddpi_model *model);
/** Release what the part holds. */
void cddpi_model_release_part(struct cddpi_model *model);
/** Whether a slot other than the current one waits for a backward with @p plan. */
bool cddpi_model_waits_for(const struct cddpi_model *model, const struct cddpi_plan *plan);

/** Grow @p region of the current slot to what @p plan needs there. Not for the first region. */
CDDP_CHECKED cddp_status cddpi_model_grow_region(struct cddpi_model *model,
                                                 const struct cddpi_plan *plan,
                                                 enum cddpi_region region);

/** Allocate parameters and buffers, without clearing them. */
CDDP_CHECKED cddp_status cddpi_model_alloc_params(struct cddpi_model *model);
/** Write the initial values of parameters (from the seed) and buffers into their memory. Several
 *  threads work on it; the bits do not depend on their number. */
void cddpi_model_make_first_values(const struct cddpi_model *model);
size_t cddpi_tensor_elements(const cddp_param *tensor);
void cddpi_tensors_fini(struct cddpi_tensors *tensors);

/** Allocate memory for sums of losses. cddpi_model_release_outputs() also releases half-made
 *  memory. */
CDDP_CHECKED cddp_status cddpi_model_create_outputs(struct cddpi_model *model);
void cddpi_model_release_outputs(struct cddpi_model *model);
/** Refresh the stale copies of exec->op's parameters. */
CDDP_CHECKED cddp_status cddpi_exec_refresh_copies(const struct cddpi_exec *exec);
/** cddpi_model_arithmetic() for the CPU. */
void cddpi_cpu_arithmetic(const struct cddpi_model *model, char *out, size_t bytes);
/** cddpi_model_describe_plan() for the CPU. */
CDDP_CHECKED cddp_status cddpi_cpu_describe_plan(struct cddpi_model *model, int count, FILE *file);
/** Whether @p op is a batch_norm over all ranks, which communicates with them. */
bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op);
/** Forget the last forward: its activations are gone, so outputs and backward are unavailable. */
void cddpi_model_forget_forward(struct cddpi_model *model);

/* exec.c: the passes over the ops of a plan. */

/** Run the ops in order. The caller has set exec->plan, batch and result; the other fields are
 *  filled in. */
CDDP_CHECKED cddp_status cddpi_exec_forward(struct cddpi_exec *exec);
/** Run the ops' backward in reverse order. The caller has set exec->plan, scale, accumulate and
 *  ready. */
CDDP_CHECKED cddp_status cddpi_exec_backward(struct cddpi_exec *exec);

/** Compute the parameter gradients that backward has left, in reverse order. The caller has set
 *  exec->plan, accumulate and ready. */
CDDP_CHECKED cddp_status cddpi_exec_weights(struct cddpi_exec *exec);

/* The passes of a rank without samples: only ops that communicate with other ranks do something,
 * and gradients are zero. */
CDDP_CHECKED cddp_status cddpi_exec_idle_forward(struct cddpi_exec *exec);
/** Report all gradients as complete, after the ops' @p backward or without it. */
CDDP_CHECKED cddp_status cddpi_exec_idle_gradients(struct cddpi_exec *exec, bool backward);

/** The plan for @p count samples, cached or new; the arena is large enough for it. */
CDDP_CHECKED cddp_status cddpi_model_plan(struct cddpi_model *model, int count, bool training,
                                          struct cddpi_plan **out);

/** Check that a batch may have @p count samples, at least @p low. */
CDDP_CHECKED cddp_status cddpi_check_count(int count, int low);
/** Check that @p batch has what the model takes. */
CDDP_CHECKED cddp_status cddpi_check_batch_kind(const struct cddpi_model *model,
                                                const struct cddpi_batch *batch);

/** Let products run on $CDDP_THREADS threads, or on one if that is unset. */
void cddpi_compute_threads(void);
/** The same, and if the address space is limited, run a first product while there is room:
 *  libraries that generate code do not check for failed allocations. */
CDDP_CHECKED cddp_status cddpi_compute_begin(void);
/** C (m x n) = op(A) op(B) + beta C, row-major and dense, float32; @p beta is 0 or 1, and m or k
 * may be 0. */
CDDP_CHECKED cddp_status cddpi_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n,
                                    size_t k, const float *a, const float *b, float beta, float *c);
/** C = alpha op(A) op(B) + beta C, where consecutive rows are @p lda, @p ldb and @p ldc elements
 *  apart. */
CDDP_CHECKED cddp_status cddpi_gemm_strided(bool transpose_a, bool transpose_b, size_t m, size_t n,
                                            size_t k, float alpha, const float *a, size_t lda,
                                            const float *b, size_t ldb, float beta, float *c,
                                            size_t ldc);

#endif
