/* placed_state.h - the fields of a placed model, for the files of this folder only. */
#ifndef CDDPI_PARALLEL_PLACED_STATE_H
#define CDDPI_PARALLEL_PLACED_STATE_H

#include "device/parallel.h"
#include "parallel/device_model/device_model.h"
#include "parallel/parallel_memory.h"
#include "parallel/placed/placed.h"
#include "parallel/placed/placement.h"

#include <pthread.h>

/* A segment. */
struct cddpi_placed_part {
    struct cddpi_placed *placed;
    struct cddpi_segment segment;
    struct cddpi_device_model *model;
    const struct cddpi_edge *out; /* what it passes to the next segment */
    size_t in_count, out_count;
    struct cddpi_edge_buffer *buffers; /* out_count per slot; the next segment uses them, too */
    int room;                          /* in samples, of buffers */
    size_t param_count;
    uint32_t *numbers; /* one per parameter of the segment: its index in the model */
    /* A weight shared by several segments belongs to the first of them, the owner; the later ones
     * read it there. If several micro-batches are under way at once, each later segment accumulates
     * its own share of the gradient, which is added to the owner's at the end. If a segment is on a
     * GPU, the owner has a share, too, and the gradient is the sum of the shares. */
    bool *is_later, *is_owner;
    float **shares; /* one per parameter; NULL: no share */
    void **places;  /* one per parameter, as argument of calls */
};

struct cddpi_placed {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    struct cddpi_segment *segments;
    struct cddpi_placed_part *parts;
    int part_count;
    int slots; /* per part */
    bool pipelined;
    bool has_gpu; /* at least one segment is on a GPU */
    enum cddpi_pipeline_schedule schedule;
    uint32_t timeout_ms;
    cddp_group *traced; /* borrowed; may be NULL */
    struct cddpi_placed_plan forward, backward,
        step; /* step: for the last number of micro-batches */
    cddp_param *params, *buffers;
    size_t param_count, buffer_count;
    size_t *ready_order;
    void **grads;                  /* one per parameter, as bound */
    struct cddpi_loss_result late; /* of the last backward */
    pthread_mutex_t gate;          /* held around callbacks, so that one thread at a time calls */
    cddpi_param_wait_fn wait;
    void *wait_context;
};

#endif
