/* cuda_kernels.h - all arithmetic on device memory, as one table that the CUDA module fills.
 *
 * Every function enqueues its work in the device's compute stream and returns. It neither waits nor
 * allocates (the caller provides scratch memory, whose size another function returns), so all of it
 * can be captured in a graph. Pointers are device memory, 16-byte aligned unless a comment says
 * otherwise; counts are in elements and may be 0. `type` is CDDP_F32, CDDP_BF16 or CDDP_F16: the
 * type of activations, of their gradients and of the weights that multiply them. Sums and
 * statistics are float32; so are parameters and their gradients, unless a comment says otherwise.
 * Matrices are row-major.
 *
 * Results have the same bits in every run: no order of summation depends on timing (no
 * floating-point atomics). The definitions are those of the CPU kernels (the headers of kernels/cpu
 * and the ops in src/trainer/nn/ops), and tests compare with these. Element-wise functions
 * (pointwise, add, add_bias, dropout and their gradients) may overwrite an input. All return
 * CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_UNAVAILABLE (the library has no such kernel here) or
 * CDDP_ERR_DEVICE. */
#ifndef CDDPI_KERNELS_CUDA_H
#define CDDPI_KERNELS_CUDA_H

#include "base/exact_sum.h"
#include "kernels/pointwise.h"

#include <cddp/types.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cddpi_device;
struct cddpi_exact_sum;

/* What losses add up to. Many a sum over rows is a term of it, and their order does not matter. */
struct cddpi_loss_totals {
    struct cddpi_exact_sum losses;
    int64_t correct; /* rows */
};

enum { CDDPI_CUDA_REDUCE_RANKS = 256 }; /* most inputs of reduce() */

/* The ranks of a sum that is made in two halves, in rank order. */
enum { CDDPI_CUDA_HOST_RANKS = 8, CDDPI_CUDA_HOSTS = 64 };
struct cddpi_cuda_hosts {
    int hosts;             /* at most CDDPI_CUDA_HOSTS */
    int each;              /* ranks of a host: 1, 2, 4 or 8 */
    const double *weights; /* of all ranks, as for reduce(); NULL: none */
    bool mean;             /* of all ranks; with weights it is always the weighted mean */
};

/* Applied to each element of a product, in the same pass. GELU is the tanh form. */
enum cddpi_cuda_epilogue { CDDPI_EPILOGUE_NONE, CDDPI_EPILOGUE_RELU, CDDPI_EPILOGUE_GELU };

/* y = epilogue(x W^T + b): x is rows x inputs, W is outputs x inputs, b has outputs elements. */
struct cddpi_cuda_linear {
    cddp_type type; /* of x, W, y and bias */
    size_t rows, inputs, outputs;
    enum cddpi_cuda_epilogue epilogue;
    /* Use the fastest algorithm even if its bits differ, unless $CDDP_PRODUCTS is set. */
    bool any_order;
};

struct cddpi_cuda_attention {
    cddp_type type;
    int batch, heads, length, head; /* sequences, heads, rows of each, width of a head */
    /* qkv: batch x length x 3 x heads x head, as linear writes it; out: batch x length x heads x
     * head; scaled by 1 / sqrt(head); causal. stats: batch x heads x length float32. */
    /* The gradient may be summed in any order, if that is faster and takes less memory. Then its
     * bits may differ between runs. */
    bool any_order;
};

/* Images are N x H x W x C (channels last). */
struct cddpi_cuda_conv {
    cddp_type type;
    int count, channels, height, width; /* of the input */
    int outputs, kernel, stride, padding;
    /* The engine may be chosen by measured time, and its bits may differ between runs. */
    bool any_order;
};

struct cddpi_cuda_pool {
    cddp_type type;
    int count, channels, height, width; /* of the input */
    int kernel, stride, padding;
    bool average; /* false: the maximum. In an average, padding counts as zeros, as on the CPU */
};

struct cddpi_cuda_norm {
    cddp_type type;
    size_t rows; /* count x height x width */
    int channels;
    float epsilon, momentum;
    bool relu;
    double weight; /* batch_norm: 0: of running statistics; otherwise the statistics of this batch
                      are written there, multiplied by this */
};

/* Rows are pixels, and a window has `size` channels; kernels/cpu/cpu_layout.h has the
 * formula. */
struct cddpi_cuda_response {
    cddp_type type;
    size_t rows; /* count x height x width */
    int channels, size;
    float alpha, beta, offset;
};

struct cddpi_cuda_lstm {
    cddp_type type;
    size_t rows, length, units; /* sequences, steps of each sequence, outputs of a step */
};

/* One tensor of an update: the fields that stay the same from step to step. */
struct cddpi_cuda_slot {
    float *param;
    const float *grad;
    float *first, *second; /* moments; second: adamw only; first NULL: sgd without momentum */
    void *copy;            /* also written, in the update's copy_type; NULL: no copy */
    size_t count;
    bool decays;
    /* adamw: device memory, one for each slot: the number of updates of this tensor so far. The
     * update kernel counts it up, because only the device knows in time whether a step is skipped.
     */
    int64_t *steps;
};

/* Tensors in the form that the device uses, for any number of steps and captured graphs: see
 * `tensors`. */
struct cddpi_cuda_tensors {
    void *table; /* device memory, owned by the caller */
    size_t slots;
    size_t pieces; /* all tensors together are divided into this many pieces of work */
};

/* A capture freezes the values here, but not the memory that the pointers refer to. */
struct cddpi_cuda_update {
    bool adamw;
    cddp_type copy_type;
    const double *lr; /* device memory */
    double weight_decay;
    double momentum; /* sgd */
    bool nesterov;
    double beta1, beta2, epsilon; /* adamw */
    float grad_scale;             /* multiplied by *device_scale, if that is not NULL */
    const float *device_scale;
    const int32_t *skip; /* device memory, NULL: never skip; if not 0, nothing changes (the step
                            overflowed under loss scaling) */
};

struct cddpi_cuda_kernels {
    /* --- products: cuBLASLt. The first call outside a capture chooses an algorithm for each shape,
     * and the process keeps it: the fastest of those that give the same bits as the library's
     * default, so that results do not depend on measurements. any_order asks for the fastest
     * algorithm whatever its bits; $CDDP_PRODUCTS (src/runtime/base/env.h) can ask for that or for
     * no measuring. With $CDDP_TF32, factors of float32 products are rounded to TF32. No output may
     * overlap an input. The module owns the workspace. --- */

    /* @p bias NULL: no bias. @p aux: with GELU in training, rows x outputs of `type`, receives the
     * input of the epilogue; otherwise NULL. */
    cddp_status (*linear)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                          const void *x, const void *weight, const void *bias, void *y, void *aux);
    /* dx = dy W (replaced). With @p aux (rows x inputs), x is the output of a GELU, and dx is
     * multiplied by gelu'(aux). */
    cddp_status (*linear_input)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                const void *dy, const void *weight, const void *aux, void *dx);
    /* dweight (float32) = or += dy^T x; dbias (float32, NULL: no bias) = or += column sums of dy.
     */
    cddp_status (*linear_weight)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                 const void *dy, const void *x, bool add, float *dweight,
                                 float *dbias);
    /* Bytes of device memory that kernels will still allocate for any shape: the workspaces of
     * products, which are more if sums may be in @p any_order, and the first scratch. What some
     * shapes need beyond that is not included. */
    size_t (*first_use_bytes)(struct cddpi_device *device, bool any_order);

    /* --- cuDNN's graph API. Plans are cached by shape. --- */

    cddp_status (*attention)(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                             const void *qkv, void *out, float *stats);
    cddp_status (*attention_grad)(struct cddpi_device *device,
                                  const struct cddpi_cuda_attention *shape, const void *qkv,
                                  const void *out, const float *stats, const void *dout,
                                  void *dqkv);
    /* weight: outputs x kernel x kernel x channels. */
    cddp_status (*conv)(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                        const void *x, const void *weight, void *y);
    cddp_status (*conv_input)(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *dy, const void *weight, void *dx);
    /* dweight: float32, outputs x kernel x kernel x channels. */
    cddp_status (*conv_weight)(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                               const void *dy, const void *x, bool add, float *dweight);
    /* Statistics are over the @p shape->rows of this rank. mean and inverse (1 / sqrt(variance +
     * epsilon)) are saved for backward. Running statistics are updated as in PyTorch (with the
     * unbiased variance), except by values that are not finite; NULL: there are none. @p sum (NULL:
     * nothing) is added before the relu. */
    cddp_status (*batch_norm)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                              const void *x, const void *sum, const float *weight,
                              const float *bias, float *running_mean, float *running_variance,
                              float *mean, float *inverse, void *y);
    /* The same update by the statistics of several batches: sums of mean and unbiased variance, by
     * the batches' weights. */
    cddp_status (*batch_norm_blend)(struct cddpi_device *device, int channels, double momentum,
                                    const float *mean, const float *variance, float *running_mean,
                                    float *running_variance);
    cddp_status (*batch_norm_eval)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                   const void *x, const void *sum, const float *weight,
                                   const float *bias, const float *running_mean,
                                   const float *running_variance, void *y);
    /* @p other (NULL: nothing): a second summand of the gradient dy. @p y: the output, for the
     * relu's mask; NULL: nothing was added before the relu, so the mask follows from x. @p dsum
     * (NULL: not needed): the gradient after the relu's mask; it overlaps nothing. */
    cddp_status (*batch_norm_grad)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                   const void *dy, const void *other, const void *x, const void *y,
                                   const float *weight, const float *bias, const float *mean,
                                   const float *inverse, bool add, void *dx, void *dsum,
                                   float *dweight, float *dbias);

    /* The same over several ranks, whose batches are normalised as one. Each rank computes the
     * moments of its batch, the caller gathers those of all @p ranks in rank order, and each rank
     * continues with them. Sums are in float64 and in that order, so all ranks get the same bits.
     * @p rank_moments: 1 + 2 x channels numbers: rows (may be 0), means, sums of squared deviations
     * from the means. */
    cddp_status (*batch_norm_moments)(struct cddpi_device *device,
                                      const struct cddpi_cuda_norm *shape, const void *x,
                                      double *rank_moments);
    /* The statistics, as batch_norm computes them; @p rows receives the rows of all ranks. If that
     * is 0, nothing else is written. */
    cddp_status (*batch_norm_merge)(struct cddpi_device *device,
                                    const struct cddpi_cuda_norm *shape, const double *all_moments,
                                    int ranks, float *running_mean, float *running_variance,
                                    float *mean, float *inverse, double *rows);
    cddp_status (*batch_norm_apply)(struct cddpi_device *device,
                                    const struct cddpi_cuda_norm *shape, const void *x,
                                    const void *sum, const float *weight, const float *bias,
                                    const float *mean, const float *inverse, void *y);
    /* dweight and dbias of this rank alone. @p sums: 2 x channels numbers, the sums of dy and of dy
     * (x - mean), divided by @p scale, which dy contains and which may differ between ranks. */
    cddp_status (*batch_norm_grad_moments)(struct cddpi_device *device,
                                           const struct cddpi_cuda_norm *shape, const void *dy,
                                           const void *x, const void *y, const float *mean,
                                           const float *inverse, bool add, double scale,
                                           float *dweight, float *dbias, double *sums);
    cddp_status (*batch_norm_grad_apply)(struct cddpi_device *device,
                                         const struct cddpi_cuda_norm *shape, const void *dy,
                                         const void *x, const void *y, const float *weight,
                                         const float *mean, const float *inverse,
                                         const double *sums, int ranks, const double *rows,
                                         double scale, void *dx, void *dsum);

    /* --- own kernels: activations --- */

    /* out = layer norm of x + residual (NULL: of x); the sum is written to @p sum (NULL: not
     * needed). mean, inverse: one float32 for each row; NULL in evaluation. */
    cddp_status (*layer_norm)(struct cddpi_device *device, cddp_type type, const void *x,
                              const void *residual, const float *weight, const float *bias,
                              float epsilon, size_t rows, size_t columns, void *sum, void *out,
                              float *mean, float *inverse);
    /* dx = its gradient, plus @p other (NULL: nothing; may be dx). dweight and dbias are replaced,
     * or added to. @p scratch: layer_norm_scratch bytes. */
    cddp_status (*layer_norm_grad)(struct cddpi_device *device, cddp_type type, const void *dy,
                                   const void *x, const float *weight, const float *mean,
                                   const float *inverse, size_t rows, size_t columns,
                                   const void *other, bool add, void *dx, float *dweight,
                                   float *dbias, void *scratch);
    size_t (*layer_norm_scratch)(const struct cddpi_device *device, size_t rows, size_t columns);

    /* out[row] = table[token[row]] + positions[row % length] (NULL: no positions). */
    cddp_status (*embedding)(struct cddpi_device *device, cddp_type type, const int32_t *tokens,
                             const void *table, const void *positions, size_t rows, size_t length,
                             size_t columns, void *out);
    /* dtable[token[row]] += dy[row], in an order that depends only on the tokens; dpositions[t] =
     * or += the sum over its rows (NULL: not needed). Unless it accumulates, the caller has cleared
     * dtable. @p scratch: embedding_scratch bytes. */
    cddp_status (*embedding_grad)(struct cddpi_device *device, cddp_type type,
                                  const int32_t *tokens, const void *dy, size_t rows, size_t length,
                                  size_t columns, size_t vocab, bool add, float *dtable,
                                  float *dpositions, void *scratch);
    size_t (*embedding_scratch)(size_t rows, size_t vocab);

    /* The functions of kernels/pointwise.h. @p slope: only for leaky_relu; @p saved: x or y, as the
     * function's row says. */
    cddp_status (*pointwise)(struct cddpi_device *device, cddp_type type,
                             enum cddpi_pointwise function, float slope, const void *x,
                             size_t count, void *y);
    cddp_status (*pointwise_grad)(struct cddpi_device *device, cddp_type type,
                                  enum cddpi_pointwise function, float slope, const void *dy,
                                  const void *saved, size_t count, void *dx);
    /* out = a + b, then optionally the relu. Pointers may be aligned to their elements only. */
    cddp_status (*add)(struct cddpi_device *device, cddp_type type, const void *a, const void *b,
                       bool relu, size_t count, void *out);
    /* y = x + bias (float32), then optionally the relu; used after a convolution. */
    cddp_status (*add_bias)(struct cddpi_device *device, cddp_type type, const void *x,
                            const float *bias, bool relu, size_t rows, size_t columns, void *y);
    /* out[b][c][r] = x[b][r][c]: converts images from channels last to C x H x W (rows = area,
     * columns = channels), or back. */
    cddp_status (*transpose)(struct cddpi_device *device, cddp_type type, const void *x,
                             size_t count, size_t rows, size_t columns, void *out);
    /* out = or += column sums of x (rows x columns), float32. @p scratch: sums_scratch bytes. */
    cddp_status (*column_sums)(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t columns, bool add, float *out, void *scratch);
    size_t (*sums_scratch)(const struct cddpi_device *device, size_t rows, size_t columns);
    /* Uses the same random numbers as the CPU: element e of sample s is kept if word e % 4 of
     * Philox4x32-10 at counter e / 4 is at least @p threshold. Its stream is @p streams[4 s ...]:
     * key (2 words), purpose, index (device memory; see src/trainer/nn/ops/dropout_op.c). Backward
     * is the same call on dy. */
    cddp_status (*dropout)(struct cddpi_device *device, cddp_type type, const uint32_t *streams,
                           uint32_t threshold, float scale, const void *x, size_t samples,
                           size_t elements, void *out);
    /* Pools. A maximum (the first of equal values) writes its place in the window to @p places,
     * pool_places_bytes long, and backward reads that instead of x and y. NULL: no backward
     * follows, or the pool is an average. */
    cddp_status (*pool)(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                        const void *x, void *y, void *places);
    cddp_status (*pool_grad)(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                             const void *dy, const void *places, void *dx);
    size_t (*pool_places_bytes)(const struct cddpi_cuda_pool *shape);
    /* Help cuDNN with convolutions of few channels when it computes their filters' gradient in 16
     * bits. For the images, out (rows x 8) = x (rows x channels) padded with zeros. For the
     * gradient, out (rows x channels, float32) = or += the first channels of x (rows x 8). */
    cddp_status (*pad_channels)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, int channels, void *out);
    cddp_status (*add_channels)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, int channels, bool add, float *out);
    /* The mean over height x width of N x H x W x C. */
    cddp_status (*global_pool)(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t count, size_t area, size_t channels, void *out);
    cddp_status (*global_pool_grad)(struct cddpi_device *device, cddp_type type, const void *dy,
                                    size_t count, size_t area, size_t channels, void *dx);

    /* Over rows of channels. The gradient's @p scratch: rows x channels floats; dx may be dy. */
    cddp_status (*response_norm)(struct cddpi_device *device,
                                 const struct cddpi_cuda_response *shape, const void *x, void *y);
    cddp_status (*response_norm_grad)(struct cddpi_device *device,
                                      const struct cddpi_cuda_response *shape, const void *dy,
                                      const void *x, float *scratch, void *dx);
    /* Copy columns [@p first, first + columns) of x (rows x all) to out (rows x columns), and from
     * x (rows x columns) back to those columns of out (rows x all). */
    cddp_status (*take_columns)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, size_t all, size_t first, size_t columns, void *out);
    cddp_status (*put_columns)(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t all, size_t first, size_t columns, void *out);

    /* One step of an LSTM for all sequences. @p gates (rows x length x 4 units: input, forget,
     * cell, output) hold the contribution of the inputs, and are replaced by the gates' values.
     * @p recurrent (rows x 4 units) is the contribution of the previous step's outputs; NULL: this
     * is the first step. The biases are parameters, or NULL. cells: rows x length x units, float32;
     * out: the same in `type`. @p last (rows x units): the step's outputs again, without gaps. */
    cddp_status (*lstm)(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                        size_t step, const float *bias_ih, const float *bias_hh,
                        const void *recurrent, void *gates, float *cells, void *out, void *last);
    /* Runs from the last step to the first. @p carried_out (rows x units): the gradient of the
     * step's outputs from the next step; NULL: this is the last step. @p carried_cell (rows x
     * units): the same for its cells; the call replaces it by the value for the previous step. The
     * gates' gradients replace the gates, and are also written to @p step_grads (rows x 4 units)
     * without gaps. @p before (rows x length x units) receives the outputs that each step started
     * from: those of the previous step, or zeros for the first. */
    cddp_status (*lstm_grad)(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                             size_t step, const void *dy, const void *carried_out,
                             float *carried_cell, const float *cells, const void *out, void *gates,
                             void *step_grads, void *before);

    /* Losses. With @p grads, @p logits (rows x columns) becomes scale x (softmax - onehot);
     * otherwise it is unchanged. Their sum, in float64 and in a fixed order, is one more term of
     * @p out->losses, and @p out->correct += the number of rows whose largest element is the
     * label's. The scale is @p scale times *device_scale (NULL: 1), which is the loss scale. If the
     * loss of a row is not finite, its gradients are not either.
     * @p scratch: loss_scratch bytes. */
    cddp_status (*cross_entropy)(struct cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale,
                                 struct cddpi_loss_totals *out, void *scratch);
    /* The same for rows that are @p stride elements apart (a multiple that is fast in products);
     * the elements between rows are unchanged. */
    cddp_status (*cross_entropy_strided)(struct cddpi_device *device, cddp_type type, void *logits,
                                         const int32_t *labels, size_t rows, size_t columns,
                                         size_t stride, bool grads, float scale,
                                         const float *device_scale, struct cddpi_loss_totals *out,
                                         void *scratch);
    /* Squared error against one-hot targets, as the mean over columns. The gradient goes to
     * @p logits in the same way. */
    cddp_status (*squared_error)(struct cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale,
                                 struct cddpi_loss_totals *out, void *scratch);
    /* Binary cross-entropy of the logits against one-hot targets, as the mean over columns. With
     * one column, the target is the label itself, 0 or 1, and a row is correct if the logit's sign
     * matches. The gradient goes to @p logits in the same way. */
    cddp_status (*binary_cross_entropy)(struct cddpi_device *device, cddp_type type, void *logits,
                                        const int32_t *labels, size_t rows, size_t columns,
                                        bool grads, float scale, const float *device_scale,
                                        struct cddpi_loss_totals *out, void *scratch);
    /* Squared, or with @p absolute absolute, error against real @p targets (rows x columns
     * float32), as the mean over columns. No row is correct. The derivative of the absolute error
     * is 0 where both are equal. The gradient goes to @p outputs in the same way. */
    cddp_status (*real_error)(struct cddpi_device *device, cddp_type type, void *outputs,
                              const float *targets, bool absolute, size_t rows, size_t columns,
                              bool grads, float scale, const float *device_scale,
                              struct cddpi_loss_totals *out, void *scratch);
    size_t (*loss_scratch)(size_t rows);

    /* --- own kernels: parameters --- */

    /* Write a table of @p slots (CPU memory, copied by the call; at most 65536, none of count 0) to
     * @p table, which has tensors_bytes and is 256-byte aligned. Waits until the copy is complete;
     * not allowed in a capture.
     * @p out: the argument for update and squares, valid as long as the table's memory. */
    cddp_status (*tensors)(struct cddpi_device *device, const struct cddpi_cuda_slot *slots,
                           size_t count, void *table, struct cddpi_cuda_tensors *out);
    size_t (*tensors_bytes)(const struct cddpi_cuda_slot *slots, size_t count);
    /* Update all tensors in one launch; each element has the bits of kernels/cpu/cpu_optim.h. */
    cddp_status (*update)(struct cddpi_device *device, const struct cddpi_cuda_update *update,
                          const struct cddpi_cuda_tensors *tensors);
    /* *out = the sum of squares of all gradients, carried; the same as by kernels/cpu/cpu_optim.h.
     */
    cddp_status (*squares)(struct cddpi_device *device, const struct cddpi_cuda_tensors *tensors,
                           struct cddpi_exact_sum *out);
    /* *scale = 1 / loss scale x min(1, clip / norm) from *squares; *skip = 1 and *scale = 0 if the
     * squares are not finite. @p loss_scale NULL: 1; clip 0: no clipping. *norm: for reports. */
    cddp_status (*clip)(struct cddpi_device *device, const struct cddpi_exact_sum *squares,
                        const float *loss_scale, double clip, float *scale, int32_t *skip,
                        double *norm);
    /* Apply GradScaler's rule to *loss_scale and *good_steps after a step
     * (src/trainer/optim/loss_scale.h). */
    cddp_status (*scale_loss)(struct cddpi_device *device, const int32_t *skip, double growth,
                              double backoff, float least, int32_t interval, float *loss_scale,
                              int32_t *good_steps);
    /* Convert between types, rounding to nearest even. */
    cddp_status (*cast)(struct cddpi_device *device, cddp_type from, const void *in, cddp_type to,
                        void *out, size_t count);
    /* Convert N x C x H x W float32 to N x H x W x C of `type`, or back (images and weights of
     * conv2d). */
    cddp_status (*to_channels_last)(struct cddpi_device *device, cddp_type type, const float *in,
                                    size_t count, size_t channels, size_t area, void *out);
    cddp_status (*from_channels_last)(struct cddpi_device *device, cddp_type type, const void *in,
                                      size_t count, size_t channels, size_t area, bool add,
                                      float *out);

    /* --- own kernels: collectives. They run in CDDPI_STREAM_COMM. --- */

    /* out = op over @p inputs (at most CDDPI_CUDA_REDUCE_RANKS pointers, in rank order) as a binary
     * tree over ranks, exactly as the host backend reduces (kernels/cpu/reduce.h): 16-bit types are
     * summed in float32 and rounded once. With @p weights (device memory, float64, one for each
     * input): the weighted mean. */
    cddp_status (*reduce)(struct cddpi_device *device, cddp_type type, cddp_op op,
                          const void *const *inputs, const double *weights, int ranks, size_t count,
                          void *out);
    /* A sum or mean of float32, bf16 or f16 in two halves, which have reduce()'s bits together.
     * sum_host: out = the sum of the ranks of host @p host, whose arrays are @p inputs. join_hosts:
     * out = the result, from what sum_host made of each host. */
    cddp_status (*sum_host)(struct cddpi_device *device, cddp_type type,
                            const struct cddpi_cuda_hosts *hosts, int host,
                            const void *const *inputs, size_t count, float *out);
    cddp_status (*join_hosts)(struct cddpi_device *device, cddp_type type,
                              const struct cddpi_cuda_hosts *hosts, const void *const *parts,
                              size_t count, void *out);
    /* *out (float32 or float64) = the share of rank @p rank in all @p weights, with which it is
     * multiplied in a weighted mean. Any number of ranks. */
    cddp_status (*share)(struct cddpi_device *device, cddp_type type, const double *weights,
                         int ranks, int rank, void *out);
    /* data *= *factor (float64, device memory), in place; a factor of 0 writes zeros. */
    cddp_status (*scale)(struct cddpi_device *device, cddp_type type, const double *factor,
                         size_t count, void *data);
};

#ifdef __cplusplus
}
#endif
#endif
