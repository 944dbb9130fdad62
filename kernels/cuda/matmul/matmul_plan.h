/* matmul_plan.h - matrix products as cuBLASLt does them, one plan for each shape: descriptors, and
 * the algorithm that was chosen for it. Matrices are column-major here. */
#ifndef CDDPI_KERNELS_CUDA_MATMUL_PLAN_H
#define CDDPI_KERNELS_CUDA_MATMUL_PLAN_H

#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/matmul/cublaslt.h"

/* D (m x n) = epilogue(op(A) op(B)), all that a choice depends on. Plain numbers without gaps, so
 * that two can be compared as memory. Alignments are of pointers, in bytes, 64 at most. */
struct cddpi_cuda_matmul_shape {
    int32_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t type;   /* cudaDataType of A, B, and of what the epilogue reads */
    int32_t result; /* of D */
    int32_t epilogue;
    int32_t choice; /* enum cddpi_cuda_matmul_choice */
    int32_t align_a, align_b, align_d, align_bias, align_aux;
};

struct cddpi_cuda_matmul_operands {
    const void *a, *b;
    void *d;
    const void *bias; /* NULL: the epilogue has none */
    void *aux;        /* m x n; NULL: the epilogue has none */
    bool add;         /* D += */
};

/* $CDDP_PRODUCTS; unset: what the caller asks for. */
enum cddpi_cuda_matmul_choice {
    CDDPI_CUDA_MATMUL_UNSET,
    CDDPI_CUDA_MATMUL_FIRST,
    CDDPI_CUDA_MATMUL_SAME,
    CDDPI_CUDA_MATMUL_FAST
};

enum {
    CDDPI_CUDA_MATMUL_CANDIDATES = 16,
    CDDPI_CUDA_MATMUL_TRIES = 3 /* calls after which nothing more is measured */
};

struct cddpi_cuda_matmul_plan {
    struct cddpi_cuda_matmul_shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t chosen;
    bool missing; /* cuBLASLt has nothing for this shape */
    int tries;    /* calls that measured so far */
};

enum { CDDPI_CUDA_MATMUL_OLD = 32 };

/* What the device cache holds for matrix products. */
struct cddpi_cuda_matmuls {
    struct cddpi_cublaslt lt;
    cublasLtHandle_t handle;
    enum cddpi_cuda_matmul_choice choice;
    bool tf32;
    void *workspace;
    uint64_t *fingerprint; /* two numbers */
    struct cddpi_cuda_matmul_plan **plans;
    size_t plan_count, plan_room;
    /* Memory for what is between two launches of one call. It grows; what captured graphs may still
     * use is kept. */
    void *scratch;
    size_t scratch_bytes;
    void *old[CDDPI_CUDA_MATMUL_OLD];
    size_t old_count;
};

/** The device's, made by the first call, which cannot be part of a capture.
 *  CDDP_ERR_UNAVAILABLE: there is no cuBLASLt, with the reason. */
cddp_status cddpi_cuda_matmuls_get(struct cddpi_device *device, struct cddpi_cuda_matmuls **out);

/** The part of matrix products in first_use_bytes of struct cddpi_cuda_kernels. */
size_t cddpi_cuda_matmuls_first_use_bytes(struct cddpi_device *device);

/** @p bytes of scratch, valid until the next call. */
cddp_status cddpi_cuda_matmuls_scratch(struct cddpi_device *device,
                                       struct cddpi_cuda_matmuls *matmuls, size_t bytes,
                                       void **out);

/** Whether the compute stream is being captured. */
bool cddpi_cuda_matmuls_capturing(struct cddpi_device *device);

/** Put the product into the compute stream. @p out_missing: cuBLASLt has nothing for this shape and
 * epilogue; nothing was done. */
cddp_status cddpi_cuda_matmul_run(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                  const struct cddpi_cuda_matmul_shape *shape,
                                  const struct cddpi_cuda_matmul_operands *operands,
                                  bool *out_missing);

/* --- between matmul_plan.c and choose.c --- */

/** Put the product into the compute stream, with @p algorithm. */
cublasStatus_t cddpi_cuda_matmul_launch(struct cddpi_device *device,
                                        const struct cddpi_cuda_matmuls *matmuls,
                                        const struct cddpi_cuda_matmul_plan *plan,
                                        const struct cddpi_cuda_matmul_operands *operands,
                                        float beta, const cublasLtMatmulAlgo_t *algorithm);

/** Measure the @p count candidates, of which the first is chosen so far, and choose. What operands
 * point at has its old content afterwards where it is added to, else anything. */
cddp_status cddpi_cuda_matmul_measure(struct cddpi_device *device,
                                      struct cddpi_cuda_matmuls *matmuls,
                                      struct cddpi_cuda_matmul_plan *plan,
                                      const struct cddpi_cuda_matmul_operands *operands,
                                      const cublasLtMatmulHeuristicResult_t *candidates, int count);

/** CDDP_ERR_DEVICE with the product's shape and cuBLASLt's sentence. */
cddp_status cddpi_cuda_matmul_failed(struct cddpi_device *device,
                                     const struct cddpi_cuda_matmuls *matmuls,
                                     const struct cddpi_cuda_matmul_shape *shape,
                                     cublasStatus_t error, const char *call);

#endif
