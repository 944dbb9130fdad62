/* pipeline.h - owns a model divided into pipeline stages over the ranks of a group: each rank has
 * one or several chunks of layers, and several micro-batches pass through them at once.
 *
 * Ranks exchange activations and gradients as messages of the group. In each direction, messages
 * have one order that all ranks know. A pipeline belongs to one thread.
 *
 * On a device, a step only enqueues its work, messages included, and its losses stay there for
 * cddpi_model_collect(). */
#ifndef CDDPI_PARALLEL_PIPELINE_PIPELINE_H
#define CDDPI_PARALLEL_PIPELINE_PIPELINE_H

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"

struct cddpi_pipeline;

struct cddpi_pipeline_options {
    enum cddpi_pipeline_schedule schedule;
    int chunks;                             /* chunks of layers per rank */
    const struct cddpi_layer_range *stages; /* ranks x chunks ranges, in order, together the model;
                                               chunk c of rank s is stage c x ranks + s */
    const bool *recompute;  /* one per stage: as a model spec's recompute; NULL: the model spec's */
    int most_micro_batches; /* at most this many in a step */
    cddp_group *group;      /* the ranks of the pipeline; borrowed, outlives it */
    cddp_group *replicas;   /* for batch_norm with sync, as for a model; may be NULL */
    cddp_group *traced;     /* its trace gets spans of all passes and waits, with the number of the
                               micro-batch; borrowed; NULL: no trace */
};

/* Where a step's time goes on this rank, in nanoseconds. */
struct cddpi_pipeline_times {
    int64_t forward_ns;
    int64_t backward_ns; /* includes gradients of parameters computed later */
    int64_t wait_ns;     /* waiting for other stages' messages */
};

/** Make this rank's chunks. Collective in options->group.
 *  @param spec  Of the whole model; its layer range is ignored.
 *  @return as cddpi_model_create(); zero_bubble works on the processor only; CDDP_ERR_ARGUMENT as
 *          cddpi_pipeline_plan(). */
CDDP_CHECKED cddp_status cddpi_pipeline_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                               const struct cddpi_pipeline_options *options,
                                               struct cddpi_pipeline **out);
void cddpi_pipeline_destroy(struct cddpi_pipeline *pipeline);

/** This rank's chunk @p chunk, which has its parameters and gradients. */
struct cddpi_model *cddpi_pipeline_model(const struct cddpi_pipeline *pipeline, int chunk);
/** Whether this rank has the last stage, which computes the losses. */
bool cddpi_pipeline_has_loss(const struct cddpi_pipeline *pipeline);

/* What a step computes. */
struct cddpi_pipeline_work {
    /* In CPU memory, also if the pipeline is on a device: then it stays as it is until
     * cddpi_pipeline_settle(). A rank needs the input if its chunks read it, and the labels if it
     * has the last stage. A batch may have no samples. */
    const struct cddpi_batch *batches;
    const double *scales; /* one per micro-batch: as the scale of cddpi_model_backward() */
    int count;            /* micro-batches */
    /* Gradients of a micro-batch replace those of the previous one; otherwise they are added to
     * them. Then batches without samples come last, and nothing is computed for them. */
    bool separate;
    /* The gradient of parameter @p index of chunk @p chunk is complete: the sum over all
     * micro-batches; if they are separate, that of its next micro-batch. May be NULL. */
    cddp_status (*ready)(void *context, int chunk, size_t index);
    /* Chunk @p chunk has all that @p pass of its next micro-batch needs from other stages, and is
     * about to compute it. May be NULL. */
    cddp_status (*before)(void *context, int chunk, enum cddpi_pipeline_pass pass);
    /* Chunk @p chunk has computed a forward. May be NULL. */
    cddp_status (*forwarded)(void *context, int chunk);
    void *context;
};

/** Run forward and backward of all micro-batches of a step. Collective in the group; all ranks pass
 *  the same numbers of samples.
 *  @param work  Borrowed for the call, with all that it points to.
 *  @param out   One for each micro-batch; zeros on ranks without the last stage. On a device only
 *               the count is set.
 *  @return CDDP_OK, or the error of a model or a message; then gradients are undefined. */
CDDP_CHECKED cddp_status cddpi_pipeline_step(struct cddpi_pipeline *pipeline,
                                             const struct cddpi_pipeline_work *work,
                                             struct cddpi_loss_result *out);

/** While this rank waits for the pipeline's messages, let those of @p group go on, which is
 * borrowed and outlives the pipeline. */
void cddpi_pipeline_set_beside(struct cddpi_pipeline *pipeline, cddp_group *group);
/** Wait until *@p work, a message beside the pipeline's, has arrived (NULL: there is none), while
 *  the pipeline's messages go on. Releases it and sets it to NULL. */
CDDP_CHECKED cddp_status cddpi_pipeline_finish(struct cddpi_pipeline *pipeline, cddp_work **work);

/** Send @p count elements in the device's memory to rank @p rank of the group, or receive them,
 *  in the order of the pipeline's messages between the two. Later work in the compute stream
 *  follows. */
CDDP_CHECKED cddp_status cddpi_pipeline_exchange(struct cddpi_pipeline *pipeline, void *memory,
                                                 size_t count, cddp_type type, int rank,
                                                 bool arrives);

/** On a device: wait until the batches of the calls so far are copied, so that their memory may be
 *  overwritten. */
CDDP_CHECKED cddp_status cddpi_pipeline_settle(struct cddpi_pipeline *pipeline);

/** The times of the last step; on a device, of enqueueing its work. */
struct cddpi_pipeline_times cddpi_pipeline_times(const struct cddpi_pipeline *pipeline);

/** Bytes of activations and gradients that this rank holds for messages. */
size_t cddpi_pipeline_edge_bytes(const struct cddpi_pipeline *pipeline);

/** Forward of one batch in evaluation mode. Ranks with earlier stages may return before later
 *  stages have computed. */
CDDP_CHECKED cddp_status cddpi_pipeline_evaluate(struct cddpi_pipeline *pipeline,
                                                 const struct cddpi_batch *batch,
                                                 struct cddpi_loss_result *out);

#endif
