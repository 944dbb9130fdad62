/* model_state.h - what a model holds, for the files of src/nn. */
#ifndef CDDPI_NN_MODEL_STATE_H
#define CDDPI_NN_MODEL_STATE_H

#include "nn/graph/graph_part.h"
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
    double spread; /* uniform: the bound, normal: the standard deviation */
    bool decays;
};

/* A parameter that another part has, too. */
struct cddpi_param_tie {
    bool shared; /* its memory is the other part's */
    bool begun;  /* the other part's backward has put its own share into the gradient before */
};

struct cddpi_dnnl;

/* How this machine multiplies bf16: factors rounded and multiplied as float32, by dot products of
 * pairs (AVX512_BF16), or in tiles (AMX). */
enum cddpi_bf16 { CDDPI_BF16_ROUNDED, CDDPI_BF16_PAIRS, CDDPI_BF16_AMX };

/* Fallbacks for oneDNN's kernels, on the processor: where one is needed; or, so that tests can
 * try on any processor what others need, everywhere: our own loops and products, other layouts with
 * copies, channels added up to whole blocks. */
enum cddpi_fallbacks {
    CDDPI_FALLBACKS_NEEDED,
    CDDPI_FALLBACKS_OWN,
    CDDPI_FALLBACKS_REORDERED,
    CDDPI_FALLBACKS_PADDED
};

struct cddpi_model_cuda;

/* What a model does in its own way on each kind of device. */
struct cddpi_model_ops {
    bool takes_fp16;
    bool keeps_outputs; /* of a training forward, unless the loss works in their place: of tokens */
    /* Move a model that was made on the processor to the device of @p spec. Half of it is released
     * by destroy(). */
    cddp_status (*create)(struct cddpi_model *model, const struct cddpi_model_spec *spec);
    void (*destroy)(struct cddpi_model *model);
    /* The model's own memory for its parameters. */
    void (*release_params)(struct cddpi_model *model);
    /* Let the arena be of @p bytes at least, for @p count samples; the last forward
     * is forgotten. */
    cddp_status (*grow_arena)(struct cddpi_model *model, size_t bytes, int count, bool training);
    /* Whether the model can take @p batch. */
    cddp_status (*check_batch)(const struct cddpi_model *model, const struct cddpi_batch *batch);
    /* Choose what images become, before the ops are planned; and bring a batch's into that form. */
    void (*plan_data)(struct cddpi_plan *plan);
    cddp_status (*data)(struct cddpi_exec *exec);
    /* out = a + b */
    cddp_status (*add)(const struct cddpi_model *model, const void *a, const void *b, size_t count,
                       void *out);
    /* @p count numbers from @p index on of the outputs, where the processor can read them: valid
     * until the next call. */
    cddp_status (*read)(struct cddpi_model *model, size_t index, size_t count, const float **out);
    const char *(*matmul_note)(const struct cddpi_model *model);
    const char *(*precision_note)(const struct cddpi_model *model);
    cddp_status (*describe_plan)(struct cddpi_model *model, int count, FILE *file);
};

extern const struct cddpi_model_ops cddpi_model_on_cpu, cddpi_model_on_cuda;

/* A parameter in the form in which products on a device read it. */
struct cddpi_param_copy {
    enum cddpi_copy form;
    void *data;   /* NULL: the parameter itself is read */
    bool stale;   /* made again before it is next read */
    size_t count; /* of its elements: those of the parameter, then zeros */
};

/* Sums that wait to be taken. */
struct cddpi_collected {
    double *sums;              /* pinned */
    struct cddpi_event *event; /* when they are there */
    struct cddpi_loss_result result;
};

struct cddpi_region_memory {
    char *data;
    size_t bytes;
};

/* Another batch between its passes: what struct cddpi_model holds of the current one. Each region
 * has numbers of its own; all but memory is under that of CDDPI_REGION_KEPT. */
struct cddpi_model_slot {
    struct cddpi_region_memory memory[CDDPI_REGION_SCRATCH];
    struct cddpi_batch batch;
    const void *outputs;
    size_t outputs_stride;
    struct cddpi_plan *pending;
    bool pending_backward, pending_weights;
};

enum { CDDPI_MODEL_PLANS = 16 }; /* kept; the one not used for longest makes room */

struct cddpi_model {
    struct cddpi_layer_list list; /* whose strings the graph borrows */
    struct cddpi_graph graph;
    struct cddpi_part *part; /* NULL: the graph is the whole model's */
    char *title;             /* the preset's name, or "layers" */
    int classes;             /* or tokens of the vocabulary */
    int predictions;         /* of a sample */
    bool tokens_in;          /* the data are tokens */
    enum cddpi_loss loss;
    bool recompute;
    bool split; /* gradients of parameters are made apart from backward */
    enum cddpi_precision precision;
    enum cddpi_bf16 bf16; /* with that precision */
    bool amx;             /* for products of float32 */
    enum cddpi_fallbacks fallbacks;
    uint64_t seed;
    cddp_group *group;
    struct cddpi_device *device;       /* the processor or another */
    const struct cddpi_model_ops *ops; /* for that kind of device */
    cddp_type type;                    /* of activations, and of copies of parameters */
    struct cddpi_tensors params, buffers;
    bool params_bound;              /* their memory is the caller's */
    cddpi_param_wait_fn param_wait; /* NULL: parameters can be read at any time */
    void *param_wait_context;
    struct cddpi_param_info *infos; /* one a parameter */
    struct cddpi_param_tie *ties;   /* one a parameter */
    float *first_values;            /* one a buffer: of all its elements */
    void **grads;                   /* one a parameter */
    uint32_t *grads_expected; /* one a parameter: how many ops contribute to its gradient ... */
    uint32_t *grads_arrived;  /* ... and how many of them did, in this backward */
    uint32_t *ready_order;
    size_t ready_count;
    struct cddpi_dnnl *dnnl;         /* made when an op first needs it */
    struct cddpi_model_cuda *cuda;   /* what only models on such a device have */
    struct cddpi_param_copy *copies; /* of the first copy_count parameters: all of them or none */
    size_t copy_count;
    const float *loss_scale; /* memory of the device; NULL: 1. Not on the processor */
    int dropouts;            /* how many ops draw by what a batch brings; none on the processor */
    struct cddpi_plan *plans[CDDPI_MODEL_PLANS];
    uint64_t runs;
    char *arena; /* memory of the device */
    size_t arena_bytes;
    struct cddpi_region_memory regions[CDDPI_REGIONS]; /* of a split model: all but the first, which
                                                   is the arena */
    /* of the last forward */
    struct cddpi_batch batch;
    const void *outputs;        /* of the type of activations */
    size_t outputs_stride;      /* from row to row */
    struct cddpi_plan *pending; /* what backward goes through; NULL: none, or no samples */
    bool pending_backward, pending_weights;
    double *op_seconds; /* one an op: what its passes take is added; NULL: nothing is measured */
    struct cddpi_model_slot
        *slots; /* the current one's row is out of date; NULL: there is only one */
    int places[CDDPI_REGION_SCRATCH]; /* the current one, by region */
    double *sums; /* memory of the device: of losses and of correct predictions since the last
                     collect */
    uint32_t timeout_ms; /* of waiting for the device */
    struct cddpi_collected collected[CDDPI_MODEL_COLLECTED];
    unsigned collected_first, collected_count;
    uint64_t memory_version;
};

/** Register a parameter of @p op under "<layer>.<suffix>"; it gets memory when all are known. */
CDDP_CHECKED cddp_status cddpi_model_add_param(struct cddpi_model *model, struct cddpi_op *op,
                                               int k, const char *suffix, int dims,
                                               const int64_t *shape, struct cddpi_param_info info);
/** The same under "<layer>.<suffix>" with another name than the op's. */
CDDP_CHECKED cddp_status cddpi_model_add_param_of(struct cddpi_model *model, struct cddpi_op *op,
                                                  int k, const char *layer, const char *suffix,
                                                  int dims, const int64_t *shape,
                                                  struct cddpi_param_info info);
/** Likewise running statistics: @p count elements of @p value. */
CDDP_CHECKED cddp_status cddpi_model_add_buffer(struct cddpi_model *model, struct cddpi_op *op,
                                                int k, const char *suffix, int64_t count,
                                                float value);
/** Keep of the graph only the part that @p spec says. */
CDDP_CHECKED cddp_status cddpi_model_cut(struct cddpi_model *model,
                                         const struct cddpi_model_spec *spec);
/** The number of parameter @p index among those of the whole model. */
static inline uint32_t cddpi_model_param_number(const struct cddpi_model *model, size_t index)
{
    return model->part == NULL ? (uint32_t)index : model->part->param_numbers[index];
}
/** Release what slots hold, the current one's regions included, but not the arena. */
void cddpi_model_release_slots(struct cddpi_model *model);
/** Release what the part holds. */
void cddpi_model_release_part(struct cddpi_model *model);
/** Whether another slot than the current one waits for a backward by @p plan. */
bool cddpi_model_waits_for(const struct cddpi_model *model, const struct cddpi_plan *plan);

/** Let @p region of the current slot have room for what @p plan places there: all but the first. */
CDDP_CHECKED cddp_status cddpi_model_grow_region(struct cddpi_model *model,
                                                 const struct cddpi_plan *plan,
                                                 enum cddpi_region region);

/** Memory for parameters and buffers, not cleared. */
CDDP_CHECKED cddp_status cddpi_model_alloc_params(struct cddpi_model *model);
/** Write the first values of parameters, from the seed, and of buffers into their memory: by
 * several threads, with the same bits for any number of them. */
void cddpi_model_make_first_values(const struct cddpi_model *model);
size_t cddpi_tensor_elements(const cddp_param *tensor);
void cddpi_tensors_fini(struct cddpi_tensors *tensors);

/** Memory for sums of losses. Half of it is released by cddpi_model_release_outputs(). */
CDDP_CHECKED cddp_status cddpi_model_create_outputs(struct cddpi_model *model);
void cddpi_model_release_outputs(struct cddpi_model *model);
/** Make the copies of exec->op's parameters that are stale. */
CDDP_CHECKED cddp_status cddpi_exec_refresh_copies(const struct cddpi_exec *exec);
/** As cddpi_model_describe_plan(), on the processor. */
CDDP_CHECKED cddp_status cddpi_cpu_describe_plan(struct cddpi_model *model, int count, FILE *file);
/** Forget the last forward: its activations are gone, so outputs and backward are, too. */
void cddpi_model_forget_forward(struct cddpi_model *model);

/** The plan for @p count samples, from the cache or new; the arena is large enough for it. */
CDDP_CHECKED cddp_status cddpi_model_plan(struct cddpi_model *model, int count, bool training,
                                          struct cddpi_plan **out);

/** Check that a batch can have @p count samples, of which @p low are the fewest. */
CDDP_CHECKED cddp_status cddpi_check_count(int count, int low);
/** Check that @p batch has what the model takes. */
CDDP_CHECKED cddp_status cddpi_check_batch_kind(const struct cddpi_model *model,
                                                const struct cddpi_batch *batch);

/** Products run on as many threads as $CDDP_THREADS says, else one. */
void cddpi_compute_threads(void);
/** That, and where addresses are limited the first product, while there is room: libraries that
 *  generate code do not check. */
CDDP_CHECKED cddp_status cddpi_compute_begin(void);
/** C (m x n) = op(A) op(B) + beta C, row-major and dense, float32; @p beta is 0 or 1, and m or k
 * may be 0. */
CDDP_CHECKED cddp_status cddpi_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n,
                                    size_t k, const float *a, const float *b, float beta, float *c);
/** C = alpha op(A) op(B) + beta C of matrices whose rows lie @p lda, @p ldb and @p ldc elements
 * apart. */
CDDP_CHECKED cddp_status cddpi_gemm_strided(bool transpose_a, bool transpose_b, size_t m, size_t n,
                                            size_t k, float alpha, const float *a, size_t lda,
                                            const float *b, size_t ldb, float beta, float *c,
                                            size_t ldc);

#endif
