/** @file
 *  parallel.h - several devices in one process, with a thread each: PyTorch's DataParallel, and its
 *  steps (scatter, replicate, parallel_apply, gather). Needs no group and no launcher.
 *
 *  A device is "cpu", whose thread is not bound, or "cpu:N", whose thread is bound to the N-th CPU
 *  that this process may use. GPUs ("cuda:N") are not supported here, only in train.conf:
 *  CDDP_ERR_UNAVAILABLE. A device that is named twice has two threads.
 *
 *  Any thread may call these functions. They return when the threads that they started have ended.
 *  Collective: no, all of them. */
#ifndef CDDP_PARALLEL_H
#define CDDP_PARALLEL_H

#include <cddp/process.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_MAX_PARALLEL_DEVICES = 256 /**< most devices of a cddp_devices */ };

/** The devices that work together, in their order. Results are gathered on the first one. */
typedef struct cddp_devices cddp_devices;

/** Make a list of devices from their names.
 *  @param count  How many names there are, in [1, CDDP_MAX_PARALLEL_DEVICES].
 *  @param out    Release with cddp_devices_destroy(), which accepts NULL. It never changes, so
 *                several threads may use it.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (not the name of a device); CDDP_ERR_UNAVAILABLE (a GPU, or a
 *          CPU that this process may not use); CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_devices_create(const char *const *names, int count,
                                             cddp_devices **out);
/** Release the list; NULL is accepted. */
CDDP_API void cddp_devices_destroy(cddp_devices *devices);
/** How many devices the list has; 0 for NULL. */
CDDP_API int cddp_devices_count(const cddp_devices *devices);
/** The name of device @p index, valid as long as @p devices; NULL if there is no such device. */
CDDP_API const char *cddp_devices_name(const cddp_devices *devices, int index);

/** A range of a tensor's rows (its first dimension), on a device. */
typedef struct cddp_chunk {
    /** The first row; on the CPU it points into the tensor. */
    void *data;
    /** How many rows. */
    size_t rows;

} cddp_chunk;

/** Divide @p rows rows like torch.chunk: each device gets ceil(rows / devices) rows, the last one
 *  gets the rest, and if there are few rows, there are fewer chunks than devices (7 rows on 3
 *  devices: 3, 3, 1; 4 rows on 3 devices: 2, 2). On the CPU, nothing is copied.
 *  @param in         @p rows rows of @p row_bytes bytes.
 *  @param out        The chunks: an array with one element for each device.
 *  @param out_count  How many chunks there are.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (also for 0 rows). */
CDDP_CHECKED cddp_status cddp_parallel_scatter(const cddp_devices *devices, void *in, size_t rows,
                                               size_t row_bytes, cddp_chunk *out, int *out_count);

/** Copy @p n parameters for each of the first @p replicas devices.
 *  @param params  A pointer for each parameter i, to counts[i] values.
 *  @param out     replicas x n pointers: parameter i of device d is (*out)[d * n + i]. Device 0
 *                 uses @p params themselves. The copies for the other devices are 64-byte aligned,
 *                 in the same block of memory as the pointers: one cddp_free() releases all.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_parallel_replicate(const cddp_devices *devices, int replicas,
                                                 float *const *params, const size_t *counts,
                                                 size_t n, float ***out);

/** The function that a device's thread runs. May call: anything, but not on its own cddp_devices.
 *  @param state   As passed to cddp_parallel_apply().
 *  @param device  The device's index.
 *  @return CDDP_OK. With any other status the device has failed, and the call returns that status.
 *          If the last failed call (or cddp_fail()) of the thread that ran this function had the
 *          same status, its text is the error text. */
typedef cddp_status (*cddp_parallel_fn)(void *state, int device);

/** Run @p fn on each of the first @p count devices at the same time, and wait for all.
 *  @return CDDP_OK if @p fn returned CDDP_OK everywhere. Otherwise the status of the first device,
 *          in list order, that failed; the text begins with its name. If that device returned a
 *          number that is not an error, or ended its thread: the status of its last failed call of
 *          cddp, or CDDP_ERR_DEVICE if there was none. CDDP_ERR_UNAVAILABLE if its thread could not
 *          be bound to the CPU. CDDP_ERR_ARGUMENT; CDDP_ERR_NO_MEMORY (a thread did not start). */
CDDP_CHECKED cddp_status cddp_parallel_apply(const cddp_devices *devices, int count,
                                             cddp_parallel_fn fn, void *state);

/** Concatenate @p count chunks, in their order.
 *  @param chunks  A chunk that is already at its place in @p out is not copied.
 *  @param out     Room for @p rows rows of @p row_bytes bytes.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (also if the chunks do not have @p rows rows in all). */
CDDP_CHECKED cddp_status cddp_parallel_gather(const cddp_chunk *chunks, int count, size_t row_bytes,
                                              void *out, size_t rows);

/** One device's part of cddp_data_parallel(), for the function that computes it. */
typedef struct cddp_replica {
    /** The device's index. */
    int device;
    /** How many devices take part. */
    int device_count;
    /** The device's rows of the input. */
    const void *in;
    /** How many rows the device has. */
    size_t rows;
    /** The index of its first row in the batch. */
    size_t first_row;
    /** The device's rows of the output; NULL if options->out is NULL. */
    void *out;
    /** The device's parameters, in the order of options->params. */
    float *const *params;
    /** Where the device adds its gradients, zero at first; NULL if options->grads is NULL. */
    float *const *grads;
    /** In options->backward: the device's rows of options->out_grads; NULL in the forward. */
    const void *out_grads;

} cddp_replica;

/** Computes the rows of @p replica. Returns like cddp_parallel_fn. May call: as cddp_parallel_fn.
 */
typedef cddp_status (*cddp_replica_fn)(void *state, const cddp_replica *replica);

/** Computes the loss of the gathered outputs. Runs in the thread of device @p device, and returns
 *  like cddp_parallel_fn. May call: as cddp_parallel_fn.
 *  @param out        All rows of the output.
 *  @param rows       How many rows.
 *  @param out_grads  Where it writes the gradient of the loss for each row; NULL if
 *                    options->out_grads is NULL. */
typedef cddp_status (*cddp_loss_fn)(void *state, int device, const void *out, size_t rows,
                                    void *out_grads);

/** The batch, the model and the functions of cddp_data_parallel(); zero means that a field is not
 *  used. The caller owns all memory. */
typedef struct cddp_data_parallel_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The input batch: rows rows of in_row_bytes bytes. */
    void *in;
    /** How many rows the batch has, at least 1. */
    size_t rows;
    /** Bytes of one row of the input. */
    size_t in_row_bytes;
    /** The output: rows rows of out_row_bytes bytes, or NULL. */
    void *out;
    /** Bytes of one row of the output. */
    size_t out_row_bytes;
    /** The model: param_count pointers, one for each parameter. */
    float *const *params;
    /** How many values each parameter has. */
    const size_t *counts;
    /** How many parameters there are. */
    size_t param_count;
    /** Where the parameters' gradients are added, or NULL. */
    float *const *grads;
    /** Computes the loss between forward and backward, of all rows of out; NULL: fn computes the
     *  forward, the loss and the backward. */
    cddp_loss_fn loss;
    /** With loss: memory for the gradient of out, with the same size; NULL: forward and loss only.
     */
    void *out_grads;
    /** With out_grads: computes a device's backward, not necessarily in the same thread as its
     *  forward. */
    cddp_replica_fn backward;
    /** With loss: the index of the device whose thread computes the loss. */
    int output_device;
    /** Zero. */
    uint32_t reserved;

} cddp_data_parallel_options;
/** The defaults of cddp_data_parallel_options. */
#define CDDP_DATA_PARALLEL_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(cddp_data_parallel_options), NULL, 0, 0, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL,  \
            NULL, 0, 0                                                                             \
    }
CDDP_NO_TAIL(cddp_data_parallel_options, reserved);

/** PyTorch's DataParallel, forward and backward: scatter the rows, replicate the parameters, and
 *  run @p fn on all devices at the same time. Each device writes its rows of the output at their
 *  place. Then the first device adds the devices' gradients to options->grads, in the order of the
 *  devices: grads[i] + (g0 + g1 + g2 ...). So every run gives the same bits. A run on one device
 *  may give other bits, because the sum is rounded differently.
 *
 *  Without options->loss, @p fn computes the forward, the loss of its rows and the backward, and no
 *  device waits for another. With options->loss, the steps are those of PyTorch: @p fn computes the
 *  forward only, output_device computes the loss of the gathered outputs, and then all devices run
 *  options->backward. So a loss may combine several rows. Whatever the backward needs from the
 *  forward, @p fn keeps in @p state, for each replica->device.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (loss without out, out_grads without loss or backward,
 *          backward without out_grads, no such output_device); an error of one of the steps. On an
 *          error, output and gradients are undefined. */
CDDP_CHECKED cddp_status cddp_data_parallel(const cddp_devices *devices,
                                            const cddp_data_parallel_options *options,
                                            cddp_replica_fn fn, void *state);

#ifdef __cplusplus
}
#endif
#endif
