/* device_model_state.h - what a part on a GPU has beside it, for the files of this folder. */
#ifndef CDDPI_PARALLEL_DEVICE_MODEL_STATE_H
#define CDDPI_PARALLEL_DEVICE_MODEL_STATE_H

#include "base/alloc.h"
#include "parallel/device_model/device_model.h"

/* Two memories with the same places: one of the device, one pinned, through which all goes. */
struct cddpi_mirror {
    char *there, *pinned;
    size_t bytes;
};

enum { CDDPI_MIRROR_ALIGNMENT = 256 };

/** Where the next place in a mirror begins: after that many bytes. */
static inline size_t cddpi_mirror_align(size_t bytes)
{
    return cddpi_align_to(bytes, CDDPI_MIRROR_ALIGNMENT);
}

enum cddpi_batch_item { CDDPI_ITEM_INPUT, CDDPI_ITEM_TOKENS, CDDPI_ITEM_LABEL, CDDPI_ITEM_DRAWS };
enum { CDDPI_BATCH_ITEMS = 4 };

/* What a batch has there from forward to backward: what it brings, and its edges. */
struct cddpi_device_slot {
    struct cddpi_mirror memory;
    int room; /* samples */
};

/* An edge as its caller has bound it. */
struct cddpi_bound_edge {
    float *data, *grad;
};

struct cddpi_device_edges {
    const struct cddpi_edge *items;
    size_t count;
    struct cddpi_bound_edge *bound; /* one an edge */
};

/* What only a part on a GPU has. */
struct cddpi_gpu_side {
    cddp_param *params, *buffers; /* those of the model, in the processor's memory */
    size_t param_count, buffer_count;
    char *own;                       /* that memory, as long as nothing is bound */
    bool *stale;                     /* one a parameter: the device's value may be another */
    void **grads;                    /* as bound */
    void **theirs;                   /* and on the device */
    struct cddpi_mirror params_way;  /* pinned: parameters on their way, then gradients on theirs;
                                        there: the gradients */
    struct cddpi_mirror buffers_way; /* there: nothing, the model has them */
    size_t *offsets;                 /* one a parameter: its place in params_way */
    struct cddpi_event *from, *to;   /* between two streams; the end of a call */
    struct cddpi_event **arrived;    /* one a parameter: its gradient is in params_way */
    uint32_t *arrivals;              /* the order of this backward's gradients */
    size_t arrival_count;
    struct cddpi_device_edges in, out;
    size_t item_bytes[CDDPI_BATCH_ITEMS]; /* of a sample; 0: the part does not take it */
    struct cddpi_device_slot *slots;      /* CDDPI_MODEL_SLOTS */
    int slot;
    cddpi_param_wait_fn wait;
    void *wait_context;
    uint32_t timeout_ms;
};

struct cddpi_device_model {
    struct cddpi_model *model;
    struct cddpi_device *device;
    struct cddpi_gpu_side *gpu; /* NULL: it is on the processor */
};

/** Make what @p part needs on its GPU; what there is after a failure is released by the next. */
CDDP_CHECKED cddp_status cddpi_gpu_side_create(struct cddpi_device_model *part,
                                               const struct cddpi_model_spec *spec,
                                               uint32_t timeout_ms);
void cddpi_gpu_side_destroy(struct cddpi_device_model *part);

/** Let @p memory have @p bytes at least; what it held is gone. */
CDDP_CHECKED cddp_status cddpi_mirror_grow(struct cddpi_device *device, struct cddpi_mirror *memory,
                                           size_t bytes, const char *what);
void cddpi_mirror_release(struct cddpi_device *device, struct cddpi_mirror *memory);

/** Put a copy of @p bytes, if there are any, into the copy stream. */
CDDP_CHECKED cddp_status cddpi_gpu_side_copy(const struct cddpi_device_model *part, void *to,
                                             const void *from, size_t bytes);

/* gpu_slot.c: the current slot. */

/** Where item @p item of a batch is in a slot for @p room samples. */
size_t cddpi_gpu_slot_item(const struct cddpi_gpu_side *gpu, int item, int room);
CDDP_CHECKED cddp_status cddpi_gpu_slot_make_room(const struct cddpi_device_model *part,
                                                  int samples);
/** Let the model find the edges at one side in the slot. */
void cddpi_gpu_slot_bind(const struct cddpi_device_model *part, enum cddpi_edge_side side);
/** Copy @p bytes of the caller's to @p place, by the copy stream. */
CDDP_CHECKED cddp_status cddpi_gpu_slot_put(const struct cddpi_device_model *part, size_t place,
                                            const void *from, size_t bytes);
CDDP_CHECKED cddp_status cddpi_gpu_slot_put_edges(const struct cddpi_device_model *part,
                                                  const struct cddpi_device_edges *edges,
                                                  bool grads, int samples);
CDDP_CHECKED cddp_status cddpi_gpu_slot_take_edges(const struct cddpi_device_model *part,
                                                   const struct cddpi_device_edges *edges,
                                                   bool grads, int samples, bool arrived);

/** The passes on a GPU. */
CDDP_CHECKED cddp_status cddpi_gpu_side_forward(struct cddpi_device_model *part,
                                                const struct cddpi_batch *batch, bool training,
                                                struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_gpu_side_backward(struct cddpi_device_model *part, double scale,
                                                 bool accumulate, cddpi_grad_ready_fn ready,
                                                 void *context, struct cddpi_loss_result *late);
/** Called by the model's forward before it reads parameter @p index. */
cddp_status cddpi_gpu_side_put_param(void *context, size_t index);

#endif
