/* lstm.cu - owns the gates of a long short-term memory and their derivatives, for one time step of
 * several sequences; linear computes the products before and after them.
 *
 * A thread handles one unit of one sequence. Sequences are consecutive in memory, so a step reads
 * and writes runs of `units` elements; operands of the next product are also written without gaps.
 * Cells and their gradients are float32 for all types. */
#include "kernels/cuda/elementwise.cuh"

namespace
{
enum { THREADS = 256 };
/* The four values of a row, `units` elements apart, in the order of nn.LSTM. */
enum { INPUT, FORGET, CELL, OUTPUT, GATES };

/* The offsets of this thread's values. */
struct lstm_place {
    size_t row, unit;
    size_t element;      /* in rows x length x units */
    size_t gates, alone; /* in rows x length x 4 units; in rows x 4 units */
    bool exists;
};

__device__ __forceinline__ lstm_place place_of(size_t rows, size_t length, size_t units, size_t step)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    size_t row = i / units;
    size_t unit = i % units;
    size_t at = row * length + step;

    return {
        row,       unit, at * units + unit, at * GATES * units + unit, row * GATES * units + unit,
        row < rows};
}

template <class T> struct forward_arguments {
    size_t rows, length, units, step;
    const float *bias_ih, *bias_hh; /* nullptr: no biases */
    const T *recurrent;             /* nullptr: the first step */
    T *gates;
    float *cells;
    T *out, *last;
};

/* Input of gate @p k's activation function. */
template <class T>
__device__ __forceinline__ float before_function(const forward_arguments<T> &a, const lstm_place &at,
                                                 int k)
{
    size_t offset = (size_t)k * a.units;
    float sum = to_float(a.gates[at.gates + offset]);

    if (a.bias_ih != nullptr) {
        sum += a.bias_ih[offset + at.unit];
    }
    if (a.recurrent != nullptr) {
        sum += to_float(a.recurrent[at.alone + offset]);
    }
    return a.bias_hh != nullptr ? sum + a.bias_hh[offset + at.unit] : sum;
}

template <class T> __global__ void __launch_bounds__(THREADS) forward(const forward_arguments<T> a)
{
    lstm_place at = place_of(a.rows, a.length, a.units, a.step);

    if (!at.exists) {
        return;
    }
    float i = sigmoid_at<T>(before_function(a, at, INPUT)).value;
    float f = sigmoid_at<T>(before_function(a, at, FORGET)).value;
    float g = tanhf(before_function(a, at, CELL));
    float o = sigmoid_at<T>(before_function(a, at, OUTPUT)).value;
    float c = i * g;
    T h;

    if (a.step > 0) {
        c = f * a.cells[at.element - a.units] + c;
    }
    h = from_float<T>(o * tanhf(c));
    a.gates[at.gates + INPUT * a.units] = from_float<T>(i);
    a.gates[at.gates + FORGET * a.units] = from_float<T>(f);
    a.gates[at.gates + CELL * a.units] = from_float<T>(g);
    a.gates[at.gates + OUTPUT * a.units] = from_float<T>(o);
    a.cells[at.element] = c;
    a.out[at.element] = h;
    a.last[at.row * a.units + at.unit] = h;
}

template <class T> struct backward_arguments {
    size_t rows, length, units, step;
    /* carried_out nullptr: the last step, which gets nothing from a next one */
    const T *dy, *carried_out;
    float *carried_cell;
    const float *cells;
    const T *out;
    T *gates, *step_grads, *before;
};

template <class T>
__device__ __forceinline__ void store_grad(const backward_arguments<T> &a, const lstm_place &at, int k,
                                           float value)
{
    T rounded = from_float<T>(value);

    a.gates[at.gates + (size_t)k * a.units] = rounded;
    a.step_grads[at.alone + (size_t)k * a.units] = rounded;
}

template <class T>
__global__ void __launch_bounds__(THREADS) backward(const backward_arguments<T> a)
{
    lstm_place at = place_of(a.rows, a.length, a.units, a.step);

    if (!at.exists) {
        return;
    }
    size_t alone = at.row * a.units + at.unit;
    bool carries = a.carried_out != nullptr;
    float i = to_float(a.gates[at.gates + INPUT * a.units]);
    float f = to_float(a.gates[at.gates + FORGET * a.units]);
    float g = to_float(a.gates[at.gates + CELL * a.units]);
    float o = to_float(a.gates[at.gates + OUTPUT * a.units]);
    float t = tanhf(a.cells[at.element]);
    float c = a.step > 0 ? a.cells[at.element - a.units] : 0.0f;
    float dh = to_float(a.dy[at.element]) + (carries ? to_float(a.carried_out[alone]) : 0.0f);
    float dc = (carries ? a.carried_cell[alone] : 0.0f) + dh * o * (1.0f - t * t);

    store_grad(a, at, INPUT, dc * g * i * (1.0f - i));
    store_grad(a, at, FORGET, dc * c * f * (1.0f - f));
    store_grad(a, at, CELL, dc * i * (1.0f - g * g));
    store_grad(a, at, OUTPUT, dh * t * o * (1.0f - o));
    a.carried_cell[alone] = dc * f;
    a.before[at.element] = a.step > 0 ? a.out[at.element - a.units] : from_float<T>(0.0f);
}

unsigned blocks_of(const struct cddpi_cuda_lstm *shape)
{
    return (unsigned)cddpi_ceil(shape->rows * shape->units, THREADS);
}

template <class T>
cddp_status forward_as(cddpi_device *device, const struct cddpi_cuda_lstm *shape, size_t step,
                       const float *bias_ih, const float *bias_hh, const void *recurrent,
                       void *gates, float *cells, void *out, void *last)
{
    const forward_arguments<T> a = {shape->rows,
                                    shape->length,
                                    shape->units,
                                    step,
                                    bias_ih,
                                    bias_hh,
                                    static_cast<const T *>(recurrent),
                                    static_cast<T *>(gates),
                                    cells,
                                    static_cast<T *>(out),
                                    static_cast<T *>(last)};

    return CDDPI_STARTED(device, "lstm",
                         CDDPI_LAUNCH(forward<T>, blocks_of(shape), THREADS, 0,
                                      cddpi_cuda_compute_stream(device), a));
}

cddp_status lstm(cddpi_device *device, const struct cddpi_cuda_lstm *shape, size_t step,
                 const float *bias_ih, const float *bias_hh, const void *recurrent, void *gates,
                 float *cells, void *out, void *last)
{
    return shape->rows * shape->units == 0
               ? CDDP_OK
               : CDDPI_BY_TYPE(shape->type, forward_as, device, shape, step, bias_ih, bias_hh,
                               recurrent, gates, cells, out, last);
}

template <class T>
cddp_status backward_as(cddpi_device *device, const struct cddpi_cuda_lstm *shape, size_t step,
                        const void *dy, const void *carried_out, float *carried_cell,
                        const float *cells, const void *out, void *gates, void *step_grads,
                        void *before)
{
    const backward_arguments<T> a = {shape->rows,
                                     shape->length,
                                     shape->units,
                                     step,
                                     static_cast<const T *>(dy),
                                     static_cast<const T *>(carried_out),
                                     carried_cell,
                                     cells,
                                     static_cast<const T *>(out),
                                     static_cast<T *>(gates),
                                     static_cast<T *>(step_grads),
                                     static_cast<T *>(before)};

    return CDDPI_STARTED(device, "lstm_grad",
                         CDDPI_LAUNCH(backward<T>, blocks_of(shape), THREADS, 0,
                                      cddpi_cuda_compute_stream(device), a));
}

cddp_status lstm_grad(cddpi_device *device, const struct cddpi_cuda_lstm *shape, size_t step,
                      const void *dy, const void *carried_out, float *carried_cell,
                      const float *cells, const void *out, void *gates, void *step_grads,
                      void *before)
{
    return shape->rows * shape->units == 0
               ? CDDP_OK
               : CDDPI_BY_TYPE(shape->type, backward_as, device, shape, step, dy, carried_out,
                               carried_cell, cells, out, gates, step_grads, before);
}
} // namespace

void cddpi_cuda_fill_lstm(struct cddpi_cuda_kernels *out)
{
    out->lstm = lstm;
    out->lstm_grad = lstm_grad;
}
