/* recall.c - keeps the measured choices of products for later processes (base/tuning.h), and takes
 * them from earlier ones.
 *
 * With CDDPI_CUDA_MATMUL_SAME, what is kept gives the bits of the first algorithm of cuBLASLt's
 * heuristics, which each process would find as well. So bits do not depend on whether a rank finds
 * a choice, or which one. cuBLASLt documents that an algorithm's description can be stored and used
 * again with the same version of the library. */
#include "kernels/cuda/matmul/matmul_plan.h"

#include <stdio.h>
#include <string.h>

/* All that a choice depends on besides the device and the library. Numbers without padding. */
struct cddpi_cuda_matmul_key {
    struct cddpi_cuda_matmul_shape shape;
    int32_t tf32;
    int32_t candidates;
    int32_t workspace_mib;
};

static struct cddpi_cuda_matmul_key key_of(const struct cddpi_cuda_matmuls *matmuls,
                                           const struct cddpi_cuda_matmul_plan *plan)
{
    return (struct cddpi_cuda_matmul_key){
        plan->shape, matmuls->tf32, cddpi_cuda_matmul_candidates(&plan->shape),
        (int32_t)(cddpi_cuda_matmul_workspace_bytes(matmuls, &plan->shape) >> 20)};
}

void cddpi_cuda_matmul_tuning_open(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls)
{
    char library[64];

    snprintf(library, sizeof library, "cuBLASLt %zu", matmuls->lt.version());
    matmuls->tuning = cddpi_cuda_tuning(device, "products", library);
}

bool cddpi_cuda_matmul_recall(const struct cddpi_cuda_matmuls *matmuls,
                              struct cddpi_cuda_matmul_plan *plan)
{
    const struct cddpi_cublaslt *lt = &matmuls->lt;
    struct cddpi_cuda_matmul_key key = key_of(matmuls, plan);
    cublasLtMatmulHeuristicResult_t found;
    cublasLtMatmulAlgo_t algorithm;

    if (cddpi_tuning_find(matmuls->tuning, &key, sizeof key, &algorithm, sizeof algorithm) !=
        sizeof algorithm) {
        return false;
    }
    memset(&found, 0, sizeof found);
    if (lt->algorithm_check(matmuls->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                            &algorithm, &found) != CUBLAS_STATUS_SUCCESS ||
        found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > cddpi_cuda_matmul_workspace_bytes(matmuls, &plan->shape)) {
        cddpi_tuning_reject(matmuls->tuning, &key, sizeof key);
        return false;
    }
    found.algo = algorithm;
    plan->chosen = found;
    plan->missing = false;
    plan->tries = CDDPI_CUDA_MATMUL_TRIES;
    plan->recalled = true;
    return true;
}

void cddpi_cuda_matmul_reject(const struct cddpi_cuda_matmuls *matmuls,
                              const struct cddpi_cuda_matmul_plan *plan)
{
    struct cddpi_cuda_matmul_key key = key_of(matmuls, plan);

    cddpi_tuning_reject(matmuls->tuning, &key, sizeof key);
}

void cddpi_cuda_matmul_keep(const struct cddpi_cuda_matmuls *matmuls,
                            const struct cddpi_cuda_matmul_plan *plan)
{
    struct cddpi_cuda_matmul_key key = key_of(matmuls, plan);

    if (plan->decided) {
        cddpi_tuning_keep(matmuls->tuning, &key, sizeof key, &plan->chosen.algo,
                          sizeof plan->chosen.algo);
    }
}
