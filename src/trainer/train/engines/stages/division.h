/* division.h - decides which layers each pipeline stage has, and counts the memory that they
 * take. */
#ifndef CDDPI_TRAIN_STAGES_DIVISION_H
#define CDDPI_TRAIN_STAGES_DIVISION_H

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "train/config/config.h"

/** The shape of the pipeline, with the micro-batches of a full step. */
struct cddpi_pipeline_shape cddpi_stages_shape(const struct cddpi_config *config);
/** How many micro-batches stage @p stage of @p shape holds at once. @p out_kept: for how many it
 *  holds what the gradients of parameters need; at least as many. */
CDDP_CHECKED cddp_status cddpi_stages_count_slots(const struct cddpi_pipeline_shape *shape,
                                                  int stage, int *out, int *out_kept);
/** Whether parallel.stages names layers; if not, the division is chosen. */
bool cddpi_stages_are_named(const struct cddpi_config *config);
/** Divide as parallel.stages says, or by parallel.balance, which may measure. Check that no rank
 *  needs more than parallel.memory_bytes.
 *  @param samples  Of a micro-batch.
 *  @param out      One range per stage.
 *  @return CDDP_OK, CDDP_ERR_CONFIG, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_stages_divide(const struct cddpi_config *config,
                                             const struct cddpi_model_spec *spec, int samples,
                                             struct cddpi_layer_range *out);

#endif
