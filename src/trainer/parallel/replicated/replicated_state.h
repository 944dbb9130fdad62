/* replicated_state.h - what a replicated model holds, for the files of this folder. */
#ifndef CDDPI_PARALLEL_REPLICATED_STATE_H
#define CDDPI_PARALLEL_REPLICATED_STATE_H

#include "device/workers.h"
#include "parallel/device_model/device_model.h"
#include "parallel/pipeline/edge_buffer.h"
#include "parallel/replicated/replicated.h"

/* What one device has. */
struct cddpi_replica {
    struct cddpi_device_model *model;
    struct cddpi_batch batch; /* its samples of the last forward */
    size_t first;             /* the first of them */
    void **grads;             /* one a parameter, its own */
};

struct cddpi_replicated {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    int output_device;
    struct cddpi_replica *replicas;  /* one a device */
    int used;                        /* of them, by the last forward: the first ones */
    struct cddpi_device_model *head; /* the layers before those with copies; NULL: none */
    struct cddpi_device_model *tail; /* the layers after them, and the loss */
    size_t input_elements;           /* of a sample, if the data are images */
    struct cddpi_edge_buffer *in;    /* what is scattered, if it is no data: one an edge */
    struct cddpi_edge_buffer *out;   /* what is gathered */
    size_t in_count, out_count;
    int room;                     /* samples that these hold */
    cddp_param *params, *buffers; /* of the head, of the first copy, of the tail */
    size_t param_count, buffer_count;
    size_t first_param;     /* of the copies': so many has the head ... */
    size_t copied_params;   /* ... and so many each copy */
    void **copied_data;     /* these parameters of the first copy, where copies on GPUs read them */
    uint32_t *tail_numbers; /* one a parameter of the tail: its number among all */
    void **tail_places;     /* likewise, for calls that take so many */
    uint32_t *ready_order;
    void **grads;                  /* one a parameter, as bound */
    struct cddpi_loss_result late; /* of the last backward */
    cddpi_param_wait_fn wait;
    void *wait_context;
    cddp_group *traced; /* borrowed; may be NULL */
};

/** Release what is scattered and gathered. */
void cddpi_replicated_release_edges(struct cddpi_replicated *replicated);

/** The list of all parameters, each once; a weight of head and tail becomes the head's.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the copies have one that others have, too; CDDP_ERR_NO_MEMORY.
 */
CDDP_CHECKED cddp_status cddpi_replicated_join_params(struct cddpi_replicated *replicated);
void cddpi_replicated_release_params(struct cddpi_replicated *replicated);

#endif
