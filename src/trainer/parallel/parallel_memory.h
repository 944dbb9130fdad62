/* parallel_memory.h - owns the memory of an edge between stages: an activation, and its gradient on
 * the way back; and counts the bytes that training holds in one device's memory, by purpose. */
#ifndef CDDPI_PARALLEL_MEMORY_H
#define CDDPI_PARALLEL_MEMORY_H

#include "device/device.h"
#include "nn/model.h"

struct cddpi_held_memory {
    size_t parameters;  /* and buffers, of all copies of the model */
    size_t gradients;   /* of all copies of the model */
    size_t optimizer;   /* the optimizer's state */
    size_t activations; /* with their gradients and workspace, of all micro-batches held */
    size_t edges;       /* activations and gradients that other devices or stages also use */
    size_t outputs;     /* DataParallel: the gathered outputs and their gradients */
};

/** The index of the tensor that is called @p name; @p count: none is. */
size_t cddpi_tensors_find(const cddp_param *tensors, size_t count, const char *name);
/** Bytes of the values of @p count tensors. */
size_t cddpi_tensors_bytes(const cddp_param *tensors, size_t count);
/** Add what @p model itself holds: parameters, buffers and activations. */
void cddpi_held_memory_add_model(struct cddpi_held_memory *memory, const struct cddpi_model *model);

/* What a part of a model may read of a batch on its device. */
enum cddpi_batch_item { CDDPI_ITEM_INPUT, CDDPI_ITEM_TOKENS, CDDPI_ITEM_LABEL, CDDPI_ITEM_DRAWS };
enum { CDDPI_BATCH_ITEMS = 4 };
/** Count the bytes of a sample of each item. 0: @p model, a part of the one that @p spec describes,
 *  does not read it. */
void cddpi_batch_item_bytes(const struct cddpi_model *model, const struct cddpi_model_spec *spec,
                            size_t *out);

struct cddpi_edge_buffer {
    float *data, *grad; /* in the device's memory */
};

/** Wait for a message, if one is under way. Then its memory is free, or holds what was received. */
CDDP_CHECKED cddp_status cddpi_message_finish(cddp_work **work);
/** Allocate memory for @p samples samples of each of @p count edges. After a failure,
 *  cddpi_edge_buffers_release() releases what was allocated. */
CDDP_CHECKED cddp_status cddpi_edge_buffers_allocate(struct cddpi_device *device,
                                                     struct cddpi_edge_buffer *buffers,
                                                     const struct cddpi_edge *edges, size_t count,
                                                     int samples);
/** Bytes that cddpi_edge_buffers_allocate() allocates. */
size_t cddpi_edge_buffers_bytes(const struct cddpi_edge *edges, size_t count, int samples);
/** @p buffers may be NULL. */
void cddpi_edge_buffers_release(struct cddpi_device *device, struct cddpi_edge_buffer *buffers,
                                size_t count);

#endif
