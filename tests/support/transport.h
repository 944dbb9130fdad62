/* transport.h - transports without a group: forked ranks on devices of the fake CUDA, a seat that
 * exchanges through memory mapped before the fork, and the part of the group that orders compute
 * and communication and watches for hangs. */
#ifndef CDDP_TESTS_SUPPORT_TRANSPORT_H
#define CDDP_TESTS_SUPPORT_TRANSPORT_H

#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "group/join/group_agree.h"
#include "group/transports.h"
#include "support/gpu.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

enum {
    TRANSPORT_RANKS = 68,
    /* Streams that are released become empty at once, so only a hang reaches this limit. It is
     * short enough for all tests of a program that find a hang to end before the program's own
     * limit. */
    TRANSPORT_DRY_MS = 60000,
    TRANSPORT_RECORD = 8192,      /* one rank's bytes in an exchange */
    TRANSPORT_SHARED = 256u << 20 /* bytes in `shared`; each is given out once, so it is zero */
};

/* Whether to run: the emulated module (for which waits are then made short) or a GPU is
 * available. */
bool transport_module(void);

struct transport_world {
    _Atomic uint32_t came, round; /* a barrier */
    _Atomic bool broken;          /* a rank has failed or gone, so no rank waits any more */
    int size;
    unsigned char records[TRANSPORT_RANKS][TRANSPORT_RECORD];
    unsigned char *shared; /* mapped before the fork, so at the same address in all ranks */
};

/* Call before the fork. */
struct transport_world *transport_world_create(int size);

/* Reset for the next ranks. Returns false if the shared memory cannot be zeroed. */
bool transport_world_reset(struct transport_world *world);
void transport_world_destroy(struct transport_world *world);

/* A rank: its device, its transport, and its progress. */
struct transport_rank {
    struct transport_world *world;
    int rank, size;
    size_t given; /* bytes of the shared memory given out so far */
    uint32_t timeout_ms;
    struct cddpi_device *device;
    const struct cddpi_transport *row;
    const struct cddpi_device_transport_ops *ops; /* the transport's */
    struct cddpi_device_transport *transport;
    struct cddpi_device_open_params params;
    struct cddpi_event *computed, *communicated;
    uint64_t number;
};

/* Wait for all ranks. Returns false after the deadline, or once a rank is known to be gone. */
bool transport_barrier(struct transport_rank *me);

/* Open the device and its events, but no transport. */
cddp_status transport_rank_open(struct transport_world *world, int rank, const char *name,
                                bool deterministic, struct transport_rank *me);
/* Probe on all ranks, and open if no rank has a reason against it, as a group does. */
cddp_status transport_open(struct transport_rank *me);
cddp_status transport_rank_start(struct transport_world *world, int rank, const char *name,
                                 bool deterministic, struct transport_rank *me);
void transport_rank_end(struct transport_rank *me);

/* Queue @p op after the work in the compute stream, which then continues after @p op. Does not
 * wait. */
cddp_status transport_start(struct transport_rank *me, struct cddpi_group_op *op);

/* Do what the group's watchdog does: poll until all is done, or abort. */
cddp_status transport_watch(struct transport_rank *me, uint32_t timeout_ms);
cddp_status transport_run(struct transport_rank *me, struct cddpi_group_op *op);

/* An in-place sum over all ranks. */
struct cddpi_group_op transport_sum(void *data, size_t count);

/* Allocate @p count zeros, in the transport's own memory if @p registered. */
float *transport_zeros(struct transport_rank *me, bool registered, size_t count);

/* Start a rank with a transport, and make a sum of @p count zeros that can be run. */
int transport_begin(struct transport_world *world, int rank, const char *name, bool deterministic,
                    bool registered, size_t count, struct transport_rank *me,
                    struct cddpi_group_op *out);

/* Copy @p from to device memory (@p to NULL: newly allocated) through the compute stream. Does not
 * wait. */
void *transport_upload(struct transport_rank *me, void *to, const void *from, size_t bytes);

/* Copy from device memory after all work that the compute stream waits for, and wait for it. */
cddp_status transport_download(struct transport_rank *me, void *to, const void *from, size_t bytes);

#endif
