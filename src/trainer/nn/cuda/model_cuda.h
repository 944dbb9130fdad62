/* model_cuda.h - what a model holds on a CUDA device, for the files of src/trainer/nn. */
#ifndef CDDPI_NN_CUDA_MODEL_CUDA_H
#define CDDPI_NN_CUDA_MODEL_CUDA_H

#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "nn/model_state.h"

enum { CDDPI_CUDA_ALIGNMENT = 256 }; /* cuBLASLt's algorithms prefer this alignment */

struct cddpi_model_cuda {
    const struct cddpi_cuda_kernels *kernels;
    bool any_order;         /* the order of sums may differ between runs */
    void *params, *buffers; /* one block of memory each; params: NULL once the caller owns them */
    void *copy_block;       /* one block for all copies */
    float *read;            /* pinned: where outputs arrive on the CPU */
    size_t read_bytes;
    struct cddpi_event *read_event;
    double *exchange;       /* what ranks exchange: ops/batch_norm_cuda.c */
    size_t exchange_stride; /* doubles for each rank */
};

/* model_cuda.c's row of struct cddpi_model_ops; these are in exec_cuda.c. */
void cddpi_cuda_plan(struct cddpi_plan *plan);
CDDP_CHECKED cddp_status cddpi_cuda_data(struct cddpi_exec *exec);
/** CDDP_ERR_NO_MEMORY says how many samples would fit. */
CDDP_CHECKED cddp_status cddpi_cuda_grow_arena(struct cddpi_model *model, size_t bytes, int count,
                                               bool training);
CDDP_CHECKED cddp_status cddpi_cuda_sum(const struct cddpi_model *model, const void *a,
                                        const void *b, size_t count, void *out);
CDDP_CHECKED cddp_status cddpi_cuda_read(struct cddpi_model *model, size_t index, size_t count,
                                         const float **out);

/** Allocate memory for what ranks exchange, if a batch_norm over all ranks needs it.
 *  CDDP_ERR_CONFIG: their group is not on the device. */
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_create(struct cddpi_model *model);

/* For the files of ops/. */

/* Parameters of the LSTM, in the reverse of the order in which backward completes them. They are
 * registered in the order of nn.LSTM. */
enum cddpi_lstm_param {
    CDDPI_LSTM_WEIGHT_HH,
    CDDPI_LSTM_WEIGHT_IH,
    CDDPI_LSTM_BIAS_IH,
    CDDPI_LSTM_BIAS_HH
};
enum { CDDPI_LSTM_GATES = 4 };

const struct cddpi_cuda_kernels *cddpi_exec_kernels(const struct cddpi_exec *exec);
/** Parameter @p k in the form that products read; NULL: the op has no such parameter. */
const void *cddpi_exec_copy(const struct cddpi_exec *exec, int k);
/** Whether this pass leaves the forward of op @p index to the next op (CDDPI_FORWARD_DEFERRED). */
bool cddpi_exec_is_deferred(const struct cddpi_exec *exec, int index);
/** For ops whose products read all parameters in the model's type. */
enum cddpi_copy cddpi_copy_cast(const struct cddpi_op *op, int k);
/** The only op that reads @p value; NULL: there are several, or none. */
const struct cddpi_op *cddpi_sole_reader(const struct cddpi_graph *graph, int value);
/** The gradient of the output after the relu's mask (with CDDPI_MAKES_PREACT_GRAD), or unchanged.
 */
CDDP_CHECKED cddp_status cddpi_cuda_mask_relu(const struct cddpi_exec *exec, const void **out);

/** The gradient of plain filters by the kernel conv_weight.
 *  @param made  Memory for channels-last filters; NULL: the plain layout equals it. */
CDDP_CHECKED cddp_status cddpi_cuda_filter_gradient(const struct cddpi_exec *exec,
                                                    const struct cddpi_cuda_conv *shape,
                                                    const void *dy, const void *x, float *made,
                                                    bool add, float *dweight);

/** The number of outputs of linear layer @p op that products use. It is the layer's own number,
 *  except for the logits of a vocabulary in 16 bits: those are padded with zeros to a multiple that
 *  is fast in products. */
size_t cddpi_linear_outputs(const struct cddpi_model *model, const struct cddpi_op *op);

extern const struct cddpi_op_kernels cddpi_cuda_linear, cddpi_cuda_conv2d, cddpi_cuda_batch_norm,
    cddpi_cuda_pool, cddpi_cuda_global_pool, cddpi_cuda_flatten, cddpi_cuda_add, cddpi_cuda_dropout,
    cddpi_cuda_embedding, cddpi_cuda_layer_norm, cddpi_cuda_conv_transpose2d,
    cddpi_cuda_response_norm, cddpi_cuda_lstm, cddpi_cuda_attention, cddpi_cuda_loss;

#endif
