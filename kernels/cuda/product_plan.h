/* product_plan.h - products as cuBLASLt does them, one plan for each shape: descriptors, and the
 * algorithm that was chosen for it. Matrices are column-major here. */
#ifndef CDDPI_CUDA_PRODUCT_PLAN_H
#define CDDPI_CUDA_PRODUCT_PLAN_H

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/kernels_module.h"

/* D (m x n) = epilogue(op(A) op(B)), all that a choice depends on. Plain numbers without gaps, so
 * that two can be compared as memory. Alignments are of pointers, in bytes, 64 at most. */
struct cddpi_product_shape {
    int32_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t type;   /* cudaDataType of A, B, and of what the epilogue reads */
    int32_t result; /* of D */
    int32_t epilogue;
    int32_t choice; /* enum cddpi_product_choice */
    int32_t align_a, align_b, align_d, align_bias, align_aux;
};

struct cddpi_product_operands {
    const void *a, *b;
    void *d;
    const void *bias; /* NULL: the epilogue has none */
    void *aux;        /* m x n; NULL: the epilogue has none */
    bool add;         /* D += */
};

/* $CDDP_PRODUCTS; unset: what the caller asks for. */
enum cddpi_product_choice {
    CDDPI_PRODUCTS_UNSET,
    CDDPI_PRODUCTS_FIRST,
    CDDPI_PRODUCTS_SAME,
    CDDPI_PRODUCTS_FAST
};

enum {
    CDDPI_PRODUCT_CANDIDATES = 16,
    CDDPI_PRODUCT_TRIES = 3 /* calls after which nothing more is measured */
};

struct cddpi_product_plan {
    struct cddpi_product_shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t chosen;
    bool missing; /* cuBLASLt has nothing for this shape */
    int tries;    /* calls that measured so far */
};

enum { CDDPI_PRODUCT_OLD = 32 };

/* What a device keeps for products. */
struct cddpi_cuda_products {
    struct cddpi_cublaslt lt;
    cublasLtHandle_t handle;
    enum cddpi_product_choice choice;
    bool tf32;
    void *workspace;
    uint64_t *fingerprint; /* two numbers */
    struct cddpi_product_plan **plans;
    size_t plan_count, plan_room;
    /* Memory for what is between two launches of one call. It grows; what recordings may still use
     * is kept. */
    void *scratch;
    size_t scratch_bytes;
    void *old[CDDPI_PRODUCT_OLD];
    size_t old_count;
};

/** The device's, made by the first call, which cannot be part of a recording.
 *  CDDP_ERR_UNAVAILABLE: there is no cuBLASLt, with the reason. */
cddp_status cddpi_products_get(struct cddpi_device *device, struct cddpi_cuda_products **out);

/** The part of products in memory_to_come of struct cddpi_cuda_kernels. */
size_t cddpi_products_to_come(struct cddpi_device *device);

/** @p bytes of scratch, valid until the next call. */
cddp_status cddpi_products_scratch(struct cddpi_device *device,
                                   struct cddpi_cuda_products *products, size_t bytes, void **out);

/** Whether the compute stream records. */
bool cddpi_products_recording(struct cddpi_device *device);

/** Do it. @p out_missing: cuBLASLt has nothing for this shape and epilogue; nothing was done. */
cddp_status cddpi_product_run(struct cddpi_device *device, struct cddpi_cuda_products *products,
                              const struct cddpi_product_shape *shape,
                              const struct cddpi_product_operands *operands, bool *out_missing);

/* --- between product_plan.c and product_choose.c --- */

/** Put the product into the compute stream, with @p algorithm. */
cublasStatus_t cddpi_product_launch(struct cddpi_device *device,
                                    const struct cddpi_cuda_products *products,
                                    const struct cddpi_product_plan *plan,
                                    const struct cddpi_product_operands *operands, float beta,
                                    const cublasLtMatmulAlgo_t *algorithm);

/** Measure the @p count candidates, of which the first is chosen so far, and choose. What operands
 * point at has its old content afterwards where it is added to, else anything. */
cddp_status cddpi_product_measure(struct cddpi_device *device, struct cddpi_cuda_products *products,
                                  struct cddpi_product_plan *plan,
                                  const struct cddpi_product_operands *operands,
                                  const cublasLtMatmulHeuristicResult_t *candidates, int count);

/** CDDP_ERR_DEVICE with the product's shape and cuBLASLt's sentence. */
cddp_status cddpi_product_failed(struct cddpi_device *device,
                                 const struct cddpi_cuda_products *products,
                                 const struct cddpi_product_shape *shape, cublasStatus_t error,
                                 const char *call);

#endif
