/* loss.cu - owns the sum of the rows' losses, the squared error and binary cross-entropy of
 * classes, and the squared and absolute error of real targets.
 *
 * One block computes the sum, from 16 bytes for each row: 0.5 MiB for 32768 rows, about 5 us. The
 * losses are for small outputs: one block for each row, which is read and written once.
 */
#include "kernels/cuda/exact_sum.cuh"
#include "kernels/cuda/vector.cuh"

namespace
{
enum { SUM_THREADS = 1024, THREADS = 128 };

__global__ void __launch_bounds__(SUM_THREADS)
    add_results(const struct row_result *__restrict__ results, size_t rows,
                struct cddpi_loss_totals *out)
{
    __shared__ double shared[SUM_THREADS / CDDPI_WARP];
    double loss = 0;
    double correct = 0;

    for (size_t r = threadIdx.x; r < rows; r += SUM_THREADS) {
        loss += results[r].loss;
        correct += results[r].correct;
    }
    loss = block_sum(loss, shared);
    correct = block_sum(correct, shared);
    if (threadIdx.x == 0) {
        exact_add(&out->losses, loss);
        out->correct += (int64_t)correct;
    }
}

/* The largest element, the first of equal ones. */
struct winner {
    float most;
    int column;
};

__device__ __forceinline__ winner better(winner a, winner b)
{
    return b.most > a.most || (b.most == a.most && b.column < a.column) ? b : a;
}

__device__ __forceinline__ winner block_winner(winner mine, winner *shared)
{
    CDDPI_UNROLL
    for (int mask = CDDPI_WARP / 2; mask > 0; mask /= 2) {
        winner other;

        other.most = __shfl_xor_sync(CDDPI_ALL_LANES, mine.most, mask);
        other.column = __shfl_xor_sync(CDDPI_ALL_LANES, mine.column, mask);
        mine = better(mine, other);
    }
    if (threadIdx.x % CDDPI_WARP == 0) {
        shared[threadIdx.x / CDDPI_WARP] = mine;
    }
    __syncthreads();
    for (int i = 0; i < THREADS / CDDPI_WARP; i++) {
        mine = better(mine, shared[i]);
    }
    return mine;
}

/* The contribution of one element to the loss, and its derivative. */
struct term {
    double loss, slope;
};

struct squared_term {
    static __device__ __forceinline__ term of(double x, double target)
    {
        double difference = x - target;

        return {difference * difference, 2 * difference};
    }
};

struct absolute_term {
    static __device__ __forceinline__ term of(double x, double target)
    {
        double difference = x - target;

        /* the last term is 0, or NaN if the loss is not finite */
        return {fabs(difference),
                (double)(difference > 0) - (double)(difference < 0) + 0.0 * difference};
    }
};

/* As in kernels/cpu/cpu_loss.c: log(1 + e^x) - target x, in a form whose exponential does not
 * overflow. */
struct binary_term {
    static __device__ __forceinline__ term of(double x, double target)
    {
        double power = exp(-fabs(x));
        double p = (x < 0 ? power : 1.0) / (1.0 + power);

        /* the last term is 0, or NaN if the loss is not finite */
        return {fmax(x, 0.0) + log1p(power) - target * x, p - target + 0.0 * x};
    }
};

template <class T> struct row_arguments {
    T *logits;
    const int32_t *labels;
    int columns;
    bool signs; /* with one column: the label is the target, and the logit's sign is the prediction
                 */
    bool grads;
    float scale;
    const float *device_scale;
    struct row_result *results;
};

template <class T, class Term>
__global__ void __launch_bounds__(THREADS) rows_of_terms(const row_arguments<T> a)
{
    __shared__ double sums[THREADS / CDDPI_WARP];
    __shared__ winner winners[THREADS / CDDPI_WARP];
    T *row = a.logits + (size_t)blockIdx.x * (size_t)a.columns;
    float scale = a.device_scale != nullptr ? a.scale * *a.device_scale : a.scale;
    int label = a.labels[blockIdx.x];
    winner best = {-INFINITY, a.columns};
    double sum = 0;
    double loss;

    for (int c = (int)threadIdx.x; c < a.columns; c += THREADS) {
        float x = to_float(row[c]);
        term at = Term::of((double)x, a.signs ? (double)label : c == label ? 1.0 : 0.0);

        sum += at.loss;
        best = better(best, {x, c});
        if (a.grads) {
            row[c] = from_float<T>((float)(at.slope / a.columns) * scale);
        }
    }
    loss = block_sum(sum, sums) / a.columns;
    best = block_winner(best, winners);
    if (threadIdx.x == 0) {
        bool right = a.signs ? (best.most > 0) == (label == 1) : best.column == label;

        /* a NaN would show in the sum */
        a.results[blockIdx.x] = {loss, right && loss == loss ? 1.0 : 0.0};
    }
}

/* The same against real targets: there is no class to be right about. */
template <class T> struct real_arguments {
    T *outputs;
    const float *targets;
    int columns;
    bool grads;
    float scale;
    const float *device_scale;
    struct row_result *results;
};

template <class T, class Term>
__global__ void __launch_bounds__(THREADS) rows_of_errors(const real_arguments<T> a)
{
    __shared__ double sums[THREADS / CDDPI_WARP];
    size_t at = (size_t)blockIdx.x * (size_t)a.columns;
    float scale = a.device_scale != nullptr ? a.scale * *a.device_scale : a.scale;
    double sum = 0;

    for (int c = (int)threadIdx.x; c < a.columns; c += THREADS) {
        term found = Term::of((double)to_float(a.outputs[at + c]), (double)a.targets[at + c]);

        sum += found.loss;
        if (a.grads) {
            a.outputs[at + c] = from_float<T>((float)(found.slope / a.columns) * scale);
        }
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) {
        a.results[blockIdx.x] = {sum / a.columns, 0.0};
    }
}

template <class T, class Term>
cudaError_t start_rows(cddpi_device *device, const row_arguments<T> &a, size_t rows,
                       struct cddpi_loss_totals *out)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error = CDDPI_LAUNCH((rows_of_terms<T, Term>), (unsigned)rows, THREADS, 0, stream,
                                     a);

    return error == cudaSuccess ? cddpi_cuda_add_results(stream, a.results, rows, out) : error;
}

template <class T>
cddp_status squared_error_as(cddpi_device *device, void *logits, const int32_t *labels, size_t rows,
                             size_t columns, bool grads, float scale, const float *device_scale,
                             struct cddpi_loss_totals *out, struct row_result *results)
{
    const row_arguments<T> a = {
        static_cast<T *>(logits), labels, (int)columns, false, grads, scale, device_scale, results};

    return CDDPI_STARTED(device, "squared_error",
                         (start_rows<T, squared_term>(device, a, rows, out)));
}

cddp_status squared_error(cddpi_device *device, cddp_type type, void *logits, const int32_t *labels,
                          size_t rows, size_t columns, bool grads, float scale,
                          const float *device_scale, struct cddpi_loss_totals *out, void *scratch)
{
    if (rows == 0 || columns == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, squared_error_as, device, logits, labels, rows, columns, grads,
                         scale, device_scale, out, static_cast<struct row_result *>(scratch));
}

template <class T>
cddp_status binary_cross_entropy_as(cddpi_device *device, void *logits, const int32_t *labels,
                                    size_t rows, size_t columns, bool grads, float scale,
                                    const float *device_scale, struct cddpi_loss_totals *out,
                                    struct row_result *results)
{
    const row_arguments<T> a = {static_cast<T *>(logits),
                                labels,
                                (int)columns,
                                columns == 1,
                                grads,
                                scale,
                                device_scale,
                                results};

    return CDDPI_STARTED(device, "binary_cross_entropy",
                         (start_rows<T, binary_term>(device, a, rows, out)));
}

cddp_status binary_cross_entropy(cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale,
                                 struct cddpi_loss_totals *out, void *scratch)
{
    if (rows == 0 || columns == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, binary_cross_entropy_as, device, logits, labels, rows, columns,
                         grads, scale, device_scale, out,
                         static_cast<struct row_result *>(scratch));
}

template <class T>
cddp_status real_error_as(cddpi_device *device, void *outputs, const float *targets, bool absolute,
                          size_t rows, size_t columns, bool grads, float scale,
                          const float *device_scale, struct cddpi_loss_totals *out,
                          struct row_result *results)
{
    const real_arguments<T> a = {
        static_cast<T *>(outputs), targets, (int)columns, grads, scale, device_scale, results};
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error = absolute ? CDDPI_LAUNCH((rows_of_errors<T, absolute_term>), (unsigned)rows,
                                                THREADS, 0, stream, a)
                                 : CDDPI_LAUNCH((rows_of_errors<T, squared_term>), (unsigned)rows,
                                                THREADS, 0, stream, a);

    return CDDPI_STARTED(device, "real_error",
                         error == cudaSuccess ? cddpi_cuda_add_results(stream, results, rows, out)
                                              : error);
}

cddp_status real_error(cddpi_device *device, cddp_type type, void *outputs, const float *targets,
                       bool absolute, size_t rows, size_t columns, bool grads, float scale,
                       const float *device_scale, struct cddpi_loss_totals *out, void *scratch)
{
    if (rows == 0 || columns == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, real_error_as, device, outputs, targets, absolute, rows, columns,
                         grads, scale, device_scale, out,
                         static_cast<struct row_result *>(scratch));
}

size_t loss_scratch(size_t rows)
{
    return rows * sizeof(struct row_result);
}
} // namespace

cudaError_t cddpi_cuda_add_results(cudaStream_t stream, const struct row_result *results,
                                   size_t rows, struct cddpi_loss_totals *out)
{
    return CDDPI_LAUNCH(add_results, 1, SUM_THREADS, 0, stream, results, rows, out);
}

void cddpi_cuda_fill_loss(struct cddpi_cuda_kernels *out)
{
    out->squared_error = squared_error;
    out->binary_cross_entropy = binary_cross_entropy;
    out->real_error = real_error;
    out->loss_scratch = loss_scratch;
}
