/* profile.h - what the files of the module's kernel profile share: each call of a kernel function,
 * its time as measured with events, and the bytes and operations that it was designed to need. */
#ifndef CDDPI_CUDA_PROFILE_H
#define CDDPI_CUDA_PROFILE_H

#include "device/cuda/cuda_internal.h"

/* The work that a call was designed for. Its expected time is the longer of the times for its
 * operations and for its bytes, plus the time for the bytes of a second pass (0: no second
 * pass). */
struct cuda_work {
    const char *op; /* name of the operation in the table of kernels */
    double bytes, flops, pass_bytes;
    char shape[72];
};

/** Call these around one kernel call in the compute stream. They do nothing during a capture. */
void cuda_profile_begin(struct cddpi_device *device, struct cuda_work work);
/** @return @p status, the status of the kernel call. */
cddp_status cuda_profile_end(struct cddpi_device *device, cddp_status status);

/** The table of the original kernels, which are not timed. */
const struct cddpi_cuda_kernels *cuda_profile_plain(struct cddpi_device *device);

/** End the step: a parameter update has been enqueued. Waits for the update. */
cddp_status cuda_profile_step(struct cddpi_device *device);

/** Remember the number of elements of all tensors of an update, by its table. Call it when the
 *  table is made. */
void cuda_profile_remember(struct cddpi_device *device, const void *table, double count);
double cuda_profile_remembered(struct cddpi_device *device, const void *table);

/* Put profiling functions into the rows of @p table: cuda_profile_matmul() for matmul, attention,
 * convolutions and batch norm; cuda_profile_rows() for the others. */
void cuda_profile_matmul(struct cddpi_cuda_kernels *table);
void cuda_profile_rows(struct cddpi_cuda_kernels *table);

/* The bytes of an element. */
static inline double cuda_type_bytes(cddp_type type)
{
    return type == CDDP_F32 ? 4 : 2;
}

#define PROFILED(device, work, call)                                                               \
    (cuda_profile_begin((device), (work)),                                                         \
     cuda_profile_end((device), cuda_profile_plain(device)->call))

#endif
