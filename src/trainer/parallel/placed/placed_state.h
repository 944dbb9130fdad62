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
     * GPU, the owner has a share, too, and the gradient is the sum of the shares. If micro-batches
     * are separate, a later segment has a share for each of those under way, to which the owner's
     * backward adds its part. */
    bool *is_later, *is_owner;
    bool has_shares;
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
    bool separate; /* struct cddpi_placed_work */
    bool is_tied;  /* a weight is shared */
    bool has_gpu;  /* at least one segment is on a GPU */
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

/* placed_shares.c */

/** Segment @p s also has parameter @p owner_index of segment @p owner, as its own @p index. */
CDDP_CHECKED cddp_status cddpi_placed_share_param(struct cddpi_placed *placed, int s, size_t index,
                                                  int owner, size_t owner_index);
/** Whether an owner's gradient is complete only after the other segments' shares are added. */
bool cddpi_placed_comes_later(const struct cddpi_placed_part *part, size_t index);
/** Add the shares of weights that several segments have to the owner's gradient, in the order of
 *  the segments, so that the sum is the same in every run, and report the sums. Not if
 *  micro-batches are separate. @p ready: may be NULL. */
CDDP_CHECKED cddp_status cddpi_placed_add_shares(struct cddpi_placed *placed,
                                                 cddpi_grad_ready_fn ready, void *context);
/** Before the backward of micro-batch @p micro_batch, if they are separate: let the segment write
 *  its shares to those of the micro-batch, and begin gradients of which it is the owner with the
 *  shares of the next segment that has one. In the thread of the segment's device. */
void cddpi_placed_begin_shares(struct cddpi_placed_part *part, int micro_batch);

#endif
