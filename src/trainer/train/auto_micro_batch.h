/* auto_micro_batch.h - owns the size of micro-batches that train.micro_batch = "auto" chooses. */
#ifndef CDDPI_TRAIN_AUTO_MICRO_BATCH_H
#define CDDPI_TRAIN_AUTO_MICRO_BATCH_H

#include "train/trainer.h"

/* A size, and the memory that a rank's steps take with it. */
struct cddpi_auto_micro_batch {
    int64_t samples;
    uint64_t bytes; /* activations, and partial sums of gradients */
};

/** Find the largest power of two whose micro-batches fit @p budget bytes of a rank's memory, and
 * are enough for @p replicas; 1 if none fits. @p model is whole and on the rank's device. */
CDDP_CHECKED cddp_status cddpi_auto_micro_batch_find(const struct cddpi_config *config,
                                                     struct cddpi_model *model, int replicas,
                                                     uint64_t budget,
                                                     struct cddpi_auto_micro_batch *out);

/** The most memory that a rank's partial sums of gradients take, in micro-batches of @p samples. */
uint64_t cddpi_micro_batch_sums_bytes(const struct cddpi_config *config,
                                      const struct cddpi_model *model, int replicas,
                                      int64_t samples);

/** What a rank may use, of the @p left bytes that @p sharers ranks of a device or a machine have in
 *  common. The rest is for what is not estimated: batches on their way, scratch
 *  memory of libraries. */
uint64_t cddpi_auto_micro_batch_budget(bool on_device, uint64_t left, int sharers);

/** If train.micro_batch is CDDPI_AUTO, replace it: by the number of the run that goes on, else by
 *  the largest that fits all ranks. The trainer has its model, gradients and optimizer. Does
 * nothing otherwise. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_choose_micro_batch(struct cddpi_trainer *trainer);

#endif
