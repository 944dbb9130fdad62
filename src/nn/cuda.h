/* cuda.h - what a model holds on a CUDA device, for the files of src/nn. */
#ifndef CDDPI_NN_CUDA_H
#define CDDPI_NN_CUDA_H

#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "nn/plan.h"

enum { CDDPI_CUDA_ALIGNMENT = 256 }; /* cuBLASLt's algorithms like such addresses best */

/* A parameter in the form in which products read it. */
struct cddpi_param_copy {
    enum cddpi_copy form;
    void *data;   /* NULL: the parameter itself is read */
    bool stale;   /* made again before it is next read */
    size_t count; /* of its elements: with zeros behind those of the parameter */
};

struct cddpi_model_cuda {
    struct cddpi_device *device;
    const struct cddpi_cuda_kernels *kernels;
    cddp_type type;                  /* of activations and copies */
    void *params, *buffers;          /* blocks of memory; params: NULL once they are the caller's */
    void *copy_block;                /* that of all copies */
    struct cddpi_param_copy *copies; /* one a parameter */
    double *sums;            /* of losses and of correct predictions since the last collect */
    const float *loss_scale; /* NULL: 1 */
    int dropouts;            /* how many ops draw */
    float *read;             /* pinned: outputs on their way to the host */
    size_t read_bytes;
    struct cddpi_event *read_event;
    double *exchange;       /* what ranks tell each other: ops/sync_norm_cuda.c */
    size_t exchange_record; /* room for one rank's, in doubles */
    uint32_t timeout_ms;    /* of waiting for the device */
};

/** Move a model that was made on the host to @p device: parameters, buffers, and room for copies
 *  and results. CDDP_ERR_CONFIG names a layer that cannot be there. Half of it is released by
 *  cddpi_cuda_destroy(). */
CDDP_CHECKED cddp_status cddpi_cuda_create(struct cddpi_model *model, struct cddpi_device *device);
void cddpi_cuda_destroy(struct cddpi_model *model); /* accepts a model of the processor */

/** Choose what images become, before the ops are planned. */
void cddpi_cuda_plan(struct cddpi_plan *plan);
/** Bring the batch's images into that form. */
CDDP_CHECKED cddp_status cddpi_cuda_data(struct cddpi_run *run);
/** Make the copies of run->op's parameters that are stale. */
CDDP_CHECKED cddp_status cddpi_cuda_refresh(const struct cddpi_run *run);

/** Let the arena be of @p bytes at least. CDDP_ERR_NO_MEMORY says which count of samples fits. */
CDDP_CHECKED cddp_status cddpi_cuda_grow_arena(struct cddpi_model *model, size_t bytes, int count,
                                               bool training);
/** Wait for @p event for as long as a device may take. */
CDDP_CHECKED cddp_status cddpi_cuda_wait(const struct cddpi_model *model,
                                         struct cddpi_event *event);

/* For the files of ops. */

const struct cddpi_cuda_kernels *cddpi_run_kernels(const struct cddpi_run *run);
struct cddpi_device *cddpi_run_device(const struct cddpi_run *run);
/** Of activations. */
cddp_type cddpi_run_type(const struct cddpi_run *run);
/** Parameter @p k as products read it; NULL: the op has none. */
const void *cddpi_run_copy(const struct cddpi_run *run, int k);
/** Whether this pass leaves op @p index to the op behind it (CDDPI_FORWARD_LATER). */
bool cddpi_run_is_later(const struct cddpi_run *run, int index);
/** The only op that reads @p value; NULL: there are more, or none. */
const struct cddpi_op *cddpi_sole_reader(const struct cddpi_graph *graph, int value);
/** Report that both parameters are complete, the second one first. */
CDDP_CHECKED cddp_status cddpi_run_ready_both(struct cddpi_run *run);
/** The gradient of the output behind the relu's mask (with CDDPI_MASKS_GRAD), or as it is. */
CDDP_CHECKED cddp_status cddpi_cuda_mask_relu(const struct cddpi_run *run, const void **out);
/** Rows of features in the batch: samples, or tokens. */
size_t cddpi_plan_rows(const struct cddpi_plan *plan, const struct cddpi_op *op);

/** The outputs of linear layer @p op as products see them: as many as it has, or for the logits of
 * a vocabulary in 16 bits a rounder number, of which the last are 0. */
size_t cddpi_linear_outputs(const struct cddpi_model *model, const struct cddpi_op *op);
/** What a linear layer behind @p run's input's GELU reads in backward, which makes its gradient;
 *  NULL: the gradient of the input is wanted as it is. */
const void *cddpi_linear_gelu_aux(const struct cddpi_run *run);

extern const struct cddpi_op_cuda cddpi_cuda_linear, cddpi_cuda_conv2d, cddpi_cuda_batch_norm,
    cddpi_cuda_relu, cddpi_cuda_pool, cddpi_cuda_global_pool, cddpi_cuda_flatten, cddpi_cuda_add,
    cddpi_cuda_dropout, cddpi_cuda_embedding, cddpi_cuda_layer_norm, cddpi_cuda_gelu,
    cddpi_cuda_attention, cddpi_cuda_loss;

#endif
