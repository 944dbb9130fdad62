/* parallel_memory.h - counts the bytes that training holds in one device's memory, by purpose. */
#ifndef CDDPI_PARALLEL_MEMORY_H
#define CDDPI_PARALLEL_MEMORY_H

#include "nn/model.h"

struct cddpi_held_memory {
    size_t parameters;  /* and buffers, of all copies of the model */
    size_t gradients;   /* of all copies of the model */
    size_t optimizer;   /* the optimizer's state */
    size_t activations; /* with their gradients and workspace, of all micro-batches held */
    size_t edges;       /* activations and gradients that other devices or stages also use */
    size_t outputs;     /* DataParallel: the gathered outputs and their gradients */
};

/** Bytes of the values of @p count tensors. */
size_t cddpi_tensors_bytes(const cddp_param *tensors, size_t count);
/** Add what @p model itself holds: parameters, buffers and activations. */
void cddpi_held_memory_add_model(struct cddpi_held_memory *memory, const struct cddpi_model *model);

#endif
