/* stages_describe.h - what cddp-train --dry-run tells of stages. */
#ifndef CDDPI_TRAIN_STAGES_DESCRIBE_H
#define CDDPI_TRAIN_STAGES_DESCRIBE_H

#include "nn/model.h"
#include "train/config/config.h"

#include <stdio.h>

/** Print which layers each stage of @p spec has, its parameters, the part of a micro-batch's time
 *  that it takes here, the longest of which all wait for, and how many micro-batches its rank
 * keeps; nothing where the model is not divided.
 *  @param samples  Of a micro-batch. */
CDDP_CHECKED cddp_status cddpi_stages_describe(const struct cddpi_config *config,
                                               const struct cddpi_model_spec *spec, int samples,
                                               FILE *file);

#endif
