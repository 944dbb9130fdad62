/* propose.c - asks cuBLASLt's heuristics for algorithms, with the memory that they may use. */
#include "kernels/cuda/matmul/matmul_plan.h"

/* The emulated module has less. */
#ifndef CDDPI_MATMUL_LARGE_BYTES
#define CDDPI_MATMUL_LARGE_BYTES ((size_t)128 << 20)
#endif

void cddpi_cuda_matmul_workspace(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                 const struct cddpi_cuda_matmul_plan *plan)
{
    if (plan->shape.choice != CDDPI_CUDA_MATMUL_FAST || matmuls->large_workspace != NULL ||
        matmuls->no_large_workspace || cddpi_cuda_capturing(device)) {
        return;
    }
    matmuls->no_large_workspace = cddpi_cuda_alloc(device, CDDPI_MATMUL_LARGE_BYTES,
                                                   "large workspace of products",
                                                   &matmuls->large_workspace) != CDDP_OK;
}

size_t cddpi_cuda_matmul_large_bytes(const struct cddpi_cuda_matmuls *matmuls)
{
    return matmuls == NULL || (matmuls->large_workspace == NULL && !matmuls->no_large_workspace)
               ? CDDPI_MATMUL_LARGE_BYTES
               : 0;
}

size_t cddpi_cuda_matmul_workspace_bytes(const struct cddpi_cuda_matmuls *matmuls,
                                         const struct cddpi_cuda_matmul_shape *shape)
{
    return shape->choice == CDDPI_CUDA_MATMUL_FAST && matmuls->large_workspace != NULL
               ? CDDPI_MATMUL_LARGE_BYTES
               : CDDPI_CUDA_MATMUL_WORKSPACE;
}

int cddpi_cuda_matmul_candidates(const struct cddpi_cuda_matmul_shape *shape)
{
    switch (shape->choice) {
    case CDDPI_CUDA_MATMUL_FIRST:
        return 1;
    case CDDPI_CUDA_MATMUL_FAST:
        return CDDPI_CUDA_MATMUL_CANDIDATES;
    default:
        return CDDPI_CUDA_MATMUL_FEW;
    }
}

/* How split sums may be added. In the output's type a 16-bit one would lose bits, and in place
 * their order is not fixed. */
static uint32_t schemes_for(const struct cddpi_cuda_matmul_shape *shape)
{
    return shape->choice == CDDPI_CUDA_MATMUL_FAST && shape->result == CUDA_R_32F
               ? CUBLASLT_REDUCTION_SCHEME_MASK
               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static cublasStatus_t prefer(const struct cddpi_cuda_matmuls *matmuls,
                             const struct cddpi_cuda_matmul_shape *shape,
                             cublasLtMatmulPreference_t preference)
{
    const struct cddpi_cublaslt *lt = &matmuls->lt;
    uint64_t workspace = cddpi_cuda_matmul_workspace_bytes(matmuls, shape);
    uint32_t schemes = schemes_for(shape);
    uint32_t a = (uint32_t)shape->align_a;
    uint32_t b = (uint32_t)shape->align_b;
    uint32_t d = (uint32_t)shape->align_d;
    cublasStatus_t error = lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof workspace);

    CUBLAS_THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                          &schemes, sizeof schemes));
    CUBLAS_THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                          &a, sizeof a));
    CUBLAS_THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                          &b, sizeof b));
    CUBLAS_THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                          &d, sizeof d));
    CUBLAS_THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                          &d, sizeof d));
    return error;
}

cublasStatus_t cddpi_cuda_matmul_propose(const struct cddpi_cuda_matmuls *matmuls,
                                         const struct cddpi_cuda_matmul_plan *plan,
                                         cublasLtMatmulHeuristicResult_t *out, int *out_count)
{
    const struct cddpi_cublaslt *lt = &matmuls->lt;
    size_t workspace = cddpi_cuda_matmul_workspace_bytes(matmuls, &plan->shape);
    cublasLtMatmulPreference_t preference;
    cublasStatus_t error = lt->preference_create(&preference);
    int found = 0;
    int kept = 0;

    if (error != CUBLAS_STATUS_SUCCESS) {
        return error;
    }
    error = prefer(matmuls, &plan->shape, preference);
    CUBLAS_THEN(error,
                lt->heuristic(matmuls->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                              preference, cddpi_cuda_matmul_candidates(&plan->shape), out, &found));
    lt->preference_destroy(preference);
    if (error == CUBLAS_STATUS_NOT_SUPPORTED) {
        error = CUBLAS_STATUS_SUCCESS;
        found = 0;
    }
    for (int i = 0; i < found; i++) {
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= workspace) {
            out[kept++] = out[i];
        }
    }
    *out_count = kept;
    return error;
}
