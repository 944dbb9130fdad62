/* placed_state.h - what a placed model holds, for the files of this folder. */
#ifndef CDDPI_PARALLEL_PLACED_STATE_H
#define CDDPI_PARALLEL_PLACED_STATE_H

#include "device/workers.h"
#include "parallel/device_model/device_model.h"
#include "parallel/pipeline/edge_buffer.h"
#include "parallel/placed/placed.h"
#include "parallel/placed/placed_plan.h"

#include <pthread.h>

/* A segment. */
struct cddpi_placed_part {
    struct cddpi_placed *placed;
    struct cddpi_segment segment;
    struct cddpi_device_model *model;
    const struct cddpi_edge *out; /* what it hands to the next one */
    size_t in_count, out_count;
    struct cddpi_edge_buffer *buffers; /* out_count of each slot: the next one has them, too */
    int room;                          /* samples that they hold */
    size_t param_count;
    uint32_t *numbers; /* one a parameter of the model: its number among those of all */
    /* A weight that several segments have lives in the first of them, the owner; the later ones
     * read it there. Where micro-batches are on their way at once, each of these has its own share
     * of the gradient, which is added to the owner's at the end; where a segment is on a GPU, the
     * owner has such a share, too, and the gradient is their sum. */
    bool *is_later, *is_owner;
    float **shares; /* one a parameter; NULL: it has none */
    void **places;  /* one a parameter, for calls that take so many */
};

struct cddpi_placed {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    struct cddpi_segment *segments;
    struct cddpi_placed_part *parts;
    int part_count;
    int slots; /* of each part */
    bool pipelined;
    bool has_gpu; /* a segment is on one */
    enum cddpi_pipeline_schedule schedule;
    uint32_t timeout_ms;
    cddp_group *traced; /* borrowed; may be NULL */
    struct cddpi_placed_plan forward, backward,
        step; /* step: of the last number of micro-batches */
    cddp_param *params, *buffers;
    size_t param_count, buffer_count;
    uint32_t *ready_order;
    void **grads;                  /* one a parameter, as bound */
    struct cddpi_loss_result late; /* of the last backward */
    pthread_mutex_t gate;          /* one thread at a time calls back */
    cddpi_param_wait_fn wait;
    void *wait_context;
};

#endif
