/* matmul_plan.c - owns the entry of the device cache for matrix products: cuBLASLt's handle, the
 * workspace, and a plan for each shape. */
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/library.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const size_t fingerprint_bytes = 2 * sizeof(uint64_t);

cddp_status cddpi_cuda_matmul_failed(struct cddpi_device *device,
                                     const struct cddpi_cuda_matmuls *matmuls,
                                     const struct cddpi_cuda_matmul_shape *shape,
                                     cublasStatus_t error, const char *call)
{
    return cuda_fail(device, CDDP_ERR_DEVICE, "product of %d x %d by %d x %d: %s: %s (%s)",
                     shape->n, shape->k, shape->k, shape->m, call, matmuls->lt.status_string(error),
                     matmuls->lt.status_name(error));
}

static void plan_destroy(const struct cddpi_cublaslt *lt, struct cddpi_cuda_matmul_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    if (plan->a != NULL) {
        lt->layout_destroy(plan->a);
    }
    if (plan->b != NULL) {
        lt->layout_destroy(plan->b);
    }
    if (plan->d != NULL) {
        lt->layout_destroy(plan->d);
    }
    if (plan->desc != NULL) {
        lt->desc_destroy(plan->desc);
    }
    cddpi_free(plan);
}

static void matmuls_release(struct cddpi_device *device, void *state)
{
    struct cddpi_cuda_matmuls *matmuls = state;

    for (size_t i = 0; i < matmuls->plan_count; i++) {
        plan_destroy(&matmuls->lt, matmuls->plans[i]);
    }
    cddpi_free(matmuls->plans);
    cddpi_tuning_close(matmuls->tuning);
    cddpi_cuda_release(device, matmuls->fingerprint);
    cddpi_cuda_release(device, matmuls->large_workspace);
    cddpi_cuda_release(device, matmuls->workspace);
    if (matmuls->handle != NULL) {
        matmuls->lt.destroy(matmuls->handle);
    }
    cddpi_free(matmuls);
}

/* Environment variables are listed in libcddp's table (src/runtime/base/env.h), with their meaning.
 */
bool cddpi_cuda_tf32(void)
{
    const char *tf32 = getenv("CDDP_TF32");

    return tf32 != NULL && strcmp(tf32, "1") == 0;
}

static cddp_status read_environment(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls)
{
    const char *choice = getenv("CDDP_PRODUCTS");

    if (choice == NULL || choice[0] == '\0') {
        matmuls->choice = CDDPI_CUDA_MATMUL_UNSET;
    } else if (strcmp(choice, "same") == 0) {
        matmuls->choice = CDDPI_CUDA_MATMUL_SAME;
    } else if (strcmp(choice, "first") == 0) {
        matmuls->choice = CDDPI_CUDA_MATMUL_FIRST;
    } else if (strcmp(choice, "fast") == 0) {
        matmuls->choice = CDDPI_CUDA_MATMUL_FAST;
    } else {
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
                         "CDDP_PRODUCTS=%s is not one of first, same and fast", choice);
    }
    matmuls->tf32 = cddpi_cuda_tf32();
    return CDDP_OK;
}

/* CDDP_ERR_UNAVAILABLE: the library is missing or lacks a function. It stays open. */
static cddp_status open_library(struct cddpi_device *device, struct cddpi_cublaslt *out)
{
    struct cddpi_cublaslt lt;
    void *library;

    CDDPI_TRY(cuda_library_open(CUDA_LIBRARY_CUBLASLT, &library));
#define LOOK_UP(member, symbol)                                                                    \
    *(void **)&lt.member = cuda_library_symbol(library, #symbol);                                  \
    if (lt.member == NULL) {                                                                       \
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE, "this cuBLASLt lacks " #symbol);            \
    }
    CDDPI_CUBLASLT_FUNCTIONS(LOOK_UP)
    *out = lt;
    return CDDP_OK;
}

static cddp_status fill_matmuls(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls)
{
    cublasStatus_t error;

    CDDPI_TRY(open_library(device, &matmuls->lt));
    CDDPI_TRY(read_environment(device, matmuls));
    error = matmuls->lt.create(&matmuls->handle);
    if (error != CUBLAS_STATUS_SUCCESS) {
        matmuls->handle = NULL;
        return cuda_fail(device, CDDP_ERR_DEVICE, "cublasLtCreate: %s (%s)",
                         matmuls->lt.status_string(error), matmuls->lt.status_name(error));
    }
    cddpi_cuda_matmul_tuning_open(device, matmuls);
    CDDPI_TRY(cddpi_cuda_alloc(device, CDDPI_CUDA_MATMUL_WORKSPACE, "workspace of products",
                               &matmuls->workspace));
    return cddpi_cuda_alloc(device, fingerprint_bytes, "fingerprints of products",
                            (void **)&matmuls->fingerprint);
}

cddp_status cddpi_cuda_matmuls_get(struct cddpi_device *device, struct cddpi_cuda_matmuls **out)
{
    struct cddpi_cuda_cache *slot = cddpi_cuda_cache(device, CDDPI_CUDA_CACHE_MATMUL);
    struct cddpi_cuda_matmuls *matmuls = slot->state;
    cddp_status status;

    if (matmuls != NULL) {
        *out = matmuls;
        return CDDP_OK;
    }
    if (cddpi_cuda_capturing(device)) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the first product on a device cannot be captured");
    }
    matmuls = cddpi_zalloc(sizeof *matmuls);
    if (matmuls == NULL) {
        return cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for %zu bytes",
                         sizeof *matmuls);
    }
    status = fill_matmuls(device, matmuls);
    if (status != CDDP_OK) {
        matmuls_release(device, matmuls);
        return status;
    }
    *slot = (struct cddpi_cuda_cache){matmuls, matmuls_release};
    *out = matmuls;
    return CDDP_OK;
}

size_t cddpi_cuda_matmuls_first_use_bytes(struct cddpi_device *device, bool any_order)
{
    const struct cddpi_cuda_matmuls *matmuls =
        cddpi_cuda_cache(device, CDDPI_CUDA_CACHE_MATMUL)->state;
    const char *choice = getenv("CDDP_PRODUCTS");
    bool fast = choice == NULL || choice[0] == '\0' ? any_order : strcmp(choice, "fast") == 0;

    return (matmuls == NULL ? CDDPI_CUDA_MATMUL_WORKSPACE + fingerprint_bytes : 0) +
           (fast ? cddpi_cuda_matmul_large_bytes(matmuls) : 0);
}

/* --- plans --- */

cublasStatus_t cddpi_cuda_matmul_launch(struct cddpi_device *device,
                                        const struct cddpi_cuda_matmuls *matmuls,
                                        const struct cddpi_cuda_matmul_plan *plan,
                                        const struct cddpi_cuda_matmul_operands *operands,
                                        float beta, const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1;
    bool large = plan->shape.choice == CDDPI_CUDA_MATMUL_FAST && matmuls->large_workspace != NULL;

    return matmuls->lt.matmul(matmuls->handle, plan->desc, &one, operands->a, plan->a, operands->b,
                              plan->b, &beta, operands->d, plan->d, operands->d, plan->d, algorithm,
                              large ? matmuls->large_workspace : matmuls->workspace,
                              cddpi_cuda_matmul_workspace_bytes(matmuls, &plan->shape),
                              cddpi_cuda_compute_stream(device));
}

static cublasStatus_t describe(const struct cddpi_cuda_matmuls *matmuls,
                               struct cddpi_cuda_matmul_plan *plan)
{
    const struct cddpi_cublaslt *lt = &matmuls->lt;
    const struct cddpi_cuda_matmul_shape *s = &plan->shape;
    bool tf32 = matmuls->tf32 && s->type == CUDA_R_32F;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int32_t op_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t op_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = (uint32_t)s->epilogue;
    uint64_t m = (uint64_t)s->m;
    uint64_t n = (uint64_t)s->n;
    uint64_t k = (uint64_t)s->k;
    cublasStatus_t error = lt->desc_create(&plan->desc, compute, CUDA_R_32F);

    CUBLAS_THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    CUBLAS_THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    CUBLAS_THEN(
        error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    CUBLAS_THEN(error, lt->layout_create(&plan->a, (cudaDataType)s->type, s->transpose_a ? k : m,
                                         s->transpose_a ? m : k, s->transpose_a ? s->k : s->m));
    CUBLAS_THEN(error, lt->layout_create(&plan->b, (cudaDataType)s->type, s->transpose_b ? n : k,
                                         s->transpose_b ? k : n, s->transpose_b ? s->n : s->k));
    CUBLAS_THEN(error, lt->layout_create(&plan->d, (cudaDataType)s->result, m, n, s->m));
    return error;
}

/* Pointers are part of the descriptor, because heuristics check their alignment. */
static cublasStatus_t point(const struct cddpi_cuda_matmuls *matmuls,
                            const struct cddpi_cuda_matmul_plan *plan,
                            const struct cddpi_cuda_matmul_operands *operands)
{
    const struct cddpi_cublaslt *lt = &matmuls->lt;
    int64_t rows = plan->shape.m;
    cublasStatus_t error = CUBLAS_STATUS_SUCCESS;

    if (operands->bias != NULL) {
        CUBLAS_THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                        &operands->bias, sizeof operands->bias));
    }
    if (operands->aux != NULL) {
        CUBLAS_THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                        &operands->aux, sizeof operands->aux));
        CUBLAS_THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &rows,
                                        sizeof rows));
    }
    return error;
}

static cddp_status add_plan(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                            const struct cddpi_cuda_matmul_shape *shape,
                            struct cddpi_cuda_matmul_plan **out)
{
    struct cddpi_cuda_matmul_plan *plan;
    cublasStatus_t error;

    if (matmuls->plan_count == matmuls->plan_room) {
        size_t room = matmuls->plan_room > 0 ? 2 * matmuls->plan_room : 32;
        struct cddpi_cuda_matmul_plan **plans = cddpi_zalloc(
            room * sizeof(struct cddpi_cuda_matmul_plan *));

        if (plans == NULL) {
            return cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for %zu plans", room);
        }
        for (size_t i = 0; i < matmuls->plan_count; i++) {
            plans[i] = matmuls->plans[i];
        }
        cddpi_free(matmuls->plans);
        matmuls->plans = plans;
        matmuls->plan_room = room;
    }
    plan = cddpi_zalloc(sizeof *plan);
    if (plan == NULL) {
        return cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for a plan");
    }
    plan->shape = *shape;
    error = describe(matmuls, plan);
    if (error != CUBLAS_STATUS_SUCCESS) {
        plan_destroy(&matmuls->lt, plan);
        return cddpi_cuda_matmul_failed(device, matmuls, shape, error, "its description");
    }
    matmuls->plans[matmuls->plan_count++] = plan;
    *out = plan;
    return CDDP_OK;
}

/* Get algorithms, and measure them if that is possible now. */
static cddp_status choose(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                          struct cddpi_cuda_matmul_plan *plan,
                          const struct cddpi_cuda_matmul_operands *operands)
{
    cublasLtMatmulHeuristicResult_t candidates[CDDPI_CUDA_MATMUL_CANDIDATES];
    bool capturing = cddpi_cuda_capturing(device);
    int count = 0;
    cublasStatus_t error = cddpi_cuda_matmul_propose(matmuls, plan, candidates, &count);

    if (error != CUBLAS_STATUS_SUCCESS) {
        return cddpi_cuda_matmul_failed(device, matmuls, &plan->shape, error,
                                        "cublasLtMatmulAlgoGetHeuristic");
    }
    plan->missing = count == 0;
    if (plan->missing) {
        plan->tries = CDDPI_CUDA_MATMUL_TRIES;
        return CDDP_OK;
    }
    plan->chosen = candidates[0];
    if (plan->shape.choice == CDDPI_CUDA_MATMUL_FIRST) {
        plan->tries = CDDPI_CUDA_MATMUL_TRIES;
    } else if (!capturing) {
        plan->tries++;
        CDDPI_TRY(cddpi_cuda_matmul_measure(device, matmuls, plan, operands, candidates, count));
        cddpi_cuda_matmul_keep(matmuls, plan);
    }
    return CDDP_OK;
}

/* Take the choice of an earlier process, or choose. */
static cddp_status settle(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                          struct cddpi_cuda_matmul_plan *plan,
                          const struct cddpi_cuda_matmul_operands *operands)
{
    cddpi_cuda_matmul_workspace(device, matmuls, plan);
    return plan->tries == 0 && cddpi_cuda_matmul_recall(matmuls, plan)
               ? CDDP_OK
               : choose(device, matmuls, plan, operands);
}

/* cuBLASLt has accepted an earlier process's choice, but cannot launch it: choose, and launch that.
 */
static cddp_status launch_another(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                  struct cddpi_cuda_matmul_plan *plan,
                                  const struct cddpi_cuda_matmul_operands *operands,
                                  cublasStatus_t *out_error)
{
    plan->recalled = false;
    plan->tries = 0;
    cddpi_cuda_matmul_reject(matmuls, plan);
    CDDPI_TRY(choose(device, matmuls, plan, operands));
    *out_error = plan->missing
                     ? CUBLAS_STATUS_SUCCESS
                     : cddpi_cuda_matmul_launch(device, matmuls, plan, operands,
                                                operands->add ? 1.0f : 0.0f, &plan->chosen.algo);
    return CDDP_OK;
}

cddp_status cddpi_cuda_matmul_run(struct cddpi_device *device, struct cddpi_cuda_matmuls *matmuls,
                                  const struct cddpi_cuda_matmul_shape *shape,
                                  const struct cddpi_cuda_matmul_operands *operands,
                                  bool *out_missing)
{
    struct cddpi_cuda_matmul_plan *plan = NULL;
    bool fresh;
    cublasStatus_t error;
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < matmuls->plan_count && plan == NULL; i++) {
        if (memcmp(&matmuls->plans[i]->shape, shape, sizeof *shape) == 0) {
            plan = matmuls->plans[i];
        }
    }
    fresh = plan == NULL;
    if (fresh) {
        CDDPI_TRY(add_plan(device, matmuls, shape, &plan));
    }
    error = point(matmuls, plan, operands);
    if (error != CUBLAS_STATUS_SUCCESS) {
        return cddpi_cuda_matmul_failed(device, matmuls, shape, error, "its pointers");
    }
    if (fresh || (plan->tries < CDDPI_CUDA_MATMUL_TRIES && !cddpi_cuda_capturing(device))) {
        status = settle(device, matmuls, plan, operands);
    }
    *out_missing = plan->missing;
    if (status != CDDP_OK || plan->missing) {
        return status;
    }
    error = cddpi_cuda_matmul_launch(device, matmuls, plan, operands, operands->add ? 1.0f : 0.0f,
                                     &plan->chosen.algo);
    if (error != CUBLAS_STATUS_SUCCESS && plan->recalled) {
        CDDPI_TRY(launch_another(device, matmuls, plan, operands, &error));
        *out_missing = plan->missing;
    }
    plan->recalled = false;
    return error == CUBLAS_STATUS_SUCCESS
               ? CDDP_OK
               : cddpi_cuda_matmul_failed(device, matmuls, shape, error, "cublasLtMatmul");
}
