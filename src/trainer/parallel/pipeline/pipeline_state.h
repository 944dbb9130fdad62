/* pipeline_state.h - owns what the files of this folder share: a pipeline, its chunks, and the
 * memory of its messages. For the files of this folder only. */
#ifndef CDDPI_PARALLEL_PIPELINE_STATE_H
#define CDDPI_PARALLEL_PIPELINE_STATE_H

#include "parallel/parallel_memory.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/pipeline_feed.h"

struct cddpi_pipeline_slot {
    struct cddpi_edge_buffer *in, *out; /* one per edge */
    int samples;                        /* capacity of the buffers, in samples */
};

struct cddpi_pipeline_chunk {
    struct cddpi_model *model;
    const struct cddpi_edge *in, *out;
    size_t in_count, out_count;
    struct cddpi_pipeline_slot *slots;
    struct cddpi_pipeline_feed *feed; /* on a device: batches on their way there; else NULL */
};

struct cddpi_pipeline {
    struct cddpi_pipeline_shape shape;
    cddp_group *values;    /* borrowed */
    cddp_group *gradients; /* the same group, or one that the pipeline owns */
    struct cddpi_device *device;
    cddp_group *beside; /* borrowed; may be NULL */
    int rank;
    int slot_count; /* per chunk */
    struct cddpi_pipeline_chunk *chunks;
    cddp_group *traced; /* borrowed; may be NULL */
    struct cddpi_pipeline_times times;
    unsigned evaluated; /* batches */
};

static inline int cddpi_pipeline_stage_of(const struct cddpi_pipeline *pipeline, int chunk)
{
    return chunk * pipeline->shape.ranks + pipeline->rank;
}

static inline int cddpi_pipeline_last_stage(const struct cddpi_pipeline *pipeline)
{
    return pipeline->shape.ranks * pipeline->shape.chunks - 1;
}

/* pipeline_messages.c */

/** Start receiving what @p action needs, for @p samples samples. */
CDDP_CHECKED cddp_status cddpi_pipeline_start_input(struct cddpi_pipeline *pipeline,
                                                    const struct cddpi_pipeline_action *action,
                                                    size_t samples);
/** Wait until the action's input has arrived and the memory for its output is free: on a device,
 *  only its compute stream waits. */
CDDP_CHECKED cddp_status cddpi_pipeline_finish_input(struct cddpi_pipeline *pipeline,
                                                     const struct cddpi_pipeline_action *action);
/** Start sending what the action has computed. */
CDDP_CHECKED cddp_status cddpi_pipeline_start_output(struct cddpi_pipeline *pipeline,
                                                     const struct cddpi_pipeline_action *action,
                                                     size_t samples);
/** Finish all messages. On a rank without a spare core, messages progress only while this thread
 *  waits in their group, and the caller may wait in another group next. */
CDDP_CHECKED cddp_status cddpi_pipeline_finish_all(struct cddpi_pipeline *pipeline);
/** Make room for messages of @p samples samples. No message may be under way. */
CDDP_CHECKED cddp_status cddpi_pipeline_make_room(struct cddpi_pipeline *pipeline, int samples);

#endif
