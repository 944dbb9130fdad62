/* choose.c - chooses among algorithms for a matrix product.
 *
 * NVIDIA guarantees that one algorithm gives the same bits in every run on the same card, if the
 * caller provides the workspace; only a choice by time can make runs differ. So an algorithm may
 * replace the first one, which cuBLASLt's heuristics always name the same, only if it gives the
 * first one's bits on the data at hand, twice.
 *
 * (Tiles do not change bits as long as each element's products are added in the same order. A sum
 * in another order shows in every second float32 element, but after rounding to bf16 only in about
 * one of ten thousand. So with few 16-bit elements, bits alone do not decide: the algorithms must
 * also be of the same kind, and split sums into the same number of parts.) Data that is mostly zero
 * does not tell algorithms apart: then a later call measures. */
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/own_kernels.h"

#include <string.h>

enum { RARE = 16 /* one word in this many must be nonzero */ };

/* How many elements it takes to see from their bits that sums are in different orders. */
static const size_t telling_f32 = 256;
static const size_t telling_16_bits = (size_t)1 << 21;

struct print {
    uint64_t sum, filled;
};

static size_t bytes_of(int32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static size_t result_bytes(const struct cddpi_cuda_matmul_shape *shape)
{
    return (size_t)shape->m * (size_t)shape->n * bytes_of(shape->result);
}

/* The work that is measured. */
struct choose_trial {
    struct cddpi_device *device;
    const struct cddpi_cuda_matmuls *matmuls;
    struct cddpi_cuda_matmul_plan *plan;
    const struct cddpi_cuda_matmul_operands *operands;
    const cublasLtMatmulHeuristicResult_t *candidates;
    const cublasLtMatmulAlgo_t *algorithm; /* of the candidate that runs now */
};

/* A fingerprint of everything that the product has written, as two numbers. Waits for it. */
static cudaError_t take_print(const struct choose_trial *trial, cudaStream_t stream,
                              struct print *out)
{
    const struct cddpi_cuda_matmul_shape *shape = &trial->plan->shape;
    size_t elements = (size_t)shape->m * (size_t)shape->n;
    uint64_t *print = trial->matmuls->fingerprint;

    CDDPI_TRY_CUDA(cudaMemsetAsync(print, 0, sizeof *out, stream));
    CDDPI_TRY_CUDA(
        cddpi_cuda_fingerprint(stream, trial->operands->d, result_bytes(shape), 1, print));
    if (shape->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
        shape->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) { /* it writes aux */
        CDDPI_TRY_CUDA(cddpi_cuda_fingerprint(
            stream, trial->operands->aux, elements * bytes_of(shape->type), elements + 2, print));
    }
    CDDPI_TRY_CUDA(cudaMemcpyAsync(out, print, sizeof *out, cudaMemcpyDeviceToHost, stream));
    return cudaStreamSynchronize(stream);
}

static bool launch(void *argument)
{
    const struct choose_trial *trial = argument;

    return cddpi_cuda_matmul_launch(trial->device, trial->matmuls, trial->plan, trial->operands, 0,
                                    trial->algorithm) == CUBLAS_STATUS_SUCCESS;
}

struct tally {
    struct print first; /* fingerprint of the first algorithm that gives the same bits twice */
    int reference;      /* its index; -1: not found yet */
    int best;
    float best_ms;
};

/* Whether two algorithms differ only in what does not change the order of sums: tiles, stages ...
 */
static bool are_alike(const struct cddpi_cublaslt *lt, const cublasLtMatmulAlgo_t *a,
                      const cublasLtMatmulAlgo_t *b)
{
    static const struct {
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t bytes;
    } rows[] = {{CUBLASLT_ALGO_CONFIG_ID, sizeof(int32_t)},
                {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int32_t)},
                {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, sizeof(uint32_t)},
                {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, sizeof(uint16_t)}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t values[2] = {0, 0};
        size_t written;

        if (lt->algorithm_get(a, rows[i].attribute, &values[0], rows[i].bytes, &written) !=
                CUBLAS_STATUS_SUCCESS ||
            lt->algorithm_get(b, rows[i].attribute, &values[1], rows[i].bytes, &written) !=
                CUBLAS_STATUS_SUCCESS ||
            values[0] != values[1]) {
            return false;
        }
    }
    return true;
}

/* Whether bits alone decide, for this many elements. */
static bool bits_decide(const struct cddpi_cuda_matmul_shape *shape)
{
    size_t elements = (size_t)shape->m * (size_t)shape->n;

    return elements >= (shape->result == CUDA_R_32F ? telling_f32 : telling_16_bits);
}

/* Whether one run takes more than twice as long as the best so far, as for most of many candidates:
 * then it need not be timed more exactly. */
static cudaError_t is_far_slower(struct choose_trial *trial, const struct cddpi_cuda_timer *timer,
                                 float best_ms, bool *out)
{
    float ms = 0;

    *out = true;
    CDDPI_TRY_CUDA(cudaEventRecord(timer->begin, timer->stream));
    if (!launch(trial)) {
        return cudaSuccess;
    }
    CDDPI_TRY_CUDA(cudaEventRecord(timer->end, timer->stream));
    CDDPI_TRY_CUDA(cudaEventSynchronize(timer->end));
    CDDPI_TRY_CUDA(cudaEventElapsedTime(&ms, timer->begin, timer->end));
    *out = ms > 2 * best_ms;
    return cudaSuccess;
}

/* Try one candidate. Its first run is not timed, and shows whether it may be chosen. */
static cudaError_t try_candidate(struct choose_trial *trial, int index,
                                 const struct cddpi_cuda_timer *timer, struct tally *tally)
{
    const struct cddpi_cuda_matmul_shape *shape = &trial->plan->shape;
    bool any_bits = shape->choice == CDDPI_CUDA_MATMUL_FAST;
    struct print before = {0, 0};
    struct print after = {0, 0};
    float ms = 0;
    bool slower = false;

    trial->algorithm = &trial->candidates[index].algo;
    if (!any_bits && tally->reference >= 0 && !bits_decide(shape) &&
        !are_alike(&trial->matmuls->lt, &trial->candidates[tally->reference].algo,
                   trial->algorithm)) {
        return cudaSuccess;
    }
    if (!launch(trial)) {
        return cudaSuccess;
    }
    CDDPI_TRY_CUDA(take_print(trial, timer->stream, &before));
    if (!any_bits && tally->reference >= 0 && before.sum != tally->first.sum) {
        return cudaSuccess;
    }
    if (index >= CDDPI_CUDA_MATMUL_FEW) {
        CDDPI_TRY_CUDA(is_far_slower(trial, timer, tally->best_ms, &slower));
    }
    if (slower) {
        return cudaSuccess;
    }
    CDDPI_TRY_CUDA(cddpi_cuda_timer_best(timer, launch, trial, &ms));
    CDDPI_TRY_CUDA(take_print(trial, timer->stream, &after));
    if (!any_bits && before.sum != after.sum) {
        return cudaSuccess; /* its own bits differ between two runs */
    }
    if (tally->reference < 0) {
        tally->reference = index;
        tally->first = before;
    }
    if (ms < tally->best_ms) {
        tally->best = index;
        tally->best_ms = ms;
    }
    return cudaSuccess;
}

/* Whether the data can tell algorithms apart. */
static bool is_telling(const struct cddpi_cuda_matmul_plan *plan, const struct print *print)
{
    return print->filled >= result_bytes(&plan->shape) / 2 / RARE;
}

static cudaError_t try_all(struct choose_trial *trial, int count,
                           const struct cddpi_cuda_timer *timer)
{
    struct cddpi_cuda_matmul_plan *plan = trial->plan;
    struct tally tally = {{0, 0}, -1, -1, 1e29f};

    for (int i = 0; i < count; i++) {
        CDDPI_TRY_CUDA(try_candidate(trial, i, timer, &tally));
    }
    if (tally.best < 0) { /* none runs, or none gives the same bits twice */
        plan->missing = true;
        plan->tries = CDDPI_CUDA_MATMUL_TRIES;
    } else if (plan->shape.choice == CDDPI_CUDA_MATMUL_FAST || is_telling(plan, &tally.first)) {
        plan->chosen = trial->candidates[tally.best];
        plan->tries = CDDPI_CUDA_MATMUL_TRIES;
        /* if the first algorithm failed, another process may have other bits */
        plan->decided = plan->shape.choice == CDDPI_CUDA_MATMUL_FAST || tally.reference == 0;
    } else {
        plan->chosen = trial->candidates[tally.reference];
    }
    return cudaSuccess;
}

static cudaError_t time_all(struct choose_trial *trial, int count)
{
    struct cddpi_cuda_timer timer;
    cudaError_t error;

    CDDPI_TRY_CUDA(cddpi_cuda_timer_open(trial->device, &timer));
    error = try_all(trial, count, &timer);
    cddpi_cuda_timer_close(&timer);
    return error;
}

cddp_status cddpi_cuda_matmul_measure(struct cddpi_device *device,
                                      struct cddpi_cuda_matmuls *matmuls,
                                      struct cddpi_cuda_matmul_plan *plan,
                                      const struct cddpi_cuda_matmul_operands *operands,
                                      const cublasLtMatmulHeuristicResult_t *candidates, int count)
{
    struct choose_trial trial = {device, matmuls, plan, operands, candidates, NULL};
    size_t bytes = result_bytes(&plan->shape);
    void *saved = NULL;
    cddp_status status = CDDP_OK;

    /* Runs overwrite the result. If there is no memory to save it, a later call measures. */
    if (operands->add) {
        if (cddpi_cuda_alloc(device, bytes, "a product's result while it is measured", &saved) !=
            CDDP_OK) {
            return CDDP_OK;
        }
        status = cddpi_cuda_copy(device, saved, operands->d, bytes);
    }
    if (status == CDDP_OK) {
        status = cddpi_cuda_status(device, time_all(&trial, count), "a measurement of products",
                                   __FILE__, __LINE__);
    }
    if (operands->add && status == CDDP_OK) {
        status = cddpi_cuda_copy(device, operands->d, saved, bytes);
    }
    cddpi_cuda_release(device, saved);
    return status;
}
