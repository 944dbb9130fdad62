/* pipeline_state.h - owns what the files of this folder share: a pipeline, its chunks, and the
 * memory of its messages. For the files of this folder only. */
#ifndef CDDPI_PARALLEL_PIPELINE_STATE_H
#define CDDPI_PARALLEL_PIPELINE_STATE_H

#include "parallel/parallel_memory.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/pipeline_feed.h"

/* An activation or a gradient of a micro-batch. */
struct cddpi_pipeline_buffer {
    void *memory;              /* on the pipeline's device */
    void *host;                /* pinned memory through which messages go; NULL: they go directly */
    struct cddpi_event *moved; /* the last copy from or to `host` */
    cddp_work *work;           /* the message under way; NULL: none */
    bool arrives;              /* it is received: `bytes` of them */
    size_t bytes;
};

struct cddpi_pipeline_edge {
    struct cddpi_pipeline_buffer data, grad;
};

struct cddpi_pipeline_slot {
    struct cddpi_pipeline_edge *in, *out; /* one per edge */
    int samples;                          /* capacity of the buffers, in samples */
};

/* A message whose data are on their way to pinned memory. */
struct cddpi_pipeline_due {
    struct cddpi_pipeline_buffer *buffer;
    cddp_group *group;
    size_t count;
    cddp_type type;
    int to;
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
    uint32_t timeout_ms;
    bool through_host;               /* messages go through pinned memory (pipeline_messages.c) */
    struct cddpi_pipeline_due *dues; /* sends to be started: due_count of them */
    int due_count;
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
/** Decide how messages go. The pipeline has its chunks. */
CDDP_CHECKED cddp_status cddpi_pipeline_create_messages(struct cddpi_pipeline *pipeline);
void cddpi_pipeline_release_messages(struct cddpi_pipeline *pipeline);
/** Bytes of a chunk's messages on the device. */
size_t cddpi_pipeline_message_bytes(const struct cddpi_pipeline *pipeline,
                                    const struct cddpi_pipeline_chunk *chunk);

#endif
