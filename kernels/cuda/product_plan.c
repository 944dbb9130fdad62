/* product_plan.c - owns what a device keeps for products: cuBLASLt's handle, the workspace, and a
 * plan for each shape. */
#include "kernels/cuda/product_plan.h"

#include "device/device.h"

#include <stdlib.h>
#include <string.h>

/* What NVIDIA recommends for the H100 and later; an A100 wants less. */
static const size_t workspace_bytes = (size_t)32 << 20;
static const size_t fingerprint_bytes = 2 * sizeof(uint64_t);
static const size_t smallest_scratch = (size_t)1 << 20;

bool cddpi_products_recording(struct cddpi_device *device)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(cddpi_cuda_compute_stream(device), &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

cddp_status cddpi_product_failed(struct cddpi_device *device,
                                 const struct cddpi_cuda_products *products,
                                 const struct cddpi_product_shape *shape, cublasStatus_t error,
                                 const char *call)
{
    return cddpi_cuda_fail(device, CDDP_ERR_DEVICE, "product of %d x %d by %d x %d: %s: %s (%s)",
                           shape->n, shape->k, shape->k, shape->m, call,
                           products->lt.status_string(error), products->lt.status_name(error));
}

static void plan_destroy(struct cddpi_device *device, const struct cddpi_cublaslt *lt,
                         struct cddpi_product_plan *plan)
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
    cddpi_cuda_host_free(device, plan);
}

static void products_release(struct cddpi_device *device, void *state)
{
    struct cddpi_cuda_products *products = state;

    for (size_t i = 0; i < products->plan_count; i++) {
        plan_destroy(device, &products->lt, products->plans[i]);
    }
    cddpi_cuda_host_free(device, products->plans);
    for (size_t i = 0; i < products->old_count; i++) {
        device->ops->release(device, products->old[i]);
    }
    device->ops->release(device, products->scratch);
    device->ops->release(device, products->fingerprint);
    device->ops->release(device, products->workspace);
    if (products->handle != NULL) {
        products->lt.destroy(products->handle);
    }
    cddpi_cuda_host_free(device, products);
}

/* The environment is libcddp's table (src/base/env.h), which also says what these mean. */
bool cddpi_cuda_tf32(void)
{
    const char *tf32 = getenv("CDDP_TF32");

    return tf32 != NULL && strcmp(tf32, "1") == 0;
}

static cddp_status read_environment(struct cddpi_device *device,
                                    struct cddpi_cuda_products *products)
{
    const char *choice = getenv("CDDP_PRODUCTS");

    if (choice == NULL || choice[0] == '\0') {
        products->choice = CDDPI_PRODUCTS_UNSET;
    } else if (strcmp(choice, "same") == 0) {
        products->choice = CDDPI_PRODUCTS_SAME;
    } else if (strcmp(choice, "first") == 0) {
        products->choice = CDDPI_PRODUCTS_FIRST;
    } else if (strcmp(choice, "fast") == 0) {
        products->choice = CDDPI_PRODUCTS_FAST;
    } else {
        return cddpi_cuda_fail(device, CDDP_ERR_ARGUMENT,
                               "CDDP_PRODUCTS=%s is none of first, same and fast", choice);
    }
    products->tf32 = cddpi_cuda_tf32();
    return CDDP_OK;
}

static cddp_status fill(struct cddpi_device *device, struct cddpi_cuda_products *products)
{
    cublasStatus_t error;
    cddp_status status = cddpi_cublaslt_open(device, &products->lt);

    if (status == CDDP_OK) {
        status = read_environment(device, products);
    }
    if (status != CDDP_OK) {
        return status;
    }
    error = products->lt.create(&products->handle);
    if (error != CUBLAS_STATUS_SUCCESS) {
        products->handle = NULL;
        return cddpi_cuda_fail(device, CDDP_ERR_DEVICE, "cublasLtCreate: %s (%s)",
                               products->lt.status_string(error), products->lt.status_name(error));
    }
    status = device->ops->alloc(device, workspace_bytes, "workspace of products",
                                &products->workspace);
    if (status == CDDP_OK) {
        status = device->ops->alloc(device, fingerprint_bytes, "fingerprints of products",
                                    (void **)&products->fingerprint);
    }
    return status;
}

cddp_status cddpi_products_get(struct cddpi_device *device, struct cddpi_cuda_products **out)
{
    struct cddpi_cuda_kept *kept = cddpi_cuda_kept(device, CDDPI_CUDA_PRODUCTS);
    struct cddpi_cuda_products *products = kept->state;
    cddp_status status;

    if (products != NULL) {
        *out = products;
        return CDDP_OK;
    }
    if (cddpi_products_recording(device)) {
        return cddpi_cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                               "the first product on a device cannot be recorded");
    }
    products = cddpi_cuda_host_alloc(device, sizeof *products);
    if (products == NULL) {
        return cddpi_cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for %zu bytes",
                               sizeof *products);
    }
    status = fill(device, products);
    if (status != CDDP_OK) {
        products_release(device, products);
        return status;
    }
    *kept = (struct cddpi_cuda_kept){products, products_release};
    *out = products;
    return CDDP_OK;
}

size_t cddpi_products_to_come(struct cddpi_device *device)
{
    const struct cddpi_cuda_products *products =
        cddpi_cuda_kept(device, CDDPI_CUDA_PRODUCTS)->state;

    return (products == NULL ? workspace_bytes + fingerprint_bytes : 0) +
           (products == NULL || products->scratch_bytes == 0 ? smallest_scratch : 0);
}

cddp_status cddpi_products_scratch(struct cddpi_device *device,
                                   struct cddpi_cuda_products *products, size_t bytes, void **out)
{
    size_t wanted = products->scratch_bytes > 0 ? products->scratch_bytes : smallest_scratch;
    void *memory;
    cddp_status status;

    while (wanted < bytes) {
        wanted *= 2;
    }
    if (wanted > products->scratch_bytes) {
        if (cddpi_products_recording(device)) {
            return cddpi_cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                                   "the first product of a shape that needs %zu bytes of scratch "
                                   "cannot be recorded",
                                   bytes);
        }
        status = device->ops->alloc(device, wanted, "scratch of products", &memory);
        if (status != CDDP_OK) {
            return status;
        }
        if (products->scratch != NULL && products->old_count < CDDPI_PRODUCT_OLD) {
            products->old[products->old_count++] = products->scratch;
        }
        products->scratch = memory;
        products->scratch_bytes = wanted;
    }
    *out = products->scratch;
    return CDDP_OK;
}

/* --- plans --- */

cublasStatus_t cddpi_product_launch(struct cddpi_device *device,
                                    const struct cddpi_cuda_products *products,
                                    const struct cddpi_product_plan *plan,
                                    const struct cddpi_product_operands *operands, float beta,
                                    const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1;

    return products->lt.matmul(products->handle, plan->desc, &one, operands->a, plan->a,
                               operands->b, plan->b, &beta, operands->d, plan->d, operands->d,
                               plan->d, algorithm, products->workspace, workspace_bytes,
                               cddpi_cuda_compute_stream(device));
}

/* Each step only if those before it went well. */
#define THEN(error, call)                                                                          \
    do {                                                                                           \
        if ((error) == CUBLAS_STATUS_SUCCESS) {                                                    \
            (error) = (call);                                                                      \
        }                                                                                          \
    } while (0)

static cublasStatus_t describe(const struct cddpi_cuda_products *products,
                               struct cddpi_product_plan *plan)
{
    const struct cddpi_cublaslt *lt = &products->lt;
    const struct cddpi_product_shape *s = &plan->shape;
    bool tf32 = products->tf32 && s->type == CUDA_R_32F;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int32_t op_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t op_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = (uint32_t)s->epilogue;
    uint64_t m = (uint64_t)s->m;
    uint64_t n = (uint64_t)s->n;
    uint64_t k = (uint64_t)s->k;
    cublasStatus_t error = lt->desc_create(&plan->desc, compute, CUDA_R_32F);

    THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    THEN(error,
         lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    THEN(error, lt->layout_create(&plan->a, (cudaDataType)s->type, s->transpose_a ? k : m,
                                  s->transpose_a ? m : k, s->transpose_a ? s->k : s->m));
    THEN(error, lt->layout_create(&plan->b, (cudaDataType)s->type, s->transpose_b ? n : k,
                                  s->transpose_b ? k : n, s->transpose_b ? s->n : s->k));
    THEN(error, lt->layout_create(&plan->d, (cudaDataType)s->result, m, n, s->m));
    return error;
}

/* Pointers are part of the descriptor; heuristics look at their alignment. */
static cublasStatus_t point(const struct cddpi_cuda_products *products,
                            const struct cddpi_product_plan *plan,
                            const struct cddpi_product_operands *operands)
{
    const struct cddpi_cublaslt *lt = &products->lt;
    int64_t rows = plan->shape.m;
    cublasStatus_t error = CUBLAS_STATUS_SUCCESS;

    if (operands->bias != NULL) {
        THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands->bias,
                                 sizeof operands->bias));
    }
    if (operands->aux != NULL) {
        THEN(error, lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                 &operands->aux, sizeof operands->aux));
        THEN(error,
             lt->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &rows, sizeof rows));
    }
    return error;
}

/* Split sums may be added up in their own type only: in the output's they lose bits, and in place
 * their order is in question. */
static cublasStatus_t prefer(const struct cddpi_cuda_products *products,
                             const struct cddpi_product_shape *shape,
                             cublasLtMatmulPreference_t preference)
{
    const struct cddpi_cublaslt *lt = &products->lt;
    uint64_t workspace = workspace_bytes;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t a = (uint32_t)shape->align_a;
    uint32_t b = (uint32_t)shape->align_b;
    uint32_t d = (uint32_t)shape->align_d;
    cublasStatus_t error = lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof workspace);

    THEN(error, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                   sizeof schemes));
    THEN(error,
         lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a));
    THEN(error,
         lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b));
    THEN(error,
         lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d));
    THEN(error,
         lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d));
    return error;
}

/* What cuBLASLt proposes, best first; none is no error. */
static cublasStatus_t propose(const struct cddpi_cuda_products *products,
                              const struct cddpi_product_plan *plan,
                              cublasLtMatmulHeuristicResult_t *out, int *out_count)
{
    const struct cddpi_cublaslt *lt = &products->lt;
    cublasLtMatmulPreference_t preference;
    cublasStatus_t error = lt->preference_create(&preference);
    int found = 0;
    int kept = 0;

    if (error != CUBLAS_STATUS_SUCCESS) {
        return error;
    }
    error = prefer(products, &plan->shape, preference);
    THEN(error,
         lt->heuristic(products->handle, plan->desc, plan->a, plan->b, plan->d, plan->d, preference,
                       plan->shape.choice == CDDPI_PRODUCTS_FIRST ? 1 : CDDPI_PRODUCT_CANDIDATES,
                       out, &found));
    lt->preference_destroy(preference);
    if (error == CUBLAS_STATUS_NOT_SUPPORTED) {
        error = CUBLAS_STATUS_SUCCESS;
        found = 0;
    }
    for (int i = 0; i < found; i++) {
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= workspace_bytes) {
            out[kept++] = out[i];
        }
    }
    *out_count = kept;
    return error;
}

static cddp_status add_plan(struct cddpi_device *device, struct cddpi_cuda_products *products,
                            const struct cddpi_product_shape *shape,
                            struct cddpi_product_plan **out)
{
    struct cddpi_product_plan *plan;
    cublasStatus_t error;

    if (products->plan_count == products->plan_room) {
        size_t room = products->plan_room > 0 ? 2 * products->plan_room : 32;
        struct cddpi_product_plan **plans = cddpi_cuda_host_alloc(
            device, room * sizeof(struct cddpi_product_plan *));

        if (plans == NULL) {
            return cddpi_cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for %zu plans",
                                   room);
        }
        for (size_t i = 0; i < products->plan_count; i++) {
            plans[i] = products->plans[i];
        }
        cddpi_cuda_host_free(device, products->plans);
        products->plans = plans;
        products->plan_room = room;
    }
    plan = cddpi_cuda_host_alloc(device, sizeof *plan);
    if (plan == NULL) {
        return cddpi_cuda_fail(device, CDDP_ERR_NO_MEMORY, "products: no memory for a plan");
    }
    plan->shape = *shape;
    error = describe(products, plan);
    if (error != CUBLAS_STATUS_SUCCESS) {
        plan_destroy(device, &products->lt, plan);
        return cddpi_product_failed(device, products, shape, error, "its description");
    }
    products->plans[products->plan_count++] = plan;
    *out = plan;
    return CDDP_OK;
}

static struct cddpi_product_plan *find_plan(const struct cddpi_cuda_products *products,
                                            const struct cddpi_product_shape *shape)
{
    for (size_t i = 0; i < products->plan_count; i++) {
        if (memcmp(&products->plans[i]->shape, shape, sizeof *shape) == 0) {
            return products->plans[i];
        }
    }
    return NULL;
}

/* Ask for algorithms, and measure them where that can be done. */
static cddp_status settle(struct cddpi_device *device, struct cddpi_cuda_products *products,
                          struct cddpi_product_plan *plan,
                          const struct cddpi_product_operands *operands)
{
    cublasLtMatmulHeuristicResult_t candidates[CDDPI_PRODUCT_CANDIDATES];
    bool recording = cddpi_products_recording(device);
    int count = 0;
    cublasStatus_t error = propose(products, plan, candidates, &count);

    if (error != CUBLAS_STATUS_SUCCESS) {
        return cddpi_product_failed(device, products, &plan->shape, error,
                                    "cublasLtMatmulAlgoGetHeuristic");
    }
    plan->missing = count == 0;
    if (plan->missing) {
        plan->tries = CDDPI_PRODUCT_TRIES;
        return CDDP_OK;
    }
    plan->chosen = candidates[0];
    if (plan->shape.choice == CDDPI_PRODUCTS_FIRST) {
        plan->tries = CDDPI_PRODUCT_TRIES;
    } else if (!recording) {
        plan->tries++;
        return cddpi_product_measure(device, products, plan, operands, candidates, count);
    }
    return CDDP_OK;
}

cddp_status cddpi_product_run(struct cddpi_device *device, struct cddpi_cuda_products *products,
                              const struct cddpi_product_shape *shape,
                              const struct cddpi_product_operands *operands, bool *out_missing)
{
    struct cddpi_product_plan *plan = find_plan(products, shape);
    bool fresh = plan == NULL;
    cublasStatus_t error;
    cddp_status status = fresh ? add_plan(device, products, shape, &plan) : CDDP_OK;

    if (status != CDDP_OK) {
        return status;
    }
    error = point(products, plan, operands);
    if (error != CUBLAS_STATUS_SUCCESS) {
        return cddpi_product_failed(device, products, shape, error, "its pointers");
    }
    if (fresh || (plan->tries < CDDPI_PRODUCT_TRIES && !cddpi_products_recording(device))) {
        status = settle(device, products, plan, operands);
    }
    *out_missing = plan->missing;
    if (status != CDDP_OK || plan->missing) {
        return status;
    }
    error = cddpi_product_launch(device, products, plan, operands, operands->add ? 1.0f : 0.0f,
                                 &plan->chosen.algo);
    return error == CUBLAS_STATUS_SUCCESS
               ? CDDP_OK
               : cddpi_product_failed(device, products, shape, error, "cublasLtMatmul");
}
