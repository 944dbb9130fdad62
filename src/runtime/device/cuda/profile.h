/* profile.h - what the files of the module's profile share: each call of a kernel's function, its
 * time by events, and the bytes and operations that it was designed to need. */
#ifndef CDDPI_CUDA_PROFILE_H
#define CDDPI_CUDA_PROFILE_H

#include "device/cuda/cuda_internal.h"

/* The work that a call was designed for. It takes as long as its operations or its bytes, whichever
 * takes longer, and then as long as the bytes of a second pass (0: there is none). */
struct cuda_work {
    const char *op; /* of the table of kernels */
    double bytes, flops, pass_bytes;
    char shape[72];
};

/** Around one call in the compute stream. They do nothing while a capture is made. */
void cuda_profile_begin(struct cddpi_device *device, const struct cuda_work *work);
/** @return @p status, that of the call. */
cddp_status cuda_profile_end(struct cddpi_device *device, cddp_status status);

/** The table of kernels that are not timed. */
const struct cddpi_cuda_kernels *cuda_profile_plain(struct cddpi_device *device);

/** End the step: an update of the parameters has been put into the stream. Waits for it. */
cddp_status cuda_profile_step(struct cddpi_device *device);

/** Elements of all tensors of an update, by its table: set when the table is made. */
void cuda_profile_remember(struct cddpi_device *device, const void *table, double count);
double cuda_profile_remembered(struct cddpi_device *device, const void *table);

/* Put functions that profile into the rows of @p table: products, attention, convolutions and batch
 * norm; the others. */
void cuda_profile_matmul(struct cddpi_cuda_kernels *table);
void cuda_profile_rows(struct cddpi_cuda_kernels *table);

#define PROFILED(device, work, call)                                                               \
    (cuda_profile_begin((device), (work)),                                                         \
     cuda_profile_end((device), cuda_profile_plain(device)->call))

#endif
