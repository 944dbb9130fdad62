/* cuda_kernels.h - all arithmetic on device memory, as one table that the CUDA module fills.
 *
 * Every function puts its work into the device's compute stream and returns; it neither waits nor
 * allocates on the way (scratch is the caller's, its size is asked for before), so all of it can
 * be captured into a graph. Pointers are device memory, 16-byte aligned unless said otherwise;
 * counts are in elements and may be 0. `type` is CDDP_F32, CDDP_BF16 or CDDP_F16: of activations,
 * of their gradients and of the weights they are multiplied with; sums and statistics are float32;
 * parameters, and gradients of parameters, are float32 where nothing else is said. Matrices are
 * row-major. Results are the same bits in every run: no sum's order depends on timing (no
 * floating-point atomics). The definitions are those of the CPU kernels (the headers of kernels/cpu
 * and the ops in src/trainer/nn/ops), which tests compare with. What works element by element
 * (pointwise, add, add_bias, dropout and their gradients) may write in the place of an input. All
 * return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_UNAVAILABLE (the library has no such kernel here) or
 * CDDP_ERR_DEVICE. */
#ifndef CDDPI_KERNELS_CUDA_H
#define CDDPI_KERNELS_CUDA_H

#include "kernels/pointwise.h"

#include <cddp/types.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cddpi_device;

/* What is done to each element after a product, in the same pass. GELU is tanh's form. */
enum cddpi_cuda_epilogue { CDDPI_EPILOGUE_NONE, CDDPI_EPILOGUE_RELU, CDDPI_EPILOGUE_GELU };

/* y = epilogue(x W^T + b): rows x inputs, outputs x inputs, outputs. */
struct cddpi_cuda_linear {
    cddp_type type; /* of x, W, y and bias */
    size_t rows, inputs, outputs;
    enum cddpi_cuda_epilogue epilogue;
    /* The fastest algorithm, whatever its bits, where $CDDP_PRODUCTS says nothing. */
    bool any_order;
};

struct cddpi_cuda_attention {
    cddp_type type;
    int batch, heads, length, head; /* sequences, heads, rows of each, width of a head */
    /* qkv: batch x length x 3 x heads x head, as linear makes it; out: batch x length x heads x
     * head; scaled by 1 / sqrt(head); causal. stats: batch x heads x length float32. */
    /* The gradient may be summed in any order, where that is faster and takes less memory: then it
     * has not the same bits in every run. */
    bool any_order;
};

/* Images are N x H x W x C (channels last). */
struct cddpi_cuda_conv {
    cddp_type type;
    int count, channels, height, width; /* of the input */
    int outputs, kernel, stride, padding;
    /* The engine may be chosen by time, and need not give the same bits in every run. */
    bool any_order;
};

struct cddpi_cuda_pool {
    cddp_type type;
    int count, channels, height, width; /* of the input */
    int kernel, stride, padding;
    bool average; /* else the maximum. Average: padding counts as zeros, as on the CPU */
};

struct cddpi_cuda_norm {
    cddp_type type;
    size_t rows; /* count x height x width */
    int channels;
    float epsilon, momentum;
    bool relu;
};

/* Rows are pixels, `size` channels a window; kernels/cpu/cpu_response_norm.h says what is made. */
struct cddpi_cuda_response {
    cddp_type type;
    size_t rows; /* count x height x width */
    int channels, size;
    float alpha, beta, offset;
};

struct cddpi_cuda_lstm {
    cddp_type type;
    size_t rows, length, units; /* sequences, steps of each, outputs of a step */
};

/* One tensor of an update over many: what stays the same from step to step. */
struct cddpi_cuda_slot {
    float *param;
    const float *grad;
    float *first, *second; /* moments; second: adamw only; first NULL: sgd without momentum */
    void *copy;            /* of the update's copy_type, written too; NULL: none */
    size_t count;
    bool decays;
    /* adamw, device memory, each slot its own: updates of this tensor so far. The update counts
     * them up, for only the device knows in time whether a step is skipped. */
    int64_t *steps;
};

/* Such tensors as the device has them, for any number of steps and captured graphs:
 * see `tensors`. */
struct cddpi_cuda_tensors {
    void *table; /* device memory, the caller's */
    size_t slots;
    size_t pieces; /* tensors are worked on in so many pieces */
};

/* What a capture keeps as it is are the values here, not what the pointers show. */
struct cddpi_cuda_update {
    bool adamw;
    cddp_type copy_type;
    const double *lr; /* device memory */
    double weight_decay;
    double momentum; /* sgd */
    bool nesterov;
    double beta1, beta2, epsilon; /* adamw */
    float grad_scale;             /* multiplied with *device_scale, if that is not NULL */
    const float *device_scale;
    const int32_t *skip; /* device memory, NULL: never; if it is not 0, nothing changes (a step that
                            overflowed under loss scaling) */
};

struct cddpi_cuda_kernels {
    /* --- products: cuBLASLt. An algorithm is chosen for each shape by its first call outside a
     * capture and kept for the process: the fastest of those that give the same bits as the
     * library's own choice, so that results do not depend on what was measured. any_order asks for
     * the fastest whatever its bits, $CDDP_PRODUCTS (src/runtime/base/env.h) for that or for no
     * measuring. $CDDP_TF32 rounds factors of float32 products to TF32. No output may overlap an
     * input. Workspace is the module's own. --- */

    /* @p bias NULL: none. @p aux: with GELU in training, rows x outputs of `type`, gets what the
     * epilogue was applied to; else NULL. */
    cddp_status (*linear)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                          const void *x, const void *weight, const void *bias, void *y, void *aux);
    /* dx = dy W (replaced). With @p aux (rows x inputs): after the GELU that made x, i.e. times
     * gelu'(aux). */
    cddp_status (*linear_input)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                const void *dy, const void *weight, const void *aux, void *dx);
    /* dweight (float32) = or += dy^T x; dbias (float32, NULL: none) = or += column sums of dy. */
    cddp_status (*linear_weight)(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                 const void *dy, const void *x, bool add, float *dweight,
                                 float *dbias);
    /* Bytes of device memory that kernels will still ask for, whatever the shapes: the workspace of
     * products and the first scratch. What some shapes need beyond is not in it. */
    size_t (*first_use_bytes)(struct cddpi_device *device);

    /* --- cuDNN's graph API. Plans are kept by shape. --- */

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
    /* The sums are over @p shape->rows of this rank; mean and inverse (1 / sqrt(variance +
     * epsilon)) are kept for backward; running statistics are moved (PyTorch's: the unbiased
     * variance), but not by what is not finite. @p sum (NULL: none) is added before the relu. */
    cddp_status (*batch_norm)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                              const void *x, const void *sum, const float *weight,
                              const float *bias, float *running_mean, float *running_variance,
                              float *mean, float *inverse, void *y);
    cddp_status (*batch_norm_eval)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                   const void *x, const void *sum, const float *weight,
                                   const float *bias, const float *running_mean,
                                   const float *running_variance, void *y);
    /* @p other (NULL: none): a second part of the gradient dy. @p y: the output, for the relu's
     * mask; NULL: nothing was added before the relu, and x tells. @p dsum (NULL: none): the
     * gradient after the relu; it has memory of its own. */
    cddp_status (*batch_norm_grad)(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                   const void *dy, const void *other, const void *x, const void *y,
                                   const float *weight, const float *bias, const float *mean,
                                   const float *inverse, bool add, void *dx, void *dsum,
                                   float *dweight, float *dbias);

    /* The same over ranks, whose batches are normalised as one: each makes the moments of its own,
     * the caller brings those of all @p ranks together, in rank order, and each goes on with them.
     * Sums are in float64 and in that order: all ranks have the same bits.
     * @p rank_moments: 1 + 2 x channels numbers: rows (may be 0), means, sums of squared distances
     * from them. */
    cddp_status (*batch_norm_moments)(struct cddpi_device *device,
                                      const struct cddpi_cuda_norm *shape, const void *x,
                                      double *rank_moments);
    /* The statistics as batch_norm makes them; @p rows: of all ranks. If there are none, only that
     * is written. */
    cddp_status (*batch_norm_merge)(struct cddpi_device *device,
                                    const struct cddpi_cuda_norm *shape, const double *all_moments,
                                    int ranks, float *running_mean, float *running_variance,
                                    float *mean, float *inverse, double *rows);
    cddp_status (*batch_norm_apply)(struct cddpi_device *device,
                                    const struct cddpi_cuda_norm *shape, const void *x,
                                    const void *sum, const float *weight, const float *bias,
                                    const float *mean, const float *inverse, void *y);
    /* dweight and dbias of this rank alone. @p sums: 2 x channels numbers, of dy and of dy (x -
     * mean); without @p scale, which is in dy and may be another on each rank. */
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

    /* out = layer norm of x + residual (NULL: of x), whose sum goes to @p sum (NULL: not wanted).
     * mean, inverse: a float32 a row; NULL in evaluation. */
    cddp_status (*layer_norm)(struct cddpi_device *device, cddp_type type, const void *x,
                              const void *residual, const float *weight, const float *bias,
                              float epsilon, size_t rows, size_t columns, void *sum, void *out,
                              float *mean, float *inverse);
    /* dx = its gradient, plus @p other (NULL: none; may be dx). dweight and dbias are replaced, or
     * added to. @p scratch: of layer_norm_scratch bytes. */
    cddp_status (*layer_norm_grad)(struct cddpi_device *device, cddp_type type, const void *dy,
                                   const void *x, const float *weight, const float *mean,
                                   const float *inverse, size_t rows, size_t columns,
                                   const void *other, bool add, void *dx, float *dweight,
                                   float *dbias, void *scratch);
    size_t (*layer_norm_scratch)(size_t rows, size_t columns);

    /* out[row] = table[token[row]] + positions[row % length] (NULL: none). */
    cddp_status (*embedding)(struct cddpi_device *device, cddp_type type, const int32_t *tokens,
                             const void *table, const void *positions, size_t rows, size_t length,
                             size_t columns, void *out);
    /* dtable[token[row]] += dy[row] in an order that the tokens alone decide; dpositions[t] = or +=
     * their sum (NULL: none). The caller has cleared dtable, unless it adds. @p scratch: of
     * embedding_scratch bytes. */
    cddp_status (*embedding_grad)(struct cddpi_device *device, cddp_type type,
                                  const int32_t *tokens, const void *dy, size_t rows, size_t length,
                                  size_t columns, size_t vocab, bool add, float *dtable,
                                  float *dpositions, void *scratch);
    size_t (*embedding_scratch)(size_t rows, size_t vocab);

    /* The functions of kernels/pointwise.h. @p slope: of leaky_relu; @p saved: x or y, as the
     * function's row says. */
    cddp_status (*pointwise)(struct cddpi_device *device, cddp_type type,
                             enum cddpi_pointwise function, float slope, const void *x,
                             size_t count, void *y);
    cddp_status (*pointwise_grad)(struct cddpi_device *device, cddp_type type,
                                  enum cddpi_pointwise function, float slope, const void *dy,
                                  const void *saved, size_t count, void *dx);
    /* out = a + b, then the relu if that is asked for. */
    cddp_status (*add)(struct cddpi_device *device, cddp_type type, const void *a, const void *b,
                       bool relu, size_t count, void *out);
    /* y = x + bias (float32), then the relu if that is asked for: after a convolution. */
    cddp_status (*add_bias)(struct cddpi_device *device, cddp_type type, const void *x,
                            const float *bias, bool relu, size_t rows, size_t columns, void *y);
    /* out[b][c][r] = x[b][r][c]: images from channels last to C x H x W (rows = area, columns =
     * channels), or back. */
    cddp_status (*transpose)(struct cddpi_device *device, cddp_type type, const void *x,
                             size_t count, size_t rows, size_t columns, void *out);
    /* out = or += column sums of x (rows x columns), float32. @p scratch: of sums_scratch bytes. */
    cddp_status (*column_sums)(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t columns, bool add, float *out, void *scratch);
    size_t (*sums_scratch)(size_t rows, size_t columns);
    /* The CPU's numbers: element e of sample s is kept if word e % 4 of Philox4x32-10 at counter
     * e / 4 is no less than @p threshold, its stream being @p streams[4 s ...]: key (2 words),
     * purpose, index (device memory; src/trainer/nn/ops/dropout_op.c says which). Backward is the
     * same call on dy. */
    cddp_status (*dropout)(struct cddpi_device *device, cddp_type type, const uint32_t *streams,
                           uint32_t threshold, float scale, const void *x, size_t samples,
                           size_t elements, void *out);
    /* Pools. A maximum (the first of equals) leaves in @p places, of pool_places_bytes, where in
     * its window it was; backward reads that instead of x and y. NULL: no backward comes, or it is
     * an average. */
    cddp_status (*pool)(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                        const void *x, void *y, void *places);
    cddp_status (*pool_grad)(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                             const void *dy, const void *places, void *dx);
    size_t (*pool_places_bytes)(const struct cddpi_cuda_pool *shape);
    /* What convolutions of few channels do for cuDNN when it makes their filters' gradient, in 16
     * bits: to their images, out (rows x 8) = x (rows x channels) and zeros after them; to the
     * gradient, out (rows x channels, float32) = or += the first of x (rows x 8). */
    cddp_status (*pad_channels)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, int channels, void *out);
    cddp_status (*add_channels)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, int channels, bool add, float *out);
    /* Over height x width of N x H x W x C. */
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
    /* Columns @p first up to first + columns of x (rows x all) to out (rows x columns); and from x
     * (rows x columns) back into that place of out (rows x all). */
    cddp_status (*take_columns)(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, size_t all, size_t first, size_t columns, void *out);
    cddp_status (*put_columns)(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t all, size_t first, size_t columns, void *out);

    /* One step of an LSTM for all its sequences. @p gates (rows x length x 4 units: input, forget,
     * cell, output) hold what the inputs give to them, and then their values; @p recurrent (rows x
     * 4 units) what the outputs of the step before give; NULL: it is the first step. The biases are
     * parameters, or NULL. cells: rows x length x units, float32; out: likewise, of the type;
     * @p last (rows x units): its outputs again, without gaps. */
    cddp_status (*lstm)(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                        size_t step, const float *bias_ih, const float *bias_hh,
                        const void *recurrent, void *gates, float *cells, void *out, void *last);
    /* From the last step to the first. @p carried_out (rows x units): the gradient of the step's
     * outputs from the step after it; NULL: it is the last one. @p carried_cell (rows x units):
     * likewise of its cells; the call leaves those of the step before. The gates' gradients take
     * the gates' place, and lie in @p step_grads (rows x 4 units) without gaps. @p before: the
     * outputs that the step began from (rows x length x units), zeros of the first. */
    cddp_status (*lstm_grad)(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                             size_t step, const void *dy, const void *carried_out,
                             float *carried_cell, const float *cells, const void *out, void *gates,
                             void *step_grads, void *before);

    /* Losses. @p logits (rows x columns) becomes scale x (softmax - onehot) with @p grads, else it
     * stays. @p out[0] += the sum of losses and @p out[1] += the number of rows whose largest
     * element is the label's, both float64, in a fixed order. @p scale times *device_scale (NULL:
     * 1), which is the loss scale. The gradients of a row whose loss is not finite are not, either.
     * @p scratch: of loss_scratch bytes. */
    cddp_status (*cross_entropy)(struct cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale, double *out,
                                 void *scratch);
    /* The same of rows that lie @p stride elements apart (a multiple of what products like); what
     * lies between them stays as it is. */
    cddp_status (*cross_entropy_strided)(struct cddpi_device *device, cddp_type type, void *logits,
                                         const int32_t *labels, size_t rows, size_t columns,
                                         size_t stride, bool grads, float scale,
                                         const float *device_scale, double *out, void *scratch);
    /* Against one-hot targets; the mean over columns; the gradient goes into @p logits likewise. */
    cddp_status (*squared_error)(struct cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale, double *out,
                                 void *scratch);
    /* Binary cross-entropy of the logits against one-hot targets, or against the label itself, 0 or
     * 1, where there is one column (then a row is right whose sign is the label's); the mean over
     * columns; likewise. */
    cddp_status (*binary_cross_entropy)(struct cddpi_device *device, cddp_type type, void *logits,
                                        const int32_t *labels, size_t rows, size_t columns,
                                        bool grads, float scale, const float *device_scale,
                                        double *out, void *scratch);
    size_t (*loss_scratch)(size_t rows);

    /* --- own kernels: parameters --- */

    /* Put a table of @p slots (the processor's memory, copied by the call; at most 65536,
     * none of count 0) into @p table, of tensors_bytes and 256-byte aligned. Waits until it is
     * there; not in a capture.
     * @p out: what update and squares take, good as long as the table's memory. */
    cddp_status (*tensors)(struct cddpi_device *device, const struct cddpi_cuda_slot *slots,
                           size_t count, void *table, struct cddpi_cuda_tensors *out);
    size_t (*tensors_bytes)(const struct cddpi_cuda_slot *slots, size_t count);
    /* All tensors in one launch, each element as kernels/cpu/cpu_optim.h has it, to the bit. */
    cddp_status (*update)(struct cddpi_device *device, const struct cddpi_cuda_update *update,
                          const struct cddpi_cuda_tensors *tensors);
    /* *out (float64) = the sum of squares of all gradients, in an order fixed by the counts. */
    cddp_status (*squares)(struct cddpi_device *device, const struct cddpi_cuda_tensors *tensors,
                           double *out);
    /* *scale = 1 / loss scale x min(1, clip / norm) from *squares; *skip = 1 and *scale = 0 if the
     * squares are not finite. @p loss_scale NULL: 1; clip 0: none. *norm (float32): for people. */
    cddp_status (*clip)(struct cddpi_device *device, const double *squares, const float *loss_scale,
                        double clip, float *scale, int32_t *skip, float *norm);
    /* GradScaler's rule on *loss_scale and *good_steps after a step
     * (src/trainer/optim/loss_scale.h). */
    cddp_status (*scale_loss)(struct cddpi_device *device, const int32_t *skip, double growth,
                              double backoff, float least, int32_t interval, float *loss_scale,
                              int32_t *good_steps);
    /* Type to type, rounded to nearest even. */
    cddp_status (*cast)(struct cddpi_device *device, cddp_type from, const void *in, cddp_type to,
                        void *out, size_t count);
    /* N x C x H x W float32 to N x H x W x C of `type`, or back (weights of conv2d and images). */
    cddp_status (*to_channels_last)(struct cddpi_device *device, cddp_type type, const float *in,
                                    size_t count, size_t channels, size_t area, void *out);
    cddp_status (*from_channels_last)(struct cddpi_device *device, cddp_type type, const void *in,
                                      size_t count, size_t channels, size_t area, bool add,
                                      float *out);

    /* --- own kernels: collectives. They run in CDDPI_STREAM_COMM. --- */

    /* out = op over @p inputs (at most 64 pointers, in rank order) as a binary tree over ranks,
     * exactly as the host backend reduces (kernels/cpu/reduce.h): 16-bit types in float32, rounded
     * once. With @p weights (device memory, float64, one an input): the weighted mean. */
    cddp_status (*reduce)(struct cddpi_device *device, cddp_type type, cddp_op op,
                          const void *const *inputs, const double *weights, int ranks, size_t count,
                          void *out);
    /* data *= *factor (float64, device memory), in place; a factor of 0 writes zeros. */
    cddp_status (*scale)(struct cddpi_device *device, cddp_type type, const double *factor,
                         size_t count, void *data);
};

#ifdef __cplusplus
}
#endif
#endif
