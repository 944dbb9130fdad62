/* device_transport.h - transports without a group: forked ranks on devices of the fake CUDA, a seat
 * whose exchanges go through memory that was mapped before the fork, and the part of the group that
 * puts compute and communication in order and watches. */
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
    TRANSPORT_RANKS = 8,
    /* Streams that are let go run dry at once: only a hang takes so long, and all tests of a
     * program that find one are through before the program's own limit. */
    TRANSPORT_DRY_MS = 60000,
    TRANSPORT_RECORD = 8192,      /* bytes of one rank in an exchange */
    TRANSPORT_SHARED = 256u << 20 /* given out by `shared`, never twice: so it is zeroed */
};

/* Whether the emulated module is there (little is to be waited for then), or a GPU is to be used.
 */
bool transport_module(void);

struct transport_world {
    _Atomic uint32_t came, round; /* a barrier */
    _Atomic bool broken;          /* a rank has failed or gone: nobody waits any more */
    int size;
    unsigned char records[TRANSPORT_RANKS][TRANSPORT_RECORD];
    unsigned char *shared; /* mapped before the fork, so at the same place everywhere */
};

/* Before the fork. */
struct transport_world *transport_world_create(int size);

/* As new, for the next ranks: whose memory is the same, if they are. */
bool transport_world_reset(struct transport_world *world);
void transport_world_destroy(struct transport_world *world);

/* A rank: its device, a transport, and how far it is. */
struct transport_rank {
    struct transport_world *world;
    int rank, size;
    size_t given; /* of the shared memory */
    uint32_t timeout_ms;
    struct cddpi_device *device;
    const struct cddpi_transport *row;
    const struct cddpi_device_transport_ops *ops; /* the transport's */
    struct cddpi_device_transport *transport;
    struct cddpi_device_open_params params;
    struct cddpi_event *computed, *communicated;
    uint64_t number;
};

/* Until all ranks are here; false after the deadline, or when one is known to be gone. */
bool transport_barrier(struct transport_rank *me);

/* The device and its events; no transport yet. */
cddp_status transport_rank_open(struct transport_world *world, int rank, const char *name,
                                bool deterministic, struct transport_rank *me);
/* Probe on all ranks, and open if none has a reason not to, as a group does. */
cddp_status transport_open(struct transport_rank *me);
cddp_status transport_rank_start(struct transport_world *world, int rank, const char *name,
                                 bool deterministic, struct transport_rank *me);
void transport_rank_end(struct transport_rank *me);

/* Put @p op behind what compute did; compute goes on behind it. Waits for nothing. */
cddp_status transport_start(struct transport_rank *me, struct cddpi_group_op *op);

/* What the group's watchdog does: look until all is done, or end it. */
cddp_status transport_watch(struct transport_rank *me, uint32_t timeout_ms);
cddp_status transport_run(struct transport_rank *me, struct cddpi_group_op *op);

/* A sum over all ranks in place. */
struct cddpi_group_op transport_sum(void *data, size_t count);

/* @p registered: in the transport's own memory. */
float *transport_zeros(struct transport_rank *me, bool registered, size_t count);

/* A rank with a transport, and a sum of @p count zeros, still to be run. */
int transport_begin(struct transport_world *world, int rank, const char *name, bool deterministic,
                    bool registered, size_t count, struct transport_rank *me,
                    struct cddpi_group_op *out);

/* Device memory with a copy of @p from; through the compute stream, without waiting. */
void *transport_upload(struct transport_rank *me, void *to, const void *from, size_t bytes);

/* Behind all that compute waits for. */
cddp_status transport_download(struct transport_rank *me, void *to, const void *from, size_t bytes);

#endif
