/* parallel_memory.h - what training holds in the memory of one device, in bytes, by what it is for.
 */
#ifndef CDDPI_PARALLEL_MEMORY_H
#define CDDPI_PARALLEL_MEMORY_H

#include "nn/model.h"

struct cddpi_held_memory {
    size_t parameters;  /* and buffers; of each copy of the model */
    size_t gradients;   /* likewise */
    size_t optimizer;   /* its state */
    size_t activations; /* with their gradients and workspace, of all micro-batches that are kept */
    size_t edges;       /* values and gradients that other devices or stages read or write, too */
    size_t outputs;     /* DataParallel: what was gathered, and its gradients */
};

/** Bytes of the values of @p count tensors. */
size_t cddpi_tensors_bytes(const cddp_param *tensors, size_t count);
/** Add what @p model itself holds: parameters, buffers and activations. */
void cddpi_held_memory_add_model(struct cddpi_held_memory *memory, const struct cddpi_model *model);

#endif
