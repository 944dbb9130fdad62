/* stages.h - a run whose model is divided into stages (parallel.pipeline): what each part of the
 * trainer does otherwise then. Ranks 0 to P - 1 are the stages of the first replica of the model,
 * and so on: rank r is stage r mod P of replica r / P.
 *
 * A step's micro-batches go through the stages of a replica; each stage's gradients are averaged
 * over replicas by a reducer of its own. Rank 0 writes and reads checkpoints of the whole model, so
 * that they can be read with any other division, or none. */
#ifndef CDDPI_TRAIN_STAGES_STAGES_H
#define CDDPI_TRAIN_STAGES_STAGES_H

#include "checkpoint/snapshot.h"
#include "train/step.h"

/** Check parallel.* against the world size, and make the groups: of this rank's pipeline, and of
 *  its replicas. Collective; nothing where the model is whole. */
CDDP_CHECKED cddp_status cddpi_stages_join(struct cddpi_trainer *trainer);
void cddpi_stages_destroy(struct cddpi_trainer *trainer);

/** Whether this rank has the first layers; with a whole model, always. */
bool cddpi_trainer_is_first_stage(const struct cddpi_trainer *trainer);

/** What parallel.* asks for that cannot be, for a world size: CDDP_ERR_CONFIG. */
CDDP_CHECKED cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size);

/** This rank's part of the model that @p spec describes, as trainer->models. Collective. */
CDDP_CHECKED cddp_status cddpi_stages_build_model(struct cddpi_trainer *trainer,
                                                  const struct cddpi_model_spec *spec);

/** The models' parameters have other places now: those of the trainer, too. */
void cddpi_stages_params_moved(struct cddpi_trainer *trainer);

/** Forward and backward of all micro-batches of a step, and the mean over replicas. Collective. */
CDDP_CHECKED cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer,
                                              struct cddpi_train_step *step);
/** Bytes of values and gradients that this rank holds for messages; 0 with a whole model. */
size_t cddpi_stages_edge_bytes(const struct cddpi_trainer *trainer);
/** One batch of test data; @p out is zero where the losses are not. */
CDDP_CHECKED cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer,
                                               const struct cddpi_batch *batch,
                                               struct cddpi_loss_result *out);

/** Whether other stages have parameter @p index of this rank, too; a whole model's: never. */
bool cddpi_stages_is_tied(const struct cddpi_trainer *trainer, size_t index);
/** Parameters that several stages have (tied weights) get the sum of their gradients on each, and
 *  are ready then. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_sum_tied(struct cddpi_trainer *trainer);
/** The sum of squares of the gradients of all stages, those of tied parameters once, as
 *  cddpi_optim_square_sum() of the whole model, but for rounding. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer, double *out);

/* Checkpoints. Rank 0 knows names and shapes of the other stages' tensors, but not more than one of
 * them is in its memory at a time. The first replica's ranks take part; all of these do nothing in
 * others. */

/** There is an optimizer now: rank 0 gets to know its tensors. Collective in the pipeline; once.
 *  Nothing with a whole model. */
CDDP_CHECKED cddp_status cddpi_stages_optimizer_made(struct cddpi_trainer *trainer);

/** Rank 0: tensors of all stages as the whole model's files have them, without state_json. Those of
 *  other stages have no data. The arrays are the stages'. */
CDDP_CHECKED cddp_status cddpi_stages_snapshot(struct cddpi_trainer *trainer, cddp_snapshot *out);
/** Rank 0, before it writes: get all counts of updates, and see that all parameters are finite
 *  (CDDP_ERR_STATE), while the other stages are in cddpi_stages_end_save(). */
CDDP_CHECKED cddp_status cddpi_stages_prepare_save(struct cddpi_trainer *trainer);
/** Rank 0: from where the writer of the files takes tensors, as long as there are stages. */
struct cddpi_snapshot_source cddpi_stages_source(struct cddpi_trainer *trainer);
/** Rank 0, once it has tried to write: let the others go on. These hand out tensors until then.
 *  Nothing with a whole model. */
CDDP_CHECKED cddp_status cddpi_stages_end_save(struct cddpi_trainer *trainer);

/** Rank 0: open the checkpoint at @p path, or weights, and take its own tensors. The file stays
 * open until the others have theirs. */
CDDP_CHECKED cddp_status cddpi_stages_open_snapshot(struct cddpi_trainer *trainer,
                                                    const char *path);
CDDP_CHECKED cddp_status cddpi_stages_open_weights(struct cddpi_trainer *trainer, const char *path);
/** The first replica's other stages get theirs: the model's only, or the optimizer's full state as
 *  well, which is allocated. Collective in the pipeline. */
enum cddpi_stages_what { CDDPI_STAGES_ALL, CDDPI_STAGES_MODEL };
CDDP_CHECKED cddp_status cddpi_stages_scatter(struct cddpi_trainer *trainer,
                                              enum cddpi_stages_what what);

#endif
