/* device_memory.h - reports the memory that each device of each rank holds for training. */
#ifndef CDDPI_TRAIN_REPORT_DEVICE_MEMORY_H
#define CDDPI_TRAIN_REPORT_DEVICE_MEMORY_H

#include "parallel/parallel_memory.h"
#include "train/trainer.h"

/** The memory that each of this rank's devices holds now.
 *  @param out        One per device; release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_trainer_device_memory(const struct cddpi_trainer *trainer,
                                                     struct cddpi_held_memory **out,
                                                     int *out_count);
/** Add the memory held for updating parameter @p index. */
void cddpi_trainer_add_param_memory(const struct cddpi_trainer *trainer, size_t index,
                                    struct cddpi_held_memory *out);
/** Rank 0 writes the line {"kind": "memory", "devices": [...]} for all ranks. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_report_memory(struct cddpi_trainer *trainer);

#endif
