/* device.h - a group on a device: operations on its memory, which run beside the queue.
 *
 * An operation is put into the communication stream, behind what the compute stream held when it
 * was called; the compute stream goes on behind it once it is waited for. No thread waits on that
 * way. A watchdog thread looks after what is under way: it sees operations end, compares what the
 * ranks called, and ends everything when a rank is gone, a deadline passes or the device fails.
 *
 * Everything is the calling thread's, except where the mutex or "any thread" is said. */
#ifndef CDDPI_GROUP_DEVICE_H
#define CDDPI_GROUP_DEVICE_H

#include "device/device.h"
#include "group/group.h"
#include "group/host/host.h"
#include "group/on_device.h"
#include "group/plane.h"

enum {
    CDDPI_CALLS = 1024,     /* by how many operations ranks may be apart */
    CDDPI_POSTS = 256,      /* by how many messages a receiver may be behind its sender */
    CDDPI_LABEL_BYTES = 48, /* of what an operation is for */
    CDDPI_FAILURE_BYTES = 1024
};

/* One operation in the communication stream, or a message (send or recv) beside it. */
struct cddpi_flight {
    struct cddpi_group_op op;
    struct cddpi_event *done;
    struct cddpi_event *ready; /* messages: what the compute stream held; else NULL */
    _Atomic bool begun;        /* messages: `done` was recorded */
    char label[CDDPI_LABEL_BYTES];
    struct cddpi_flight *next; /* among those under way, or those to be used again */
    bool recorded;             /* part of a recording: it has no end of its own */
    bool under_way;            /* from here on the mutex guards */
    bool held;                 /* by a handle */
    bool compared;             /* messages: what is received is what the peer sends */
    uint64_t serial;           /* messages: grows along the row */
    cddp_status status;        /* once it is no longer under way */
};

/* What a rank tells the others, in shared memory. Written by that rank alone. */
struct cddpi_calls {
    _Alignas(64) _Atomic uint64_t called; /* operations that it has put into its stream */
    _Alignas(64) _Atomic uint64_t ended;  /* the last one that was seen to be done */
    _Atomic uint64_t compared;            /* up to here it has seen that all called the same */
    _Atomic uint32_t left;
    int32_t pid;
    uint64_t start_time;
    _Alignas(64) struct host_descriptor calls[CDDPI_CALLS]; /* by number */
};

/* What a rank tells a peer of what it sends there, or of what it receives from there. Written by
 * that rank alone. */
struct cddpi_posted {
    uint64_t count;
    uint32_t type;
};
struct cddpi_post {
    _Alignas(64) _Atomic uint64_t called;   /* messages so far */
    _Atomic uint64_t ended;                 /* the last one that was seen to be done */
    _Atomic uint64_t compared;              /* received: up to here it is what was sent */
    struct cddpi_posted calls[CDDPI_POSTS]; /* by number */
};

/* Streams belong to a device, so groups that are split off work in the same ones. */
struct cddpi_device_hold {
    struct cddpi_device *device;
    _Atomic unsigned groups;
};

/* Memory of cddp_group_alloc(), or that this machine's ranks share. */
struct cddpi_device_block {
    struct cddpi_device_block *next;
    void *memory;
    size_t bytes;
};

struct cddpi_group_device {
    cddp_group *group;
    struct cddpi_device_hold *hold;
    struct cddpi_device *device;
    const struct cddpi_plane_ops *ops;
    struct cddpi_plane *plane;
    struct cddpi_device_block *blocks; /* the device's */
    struct cddpi_device_block *shared;
    struct cddpi_event *ready; /* what the compute stream held; recorded for each operation anew */
    uint64_t number;           /* of the last operation */
    bool recording;
    uint64_t recorded; /* tells apart what is being recorded: see cddpi_group_recording */
    bool deterministic;
    char wish[16]; /* the plane that was asked for; "": any */
    char label[CDDPI_LABEL_BYTES];

    struct cddpi_calls *calls; /* shared, by rank */
    struct cddpi_post *posts;  /* shared, by rank, then peer: to it, from it */

    /* the watchdog */
    pthread_t thread;
    pthread_t monitor;
    bool watched; /* the threads run */
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* to the watchdog */
    pthread_cond_t over; /* to the monitor: stop */
    bool stop, idle;
    _Atomic int64_t asked_ns; /* since when the watchdog is in a call of the device; 0: it is not */
    struct cddpi_flight *first, *last;  /* under way, in order */
    struct cddpi_flight *messages;      /* under way, in the order of their calls */
    uint64_t serial;                    /* of the last message */
    _Atomic int64_t messages_looked_ns; /* when the system was last asked about their peers */
    struct cddpi_flight *starting; /* being put into the stream, where a plane may have to wait */
    struct cddpi_flight *free;
    pthread_mutex_t looking;   /* one thread at a time asks plane and peers */
    _Atomic int64_t looked_ns; /* when the system was last asked about peers */
    _Atomic bool failed;       /* then `failure` and its text are set and do not change */
    bool told;                 /* the caller has had `failure` */
    cddp_status failure;
    char failure_text[CDDPI_FAILURE_BYTES];
};

/* --- what the rest of cddp asks --- */

/** CDDP_OK, or why nothing works any more; does not wait, costs next to nothing. Only on a device.
 */
cddp_status cddpi_group_healthy(cddp_group *group);
/** The same, and looks anew: once the device has finished, whether all that was called was done,
 * and not ended by a failure. Only on a device. */
cddp_status cddpi_group_verify(cddp_group *group);

/* What a group has recorded. Ranks that replay different operations are told, as at any call. */
struct cddpi_group_recording {
    struct cddpi_recording *work; /* release with recording_destroy of the device */
    uint64_t calls;               /* a hash of the group's operations in it */
};

/** Whether operations of the group can be part of a recording. Also on the processor.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why not. */
cddp_status cddpi_group_records(const cddp_group *group);
/** As record_begin and record_end of the device, with the operations of the group as part of the
 *  recording. All ranks do the same. Only on a device. What fails in between harms nobody: it is
 *  this rank's alone, which has to tell the others before any of them replays. Recordings go before
 *  the group: NCCL lets no communicator go while there are any with its work (the group then leaves
 *  it behind, late).
 *  @return CDDP_ERR_UNAVAILABLE when the plane's operations cannot be recorded; else as these. */
cddp_status cddpi_group_record_begin(cddp_group *group);
cddp_status cddpi_group_record_end(cddp_group *group, struct cddpi_group_recording *out);
/** After a recording came to nothing on some rank, and all recordings were destroyed on all:
 * operations work again. Collective. */
cddp_status cddpi_group_record_failed(cddp_group *group);
bool cddpi_group_is_recording(const cddp_group *group);
/** Do what was recorded; the watchdog looks after it as after one operation. */
cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_recording *recording);

/* --- device_open.c --- */

/** Put @p group (a fresh one, of all ranks) on the device @p name, with the plane that @p plane
 *  stands for: "nccl", "ipc", "staged", "solo"; "host": the best of ipc and staged; NULL: the best.
 *  @p stream: the caller's, for compute; NULL: the device's own. Collective: every rank succeeds or
 *  every rank fails. */
cddp_status cddpi_device_join(cddp_group *group, const char *name, const char *plane,
                              bool deterministic, void *stream);
/** The same on an open device, which @p hold counts; a reference of the caller's goes to the group,
 *  also when this fails. @p own: this rank's failure so far, whose text is stored. */
cddp_status cddpi_device_attach(cddp_group *group, struct cddpi_device_hold *hold,
                                const char *plane, bool deterministic, cddp_status own);
/** The device, with one reference; NULL: no memory, and @p device is closed. */
struct cddpi_device_hold *cddpi_device_hold(struct cddpi_device *device);
/** Put @p made, a part of @p group, on the same device. Collective in @p made. */
cddp_status cddpi_device_follow(const cddp_group *group, cddp_group *made);
/** Before the queue ends: finish or end what is under way, and go. */
void cddpi_device_leave(cddp_group *group);
const char *cddpi_device_plane_name(const cddp_group *group);

/* --- device.c --- */

/** Start @p op where its memory is. */
cddp_status cddpi_device_start(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out);
cddp_status cddpi_device_test(cddp_work *work, bool *out_done);
cddp_status cddpi_device_wait(cddp_work *work, uint32_t timeout_ms);
/** The handle goes. */
void cddpi_device_drop(cddp_work *work);
/** The compute stream goes on behind @p flight. */
cddp_status cddpi_flight_follow(struct cddpi_group_device *side, struct cddpi_flight *flight);
/** For one more operation, or NULL with what failed; behind it, unless it goes on its way. */
struct cddpi_flight *cddpi_flight_take(struct cddpi_group_device *side,
                                       const struct cddpi_group_op *op);
void cddpi_flight_put(struct cddpi_group_device *side, struct cddpi_flight *flight);
/** As cddpi_watch_fail(), with the operation's title; while work is recorded, @p status alone. */
cddp_status cddpi_flight_fail(struct cddpi_group_device *side, const struct cddpi_flight *flight,
                              cddp_status status);
cddp_status cddpi_device_memory(cddp_group *group, size_t bytes, void **out);
/** Release @p memory, unless it is none of the device's. */
bool cddpi_device_free(cddp_group *group, void *memory);
void cddpi_device_free_all(struct cddpi_group_device *side);

/** With the mutex, once @p flight is under way no more: to be used again, unless a handle has it.
 */
static inline void cddpi_flight_end(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    flight->under_way = false;
    if (!flight->held) {
        flight->next = side->free;
        side->free = flight;
    }
}

/* --- device_message.c --- */

/** As cddpi_device_start(), for send and recv. */
cddp_status cddpi_message_start(struct cddpi_group_device *side, const struct cddpi_group_op *op,
                                cddp_work **out);
/** Wait, at most @p timeout_ms if that is not 0, until all of it is in its stream: at once unless
 *  it is large; then it takes the peer. */
cddp_status cddpi_message_await(struct cddpi_group_device *side, const struct cddpi_flight *flight,
                                uint32_t timeout_ms);
/** Wait until no message is under way. */
void cddpi_message_settle(struct cddpi_group_device *side);
/** Part of cddpi_watch_look(). @p ask_device: false only looks after peers and deadlines. */
cddp_status cddpi_message_look(struct cddpi_group_device *side, bool ask_device);

/* --- device_record.c --- */

/** @p op becomes a part of what is being recorded. */
void cddpi_device_note_recorded(struct cddpi_group_device *side, const struct cddpi_group_op *op);

/* --- device_watch.c --- */

cddp_status cddpi_watch_start(struct cddpi_group_device *side);
/** Wait for what is under way if @p finish, else end it; then stop. */
void cddpi_watch_stop(struct cddpi_group_device *side, bool finish);
/** @p flight has its number and is about to be put into the stream (NULL: that is over). */
void cddpi_watch_begin(struct cddpi_group_device *side, struct cddpi_flight *flight);
/** @p flight was put into the stream. */
void cddpi_watch_add(struct cddpi_group_device *side, struct cddpi_flight *flight);
/** Everything ends, here and on all ranks, for the stored text. Returns the status to be given.
 *  Any thread. */
cddp_status cddpi_watch_fail(struct cddpi_group_device *side, cddp_status status);
/** An operation of the processor failed with @p status and the thread's text: what the group's
 * device was ended for, if that is why, with its text. Any thread. */
cddp_status cddpi_watch_reason(struct cddpi_group_device *side, cddp_status status);
/** Whether @p done is, and not because all was ended early. */
cddp_status cddpi_watch_ask(struct cddpi_group_device *side, struct cddpi_event *done,
                            bool *out_done);
/** See what has ended, and whether all is well. Any thread. */
void cddpi_watch_look(struct cddpi_group_device *side);
/** CDDP_OK, or the failure: as it is for the first who asks, CDDP_ERR_CLOSED after that. */
cddp_status cddpi_watch_status(struct cddpi_group_device *side);

/* --- device_calls.c --- */

static inline struct cddpi_calls *cddpi_own_calls(const struct cddpi_group_device *side)
{
    return &side->calls[side->group->rank];
}

/** The next operation's number is taken and what it is told to the others. Waits only for ranks
 *  that are CDDPI_CALLS operations behind. */
cddp_status cddpi_watch_call(struct cddpi_group_device *side, struct cddpi_flight *flight);
/** Compare what all ranks have called by now, as far as that was not done. */
cddp_status cddpi_watch_compare(struct cddpi_group_device *side);
/** Whether rank @p rank is still there; @p thorough asks the system. @p title: of what needs it. */
cddp_status cddpi_watch_peer(const struct cddpi_group_device *side, int rank, bool thorough,
                             const char *title);
/** "all_reduce sum f32 x 100, #12 on the device, bucket 3 of 20" */
void cddpi_watch_title(const struct cddpi_flight *flight, char *out, size_t bytes);

/* --- device_solo.c --- */
extern const struct cddpi_plane_ops cddpi_plane_solo_ops; /* of one rank: copies */

#endif
