/* device_transport.h - what a transport of a device's memory does for a group.
 *
 * A group on a CUDA device has two ways to talk. Its backend (host: shared memory) carries what
 * lies in the processor's memory: manifests, step statuses, the transports' own set-up. The
 * device's transport carries what lies in device memory, in the communication stream, ordered
 * against the compute stream by events; the group does that ordering (group/device/group_device.c),
 * a transport only puts work into CDDPI_STREAM_COMM. No call here waits for a peer or for the
 * device, but open and alloc; and NCCL's first operations, which connect the ranks.
 *
 * Transports: "nccl"; "ipc" (ranks of one machine whose devices can reach each other's memory, one
 * device among them: CUDA IPC and kernels that reduce in fixed order); "staged" (through pinned
 * shared memory, in pieces; between hosts by the group's backend). */
#ifndef CDDPI_GROUP_DEVICE_TRANSPORT_H
#define CDDPI_GROUP_DEVICE_TRANSPORT_H

#include "device/device.h"
#include "group/operation.h"

struct cddpi_device_transport;

/* What a transport gets from the group when it is opened: who the ranks are, and blocking exchanges
 * of small structs over the backend, in the processor's memory. These are collective. */
struct cddpi_device_open_params {
    int rank, world_size;
    int local_rank, local_world_size;
    int host, host_count;   /* this rank's number; of all ranks */
    const char *interfaces; /* of the network, that lead to the other hosts, in the syntax of
                               CDDP_SOCKET_IFNAME; NULL: not known */
    const char *host_id;    /* that the user has named; NULL: none */
    uint32_t timeout_ms;
    bool deterministic; /* fixed order and 16-bit types accumulated in f32, whatever it costs */
    struct cddpi_device *device;
    void *context;
    cddp_status (*exchange)(void *context, const void *own, size_t bytes, void *out_all);
    /* Make one outcome of all ranks' @p own, whose failure is the thread's last: see cddpi_agree().
     */
    cddp_status (*agree)(void *context, cddp_status own);
    /* Memory that all ranks of this machine share, zeroed, at the transport's disposal until it is
     * closed; for flags and staging. Collective among all ranks. */
    cddp_status (*shared)(void *context, size_t bytes, void **out);
    /* Do @p op, whose memory is the processor's, among all ranks, and wait for its end. Only from
     * host_part. */
    cddp_status (*collective)(void *context, const struct cddpi_group_op *op);
};

/* One send or recv of device memory; op->root is the peer, op->number counts those of the ordered
 * pair. */
struct cddpi_p2p_message {
    const struct cddpi_group_op *op; /* copied */
    struct cddpi_event *ready;       /* it begins after this event, as it was recorded last */
    struct cddpi_event *done;        /* is recorded where it ends */
    _Atomic bool *begun; /* becomes true once `done` was recorded: by any thread, and late if the
                            message is too large for a stream to hold */
};

/* What an open transport does; struct cddpi_transport opens it. */
struct cddpi_device_transport_ops {
    /* Not collective, does not wait for peers, and ends in bounded time; after abort, too. Any
     * thread, as alloc and free_memory: they choose the device. */
    void (*close)(struct cddpi_device_transport *transport);
    /* Put @p op into the communication stream. in and out are device memory; kinds: all but send,
     * recv (see message) and barrier may be asked for (CDDP_ERR_UNAVAILABLE for what a transport
     * has not got, always the same on all ranks). Weighted operations bring this rank's weight in
     * op->weight; those of the others travel with the data. Called in the same order by all ranks,
     * by the compute thread; op->number counts them. */
    cddp_status (*enqueue)(struct cddpi_device_transport *transport,
                           const struct cddpi_group_op *op);
    /* Put @p message under way. It waits for no other operation but earlier ones to, or from, the
     * same peer. A send is done when its receiver has all of it. Both ranks pass the same count, or
     * the group soon aborts. poll starts what has not begun. NULL: this transport has no messages.
     * CDDP_ERR_UNAVAILABLE: no rank can send here; the text says why. */
    cddp_status (*message)(struct cddpi_device_transport *transport,
                           const struct cddpi_p2p_message *message);
    /* CDDP_OK while nothing is wrong; else what is (asynchronous errors, peers). Any thread; called
     * by the group's watchdog every few milliseconds while operations are under way. */
    cddp_status (*poll)(struct cddpi_device_transport *transport);
    /* End everything that is under way, so that streams run dry; any thread, from any state. */
    void (*abort)(struct cddpi_device_transport *transport, const char *reason);
    /* The program ends without closing the group: tell the peers, by setting flags and nothing
     * else. NULL: there is nothing to tell. */
    void (*exits)(struct cddpi_device_transport *transport);
    /* Memory that the transport reduces fastest, zeroed. Collective. All ranks pass the same place
     * of it to an operation (in place: their own part of that), or none does. */
    cddp_status (*alloc)(struct cddpi_device_transport *transport, size_t bytes, void **out);
    void (*free_memory)(struct cddpi_device_transport *transport, void *memory);
    /* Whether what it does may be part of a capture (CUDA graph). A failure of enqueue in one is
     * no failure of the transport: see recover. */
    bool (*can_capture)(const struct cddpi_device_transport *transport);
    /* The part of an operation that was enqueued, or is just being so, which the processor does
     * where ranks are on several hosts. Called in the order of operations, by a thread that may
     * wait; ends soon after abort. NULL: there is none. */
    cddp_status (*host_part)(struct cddpi_device_transport *transport,
                             const struct cddpi_group_op *op);
    /* After a capture failed on some rank, and all captured graphs are destroyed: make operations
     * work again. Collective. NULL: they do already. */
    cddp_status (*recover)(struct cddpi_device_transport *transport);
};

/* What all device transports begin with: an implementation embeds it as its first member. */
struct cddpi_device_transport {
    const struct cddpi_device_transport_ops *ops;
};

#endif
