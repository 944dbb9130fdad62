/* group_device.h - owns a group on a device: operations on device memory, which bypass the queue.
 *
 * An operation is enqueued into the communication stream. It starts after the work that the compute
 * stream held at the call. When the caller waits for it, the compute stream waits for its end; no
 * thread blocks. A watchdog thread monitors the operations in progress: it detects their end,
 * compares what the ranks called, and aborts everything when a rank is gone, a deadline passes or
 * the device fails.
 *
 * Only the calling thread uses these structs and functions, except where a comment says "mutex" or
 * "any thread". */
#ifndef CDDPI_GROUP_DEVICE_DEVICE_H
#define CDDPI_GROUP_DEVICE_DEVICE_H

#include "device/device.h"
#include "group/device_transport.h"
#include "group/engine/group_call.h"
#include "group/group.h"
#include "group/on_device.h"

enum {
    CDDPI_CALLS = 1024,     /* how many operations a rank may be ahead of another */
    CDDPI_P2P_CALLS = 256,  /* how many messages a sender may be ahead of its receiver */
    CDDPI_LABEL_BYTES = 48, /* the purpose of an operation */
    CDDPI_FAILURE_BYTES = 1024
};

/* One operation in the communication stream, or one message (send or recv) outside of it. */
struct cddpi_pending {
    struct cddpi_group_op op;
    struct cddpi_event *done;
    struct cddpi_event *ready; /* messages: recorded in the compute stream at the call; else NULL */
    _Atomic bool begun;        /* messages: `done` was recorded */
    char label[CDDPI_LABEL_BYTES];
    struct cddpi_pending *next; /* in the list of operations in progress, or in the free list */
    bool captured;              /* part of a capture: its end is not seen separately */
    bool under_way;             /* in progress; the mutex guards this and the fields below */
    bool has_handle;            /* the caller has a handle: it must not be reused yet */
    bool compared;              /* messages: send and recv were compared and match */
    uint64_t serial;            /* messages: increases along the list */
    cddp_status status;         /* valid once it has ended */
};

/* What a rank publishes to the others in shared memory. Only that rank writes it. */
struct cddpi_calls {
    _Alignas(64) _Atomic uint64_t called; /* number of operations that it has enqueued */
    _Alignas(64) _Atomic uint64_t ended;  /* the last one that was seen to be done */
    /* up to this operation it has verified that all ranks called the same */
    _Atomic uint64_t compared;
    _Atomic uint32_t end; /* enum cddpi_peer_end */
    int32_t pid;
    uint64_t start_time;
    _Alignas(64) struct cddpi_call calls[CDDPI_CALLS]; /* by number */
};

/* What a rank publishes to a peer about one message, which it sends to the peer or receives from
 * it. Only that rank writes it. */
struct cddpi_p2p_call {
    uint64_t count;
    uint32_t type;
};
struct cddpi_p2p_calls {
    _Alignas(64) _Atomic uint64_t called; /* number of messages so far */
    _Atomic uint64_t ended;               /* the last one that was seen to be done */
    _Atomic uint64_t compared; /* receiver: up to this message both ranks called the same */
    struct cddpi_p2p_call calls[CDDPI_P2P_CALLS]; /* by number */
};

/* A device and the number of groups that use it: parts of a group share the device and its
 * streams. */
struct cddpi_device_ref {
    struct cddpi_device *device;
    _Atomic unsigned groups;
};

/* A block from cddp_group_alloc(), or a block of memory that the ranks of this machine share. */
struct cddpi_device_block {
    struct cddpi_device_block *next;
    void *memory;
    size_t bytes;
};

struct cddpi_group_device {
    cddp_group *group;
    struct cddpi_device_ref *ref;
    struct cddpi_device *device;
    const struct cddpi_transport *row; /* the transport of device memory */
    struct cddpi_device_transport *transport;
    struct cddpi_device_block *blocks; /* blocks of device memory */
    struct cddpi_device_block *shared;
    struct cddpi_event *ready; /* recorded in the compute stream for each operation */
    uint64_t number;           /* of the most recent operation */
    bool capturing;
    uint64_t capture_hash; /* hash of the operations captured so far: see cddpi_group_capture */
    bool deterministic;
    char requested[16]; /* the requested transport; "": any */
    char label[CDDPI_LABEL_BYTES];

    int *host_of;                /* by rank: its host number */
    int host_count;              /* number of hosts of the group's ranks */
    char interfaces[128];        /* network interfaces to the other hosts, in the syntax of
                                    CDDP_SOCKET_IFNAME; "": not known */
    struct cddpi_remote *remote; /* see remote.c; NULL: all ranks are on one host */
    const struct cddpi_remote_ops *remote_ops;
    cddp_group *remote_group; /* a group of the same ranks that `remote` uses */

    /* in memory shared by the ranks of this host; entries of ranks on other hosts are unused */
    struct cddpi_calls *calls; /* by rank */
    /* by rank, then peer: messages to the peer, messages from the peer */
    struct cddpi_p2p_calls *p2p_calls;

    /* the watchdog */
    pthread_t thread;
    pthread_t monitor;
    bool watched; /* the two threads run */
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* signals the watchdog */
    pthread_cond_t over; /* signals the monitor to stop, and a thread that exits: see `asked` */
    bool stop, idle;
    uint64_t asked, answered; /* checks that a thread that exits has asked for; the last one of them
                                 that the watchdog has made since */
    _Atomic int64_t query_start_ns; /* when the watchdog entered its current call of the device; 0:
                                       it is in none */
    struct cddpi_pending *first, *last;  /* in progress, in order */
    struct cddpi_pending *messages;      /* in progress, in the order of their calls */
    uint64_t serial;                     /* serial of the last message */
    _Atomic int64_t messages_checked_ns; /* when the operating system was last asked whether their
                                            peers are alive */
    struct cddpi_pending *starting;      /* being enqueued; a transport may have to wait there */
    struct cddpi_pending *free;
    pthread_mutex_t check_mutex; /* held while a thread checks the transport and the peers */
    /* when the operating system was last asked whether the peers are alive */
    _Atomic int64_t checked_ns;
    _Atomic bool failed;   /* if true, `failure` is set and does not change */
    _Atomic bool reported; /* a call has already returned its status */
    struct cddpi_failure failure;
};

/* --- what the rest of cddp asks --- */

/** CDDP_OK, or the failure that ended the group. Does not wait; cheap. Only for a group on a
 *  device. */
cddp_status cddpi_group_healthy(cddp_group *group);
/** The same after a new check of everything. Once the device has finished, it says whether all
 *  operations completed and none was aborted by a failure. Only for a group on a device. */
cddp_status cddpi_group_verify(cddp_group *group);

/* A captured graph with operations of a group. Ranks that replay different operations get
 * CDDP_ERR_MISMATCH, as with any call. */
struct cddpi_group_capture {
    struct cddpi_captured_graph *work; /* release with the device's graph_destroy */
    uint64_t calls;                    /* a hash of the group's operations in it */
};

/** Whether operations of the group can be part of a capture. Also for groups on the CPU.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE with the reason. */
cddp_status cddpi_group_can_capture(const cddp_group *group);
/** Like the device's capture_begin and capture_end, but the capture includes the group's
 *  operations. All ranks do the same. Only for a group on a device. A failure in between affects
 *  only this rank; it must tell the others before any rank replays. Destroy captured graphs before
 *  the group: while one exists, NCCL does not destroy its communicator, and the group waits for a
 *  while and then leaks it.
 *  @return CDDP_ERR_UNAVAILABLE if the transport's operations cannot be captured; otherwise the
 *  status of the device's call.
 */
cddp_status cddpi_group_capture_begin(cddp_group *group);
cddp_status cddpi_group_capture_end(cddp_group *group, struct cddpi_group_capture *out);
/** Make operations work again after a capture failed on some rank and every rank has destroyed all
 * captured graphs. Collective. */
cddp_status cddpi_group_capture_failed(cddp_group *group);
bool cddpi_group_is_capturing(const cddp_group *group);
/** Replay a captured graph. The watchdog monitors the replay like one operation. */
cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_capture *captured);

/* --- pending.c --- */

/** Get a pending operation for @p op; NULL with an error text on failure. Return it with
 *  cddpi_pending_release(), unless the operation is started without a handle. */
struct cddpi_pending *cddpi_pending_take(struct cddpi_group_device *dev,
                                         const struct cddpi_group_op *op);
/** The call or handle no longer needs @p pending. It is reused; while it is in progress, later. */
void cddpi_pending_release(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Mark @p pending as ended, with the mutex held. It is reused, unless a handle refers to it. */
static inline void cddpi_pending_end(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    pending->under_way = false;
    cddpi_recorder_end(&dev->group->recorder, pending->op.serial, pending->status);
    if (!pending->has_handle) {
        pending->next = dev->free;
        dev->free = pending;
    }
}

/** "all_reduce sum f32 x 100, #12 on the device, bucket 3 of 20" */
void cddpi_pending_title(const struct cddpi_pending *pending, char *out, size_t bytes);
/** Note that @p pending, which has its number, is about to be enqueued. NULL: the enqueueing is
 *  over. */
void cddpi_pending_begin(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Add @p pending, which was enqueued, to the list of operations in progress. */
void cddpi_pending_add(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Add @p op to the current capture. */
void cddpi_group_device_add_captured(struct cddpi_group_device *dev,
                                     const struct cddpi_group_op *op);

/** Abort everything on all ranks because of the stored failure. Returns the status that the caller
 *  shall return. Any thread. */
cddp_status cddpi_group_device_fail(struct cddpi_group_device *dev, cddp_status status);
/** Like cddpi_group_device_fail(), for use in a public call, which returns the result. */
cddp_status cddpi_group_device_fail_call(struct cddpi_group_device *dev, cddp_status status);
/** Put the operation's title before the stored text, and keep it as the failure's operation.
 * Returns
 *  @p status. */
cddp_status cddpi_fail_titled(cddp_status status, const char *title);
/** Like cddpi_group_device_fail_call(), with the operation's title in the text. During a capture it
 *  only returns @p status. */
cddp_status cddpi_pending_fail(struct cddpi_group_device *dev, const struct cddpi_pending *pending,
                               cddp_status status);
/** Find the reason why an operation on CPU memory failed with @p status and the thread's error
 *  text. If the group's device has failed: the status and text of that failure. Any thread. */
cddp_status cddpi_group_device_reason(cddp_group *group, cddp_status status);
/** The status to return for an operation that ended with @p status because of @p failure: the
 *  failure's own status instead of CDDP_ERR_BROKEN, if no call has returned it yet. */
cddp_status cddpi_group_device_tell(struct cddpi_group_device *dev, cddp_status status,
                                    const struct cddpi_failure *failure);
/** CDDP_OK, or the failure: its own status if no call has returned it yet, else CDDP_ERR_BROKEN. */
cddp_status cddpi_group_device_status(struct cddpi_group_device *dev);
/** Fail with the failure that ended everything. Call it once `failed` is set, or with the mutex
 *  held. */
cddp_status cddpi_group_device_failed(const struct cddpi_group_device *dev);

/* --- group_device_open.c --- */

/** Move @p group (new, with all ranks) to the device @p name. Collective: every rank succeeds or
 *  every rank fails.
 *  @param transport  "nccl", "ipc", "staged" or "solo"; "host": the best of ipc and staged; NULL:
 *                    the best.
 *  @param stream     The caller's compute stream; NULL: the device's own. */
cddp_status cddpi_group_device_open(cddp_group *group, const char *name, const char *transport,
                                    bool deterministic, void *stream);
/** The same for an open device with reference count @p ref. The group takes over one of the
 *  caller's references, even if this fails. @p own: this rank's status so far; a failure's text is
 *  stored. */
cddp_status cddpi_group_device_attach(cddp_group *group, struct cddpi_device_ref *ref,
                                      const char *transport, bool deterministic, cddp_status own);
/** Wrap @p device with one reference. NULL: no memory; @p device is then closed. */
struct cddpi_device_ref *cddpi_device_ref_create(struct cddpi_device *device);
/** Put @p made, a part of @p group, on the same device. Collective in @p made. */
cddp_status cddpi_group_device_split(const cddp_group *group, cddp_group *made);
/** Finish or abort the operations in progress, and leave the device. Call it before the queue
 *  ends. */
void cddpi_group_device_close(cddp_group *group);
const char *cddpi_group_device_transport_name(const cddp_group *group);

/* --- group_device.c --- */

/** Start @p op on the device or on the CPU, depending on its memory. */
cddp_status cddpi_group_device_start(cddp_group *group, const struct cddpi_group_op *op,
                                     cddp_work **out);
cddp_status cddpi_group_device_test(cddp_work *work, bool *out_done);
/** Make the compute stream wait for @p work. */
cddp_status cddpi_group_device_order(cddp_work *work);
/** Block the thread until @p work is done, or until @p deadline_ns; 0: its own deadline. */
cddp_status cddpi_group_device_wait(cddp_work *work, int64_t deadline_ns, bool *out_done);
/** Release the device part of the handle. */
void cddpi_group_device_drop(cddp_work *work);

/* --- group_device_memory.c --- */

cddp_status cddpi_group_device_alloc(cddp_group *group, size_t bytes, void **out);
/** Release @p memory; false: it is not device memory. */
bool cddpi_group_device_free(cddp_group *group, void *memory);
void cddpi_group_device_free_all(struct cddpi_group_device *dev);

/* --- group_device_p2p.c --- */

/** Like cddpi_group_device_start(), for send and recv. */
cddp_status cddpi_device_p2p_start(struct cddpi_group_device *dev, const struct cddpi_group_op *op,
                                   cddp_work **out);
/** Make the compute stream wait for the end of @p pending. */
cddp_status cddpi_pending_order(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Wait until the whole message is enqueued, or until @p deadline_ns; 0: its own deadline. A large
 *  message is fully enqueued only after the peer has taken its first pieces; others are at once. */
cddp_status cddpi_device_p2p_await(struct cddpi_group_device *dev,
                                   const struct cddpi_pending *pending, int64_t deadline_ns,
                                   bool *out_begun);
/** Wait until no message is in progress. */
void cddpi_device_p2p_drain(struct cddpi_group_device *dev);
/** Part of cddpi_watchdog_check(). @p query_device: false checks only peers and deadlines. */
cddp_status cddpi_device_p2p_check(struct cddpi_group_device *dev, bool query_device);

/* --- watchdog.c --- */

cddp_status cddpi_watchdog_start(struct cddpi_group_device *dev);
/** Stop the watchdog. First wait for the operations in progress if @p finish, else abort them. */
void cddpi_watchdog_stop(struct cddpi_group_device *dev, bool finish);
/** Before the program exits without leaving the group: publish which operations the device has
 *  done, so that no peer misses this rank for them. Waits for the watchdog until @p deadline_ns.
 *  Call it while the device's library still works. */
void cddpi_watchdog_exit(struct cddpi_group_device *dev, int64_t deadline_ns);
/** Whether the event @p done has passed; an error if it passed only because everything was
 *  aborted. */
cddp_status cddpi_watchdog_query(struct cddpi_group_device *dev, struct cddpi_event *done,
                                 bool *out_done);
/** Remove finished operations from the list, and abort everything if something is wrong. Any
 *  thread. */
void cddpi_watchdog_check(struct cddpi_group_device *dev);

/** Whether @p rank is on this rank's host, and so sees the shared memory. */
static inline bool cddpi_device_is_here(const struct cddpi_group_device *dev, int rank)
{
    return dev->host_of[rank] == dev->host_of[dev->group->rank];
}

/* --- calls.c --- */

static inline struct cddpi_calls *cddpi_own_calls(const struct cddpi_group_device *dev)
{
    return &dev->calls[dev->group->rank];
}

/** Give @p pending the next number, and publish its call to the other ranks. Waits only for ranks
 *  that are CDDPI_CALLS operations behind. */
cddp_status cddpi_calls_publish(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Compare the calls that all ranks have made and that were not compared yet. */
cddp_status cddpi_calls_compare(struct cddpi_group_device *dev);
/** Tell the other ranks that the program exits without leaving the group. */
void cddpi_calls_exit(struct cddpi_group_device *dev);
/** Whether @p rank still takes part; @p thorough also asks the operating system. @p title names the
 *  operation that needs the rank. */
cddp_status cddpi_calls_check_peer(const struct cddpi_group_device *dev, int rank, bool thorough,
                                   const char *title);

/* --- remote.c: what ranks of several hosts exchange about their calls on devices. If all ranks are
 * on one host, there is no such exchange and each function does nothing. Calls go through a table:
 * this code uses the collectives, and the collectives use its callers. --- */

struct cddpi_remote_ops {
    cddp_status (*start)(struct cddpi_remote *remote);
    cddp_status (*call)(struct cddpi_remote *remote, const struct cddpi_pending *pending);
    void (*abort)(struct cddpi_remote *remote, const struct cddpi_failure *failure);
    void (*stop)(struct cddpi_remote *remote, bool finish);
};

/** Not collective. @p group has the same ranks as that of @p dev and is used for nothing else. The
 *  caller owns it and keeps it until the remote is destroyed.
 *  @param out  Release with cddpi_remote_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_remote_create(struct cddpi_group_device *dev, cddp_group *group,
                                             struct cddpi_remote **out);
void cddpi_remote_destroy(struct cddpi_remote *remote);
/** Run @p op on CPU memory among all ranks, and wait until it is done. Call it only from host_part
 *  of the device transport, in the same order on all ranks. */
cddp_status cddpi_remote_collective(struct cddpi_remote *remote, const struct cddpi_group_op *op);

/** Start the thread, after everything else of @p dev is set up. Not collective. */
static inline cddp_status cddpi_remote_start(struct cddpi_group_device *dev)
{
    return dev->remote != NULL ? dev->remote_ops->start(dev->remote) : CDDP_OK;
}

/** Compare the call of @p pending, which has its number, with the calls of all ranks, and do the
 *  CPU's part of the operation. The thread does both, in the order of these calls. */
static inline cddp_status cddpi_remote_call(struct cddpi_group_device *dev,
                                            const struct cddpi_pending *pending)
{
    return dev->remote != NULL ? dev->remote_ops->call(dev->remote, pending) : CDDP_OK;
}

/** Abort on all ranks, because @p failure ended the group. Any thread. */
static inline void cddpi_remote_abort(struct cddpi_group_device *dev,
                                      const struct cddpi_failure *failure)
{
    if (dev->remote != NULL) {
        dev->remote_ops->abort(dev->remote, failure);
    }
}

/** Stop the thread. First complete the remaining operations if @p finish, else abort them. */
static inline void cddpi_remote_stop(struct cddpi_group_device *dev, bool finish)
{
    if (dev->remote != NULL) {
        dev->remote_ops->stop(dev->remote, finish);
    }
}

#endif
