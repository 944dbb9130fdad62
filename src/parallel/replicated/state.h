/* state.h - what a replicated model holds, for the files of this folder. */
#ifndef CDDPI_PARALLEL_REPLICATED_STATE_H
#define CDDPI_PARALLEL_REPLICATED_STATE_H

#include "device/workers.h"
#include "parallel/replicated/replicated.h"

/* What one device has. */
struct cddpi_replica {
    struct cddpi_model *model;
    struct cddpi_batch batch; /* its samples of the last forward */
    size_t first;             /* the first of them */
    void **grads;             /* one a parameter, its own */
};

struct cddpi_replicated {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    int output_device;
    struct cddpi_replica *replicas; /* one a device */
    int used;                       /* of them, by the last forward: the first ones */
    struct cddpi_model *loss;
    size_t input_elements, output_elements; /* of a sample: images, and what goes to the loss */
    float *outputs, *output_grads;
    int room; /* samples that these hold */
    size_t param_count, buffer_count;
    void **grads; /* one a parameter, as bound */
    cddpi_param_wait_fn wait;
    void *wait_context;
    cddp_group *traced; /* borrowed; may be NULL */
};

/** Release the gathered outputs and their gradients. */
void cddpi_replicated_release_outputs(struct cddpi_replicated *replicated);

#endif
