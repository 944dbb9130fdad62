/* device_model_state.h - owns the GPU side of a model part: its host memory and its pinned memory.
 * For the files of this folder only. */
#ifndef CDDPI_PARALLEL_DEVICE_MODEL_STATE_H
#define CDDPI_PARALLEL_DEVICE_MODEL_STATE_H

#include "base/alloc.h"
#include "parallel/device_model/device_model.h"

/* Two memories with the same layout, one on the device and one pinned on the host. All copies to
 * and from the device go through the pinned one. */
struct cddpi_mirror {
    char *there, *pinned;
    size_t bytes;
};

enum { CDDPI_MIRROR_ALIGNMENT = 256 };

/** The offset of the next item in a mirror, after @p bytes bytes. */
static inline size_t cddpi_mirror_align(size_t bytes)
{
    return cddpi_align_to(bytes, CDDPI_MIRROR_ALIGNMENT);
}

/* What a batch needs from forward to backward: its inputs and its edges. */
struct cddpi_device_slot {
    struct cddpi_mirror memory;
    int room; /* number of samples it has room for */
};

/* An edge in the caller's memory, as bound. */
struct cddpi_bound_edge {
    float *data, *grad;
};

struct cddpi_device_edges {
    const struct cddpi_edge *items;
    size_t count;
    struct cddpi_bound_edge *bound; /* one per edge */
};

/* What only a part on a GPU needs. */
struct cddpi_gpu_side {
    cddp_param *params, *buffers; /* the model's, but in host memory */
    size_t param_count, buffer_count;
    char *own;                      /* the host memory of params while the caller has bound none */
    bool *stale;                    /* one per parameter: the device's value may be outdated */
    void **grads;                   /* as bound by the caller */
    void **theirs;                  /* gradients on the device */
    struct cddpi_mirror params_way; /* pinned: parameters on their way to the device, then gradients
                                       on their way back; there: the gradients */
    struct cddpi_mirror buffers_way; /* there: unused, the model has the buffers */
    size_t *offsets;                 /* one per parameter: its offset in params_way */
    struct cddpi_event *from, *to;   /* order the two streams; mark the end of a call */
    struct cddpi_event **arrived;    /* one per parameter: its gradient is in params_way */
    uint32_t *arrivals;              /* the order in which this backward's gradients came */
    size_t arrival_count;
    struct cddpi_device_edges in, out;
    size_t item_bytes[CDDPI_BATCH_ITEMS]; /* bytes per sample; 0: the part does not read it */
    struct cddpi_device_slot *slots;      /* CDDPI_MODEL_SLOTS of them */
    int slot;
    cddpi_param_wait_fn wait;
    void *wait_context;
    uint32_t timeout_ms;
};

struct cddpi_device_model {
    struct cddpi_model *model;
    struct cddpi_device *device;
    struct cddpi_gpu_side *gpu; /* NULL: the part is on the processor */
};

/** Make what @p part needs on its GPU. After a failure, cddpi_gpu_side_destroy() releases what was
 *  made. */
CDDP_CHECKED cddp_status cddpi_gpu_side_create(struct cddpi_device_model *part,
                                               const struct cddpi_model_spec *spec,
                                               uint32_t timeout_ms);
void cddpi_gpu_side_destroy(struct cddpi_device_model *part);

/** Make sure that @p memory has at least @p bytes. Its old contents are lost. */
CDDP_CHECKED cddp_status cddpi_mirror_grow(struct cddpi_device *device, struct cddpi_mirror *memory,
                                           size_t bytes, const char *what);

/** Forward and backward on a GPU. */
CDDP_CHECKED cddp_status cddpi_gpu_side_forward(struct cddpi_device_model *part,
                                                const struct cddpi_batch *batch, bool training,
                                                struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_gpu_side_backward(struct cddpi_device_model *part, double scale,
                                                 bool accumulate, cddpi_grad_ready_fn ready,
                                                 void *context, struct cddpi_loss_result *late);
/** Called by the model's forward before it reads parameter @p index: copies it to the device. */
cddp_status cddpi_gpu_side_put_param(void *context, size_t index);

#endif
