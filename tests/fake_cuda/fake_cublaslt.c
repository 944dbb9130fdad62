/* fake_cublaslt.c - cuBLASLt on the CPU, for the emulated module: the parts that
 * matmul/matmul_linear.c uses, as NVIDIA documents them. What the real library does not accept is
 * an error here, too. The fake runtime runs the work in stream order. */
#include "fake_cuda/fake_cublaslt.h"

#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/fake_matmul.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_API __attribute__((visibility("default")))

struct fake_handle {
    bool plain, unstable, slow, many, refuses, stale;
};

struct fake_preference {
    uint64_t workspace;
    uint32_t schemes;
    uint32_t align_a, align_b, align_c, align_d;
};

static _Atomic uint64_t started[FAKE_CUBLASLT_ALGORITHMS];

FAKE_API uint64_t fake_cublaslt_started(enum fake_cublaslt_algorithm algorithm)
{
    return started[algorithm];
}

/* --- descriptors --- */

FAKE_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    const char *faults = getenv("CDDP_FAKE_CUBLASLT");
    struct fake_handle *made;

    if (faults == NULL) {
        faults = "";
    }
    if (strstr(faults, "broken") != NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    made = calloc(1, sizeof *made);
    if (made == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    made->plain = strstr(faults, "plain") != NULL;
    made->unstable = strstr(faults, "unstable") != NULL;
    made->slow = strstr(faults, "slow") != NULL;
    made->many = strstr(faults, "many") != NULL;
    made->refuses = strstr(faults, "refuses") != NULL;
    made->stale = strstr(faults, "stale") != NULL;
    *handle = (cublasLtHandle_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API size_t cublasLtGetVersion(void)
{
    const char *version = getenv("CDDP_FAKE_CUBLASLT_VERSION");

    return version != NULL ? (size_t)atoll(version) : CUBLAS_VERSION;
}

FAKE_API const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS           ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == CUBLAS_STATUS_INVALID_VALUE   ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                     : "CUBLAS_STATUS_?";
}

FAKE_API const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_INITIALIZED ? "the library was not initialized"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value was passed to a function"
                                                   : "the fake has no more to say";
}

FAKE_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                   uint64_t rows, uint64_t cols, int64_t ld)
{
    struct fake_layout *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *made = (struct fake_layout){(int32_t)type, rows, cols, ld};
    *out = (cublasLtMatrixLayout_t)(void *)made;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                                 cublasComputeType_t compute, cudaDataType_t scale)
{
    struct fake_desc *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    made->compute = compute;
    made->scale = (int32_t)scale;
    made->op_a = made->op_b = CUBLAS_OP_N;
    made->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)(void *)made;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

/* Copy an attribute; its size must match. */
static cublasStatus_t set(void *field, size_t field_bytes, const void *buf, size_t bytes)
{
    if (buf == NULL || bytes != field_bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, buf, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define SET(field) set(&(field), sizeof(field), buf, bytes)

FAKE_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                       cublasLtMatmulDescAttributes_t attribute,
                                                       const void *buf, size_t bytes)
{
    struct fake_desc *desc = (void *)handle;

    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return SET(desc->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return SET(desc->op_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return SET(desc->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return SET(desc->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return SET(desc->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return SET(desc->aux_ld);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct fake_preference *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *made = (struct fake_preference){0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};
    *out = (cublasLtMatmulPreference_t)(void *)made;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t handle, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *buf, size_t bytes)
{
    struct fake_preference *preference = (void *)handle;

    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return SET(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return SET(preference->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return SET(preference->align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return SET(preference->align_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return SET(preference->align_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return SET(preference->align_d);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* --- what is supported --- */

static bool is_real(int32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

static bool has_bias(uint32_t epilogue)
{
    return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

/* Check that the shapes match, and set m, n and k. */
static cublasStatus_t check_shapes(struct fake_matmul *job)
{
    const struct fake_layout *a = &job->a_layout;
    const struct fake_layout *b = &job->b_layout;
    const struct fake_layout *d = &job->d_layout;
    bool ta = job->desc.op_a == CUBLAS_OP_T;
    bool tb = job->desc.op_b == CUBLAS_OP_T;

    job->m = ta ? a->cols : a->rows;
    job->k = ta ? a->rows : a->cols;
    job->n = tb ? b->rows : b->cols;
    if (job->k != (tb ? b->cols : b->rows) || d->rows != job->m || d->cols != job->n ||
        job->m == 0 || job->n == 0 || job->k == 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (a->ld < (int64_t)a->rows || b->ld < (int64_t)b->rows || d->ld < (int64_t)d->rows) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Check the types against the rows of NVIDIA's table for cublasLtMatmul() that the fake
 * supports. */
static cublasStatus_t check_types(const struct fake_matmul *job)
{
    int32_t type = job->a_layout.type;
    int32_t result = job->d_layout.type;

    if (job->desc.scale != CUDA_R_32F || !is_real(type) || type != job->b_layout.type ||
        (result != type && result != CUDA_R_32F)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (job->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
        return type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return job->desc.compute == CUBLAS_COMPUTE_32F ? CUBLAS_STATUS_SUCCESS
                                                   : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t check_epilogue(const struct fake_matmul *job, bool plain)
{
    switch (job->desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (has_bias(job->desc.epilogue) && job->desc.bias == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (fake_has_aux(job->desc.epilogue) && (job->desc.aux == NULL || job->desc.aux_ld % 8 != 0 ||
                                             job->desc.aux_ld < (int64_t)job->m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return plain ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t describe(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               struct fake_matmul *out)
{
    const struct fake_handle *fake = (const void *)handle;
    cublasStatus_t status;

    if (fake == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (desc == NULL || a == NULL || b == NULL || d == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memset(out, 0, sizeof *out);
    out->desc = *(const struct fake_desc *)(const void *)desc;
    out->a_layout = *(const struct fake_layout *)(const void *)a;
    out->b_layout = *(const struct fake_layout *)(const void *)b;
    out->d_layout = *(const struct fake_layout *)(const void *)d;
    out->unstable = fake->unstable;
    out->slow = fake->slow;
    if (c != NULL && memcmp(c, d, sizeof(struct fake_layout)) != 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED; /* a limit of the fake */
    }
    status = check_shapes(out);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = check_types(out);
    }
    return status == CUBLAS_STATUS_SUCCESS ? check_epilogue(out, fake->plain) : status;
}

/* --- algorithms --- */

static size_t alignment_wanted(enum fake_cublaslt_algorithm algorithm)
{
    return algorithm == FAKE_CUBLASLT_WIDE ? 16 : algorithm == FAKE_CUBLASLT_ANYTHING ? 2 : 4;
}

static size_t workspace_wanted(const struct fake_matmul *job,
                               enum fake_cublaslt_algorithm algorithm)
{
    return algorithm == FAKE_CUBLASLT_SPLIT ? 2 * job->m * job->n * sizeof(float)
           : algorithm == FAKE_CUBLASLT_OUTPUT
               ? 2 * job->m * job->n * fake_type_bytes(job->d_layout.type)
               : 0;
}

static bool rows_aligned(const struct fake_layout *layout, size_t wanted)
{
    return (size_t)layout->ld * fake_type_bytes(layout->type) % wanted == 0;
}

static uint32_t scheme_of(enum fake_cublaslt_algorithm algorithm)
{
    return algorithm == FAKE_CUBLASLT_SPLIT    ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
           : algorithm == FAKE_CUBLASLT_OUTPUT ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                               : CUBLASLT_REDUCTION_SCHEME_NONE;
}

static bool fits(const struct fake_matmul *job, const struct fake_preference *preference,
                 enum fake_cublaslt_algorithm algorithm)
{
    size_t wanted = alignment_wanted(algorithm);
    uint32_t scheme = scheme_of(algorithm);

    if (preference->align_a % wanted != 0 || preference->align_b % wanted != 0 ||
        preference->align_c % wanted != 0 || preference->align_d % wanted != 0 ||
        (uintptr_t)job->desc.bias % wanted != 0 || (uintptr_t)job->desc.aux % wanted != 0) {
        return false;
    }
    if (!rows_aligned(&job->a_layout, wanted) || !rows_aligned(&job->b_layout, wanted) ||
        !rows_aligned(&job->d_layout, wanted)) {
        return false;
    }
    if (scheme != CUBLASLT_REDUCTION_SCHEME_NONE &&
        ((preference->schemes & scheme) == 0 || job->k < 16)) {
        return false;
    }
    return workspace_wanted(job, algorithm) <= preference->workspace;
}

/* The first two algorithms differ only in their tiles. */
FAKE_API cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *buf,
    size_t bytes, size_t *out_written)
{
    enum fake_cublaslt_algorithm algorithm = (enum fake_cublaslt_algorithm)(algo->data[0] - 1);
    bool splits = algorithm == FAKE_CUBLASLT_SPLIT || algorithm == FAKE_CUBLASLT_OUTPUT;
    int32_t id = algorithm == FAKE_CUBLASLT_ANYTHING ? 7 : 6;
    int32_t parts = splits ? 2 : 1;
    uint32_t scheme = scheme_of(algorithm);
    uint16_t shape = 0;
    const void *value = attribute == CUBLASLT_ALGO_CONFIG_ID                 ? (const void *)&id
                        : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? (const void *)&parts
                        : attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? (const void *)&scheme
                                                                             : (const void *)&shape;
    size_t wanted = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? sizeof shape
                                                                     : sizeof(uint32_t);

    if (buf == NULL || bytes != wanted) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(buf, value, bytes);
    *out_written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* What it does not know are the alignments of pointers. */
FAKE_API cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                const cublasLtMatmulAlgo_t *algo,
                                                cublasLtMatmulHeuristicResult_t *result)
{
    const struct fake_preference any = {UINT64_MAX, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256,
                                        256};
    struct fake_matmul job;
    cublasStatus_t status = describe(handle, desc, a, b, c, d, &job);
    enum fake_cublaslt_algorithm algorithm;

    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (algo->data[0] < 1 || algo->data[0] > FAKE_CUBLASLT_ALGORITHMS) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    algorithm = (enum fake_cublaslt_algorithm)(algo->data[0] - 1);
    if (((const struct fake_handle *)(const void *)handle)->refuses ||
        !fits(&job, &any, algorithm)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    result->workspaceSize = workspace_wanted(&job, algorithm);
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *out_count)
{
    struct fake_matmul job;
    cublasStatus_t status = describe(handle, desc, a, b, c, d, &job);
    int count = 0;
    int variants;

    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (wanted < 1 || preference == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    fake_cublaslt_count(&job, wanted);
    variants = ((const struct fake_handle *)(const void *)handle)->many ? 8 : 1;
    for (int i = 0; i < FAKE_CUBLASLT_ALGORITHMS * variants && count < wanted; i++) {
        enum fake_cublaslt_algorithm algorithm = (enum fake_cublaslt_algorithm)(i / variants);

        if (fits(&job, (const void *)preference, algorithm)) {
            memset(&results[count], 0, sizeof results[count]);
            results[count].algo.data[0] = (uint64_t)algorithm + 1;
            results[count].algo.data[1] = (uint64_t)getpid();
            results[count].workspaceSize = workspace_wanted(&job, algorithm);
            results[count].state = CUBLAS_STATUS_SUCCESS;
            results[count++].wavesCount = 1;
        }
    }
    *out_count = count;
    return count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* --- products --- */

static void drop(void *closure)
{
    free(closure);
}

static bool is_aligned(const void *pointer, size_t wanted)
{
    return (uintptr_t)pointer % wanted == 0;
}

FAKE_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       const void *alpha, const void *a, cublasLtMatrixLayout_t al,
                                       const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                                       const void *c, cublasLtMatrixLayout_t cl, void *d,
                                       cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *algo,
                                       void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    static _Atomic uint64_t number;
    struct fake_matmul job;
    struct fake_matmul *closure;
    size_t wanted;
    cublasStatus_t status = describe(handle, desc, al, bl, cl, dl, &job);

    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (algo == NULL || algo->data[0] < 1 || algo->data[0] > FAKE_CUBLASLT_ALGORITHMS ||
        alpha == NULL || beta == NULL || a == NULL || b == NULL || d == NULL ||
        !is_aligned(workspace, 256)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (((const struct fake_handle *)(const void *)handle)->stale &&
        algo->data[1] != (uint64_t)getpid()) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    job.algorithm = (enum fake_cublaslt_algorithm)(algo->data[0] - 1);
    job.a = a;
    job.b = b;
    job.c = c;
    job.d = d;
    memcpy(&job.alpha, alpha, sizeof job.alpha);
    memcpy(&job.beta, beta, sizeof job.beta);
    wanted = alignment_wanted(job.algorithm);
    if (!is_aligned(a, wanted) || !is_aligned(b, wanted) || !is_aligned(d, wanted) ||
        workspace_bytes < workspace_wanted(&job, job.algorithm) || (job.beta != 0 && c == NULL)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    closure = malloc(sizeof *closure);
    if (closure == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    job.number = ++number;
    *closure = job;
    started[job.algorithm]++;
    fake_cuda_launch(stream, fake_matmul_run, closure, drop);
    return CUBLAS_STATUS_SUCCESS;
}
