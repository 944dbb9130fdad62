/* replicated_state.h - the fields of a replicated model, for the files of this folder only. */
#ifndef CDDPI_PARALLEL_REPLICATED_STATE_H
#define CDDPI_PARALLEL_REPLICATED_STATE_H

#include "device/parallel.h"
#include "parallel/device_model/device_model.h"
#include "parallel/parallel_memory.h"
#include "parallel/replicated/replicated.h"

/* What one device has. */
struct cddpi_replica {
    struct cddpi_device_model *model;
    struct cddpi_batch batch; /* its samples of the last forward */
    size_t first;             /* index of its first sample in the batch */
    void **grads;             /* one per parameter: this device's gradients */
};

struct cddpi_replicated {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    int output_device;
    struct cddpi_replica *replicas;  /* one per device */
    int used;                        /* how many devices the last forward used: the first ones */
    struct cddpi_device_model *head; /* the layers before the copied ones; NULL: none */
    struct cddpi_device_model *tail; /* the layers after the copied ones, and the loss */
    size_t input_elements;           /* per sample, if the data are images */
    struct cddpi_edge_buffer *in;    /* inputs to scatter, unless they are the data: one per edge */
    struct cddpi_edge_buffer *out;   /* outputs to gather */
    size_t in_count, out_count;
    int room;                     /* in samples, of in and out */
    cddp_param *params, *buffers; /* of the head, the first copy, the tail */
    size_t param_count, buffer_count;
    size_t first_param;     /* of the copies: how many the head has ... */
    size_t copied_params;   /* ... and how many each copy has */
    void **copied_data;     /* the first copy's parameters, as copies on GPUs read them */
    uint32_t *tail_numbers; /* one per parameter of the tail: its index among all */
    void **tail_places;     /* one per parameter of the tail, as argument of calls */
    size_t *ready_order;
    void **grads;                  /* one per parameter, as bound */
    struct cddpi_loss_result late; /* of the last backward */
    cddpi_param_wait_fn wait;
    void *wait_context;
    cddp_group *traced; /* borrowed; may be NULL */
};

/** Release the memory of scattered inputs and gathered outputs. */
void cddpi_replicated_release_edges(struct cddpi_replicated *replicated);

/** Make the list of all parameters without duplicates; a weight shared by head and tail is the
 *  head's.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the copies share a weight with the head or tail;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_replicated_join_params(struct cddpi_replicated *replicated);
void cddpi_replicated_release_params(struct cddpi_replicated *replicated);

#endif
