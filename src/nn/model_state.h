/* model_state.h - what a model holds, for the files of src/nn. */
#ifndef CDDPI_NN_MODEL_STATE_H
#define CDDPI_NN_MODEL_STATE_H

#include "nn/plan.h"

enum cddpi_init { CDDPI_INIT_ZERO, CDDPI_INIT_ONE, CDDPI_INIT_UNIFORM, CDDPI_INIT_NORMAL };

struct cddpi_tensors {
    cddp_param *items;
    size_t count, capacity;
};

struct cddpi_param_info {
    enum cddpi_init init;
    double spread; /* uniform: the bound, normal: the standard deviation */
    bool decays;
};

struct cddpi_dnnl;

/* How this machine multiplies bf16: factors rounded and multiplied as float32, by dot products of
 * pairs (AVX512_BF16), or in tiles (AMX). */
enum cddpi_bf16 { CDDPI_BF16_ROUNDED, CDDPI_BF16_PAIRS, CDDPI_BF16_TILES };

/* What stands in for oneDNN's kernels, on the processor: where it is needed; or, so that tests can
 * try on any processor what others need, everywhere: our own loops and products, other layouts with
 * copies, channels added up to whole blocks. */
enum cddpi_substitutes {
    CDDPI_SUBSTITUTES_NEEDED,
    CDDPI_SUBSTITUTES_OWN,
    CDDPI_SUBSTITUTES_TURNED,
    CDDPI_SUBSTITUTES_ADDED
};

struct cddpi_model_cuda;
struct cddpi_event;

/* Sums that wait to be taken. */
struct cddpi_collected {
    double *sums;              /* on a device: pinned, made with the model */
    struct cddpi_event *event; /* on a device: when they are there */
    struct cddpi_result result;
};

enum { CDDPI_MODEL_PLANS = 16 }; /* kept; the one not used for longest makes room */

struct cddpi_model {
    struct cddpi_layer_list list; /* whose strings the graph borrows */
    struct cddpi_graph graph;
    char *title;     /* the preset's name, or "layers" */
    int classes;     /* or tokens of the vocabulary */
    int predictions; /* of a sample */
    bool tokens_in;  /* the data are tokens */
    enum cddpi_loss loss;
    bool recompute;
    enum cddpi_precision precision;
    enum cddpi_bf16 bf16; /* with that precision */
    bool tiles;           /* for products of float32 */
    enum cddpi_substitutes substitutes;
    uint64_t seed;
    cddp_group *group;
    struct cddpi_tensors params, buffers;
    bool params_bound;              /* their memory is the caller's */
    cddpi_param_wait_fn param_wait; /* NULL: parameters can be read at any time */
    void *param_wait_context;
    struct cddpi_param_info *infos; /* one a parameter */
    void **grads;                   /* one a parameter */
    uint32_t *uses;  /* one a parameter: how many ops contribute to its gradient ... */
    uint32_t *given; /* ... and how many of them did, in this backward */
    uint32_t *ready_order;
    size_t ready_count;
    struct cddpi_dnnl *dnnl;       /* made when an op first needs it */
    struct cddpi_model_cuda *cuda; /* NULL: the model is on the processor */
    struct cddpi_plan *plans[CDDPI_MODEL_PLANS];
    uint64_t runs;
    char *arena; /* memory of the device */
    size_t arena_bytes;
    /* of the last forward */
    struct cddpi_batch batch;
    const void *outputs;        /* of the type of activations */
    size_t outputs_stride;      /* from row to row */
    struct cddpi_plan *pending; /* what backward goes through; NULL: none, or no samples */
    bool pending_backward;
    double
        sums[2]; /* on the processor: of losses and of correct predictions since the last collect */
    struct cddpi_collected collected[CDDPI_MODEL_RESULTS];
    unsigned collected_first, collected_count;
    uint64_t memory_version;
};

/** Register a parameter of @p op under "<layer>.<suffix>", with memory of its own. */
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
/** Parameter values from the seed. */
void cddpi_model_init_params(struct cddpi_model *model);
size_t cddpi_tensor_elements(const cddp_param *tensor);
void cddpi_tensors_fini(struct cddpi_tensors *tensors);

/** The type of activations. */
cddp_type cddpi_model_type(const struct cddpi_model *model);

/** The plan for @p count samples, from the cache or new; the arena is large enough for it. */
CDDP_CHECKED cddp_status cddpi_model_plan(struct cddpi_model *model, int count, bool training,
                                          struct cddpi_plan **out);

/** Batches of that many samples, but no fewer than @p low, can be. */
CDDP_CHECKED cddp_status cddpi_check_count(int count, int low);
/** @p batch has what the model takes. */
CDDP_CHECKED cddp_status cddpi_check_kind(const struct cddpi_model *model,
                                          const struct cddpi_batch *batch);

/** Products run on as many threads as $CDDP_THREADS says, else one. */
void cddpi_compute_threads(void);
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
