/* deferred_device.h - a device in host memory whose streams run late, and a transport between its
 * ranks, for tests of code on top of struct cddpi_device_ops and struct cddpi_device_transport_ops.
 *
 * Work is queued. It runs one item at a time, when somebody queries progress: the next item of any
 * stream that may run, chosen at random from the seed. So an order between streams that nobody
 * requested does not happen by chance, and its absence shows as wrong data. Between processes, the
 * transport copies every rank's operand into shared memory, waits (in its stream) until all
 * operands are there, reduces in rank order with the CPU's kernels, and waits until all ranks have
 * read the result. */
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

struct deferred_item; /* one piece of work in a stream */

struct deferred {
    struct cddpi_device device;
    pthread_mutex_t mutex;
    enum deferred_bias bias;
    uint64_t random;
    struct deferred_item *first[CDDPI_STREAM_COUNT], *last[CDDPI_STREAM_COUNT];
    unsigned char *memory; /* the device's memory; never freed */
    size_t used;
    _Atomic bool held;   /* nothing runs, as on a slow device */
    _Atomic bool fails;  /* every query fails */
    unsigned host_waits; /* how often a calling thread has waited for the device */
    struct cddpi_cuda_kernels kernels;
    const struct cddpi_transport *transports[2];
};

struct deferred *deferred_of(const struct cddpi_device *device);

bool deferred_owns(const struct cddpi_device *base, const void *memory);

extern const struct cddpi_device_ops deferred_ops;

struct cddpi_device *deferred_open(int rank, enum deferred_bias bias, unsigned seed);

#endif
