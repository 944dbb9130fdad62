/* plane.h - a data plane: how the ranks of a group reduce device memory.
 *
 * A group on a CUDA device has two ways to talk. Its backend (host: shared memory) carries what
 * lies in the processor's memory: manifests, verdicts, the planes' own set-up. The plane carries
 * what lies in device memory, in the communication stream, ordered against the compute stream by
 * events; the group does that ordering (group/device.c), a plane only puts work into
 * CDDPI_STREAM_COMM. No call here waits for a peer or for the device, but open and alloc; and
 * NCCL's first operations, which connect the ranks.
 *
 * Planes: "nccl"; "ipc" (ranks of one machine whose devices can reach each other's memory, one
 * device among them: CUDA IPC and kernels that reduce in fixed order); "staged" (through pinned
 * shared memory, in pieces). */
#ifndef CDDPI_GROUP_PLANE_H
#define CDDPI_GROUP_PLANE_H

#include "device/device.h"
#include "group/group.h"

struct cddpi_plane;

/* What a plane needs of the group while it is opened, and later for signs between ranks: blocking
 * exchanges of small texts over the backend, in the processor's memory. Collective. */
struct cddpi_plane_seat {
    int rank, world_size;
    int local_rank, local_world_size;
    uint32_t timeout_ms;
    bool deterministic; /* fixed order and 16-bit types accumulated in f32, whatever it costs */
    struct cddpi_device *device;
    void *context;
    cddp_status (*exchange)(void *context, const void *own, size_t bytes, void *out_all);
    /* Memory that all ranks of this machine share, zeroed, at the plane's disposal until it is
     * closed; for flags and staging. CDDP_ERR_UNAVAILABLE between machines. Collective. */
    cddp_status (*shared)(void *context, size_t bytes, void **out);
};

/* One send or recv of device memory; op->root is the peer, op->number counts those of the ordered
 * pair. */
struct cddpi_plane_message {
    const struct cddpi_group_op *op; /* copied */
    struct cddpi_event *ready;       /* it begins behind this, as it was recorded last */
    struct cddpi_event *done;        /* is recorded where it ends, */
    _Atomic bool *begun; /* which has been done when this becomes true: by any thread, and late if
                            the message is too large for a stream to hold */
};

struct cddpi_plane_ops {
    const char *name;
    /* Collective: every rank succeeds or every rank fails with the same status. Says what is wrong
     * on which rank: two ranks on one device (nccl), versions that differ, no library. */
    cddp_status (*open)(const struct cddpi_plane_seat *seat, struct cddpi_plane **out);
    /* Not collective, does not wait for peers, and ends in bounded time; after abort, too. Any
     * thread, as alloc and free_memory: they choose the device. */
    void (*close)(struct cddpi_plane *plane);
    /* Put @p op into the communication stream. in and out are device memory; kinds: all but send,
     * recv (see message) and barrier may be asked for (CDDP_ERR_UNAVAILABLE for what a plane has
     * not got, always the same on all ranks). Weighted operations bring this rank's weight in
     * op->weight; those of the others travel with the data. Called in the same order by all ranks,
     * by the compute thread; op->number counts them. */
    cddp_status (*enqueue)(struct cddpi_plane *plane, const struct cddpi_group_op *op);
    /* Put @p message under way. It waits for no other operation but earlier ones to, or from, the
     * same peer. A send is done when its receiver has all of it. Counts are the same on both sides,
     * or the group soon aborts. poll moves on what has not begun. NULL: this plane has no messages.
     * CDDP_ERR_UNAVAILABLE: not here, and on no other rank, with the reason. */
    cddp_status (*message)(struct cddpi_plane *plane, const struct cddpi_plane_message *message);
    /* CDDP_OK while nothing is wrong; else what is (asynchronous errors, peers). Any thread; called
     * by the group's watchdog every few milliseconds while operations are under way. */
    cddp_status (*poll)(struct cddpi_plane *plane);
    /* End everything that is under way, so that streams run dry; any thread, from any state. */
    void (*abort)(struct cddpi_plane *plane, const char *reason);
    /* Memory that the plane reduces fastest, zeroed. Collective. All ranks pass the same place of
     * it to an operation (in place: their own part of that), or none does. */
    cddp_status (*alloc)(struct cddpi_plane *plane, size_t bytes, void **out);
    void (*free_memory)(struct cddpi_plane *plane, void *memory);
    /* Whether what it does may be part of a recording (CUDA graph). A failure of enqueue in one is
     * no failure of the plane: see mend. */
    bool (*records)(const struct cddpi_plane *plane);
    /* After a recording came to nothing on some rank, and all recordings are gone: bring the plane
     * to where operations work again. Collective. NULL: they do. */
    cddp_status (*mend)(struct cddpi_plane *plane);
};

#endif
