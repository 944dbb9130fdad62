/* lstm_loops.c - owns the gates of a long short-term memory (Hochreiter, Schmidhuber 1997; with the
 * forget gate of Gers et al. 2000) and their derivatives, for one time step of several sequences.
 * Compiled once for each instruction set, with CDDPI_ISA as its name. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

/* The four values of a row, `units` elements apart, in the order of nn.LSTM. */
enum { INPUT, FORGET, CELL, OUTPUT, GATES };

/* 1 / (1 + e^-x) from e^-|x|: the left tail stays exact. */
CDDPI_LANES_INLINE lanes sigmoid(lanes x)
{
    lanes e = lanes_exp(-lanes_abs(x));
    lanes right = 1.0f / (1.0f + e);

    return lanes_select(x < 0, e * right, right);
}

/* As in Cephes: a polynomial near 0, where e^-2|x| would subtract nearly equal numbers. */
CDDPI_LANES_INLINE lanes tangent(lanes x)
{
    lanes size = lanes_abs(x);
    lanes square = x * x;
    lanes p = square * -5.70498872745e-3f + 2.06390887954e-2f;
    lanes e = lanes_exp(size * -2.0f);
    lanes far = (1.0f - e) / (1.0f + e);

    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    return lanes_select(size < 0.625f, p * square * x + x, lanes_select(x < 0, -far, far));
}

CDDPI_LANES_INLINE lanes load(const float *from, size_t count)
{
    return count == LANES ? lanes_load(from) : lanes_load_part(from, count, 0);
}

CDDPI_LANES_INLINE void store(float *to, lanes v, size_t count)
{
    if (count == LANES) {
        lanes_store(to, v);
    } else {
        lanes_store_part(to, v, count);
    }
}

/* @p count elements of a row: LANES, or the remainder. */
CDDPI_LANES_INLINE void forward_part(float *gates, size_t units, const float *before, float *cells,
                                     float *out, size_t count)
{
    lanes i = sigmoid(load(gates + INPUT * units, count));
    lanes f = sigmoid(load(gates + FORGET * units, count));
    lanes g = tangent(load(gates + CELL * units, count));
    lanes o = sigmoid(load(gates + OUTPUT * units, count));
    lanes c = before != NULL ? f * load(before, count) + i * g : i * g;

    store(gates + INPUT * units, i, count);
    store(gates + FORGET * units, f, count);
    store(gates + CELL * units, g, count);
    store(gates + OUTPUT * units, o, count);
    store(cells, c, count);
    store(out, o * tangent(c), count);
}

static void forward(float *gates, const float *before, float *cells, float *out, size_t rows,
                    size_t stride, size_t units)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t at = 0; at < units; at += LANES) {
            size_t count = units - at < LANES ? units - at : LANES;
            size_t element = r * stride * units + at;

            forward_part(gates + r * stride * GATES * units + at, units,
                         before != NULL ? before + element : NULL, cells + element, out + element,
                         count);
        }
    }
}

/* @p carried: the gradients of a row's `units` elements from the next step. */
CDDPI_LANES_INLINE void backward_part(const float *dy, const float *carried_out,
                                      float *carried_cell, const float *before, const float *cells,
                                      float *gates, size_t units, size_t count)
{
    lanes i = load(gates + INPUT * units, count);
    lanes f = load(gates + FORGET * units, count);
    lanes g = load(gates + CELL * units, count);
    lanes o = load(gates + OUTPUT * units, count);
    lanes t = tangent(load(cells, count));
    lanes dh = load(dy, count) + load(carried_out, count);
    lanes dc = load(carried_cell, count) + dh * o * (1.0f - t * t);
    lanes c = before != NULL ? load(before, count) : lanes_of(0);

    store(gates + INPUT * units, dc * g * i * (1.0f - i), count);
    store(gates + FORGET * units, dc * c * f * (1.0f - f), count);
    store(gates + CELL * units, dc * i * (1.0f - g * g), count);
    store(gates + OUTPUT * units, dh * t * o * (1.0f - o), count);
    store(carried_cell, dc * f, count);
}

static void backward(const float *dy, const float *carried_out, float *carried_cell,
                     const float *before, const float *cells, float *gates, size_t rows,
                     size_t stride, size_t units)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t at = 0; at < units; at += LANES) {
            size_t count = units - at < LANES ? units - at : LANES;
            size_t element = r * stride * units + at;

            backward_part(dy + element, carried_out + r * units + at, carried_cell + r * units + at,
                          before != NULL ? before + element : NULL, cells + element,
                          gates + r * stride * GATES * units + at, units, count);
        }
    }
}

extern const struct cddpi_lstm_kernels CDDPI_LANES_JOIN(cddpi_lstm_kernels_, CDDPI_ISA);
const struct cddpi_lstm_kernels CDDPI_LANES_JOIN(cddpi_lstm_kernels_, CDDPI_ISA) = {forward,
                                                                                    backward};
