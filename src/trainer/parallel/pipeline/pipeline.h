/* pipeline.h - a model divided among the ranks of a group: each has one chunk of layers or several,
 * and micro-batches go through all of them, several at once.
 *
 * What crosses from rank to rank are messages of the group, each way in one order that all ranks
 * know. A pipeline belongs to one thread. */
#ifndef CDDPI_PARALLEL_PIPELINE_PIPELINE_H
#define CDDPI_PARALLEL_PIPELINE_PIPELINE_H

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"

struct cddpi_pipeline;

struct cddpi_pipeline_options {
    enum cddpi_pipeline_schedule schedule;
    int chunks;                             /* on each rank */
    const struct cddpi_layer_range *stages; /* ranks x chunks of them, in order, which together are
                                               the model; chunk c of rank s is c x ranks + s */
    const bool *recompute;                  /* one a stage: as of a model's spec; NULL: as there */
    int most_micro_batches;                 /* of a step */
    cddp_group *group;                      /* the ranks of the pipeline; borrowed, outlives it */
    cddp_group *replicas; /* for batch_norm with sync, as of a model; may be NULL */
    cddp_group *traced; /* whose trace gets spans of all passes and of waits, with the number of the
                           micro-batch; borrowed, NULL: none does */
};

/* Where a step's time goes on this rank, in nanoseconds. */
struct cddpi_pipeline_times {
    int64_t forward_ns;
    int64_t backward_ns; /* with gradients of parameters that come later */
    int64_t wait_ns;     /* for what other stages send or take */
};

/** Make this rank's chunks. Collective in options->group.
 *  @param spec  Of the whole model; its part is not read.
 *  @return as cddpi_model_create(), for zero_bubble on the processor only; CDDP_ERR_ARGUMENT as
 *          cddpi_pipeline_plan(). */
CDDP_CHECKED cddp_status cddpi_pipeline_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                               const struct cddpi_pipeline_options *options,
                                               struct cddpi_pipeline **out);
void cddpi_pipeline_destroy(struct cddpi_pipeline *pipeline);

/** This rank's chunk @p chunk: its parameters and gradients are reached there. */
struct cddpi_model *cddpi_pipeline_model(const struct cddpi_pipeline *pipeline, int chunk);
/** Whether this rank has the last stage, and with it the losses. */
bool cddpi_pipeline_has_loss(const struct cddpi_pipeline *pipeline);

/* Called as parameter @p index of chunk @p chunk has the sum of its gradients over all
 * micro-batches. */
typedef cddp_status (*cddpi_pipeline_ready_fn)(void *context, int chunk, size_t index);

/** Forward and backward of all @p count micro-batches of a step. Collective in the group; all ranks
 *  pass the same counts of samples.
 *  @param batches  Each rank has the data if its chunks read them, and labels with the last stage;
 *                  borrowed for the call. One may have no samples.
 *  @param scales   One a micro-batch: as the scale of cddpi_model_backward().
 *  @param out      The sum over all micro-batches; zero where the losses are not.
 *  @return CDDP_OK, or what a model or a message failed with: then gradients are undefined. */
CDDP_CHECKED cddp_status cddpi_pipeline_step(struct cddpi_pipeline *pipeline,
                                             const struct cddpi_batch *batches,
                                             const double *scales, int count,
                                             cddpi_pipeline_ready_fn ready, void *context,
                                             struct cddpi_loss_result *out);

/** What the last step took. */
struct cddpi_pipeline_times cddpi_pipeline_times(const struct cddpi_pipeline *pipeline);

/** Bytes of values and gradients that this rank holds for messages. */
size_t cddpi_pipeline_edge_bytes(const struct cddpi_pipeline *pipeline);

/** One evaluation forward of a batch. Ranks with earlier stages may return before later ones have
 *  computed. */
CDDP_CHECKED cddp_status cddpi_pipeline_evaluate(struct cddpi_pipeline *pipeline,
                                                 const struct cddpi_batch *batch,
                                                 struct cddpi_loss_result *out);

#endif
