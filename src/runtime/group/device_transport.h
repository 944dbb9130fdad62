/* device_transport.h - owns the device transport interface: how a group moves data in device
 * memory.
 *
 * A group on a CUDA device communicates in two ways. Its backend (host: shared memory) carries data
 * in CPU memory: manifests, step statuses, the set-up of transports. The device transport carries
 * data in device memory, in the communication stream. Events order that stream against the compute
 * stream; the group does this (group/device/group_device.c). A transport only enqueues work into
 * CDDPI_STREAM_COMM. Its calls wait neither for a peer nor for the device, except open, alloc and
 * NCCL's first operations, which connect the ranks.
 *
 * Transports: "nccl"; "ipc" (ranks of one machine whose devices can access each other's memory, or
 * that share one device: CUDA IPC and kernels that reduce in a fixed order); "staged" (copies
 * through pinned shared memory, in pieces; between hosts through the group's backend). */
#ifndef CDDPI_GROUP_DEVICE_TRANSPORT_H
#define CDDPI_GROUP_DEVICE_TRANSPORT_H

#include "device/device.h"
#include "group/operation.h"

struct cddpi_device_transport;

/* What a transport gets from the group when it is opened: the ranks, and blocking exchanges of
 * small structs in CPU memory over the backend. The exchanges are collective. */
struct cddpi_device_open_params {
    int rank, world_size;
    int local_rank, local_world_size;
    int host, host_count;   /* this rank's host number; number of hosts of all ranks */
    const char *interfaces; /* network interfaces to the other hosts, in the syntax of
                               CDDP_SOCKET_IFNAME; NULL: not known */
    const char *host_id;    /* set by the user; NULL: not set */
    uint32_t timeout_ms;
    /* reduce in a fixed order and accumulate 16-bit types in f32, at any cost */
    bool deterministic;
    struct cddpi_device *device;
    void *context;
    cddp_status (*exchange)(void *context, const void *own, size_t bytes, void *out_all);
    /* Agree on one status from all ranks' @p own, whose text is the thread's last error: see
     * cddpi_agree().
     */
    cddp_status (*agree)(void *context, cddp_status own);
    /* Get zeroed memory that all ranks of this machine share, for flags and staging. The transport
     * may use it until it is closed. Collective among all ranks. */
    cddp_status (*shared)(void *context, size_t bytes, void **out);
    /* Run @p op on CPU memory among all ranks, and wait until it is done. Only from host_part. */
    cddp_status (*collective)(void *context, const struct cddpi_group_op *op);
};

/* One send or recv of device memory; op->root is the peer; op->number counts the messages from one
 * rank of the pair to the other. */
struct cddpi_p2p_message {
    const struct cddpi_group_op *op; /* copied */
    struct cddpi_event *ready;       /* starts after the last recording of this event */
    struct cddpi_event *done;        /* recorded at its end */
    _Atomic bool *begun; /* becomes true once `done` was recorded, by any thread; late if the
                            message is too large to be enqueued at once */
};

/* The calls of an open device transport; struct cddpi_transport opens it. */
struct cddpi_device_transport_ops {
    /* Not collective; does not wait for peers; ends in bounded time, also after abort. Any thread
     * may call close, alloc and free_memory: they select the device themselves. */
    void (*close)(struct cddpi_device_transport *transport);
    /* Enqueue @p op into the communication stream. in and out are device memory. All kinds are
     * possible except send and recv (see message) and barrier. A kind that the transport lacks
     * gives CDDP_ERR_UNAVAILABLE, always on all ranks. For weighted operations, op->weight is this
     * rank's weight; the other ranks' weights travel with the data. The compute thread calls this,
     * in the same order on all ranks; op->number counts the operations. */
    cddp_status (*enqueue)(struct cddpi_device_transport *transport,
                           const struct cddpi_group_op *op);
    /* Start @p message. It waits only for earlier messages to or from the same peer. A send is done
     * when its receiver has all the data. Both ranks pass the same count; otherwise the group soon
     * aborts. poll starts messages that have not begun. NULL: this transport has no messages.
     * CDDP_ERR_UNAVAILABLE: no rank can send here; the text says why. */
    cddp_status (*message)(struct cddpi_device_transport *transport,
                           const struct cddpi_p2p_message *message);
    /* CDDP_OK while nothing is wrong, else the error (asynchronous, or of a peer). Any thread. The
     * group's watchdog calls it every few milliseconds while operations are in progress. */
    cddp_status (*poll)(struct cddpi_device_transport *transport);
    /* End all operations in progress, so that the streams become empty. Any thread, in any
     * state. */
    void (*abort)(struct cddpi_device_transport *transport, const char *reason);
    /* The program exits without closing the group: tell the peers, only by setting flags. NULL: no
     * peer needs this. */
    void (*exits)(struct cddpi_device_transport *transport);
    /* Allocate zeroed memory that the transport reduces fastest. Collective. Either all ranks pass
     * the same place in it to an operation (in place: their own part of that place), or no rank
     * does. */
    cddp_status (*alloc)(struct cddpi_device_transport *transport, size_t bytes, void **out);
    void (*free_memory)(struct cddpi_device_transport *transport, void *memory);
    /* Whether its operations can be part of a capture (CUDA graph). A failure of enqueue during a
     * capture does not break the transport: see recover. */
    bool (*can_capture)(const struct cddpi_device_transport *transport);
    /* Do the CPU's part of an operation when ranks are on several hosts. The operation was
     * enqueued, or is being enqueued now. Called in the order of operations, by a thread that may
     * wait; ends soon after abort. NULL: there is no such part. */
    cddp_status (*host_part)(struct cddpi_device_transport *transport,
                             const struct cddpi_group_op *op);
    /* Make operations work again after a capture failed on some rank and all captured graphs were
     * destroyed. Collective. NULL: nothing has to be done. */
    cddp_status (*recover)(struct cddpi_device_transport *transport);
};

/* The base of every device transport: an implementation embeds it as its first member. */
struct cddpi_device_transport {
    const struct cddpi_device_transport_ops *ops;
};

#endif
