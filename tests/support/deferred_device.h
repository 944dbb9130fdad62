/* deferred_device.h - a device on host memory whose streams are deferred, and a transport between
 * its ranks, for tests of what is built upon struct cddpi_device_ops and struct
 * cddpi_device_transport_ops.
 *
 * Work is queued, and done one item at a time when somebody asks how far it is: any stream whose
 * next item may run, in an order that the seed gives. So an order between streams that nobody asked
 * for does not happen by itself, and shows as wrong data. Between processes the transport copies
 * every rank's operand into memory that all share, waits (its stream does) until all are there,
 * reduces in rank order with the processor's kernels, and waits until all have read. */
#ifndef CDDP_TESTS_SUPPORT_DEFERRED_DEVICE_H
#define CDDP_TESTS_SUPPORT_DEFERRED_DEVICE_H

#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "group/device/group_device.h"
#include "group/transports.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum deferred_bias {
    DEFERRED_RANDOM,
    DEFERRED_COMM_FIRST,
    DEFERRED_COMPUTE_FIRST,
    DEFERRED_BIASES
};

enum { DEFERRED_MEMORY = 64 << 20, DEFERRED_SLICE = 1 << 20, DEFERRED_RANKS = 8 };

struct deferred_item; /* one thing to do in a stream */

struct deferred {
    struct cddpi_device device;
    pthread_mutex_t mutex;
    enum deferred_bias bias;
    uint64_t random;
    struct deferred_item *first[CDDPI_STREAM_COUNT], *last[CDDPI_STREAM_COUNT];
    unsigned char *memory; /* of the device; never given back */
    size_t used;
    _Atomic bool held;   /* nothing runs: the device is slow */
    _Atomic bool fails;  /* every query is an error */
    unsigned host_waits; /* how often the calling thread has waited for the device */
    struct cddpi_cuda_kernels kernels;
    const struct cddpi_transport *transports[2];
};

struct deferred *deferred_of(const struct cddpi_device *device);

bool deferred_owns(const struct cddpi_device *base, const void *memory);

extern const struct cddpi_device_ops deferred_ops;

struct cddpi_device *deferred_open(int rank, enum deferred_bias bias, unsigned seed);

#endif
