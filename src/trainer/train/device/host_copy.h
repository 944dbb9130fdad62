/* host_copy.h - owns host copies of a device's parameters and buffers, for files and the other
 * ranks. On the processor there are no copies; the originals are read. Every function covers the
 * trainer and the next trainers of its run. */
#ifndef CDDPI_TRAIN_DEVICE_HOST_COPY_H
#define CDDPI_TRAIN_DEVICE_HOST_COPY_H

#include "train/trainer.h"

/** Allocate the copies. */
CDDP_CHECKED cddp_status cddpi_trainer_create_host_copy(struct cddpi_trainer *trainer);
void cddpi_trainer_destroy_host_copy(struct cddpi_trainer *trainer);
/** Copy from the device to the host copies, or back. Both wait for the device. */
CDDP_CHECKED cddp_status cddpi_trainer_copy_to_host(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_trainer_copy_to_device(struct cddpi_trainer *trainer);
/** The number of tensors that cddpi_trainer_model_tensors() returns. */
size_t cddpi_trainer_model_tensor_count(const struct cddpi_trainer *trainer);
/** Parameters and buffers (or their host copies, if there are any) as tensors for a file. Release
 *  with cddpi_free(). NULL: no memory. */
cddp_param *cddpi_trainer_model_tensors(const struct cddpi_trainer *trainer);

#endif
