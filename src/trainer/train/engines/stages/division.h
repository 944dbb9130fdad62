/* division.h - which layers each stage of a configuration has, and what that takes. */
#ifndef CDDPI_TRAIN_STAGES_DIVISION_H
#define CDDPI_TRAIN_STAGES_DIVISION_H

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "train/config/config.h"

/** The shape of the pipeline; its micro-batches are those of a full step. */
struct cddpi_pipeline_shape cddpi_stages_shape(const struct cddpi_config *config);
/** How many micro-batches stage @p stage of that keeps at once; @p out_kept: and of how many what
 *  gradients of parameters are made of, which are no fewer. */
CDDP_CHECKED cddp_status cddpi_stages_count_slots(const struct cddpi_pipeline_shape *shape,
                                                  int stage, int *out, int *out_kept);
/** Whether parallel.stages names layers: else stages are chosen. */
bool cddpi_stages_are_named(const struct cddpi_config *config);
/** Divide: as parallel.stages says, or by parallel.balance, which may measure; and see that no rank
 *  takes more than parallel.memory_bytes.
 *  @param samples  Of a micro-batch.
 *  @param out      One a stage.
 *  @return CDDP_OK, CDDP_ERR_CONFIG, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_stages_divide(const struct cddpi_config *config,
                                             const struct cddpi_model_spec *spec, int samples,
                                             struct cddpi_layer_range *out);

#endif
