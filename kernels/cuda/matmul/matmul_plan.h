/* matmul_plan.h - matrix products by cuBLASLt, with one plan for each shape: descriptors, and the
 * chosen algorithm. Matrices are column-major here. */
#ifndef CDDPI_KERNELS_CUDA_MATMUL_PLAN_H
#define CDDPI_KERNELS_CUDA_MATMUL_PLAN_H

#include "kernels/cuda/kernels_module.h"

#include <cublasLt.h>

/* The functions of cuBLASLt that are used here, looked up at their first use: member, symbol */
#define CDDPI_CUBLASLT_FUNCTIONS(X)                                                                \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(version, cublasLtGetVersion)                                                                 \
    X(status_name, cublasLtGetStatusName)                                                          \
    X(status_string, cublasLtGetStatusString)                                                      \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(desc_create, cublasLtMatmulDescCreate)                                                       \
    X(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    X(preference_create, cublasLtMatmulPreferenceCreate)                                           \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)                                         \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)                                        \
    X(algorithm_get, cublasLtMatmulAlgoConfigGetAttribute)                                         \
    X(algorithm_check, cublasLtMatmulAlgoCheck)                                                    \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    X(matmul, cublasLtMatmul)

#define CDDPI_CUBLASLT_MEMBER(member, symbol) __typeof__(symbol) *member;

struct cddpi_cublaslt {
    CDDPI_CUBLASLT_FUNCTIONS(CDDPI_CUBLASLT_MEMBER)
};

/* Everything that the choice for D (m x n) = epilogue(op(A) op(B)) depends on. Plain numbers
 * without padding, so that two shapes can be compared as memory. Alignments are those of pointers,
 * in bytes, at most 64. */
struct cddpi_cuda_matmul_shape {
    int32_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t type;   /* cudaDataType of A, of B, and of the epilogue's inputs */
    int32_t result; /* of D */
    int32_t epilogue;
    int32_t choice; /* enum cddpi_cuda_matmul_choice */
    int32_t align_a, align_b, align_d, align_bias, align_aux;
};

struct cddpi_cuda_matmul_operands {
    const void *a, *b;
    void *d;
    const void *bias; /* NULL: the epilogue has no bias */
    void *aux;        /* m x n; NULL: the epilogue does not use it */
    bool add;         /* D += instead of D = */
};

/* The values of $CDDP_PRODUCTS; unset: the caller decides. */
enum cddpi_cuda_matmul_choice {
    CDDPI_CUDA_MATMUL_UNSET,
    CDDPI_CUDA_MATMUL_FIRST,
    CDDPI_CUDA_MATMUL_SAME,
    CDDPI_CUDA_MATMUL_FAST
};

enum {
    CDDPI_CUDA_MATMUL_FEW = 16,        /* candidates, if their bits must be the same */
    CDDPI_CUDA_MATMUL_CANDIDATES = 64, /* otherwise */
    /* NVIDIA's recommendation for the H100 and later; an A100 needs less. With
     * CDDPI_CUDA_MATMUL_FAST there is more. */
    CDDPI_CUDA_MATMUL_WORKSPACE = 32 << 20,
    CDDPI_CUDA_MATMUL_TRIES = 3 /* after this many measuring calls, nothing more is measured */
};

struct cddpi_cuda_matmul_plan {
    struct cddpi_cuda_matmul_shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t chosen;
    bool missing;  /* cuBLASLt has no algorithm for this shape */
    int tries;     /* number of calls that measured so far */
    bool decided;  /* a measurement has made the choice, and later processes may take it */
    bool recalled; /* the choice is an earlier process's and has not been launched yet */
};

/* The entry of the device cache for matrix products. */
struct cddpi_cuda_matmuls {
    struct cddpi_cublaslt lt;
    cublasLtHandle_t handle;
    enum cddpi_cuda_matmul_choice choice;
    bool tf32;
    void *workspace;
    void *large_workspace; /* NULL: not there yet, or not enough memory */
    bool no_large_workspace;
    struct cddpi_tuning *tuning; /* NULL: choices are not kept */
    uint64_t *fingerprint;       /* two numbers, see cddpi_cuda_fingerprint() */
    struct cddpi_cuda_matmul_plan **plans;
    size_t plan_count, plan_room;
};

/** The device's entry, created by the first call, which must not happen in a capture.
 *  CDDP_ERR_UNAVAILABLE: there is no cuBLASLt; with the reason. */
cddp_status cddpi_cuda_matmuls_get(struct cddpi_device *device, struct cddpi_cuda_matmuls **out);

/** The share of matrix products in first_use_bytes of struct cddpi_cuda_kernels. */
size_t cddpi_cuda_matmuls_first_use_bytes(struct cddpi_device *device, bool any_order);

/** Enqueue the product in the compute stream. @p out_missing: cuBLASLt has no algorithm for this
 *  shape and epilogue, and nothing was done. */
cddp_status cddpi_cuda_matmul_run(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                  const struct cddpi_cuda_matmul_shape *shape,
                                  const struct cddpi_cuda_matmul_operands *operands,
                                  bool *out_missing);

/* --- shared by matmul_plan.c, choose.c, propose.c and recall.c --- */

/* Run a step only if all earlier ones succeeded. */
#define CUBLAS_THEN(error, call)                                                                   \
    do {                                                                                           \
        if ((error) == CUBLAS_STATUS_SUCCESS) {                                                    \
            (error) = (call);                                                                      \
        }                                                                                          \
    } while (0)

/** Provide the workspace that algorithms for @p plan may use, as far as there is memory. */
void cddpi_cuda_matmul_workspace(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                 const struct cddpi_cuda_matmul_plan *plan);
/** What it will still allocate if products are fast. @p matmuls: NULL before the first product. */
size_t cddpi_cuda_matmul_large_bytes(const struct cddpi_cuda_matmuls *matmuls);
size_t cddpi_cuda_matmul_workspace_bytes(const struct cddpi_cuda_matmuls *matmuls,
                                         const struct cddpi_cuda_matmul_shape *shape);
/** How many algorithms the heuristics are asked for. */
int cddpi_cuda_matmul_candidates(const struct cddpi_cuda_matmul_shape *shape);

/** The algorithms that cuBLASLt proposes, the best first, at most CDDPI_CUDA_MATMUL_CANDIDATES. An
 *  empty list is not an error. */
cublasStatus_t cddpi_cuda_matmul_propose(const struct cddpi_cuda_matmuls *matmuls,
                                         const struct cddpi_cuda_matmul_plan *plan,
                                         cublasLtMatmulHeuristicResult_t *out, int *out_count);

void cddpi_cuda_matmul_tuning_open(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls);
/** Take the choice of an earlier process, if there is one and cuBLASLt accepts it. */
bool cddpi_cuda_matmul_recall(const struct cddpi_cuda_matmuls *matmuls,
                              struct cddpi_cuda_matmul_plan *plan);
/** The recalled choice cannot be launched: later processes shall not take it. */
void cddpi_cuda_matmul_reject(const struct cddpi_cuda_matmuls *matmuls,
                              const struct cddpi_cuda_matmul_plan *plan);
/** Keep the choice for later processes, if a measurement has decided. */
void cddpi_cuda_matmul_keep(const struct cddpi_cuda_matmuls *matmuls,
                            const struct cddpi_cuda_matmul_plan *plan);

/** Enqueue the product in the compute stream, with @p algorithm. */
cublasStatus_t cddpi_cuda_matmul_launch(struct cddpi_device *device,
                                        const struct cddpi_cuda_matmuls *matmuls,
                                        const struct cddpi_cuda_matmul_plan *plan,
                                        const struct cddpi_cuda_matmul_operands *operands,
                                        float beta, const cublasLtMatmulAlgo_t *algorithm);

/** Measure the @p count candidates, of which the first is chosen so far, and choose. Afterwards D
 *  has its old contents if the product adds to it, otherwise undefined contents. */
cddp_status cddpi_cuda_matmul_measure(struct cddpi_device *device,
                                      struct cddpi_cuda_matmuls *matmuls,
                                      struct cddpi_cuda_matmul_plan *plan,
                                      const struct cddpi_cuda_matmul_operands *operands,
                                      const cublasLtMatmulHeuristicResult_t *candidates, int count);

/** CDDP_ERR_DEVICE with the product's shape and cuBLASLt's description of the error. */
cddp_status cddpi_cuda_matmul_failed(struct cddpi_device *device,
                                     const struct cddpi_cuda_matmuls *matmuls,
                                     const struct cddpi_cuda_matmul_shape *shape,
                                     cublasStatus_t error, const char *call);

#endif
