/* transformer.h - the passes of a transformer that are not matrix products (layer normalisation,
 * gelu, silu, the softmax of causal attention), and the gates of an LSTM. The best instruction set
 * of this CPU is chosen at run time; all choices give the same bits. Any thread.
 *
 * Matrices are row-major; counts are in elements; pointers need no alignment. */
#ifndef CDDPI_KERNELS_CPU_TRANSFORMER_H
#define CDDPI_KERNELS_CPU_TRANSFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CDDPI_LAYER_NORM_SCRATCH(columns) (3 * (columns))

struct cddpi_layer_norm_kernels {
    /* out = (x - mean) / sqrt(variance + epsilon) * weight + bias over each row, with the
     * population variance of the row. @p mean and @p inverse (1 / sqrt) receive one element for
     * each row; both may be NULL. @p out may be @p x. */
    void (*forward)(const float *x, const float *weight, const float *bias, float epsilon,
                    size_t rows, size_t columns, float *out, float *mean, float *inverse);
    /* The gradients of x, weight and bias, in one pass. @p dx NULL: not needed; it may be @p dy.
     * The pass adds to @p dweight and @p dbias. @p scratch has CDDPI_LAYER_NORM_SCRATCH(columns)
     * elements. */
    void (*backward)(const float *dy, const float *x, const float *weight, const float *mean,
                     const float *inverse, size_t rows, size_t columns, float *dx, float *dweight,
                     float *dbias, double *scratch);
};

/* gelu(x) = x Phi(x), where Phi is the normal distribution. @p exact: with erf; otherwise with tanh
 * as in GPT-2: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
struct cddpi_gelu_kernels {
    /* @p out may be @p x */
    void (*forward)(const float *x, bool exact, float *out, size_t count);
    /* out = dy gelu'(x); may be @p dy or @p x */
    void (*backward)(const float *dy, const float *x, bool exact, float *out, size_t count);
};

/* silu(x) = x / (1 + e^-x). */
struct cddpi_silu_kernels {
    /* @p out may be @p x */
    void (*forward)(const float *x, float *out, size_t count);
    /* out = dy silu'(x); may be @p dy or @p x */
    void (*backward)(const float *dy, const float *x, float *out, size_t count);
};

/* Scores of a block of queries of one head: row r belongs to query @p first + r, its column j to
 * key j, and the query may attend to keys 0 to first + r. Rows are @p stride elements apart, a
 * multiple of 16 that is at least @p columns; elements from @p columns up to @p stride may be
 * overwritten. */
struct cddpi_attention_kernels {
    /* s = exp(s - max) for the keys that a query may attend to, 0 for the others. total[r] receives
     * the sum of the row, log_sum[r] the logarithm of the sum of exp(s) with the original s (NULL:
     * not needed). */
    void (*softmax)(float *s, size_t stride, size_t rows, size_t columns, size_t first,
                    float *total, float *log_sum);
    /* out[r] = in[r] / total[r] */
    void (*divide)(float *out, size_t stride, size_t rows, size_t columns, const float *total);
    /* out[r] = sum over c of a[r][c] b[r][c], rows of both @p stride apart */
    void (*row_products)(const float *a, const float *b, size_t stride, size_t rows, size_t columns,
                         float *out);
    /* s = p = exp(s - log_sum) and dp = p (dp - delta): turns scores into probabilities, and the
     * gradient of the probabilities into that of the scores; 0 for keys that a query may not attend
     * to. */
    void (*backward)(float *s, float *dp, size_t stride, size_t rows, size_t columns, size_t first,
                     const float *log_sum, const float *delta);
};

/* Softmax cross-entropy over rows as long as a vocabulary. */
struct cddpi_softmax_kernels {
    /* Returns the sum over rows of -log softmax(x[r])[label[r]]. Adds to @p correct the number of
     * rows whose largest element (the first of equal ones) is the label's; a row with a NaN is
     * never correct. out = exp(x - the row's maximum), which may be @p x, and inverse[r] = 1 / the
     * sum of that row; both may be NULL. */
    double (*forward)(const float *x, const int32_t *label, size_t rows, size_t columns, float *out,
                      float *inverse, int *correct);
    /* out = scale * (softmax - onehot) from the results of forward; may be @p powers. */
    void (*backward)(const float *powers, const int32_t *label, const float *inverse, float scale,
                     size_t rows, size_t columns, float *out);
};

struct cddpi_dropout_kernels {
    /* Bit e of @p kept is 1 if word e % 4 of Philox4x32-10 at counter e / 4 is at least
     * @p threshold. @p stream: key (2 words), purpose and index. Writes whole bytes: ceil(elements
     * / 8). */
    void (*draw)(const uint32_t stream[4], uint32_t threshold, uint8_t *kept, size_t elements);
    /* out = bit of @p kept is 1 ? x * scale : 0; may be @p x */
    void (*apply)(const float *x, const uint8_t *kept, float scale, float *out, size_t count);
};

/* One time step of an LSTM for @p rows sequences. In @p out, @p cells, @p before and @p dy,
 * consecutive sequences are @p stride x units elements apart; in @p gates, four times that. A row
 * of gates has units elements each of the input gate, the forget gate, the cell's input and the
 * output gate, in this order. */
struct cddpi_lstm_kernels {
    /* gates = sigmoid, sigmoid, tanh, sigmoid of gates; cells = forget x before + input x cell; out
     * = output x tanh(cells). @p before: the cells of the previous step; NULL: zero. */
    void (*forward)(float *gates, const float *before, float *cells, float *out, size_t rows,
                    size_t stride, size_t units);
    /* From the results of forward: replaces gates by the gradient of what forward read there.
     * @p carried_out and @p carried_cell, rows x units without gaps, are the parts of the gradients
     * of out and cells that come from the next step; the call replaces carried_cell by its value
     * for the previous step. */
    void (*backward)(const float *dy, const float *carried_out, float *carried_cell,
                     const float *before, const float *cells, float *gates, size_t rows,
                     size_t stride, size_t units);
};

struct cddpi_transformer_kernels {
    const char *name; /* "generic", "avx2", "avx512" */
    const struct cddpi_layer_norm_kernels *layer_norm;
    const struct cddpi_gelu_kernels *gelu;
    const struct cddpi_silu_kernels *silu;
    const struct cddpi_attention_kernels *attention;
    const struct cddpi_softmax_kernels *softmax;
    const struct cddpi_dropout_kernels *dropout;
    const struct cddpi_lstm_kernels *lstm;
};

/** The fastest table that this CPU can run. */
const struct cddpi_transformer_kernels *cddpi_transformer_kernels(void);

/** All tables that this CPU can run, slowest first; for tests and benchmarks. Returns their number,
 *  at most 3. */
size_t cddpi_transformer_kernels_all(const struct cddpi_transformer_kernels *out[3]);

#endif
