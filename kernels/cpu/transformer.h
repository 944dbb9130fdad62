/* transformer.h - the passes of a transformer that are not matrix products: layer normalisation,
 * gelu, silu, and the softmax of causal attention; and the gates of an LSTM. The best instructions
 * of this processor are chosen at run time; every choice gives the same bits. Any thread.
 *
 * Matrices are row-major; counts are in elements; pointers need no alignment. */
#ifndef CDDPI_KERNELS_CPU_TRANSFORMER_H
#define CDDPI_KERNELS_CPU_TRANSFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CDDPI_LAYER_NORM_SCRATCH(columns) (3 * (columns))

struct cddpi_layer_norm_kernels {
    /* out = (x - mean) / sqrt(variance + epsilon) * weight + bias over each row, the variance being
     * that of the row's population. @p mean and @p inverse (1 / sqrt) get an element a row; both
     * may be NULL. @p out may be @p x. */
    void (*forward)(const float *x, const float *weight, const float *bias, float epsilon,
                    size_t rows, size_t columns, float *out, float *mean, float *inverse);
    /* The gradients of the three, in one pass. @p dx NULL: not wanted; it may be @p dy. @p dweight
     * and @p dbias are added to; @p scratch holds CDDPI_LAYER_NORM_SCRATCH(columns) elements. */
    void (*backward)(const float *dy, const float *x, const float *weight, const float *mean,
                     const float *inverse, size_t rows, size_t columns, float *dx, float *dweight,
                     float *dbias, double *scratch);
};

/* gelu(x) = x Phi(x), Phi being the normal distribution; @p exact: with erf, else with tanh as in
 * GPT-2: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
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
 * key j, and it may look at keys 0 to first + r. Rows lie @p stride elements apart, a multiple of
 * 16 that is no less than @p columns; what lies between the two may be overwritten. */
struct cddpi_attention_kernels {
    /* s = exp(s - max) for the keys a query may look at, 0 for the others. total[r] is the sum of
     * the row, log_sum[r] (NULL: not wanted) the logarithm of the sum of exp(s) as it came. */
    void (*softmax)(float *s, size_t stride, size_t rows, size_t columns, size_t first,
                    float *total, float *log_sum);
    /* out[r] = in[r] / total[r] */
    void (*divide)(float *out, size_t stride, size_t rows, size_t columns, const float *total);
    /* out[r] = sum over c of a[r][c] b[r][c], rows of both @p stride apart */
    void (*row_products)(const float *a, const float *b, size_t stride, size_t rows, size_t columns,
                         float *out);
    /* s = p = exp(s - log_sum) and dp = p (dp - delta): probabilities, and the gradient of the
     * scores from theirs; 0 for keys that a query may not look at. */
    void (*backward)(float *s, float *dp, size_t stride, size_t rows, size_t columns, size_t first,
                     const float *log_sum, const float *delta);
};

/* Softmax cross-entropy over rows as long as a vocabulary. */
struct cddpi_softmax_kernels {
    /* The sum over rows of -log softmax(x[r])[label[r]]. @p correct is increased by the rows whose
     * largest element (the first of equals) is the label's; a row with a NaN is none. out = exp(x -
     * the row's largest), which may be @p x, and inverse[r] = 1 / their sum; both may be NULL. */
    double (*forward)(const float *x, const int32_t *label, size_t rows, size_t columns, float *out,
                      float *inverse, int *correct);
    /* out = scale * (softmax - onehot) from what forward made; may be @p powers. */
    void (*backward)(const float *powers, const int32_t *label, const float *inverse, float scale,
                     size_t rows, size_t columns, float *out);
};

struct cddpi_dropout_kernels {
    /* Bit e of @p kept is 1 if word e % 4 of Philox4x32-10 at counter e / 4 is no less than
     * @p threshold. @p stream: its key (2 words), purpose and index. Whole bytes are written:
     * ceil(elements / 8). */
    void (*draw)(const uint32_t stream[4], uint32_t threshold, uint8_t *kept, size_t elements);
    /* out = bit of @p kept is 1 ? x * scale : 0; may be @p x */
    void (*apply)(const float *x, const uint8_t *kept, float scale, float *out, size_t count);
};

/* One time step of an LSTM for @p rows sequences: of sequence r, what lies behind @p out, @p cells,
 * @p before and @p dy is @p stride x units elements behind that of sequence r - 1, and @p gates
 * four times that. A row of gates has units elements of the input gate, the forget gate, the cell's
 * input and the output gate, one after the other. */
struct cddpi_lstm_kernels {
    /* gates = sigmoid, sigmoid, tanh, sigmoid of gates; cells = forget x before + input x cell;
     * out = output x tanh(cells). @p before: the cells of the step before; NULL: zero. */
    void (*forward)(float *gates, const float *before, float *cells, float *out, size_t rows,
                    size_t stride, size_t units);
    /* From what forward made: gates = the gradient of what they were before forward.
     * @p carried_out and @p carried_cell, rows x units without gaps: the parts of the gradients of
     * out and cells that come from the next step; the latter becomes the one for the step before.
     */
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

/** The fastest table that this processor can run. */
const struct cddpi_transformer_kernels *cddpi_transformer_kernels(void);

/** All tables that this processor can run, slowest first; for tests and benchmarks. Returns how
 * many there are, at most 3. */
size_t cddpi_transformer_kernels_all(const struct cddpi_transformer_kernels *out[3]);

#endif
