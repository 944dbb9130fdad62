/* group_device.h - a group on a device: operations on its memory, which run beside the queue.
 *
 * An operation is put into the communication stream, behind what the compute stream held when it
 * was called; the compute stream goes on behind it once it is waited for. No thread waits for that.
 * A watchdog thread looks after what is under way: it sees operations end, compares what the
 * ranks called, and ends everything when a rank is gone, a deadline passes or the device fails.
 *
 * Everything is the calling thread's, except where the mutex or "any thread" is said. */
#ifndef CDDPI_GROUP_DEVICE_DEVICE_H
#define CDDPI_GROUP_DEVICE_DEVICE_H

#include "device/device.h"
#include "group/device_transport.h"
#include "group/engine/group_call.h"
#include "group/group.h"
#include "group/on_device.h"

enum {
    CDDPI_CALLS = 1024,     /* by how many operations ranks may be apart */
    CDDPI_P2P_CALLS = 256,  /* by how many messages a receiver may be behind its sender */
    CDDPI_LABEL_BYTES = 48, /* of what an operation is for */
    CDDPI_FAILURE_BYTES = 1024
};

/* One operation in the communication stream, or a message (send or recv) beside it. */
struct cddpi_pending {
    struct cddpi_group_op op;
    struct cddpi_event *done;
    struct cddpi_event *ready; /* messages: what the compute stream held; else NULL */
    _Atomic bool begun;        /* messages: `done` was recorded */
    char label[CDDPI_LABEL_BYTES];
    struct cddpi_pending *next; /* among those under way, or those to be used again */
    bool captured;              /* part of a capture: it has no end of its own */
    bool under_way;             /* from here on the mutex guards */
    bool has_handle;            /* of the caller's: it is not to be used again yet */
    bool compared;              /* messages: what is received is what the peer sends */
    uint64_t serial;            /* messages: grows along the list */
    cddp_status status;         /* once it is no longer under way */
};

/* What a rank tells the others, in shared memory. Written by that rank alone. */
struct cddpi_calls {
    _Alignas(64) _Atomic uint64_t called; /* operations that it has put into its stream */
    _Alignas(64) _Atomic uint64_t ended;  /* the last one that was seen to be done */
    _Atomic uint64_t compared;            /* up to here it has seen that all called the same */
    _Atomic uint32_t end;                 /* enum cddpi_peer_end */
    int32_t pid;
    uint64_t start_time;
    _Alignas(64) struct cddpi_call calls[CDDPI_CALLS]; /* by number */
};

/* What a rank tells a peer about one message: it sends it to the peer, or receives it from there.
 * Written by that rank alone. */
struct cddpi_p2p_call {
    uint64_t count;
    uint32_t type;
};
struct cddpi_p2p_calls {
    _Alignas(64) _Atomic uint64_t called;         /* messages so far */
    _Atomic uint64_t ended;                       /* the last one that was seen to be done */
    _Atomic uint64_t compared;                    /* receiver: up to here both called the same */
    struct cddpi_p2p_call calls[CDDPI_P2P_CALLS]; /* by number */
};

/* A device with a count of its groups: parts of a group use the same device and streams. */
struct cddpi_device_ref {
    struct cddpi_device *device;
    _Atomic unsigned groups;
};

/* A block of cddp_group_alloc(), or of memory that this machine's ranks share. */
struct cddpi_device_block {
    struct cddpi_device_block *next;
    void *memory;
    size_t bytes;
};

struct cddpi_group_device {
    cddp_group *group;
    struct cddpi_device_ref *ref;
    struct cddpi_device *device;
    const struct cddpi_transport *row; /* of the device's memory */
    struct cddpi_device_transport *transport;
    struct cddpi_device_block *blocks; /* the device's */
    struct cddpi_device_block *shared;
    struct cddpi_event *ready; /* what the compute stream held; recorded for each operation anew */
    uint64_t number;           /* of the last operation */
    bool capturing;
    uint64_t capture_hash; /* tells apart what is being captured: see cddpi_group_capture */
    bool deterministic;
    char requested[16]; /* the transport that was asked for; "": any */
    char label[CDDPI_LABEL_BYTES];

    int *host_of;         /* by rank: numbers of hosts */
    int host_count;       /* of the group's ranks */
    char interfaces[128]; /* that lead to the other hosts, as CDDP_SOCKET_IFNAME; "": not known */
    struct cddpi_remote *remote; /* see remote.h; NULL: all ranks are on one host */
    const struct cddpi_remote_ops *remote_ops;
    cddp_group *remote_group; /* of the same ranks, for it */

    /* shared with the ranks of this host: those of other hosts write nothing there */
    struct cddpi_calls *calls;         /* by rank */
    struct cddpi_p2p_calls *p2p_calls; /* by rank, then peer: to it, from it */

    /* the watchdog */
    pthread_t thread;
    pthread_t monitor;
    bool watched; /* the threads run */
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* to the watchdog */
    pthread_cond_t over; /* to the monitor: stop */
    bool stop, idle;
    _Atomic int64_t
        query_start_ns; /* since when the watchdog is in a call of the device; 0: it is not */
    struct cddpi_pending *first, *last;  /* under way, in order */
    struct cddpi_pending *messages;      /* under way, in the order of their calls */
    uint64_t serial;                     /* of the last message */
    _Atomic int64_t messages_checked_ns; /* when the system was last asked about their peers */
    struct cddpi_pending
        *starting; /* being put into the stream, where a transport may have to wait */
    struct cddpi_pending *free;
    pthread_mutex_t check_mutex; /* one thread at a time asks transport and peers */
    _Atomic int64_t checked_ns;  /* when the system was last asked about peers */
    _Atomic bool failed;         /* then `failure` is set and does not change */
    _Atomic bool reported;       /* the caller has had a status of it */
    struct cddpi_failure failure;
};

/* --- what the rest of cddp asks --- */

/** CDDP_OK, or the failure that ended the group; does not wait, and is cheap. Only on a device. */
cddp_status cddpi_group_healthy(cddp_group *group);
/** The same after a new look at everything: once the device has finished, it tells whether all
 *  operations were done, and none was ended by a failure. Only on a device. */
cddp_status cddpi_group_verify(cddp_group *group);

/* What a group has captured. Ranks that replay different operations get CDDP_ERR_MISMATCH, as at
 * any call. */
struct cddpi_group_capture {
    struct cddpi_captured_graph *work; /* release with graph_destroy of the device */
    uint64_t calls;                    /* a hash of the group's operations in it */
};

/** Whether operations of the group can be part of a capture. Also on the processor.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why not. */
cddp_status cddpi_group_can_capture(const cddp_group *group);
/** As capture_begin and capture_end of the device, with the operations of the group as part of the
 *  capture. All ranks do the same. Only on a device. A failure in between is this rank's alone: it
 *  has to tell the others before any of them replays. Captured graphs are destroyed before the
 *  group: while there are any, NCCL does not destroy their communicator, and the group, after
 *  waiting, leaves it behind.
 *  @return CDDP_ERR_UNAVAILABLE when the transport's operations cannot be captured; else as these.
 */
cddp_status cddpi_group_capture_begin(cddp_group *group);
cddp_status cddpi_group_capture_end(cddp_group *group, struct cddpi_group_capture *out);
/** After a capture failed on some rank, and all captured graphs were destroyed on all:
 * operations work again. Collective. */
cddp_status cddpi_group_capture_failed(cddp_group *group);
bool cddpi_group_is_capturing(const cddp_group *group);
/** Do what was captured; the watchdog looks after it as after one operation. */
cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_capture *captured);

/* --- pending.c --- */

/** A pending operation for @p op; NULL with a text: it could not be made. It is given back with
 *  cddpi_pending_put(), unless it gets under way. */
struct cddpi_pending *cddpi_pending_take(struct cddpi_group_device *dev,
                                         const struct cddpi_group_op *op);
void cddpi_pending_put(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** With the mutex: @p pending is no longer under way. It may be used again, unless a handle has it.
 */
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
/** @p pending has its number and is about to be put into the stream (NULL: that is over). */
void cddpi_pending_begin(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** @p pending was put into the stream. */
void cddpi_pending_add(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** @p op becomes a part of what is being captured. */
void cddpi_group_device_add_captured(struct cddpi_group_device *dev,
                                     const struct cddpi_group_op *op);

/** End everything, here and on all ranks, because of the stored failure. Returns the status that
 *  the caller is to give. Any thread. */
cddp_status cddpi_group_device_fail(struct cddpi_group_device *dev, cddp_status status);
/** As cddpi_group_device_fail(), by a call of the caller's, which returns what this gives. */
cddp_status cddpi_group_device_fail_call(struct cddpi_group_device *dev, cddp_status status);
/** As cddpi_group_device_fail_call(), with the operation's title; in a capture it only returns
 *  @p status. */
cddp_status cddpi_pending_fail(struct cddpi_group_device *dev, const struct cddpi_pending *pending,
                               cddp_status status);
/** An operation on the processor's memory failed with @p status and the thread's text. If that is
 *  because the group's device has failed: the status and text of that failure. Any thread. */
cddp_status cddpi_group_device_reason(cddp_group *group, cddp_status status);
/** What the caller is to be given for something that @p status ended because of @p failure: the
 *  failure's own status in the place of CDDP_ERR_CLOSED, if it has had nothing of it yet. */
cddp_status cddpi_group_device_tell(struct cddpi_group_device *dev, cddp_status status,
                                    const struct cddpi_failure *failure);
/** CDDP_OK, or the failure: if the caller has had nothing of it yet as it is, else as
 *  CDDP_ERR_CLOSED. */
cddp_status cddpi_group_device_status(struct cddpi_group_device *dev);
/** Fail with the failure that ended everything. Once `failed` is set, or with the mutex. */
cddp_status cddpi_group_device_failed(const struct cddpi_group_device *dev);

/* --- group_device_open.c --- */

/** Put @p group (a new one, of all ranks) on the device @p name. Collective: every rank succeeds or
 *  every rank fails.
 *  @param transport  "nccl", "ipc", "staged" or "solo"; "host": the best of ipc and staged; NULL:
 *                    the best.
 *  @param stream     The caller's compute stream; NULL: the device's own. */
cddp_status cddpi_group_device_open(cddp_group *group, const char *name, const char *transport,
                                    bool deterministic, void *stream);
/** The same on an open device, which @p ref counts; a reference of the caller's goes to the group,
 *  also when this fails. @p own: this rank's failure so far, whose text is stored. */
cddp_status cddpi_group_device_attach(cddp_group *group, struct cddpi_device_ref *ref,
                                      const char *transport, bool deterministic, cddp_status own);
/** The device, with one reference; NULL: no memory, and @p device is closed. */
struct cddpi_device_ref *cddpi_device_ref_create(struct cddpi_device *device);
/** Put @p made, a part of @p group, on the same device. Collective in @p made. */
cddp_status cddpi_group_device_split(const cddp_group *group, cddp_group *made);
/** Finish or end what is under way, and leave the device. Before the queue ends. */
void cddpi_group_device_close(cddp_group *group);
const char *cddpi_group_device_transport_name(const cddp_group *group);

/* --- group_device.c --- */

/** Start @p op where its memory is. */
cddp_status cddpi_group_device_start(cddp_group *group, const struct cddpi_group_op *op,
                                     cddp_work **out);
cddp_status cddpi_group_device_test(cddp_work *work, bool *out_done);
cddp_status cddpi_group_device_wait(cddp_work *work, uint32_t timeout_ms);
/** Destroy the handle's part on the device. */
void cddpi_group_device_drop(cddp_work *work);

/* --- group_device_memory.c --- */

cddp_status cddpi_group_device_alloc(cddp_group *group, size_t bytes, void **out);
/** Release @p memory; false: it is not the device's. */
bool cddpi_group_device_free(cddp_group *group, void *memory);
void cddpi_group_device_free_all(struct cddpi_group_device *dev);

/* --- group_device_p2p.c --- */

/** As cddpi_group_device_start(), for send and recv. */
cddp_status cddpi_device_p2p_start(struct cddpi_group_device *dev, const struct cddpi_group_op *op,
                                   cddp_work **out);
/** The compute stream goes on behind @p pending. */
cddp_status cddpi_pending_order(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Wait, at most @p timeout_ms if that is not 0, until all of the message is in its stream. A large
 *  one is only when the peer has taken its first pieces; others are at once. */
cddp_status cddpi_device_p2p_await(struct cddpi_group_device *dev,
                                   const struct cddpi_pending *pending, uint32_t timeout_ms);
/** Wait until no message is under way. */
void cddpi_device_p2p_drain(struct cddpi_group_device *dev);
/** Part of cddpi_watchdog_check(). @p query_device: false only looks after peers and deadlines. */
cddp_status cddpi_device_p2p_check(struct cddpi_group_device *dev, bool query_device);

/* --- watchdog.c --- */

cddp_status cddpi_watchdog_start(struct cddpi_group_device *dev);
/** Wait for what is under way if @p finish, else end it; then stop. */
void cddpi_watchdog_stop(struct cddpi_group_device *dev, bool finish);
/** Whether @p done has passed; an error if that is only because everything was ended early. */
cddp_status cddpi_watchdog_query(struct cddpi_group_device *dev, struct cddpi_event *done,
                                 bool *out_done);
/** Take finished operations off the list, and end everything if something is wrong. Any thread. */
void cddpi_watchdog_check(struct cddpi_group_device *dev);

/** Whether rank @p rank is on this rank's host, so that it sees the shared memory. */
static inline bool cddpi_device_is_here(const struct cddpi_group_device *dev, int rank)
{
    return dev->host_of[rank] == dev->host_of[dev->group->rank];
}

/* --- calls.c --- */

static inline struct cddpi_calls *cddpi_own_calls(const struct cddpi_group_device *dev)
{
    return &dev->calls[dev->group->rank];
}

/** Give @p pending the next number, and publish its call to the others. Waits only for ranks that
 *  are CDDPI_CALLS operations behind. */
cddp_status cddpi_calls_publish(struct cddpi_group_device *dev, struct cddpi_pending *pending);
/** Compare the calls that all ranks have made by now and that were not compared yet. */
cddp_status cddpi_calls_compare(struct cddpi_group_device *dev);
/** The program ends without leaving the group: say so. */
void cddpi_calls_exit(struct cddpi_group_device *dev);
/** Whether rank @p rank is still there; @p thorough asks the system. @p title: of the operation
 *  that needs it. */
cddp_status cddpi_calls_check_peer(const struct cddpi_group_device *dev, int rank, bool thorough,
                                   const char *title);

#endif
