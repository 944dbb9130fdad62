/* host_copy.h - on a device, files and the other ranks get copies of parameters and buffers that
 * the processor can read. On the processor there are none, and what is there is itself read. All
 * this is done for the trainer and those after it of its run. */
#ifndef CDDPI_TRAIN_DEVICE_HOST_COPY_H
#define CDDPI_TRAIN_DEVICE_HOST_COPY_H

#include "train/trainer.h"

/** Make room for the copies. */
CDDP_CHECKED cddp_status cddpi_trainer_create_host_copy(struct cddpi_trainer *trainer);
void cddpi_trainer_destroy_host_copy(struct cddpi_trainer *trainer);
/** Bring the copies up to date; or the device, from them. Both wait for the device. */
CDDP_CHECKED cddp_status cddpi_trainer_copy_to_host(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_trainer_copy_to_device(struct cddpi_trainer *trainer);
/** How many tensors the next has. */
size_t cddpi_trainer_model_tensor_count(const struct cddpi_trainer *trainer);
/** Parameters and buffers (or the copies, where these are held) as tensors for a file; release with
 *  cddpi_free(). NULL: no memory. */
cddp_tensor *cddpi_trainer_model_tensors(const struct cddpi_trainer *trainer);

#endif
