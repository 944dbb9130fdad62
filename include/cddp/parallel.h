/** @file
 *  parallel.h - several devices in one process, a thread each: PyTorch's DataParallel and the steps
 * that it is made of. Needs no group and no launcher.
 *
 * A device is "cpu" (a thread that runs where the kernel lets it) or "cpu:N": the N-th processor
 * that this process may use, to which the device's thread is bound. "cuda:N" is not one here
 * (train.conf's devices may be GPUs): CDDP_ERR_UNAVAILABLE. A device may be named twice: then it
 * has two threads.
 *
 * All calls return when their threads have ended; any thread may call them. */
#ifndef CDDP_PARALLEL_H
#define CDDP_PARALLEL_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_PARALLEL_DEVICES = 256 /**< the most devices of a process */ };

/** The devices that work together, in their order; the first is where results are gathered. */
typedef struct cddp_devices cddp_devices;

/** Name the devices.
 *  @param count  In [1, CDDP_PARALLEL_DEVICES].
 *  @param out    Release with cddp_devices_destroy(), which accepts NULL. Never changes, so several
 *                threads may use it.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (no name of a device); CDDP_ERR_UNAVAILABLE (this process may
 *          not use such a processor; a GPU); CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_devices_create(const char *const *names, int count,
                                             cddp_devices **out);
/** Release them; NULL is accepted. */
CDDP_API void cddp_devices_destroy(cddp_devices *devices);
/** How many; 0 for NULL. */
CDDP_API int cddp_devices_count(const cddp_devices *devices);
/** The name of device @p index, valid as long as @p devices; NULL if there is none. */
CDDP_API const char *cddp_devices_name(const cddp_devices *devices, int index);

/** Some of a tensor's rows (its first dimension), on a device. */
typedef struct cddp_chunk {
    /** The first of them; on the processor a part of the tensor itself. */
    void *data;
    /** How many. */
    size_t rows;

} cddp_chunk;

/** Divide @p rows rows as torch.chunk does: ceil(rows / devices) each, the last gets the rest, and
 * with few rows there are fewer chunks than devices (7 rows on 3 devices: 3, 3, 1; 4 on 3: 2, 2).
 * Nothing is copied on the processor.
 *  @param in         @p rows rows of @p row_bytes bytes.
 *  @param out        One a chunk: room for as many as there are devices.
 *  @param out_count  How many chunks there are.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (also for 0 rows). */
CDDP_CHECKED cddp_status cddp_parallel_scatter(const cddp_devices *devices, void *in, size_t rows,
                                               size_t row_bytes, cddp_chunk *out, int *out_count);

/** Copies of @p n parameters for the first @p replicas devices.
 *  @param params  One pointer a parameter, to counts[i] values.
 *  @param out     replicas x n pointers: parameter i of device d is (*out)[d x n + i]. Those of
 *                 device 0 are @p params themselves; the others lie in the same block of memory, 64
 *                 bytes aligned: one cddp_free() releases all.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_parallel_replicate(const cddp_devices *devices, int replicas,
                                                 float *const *params, const size_t *counts,
                                                 size_t n, float ***out);

/** What a device's thread does.
 *  @return 0 for success; otherwise the device has failed, and the last failed call of cddp in this
 *          thread is the reason that is reported. */
typedef int (*cddp_parallel_fn)(int device, void *arg);

/** Run @p fn on each of the first @p count devices at once, and wait for all.
 *  @return CDDP_OK if all returned 0. Else the failure of the first device that failed, in their
 *          order, the text beginning with its name: its status, or CDDP_ERR_DEVICE if it failed
 *          without an error of cddp; CDDP_ERR_UNAVAILABLE if its thread could not be bound to it.
 *          CDDP_ERR_ARGUMENT; CDDP_ERR_NO_MEMORY (a thread). */
CDDP_CHECKED cddp_status cddp_parallel_apply(const cddp_devices *devices, int count,
                                             cddp_parallel_fn fn, void *arg);

/** Put chunks one behind the other, in their order.
 *  @param chunks  One a device; those that lie in @p out at their place already are left there.
 *  @param out     @p rows rows of @p row_bytes bytes.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (also if the chunks have not @p rows rows in all). */
CDDP_CHECKED cddp_status cddp_parallel_gather(const cddp_chunk *chunks, int count, size_t row_bytes,
                                              void *out, size_t rows);

/** One device's part of cddp_data_parallel(), for the function that computes it. */
typedef struct cddp_replica {
    /** Its index. */
    int device;
    /** How many devices take part. */
    int device_count;
    /** Its rows of the input. */
    const void *in;
    /** How many rows. */
    size_t rows;
    /** The index of the first in the whole. */
    size_t first_row;
    /** Its rows of the output; NULL if there is none. */
    void *out;
    /** Its parameters, in their order. */
    float *const *params;
    /** Where it adds their gradients, zero at first; NULL if none are wanted. */
    float *const *grads;
    /** For options->backward: its rows of options->out_grads; NULL for the forward. */
    const void *out_grads;

} cddp_replica;

/** Compute @p replica's rows, as cddp_parallel_fn. */
typedef int (*cddp_replica_fn)(const cddp_replica *replica, void *arg);

/** The loss of gathered outputs, as cddp_parallel_fn, on the thread of device @p device.
 *  @param out        All rows of the output.
 *  @param rows       How many.
 *  @param out_grads  Where it writes the loss's gradient of each; NULL if options->out_grads is. */
typedef int (*cddp_loss_fn)(int device, const void *out, size_t rows, void *out_grads, void *arg);

/** What is computed with what; zero means none. All memory is the caller's. */
typedef struct cddp_data_parallel_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** The batch: @p rows rows of in_row_bytes bytes. */
    void *in;
    /** At least 1. */
    size_t rows;
    /** Of one row of the input. */
    size_t in_row_bytes;
    /** As many rows of out_row_bytes bytes, or NULL. */
    void *out;
    /** Of one row of the output. */
    size_t out_row_bytes;
    /** The model: param_count pointers, one a parameter. */
    float *const *params;
    /** How many values each parameter has. */
    const size_t *counts;
    /** How many parameters. */
    size_t param_count;
    /** Their gradients, or NULL. */
    float *const *grads;
    /** The loss between forward and backward, where @p out is whole; NULL: @p fn does it all. */
    cddp_loss_fn loss;
    /** With loss: as many rows as @p out, for its gradient; NULL: forward and loss only. */
    void *out_grads;
    /** With out_grads: each device's backward, on the thread that its forward was on or another. */
    cddp_replica_fn backward;
    /** With loss: the index of the device whose thread computes it. */
    int output_device;

} cddp_data_parallel_options;
/** A cddp_data_parallel_options of defaults. */
#define CDDP_DATA_PARALLEL_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(cddp_data_parallel_options), NULL, 0, 0, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL,  \
            NULL, 0                                                                                \
    }

/** PyTorch's DataParallel, forward and backward: scatter the rows, replicate the parameters, run
 * @p fn on each device at once, each writing its rows of the output at their place, and add the
 * devices' gradients to options->grads, on the first device and in the devices' order: grads[i] +
 * (g0 + g1 + g2 ...). So every run gives the same bits; one device gives others where the sum's
 * rounding differs.
 *
 * Without options->loss, @p fn computes forward, its rows' part of the loss and backward, and no
 * device waits for another. With it the steps are PyTorch's: @p fn is the forward alone, the loss
 * is taken of the gathered outputs on output_device, and then all devices do options->backward. So
 * a loss may look at several rows at once; what backward needs of the forward @p fn keeps in @p
 * arg, by replica->device.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (loss without out, out_grads without loss or backward,
 * backward without out_grads, no such output_device); what the steps give. On an error output and
 * gradients are undefined. */
CDDP_CHECKED cddp_status cddp_data_parallel(const cddp_devices *devices,
                                            const cddp_data_parallel_options *options,
                                            cddp_replica_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
