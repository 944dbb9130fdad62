/* recorder.h - owns a group's most recent operations, kept in a ring of fixed size, to be inspected
 * when something is wrong.
 *
 * Always on. One thread at a time begins operations. The thread that runs an operation records its
 * start and end. Any thread may copy the contents. */
#ifndef CDDPI_GROUP_RECORDER_H
#define CDDPI_GROUP_RECORDER_H

#include "base/choices.h"
#include "base/clock.h"

#include <cddp/status.h>

#include <stdatomic.h>

enum { CDDPI_RECORDER_CALLS = 1000 };

#define CDDPI_CALL_STATE_MAP(X)                                                                    \
    X(CDDPI_CALL_ENQUEUED, "enqueued") /* called; the operations before it have not ended */       \
    X(CDDPI_CALL_STARTED, "started")                                                               \
    X(CDDPI_CALL_DONE, "done")                                                                     \
    X(CDDPI_CALL_FAILED, "failed")
enum cddpi_call_state { CDDPI_CALL_STATE_MAP(CDDPI_CHOICE_ID) };

/* What is recorded of one operation. */
struct cddpi_recorded_call {
    uint64_t serial; /* counts all operations of the group, from 1 */
    uint64_t number; /* number among the collectives, or among the messages of a pair */
    uint64_t call;   /* number among the program's own calls, as in errors; 0: the program did not
                        call it */
    uint64_t count;  /* elements */
    int64_t enqueued_ns, started_ns, finished_ns; /* on the monotonic clock; 0: not yet */
    int32_t bucket;                               /* the bucket that it reduces; -1: none */
    int32_t root;
    uint8_t kind, type, op, weighted; /* as in struct cddpi_call */
    uint8_t state;                    /* enum cddpi_call_state */
    bool on_device;                   /* enqueued into a device's stream */
};

/* One slot of the ring. `serial` is 0 while the other fields are written. */
struct cddpi_recorder_slot {
    _Atomic uint64_t serial, number, call, count, what, place;
    _Atomic int64_t enqueued_ns, started_ns, finished_ns;
    _Atomic uint32_t state;
};

struct cddpi_recorder {
    _Atomic uint64_t serial; /* of the newest operation */
    /* bucket of the next operation; only the thread that begins operations uses it */
    int32_t bucket;
    struct cddpi_recorder_slot slots[CDDPI_RECORDER_CALLS];
};

struct cddpi_group_op;

/** Record that @p op was called, and give it its serial. op->started says whether it has started
 * already. For operations enqueued into a device's stream (@p on_device) that is always assumed,
 * since the real start cannot be seen. */
void cddpi_recorder_begin(struct cddpi_recorder *recorder, struct cddpi_group_op *op,
                          bool on_device);
/** Record that the operation with @p serial starts, or ends. Ignores serial 0 and operations that
 *  the ring no longer has. */
void cddpi_recorder_start(struct cddpi_recorder *recorder, uint64_t serial);
void cddpi_recorder_end(struct cddpi_recorder *recorder, uint64_t serial, cddp_status status);

/** Copy the call with @p serial; false: the ring no longer has it, or it is being written. */
bool cddpi_recorder_read(const struct cddpi_recorder *recorder, uint64_t serial,
                         struct cddpi_recorded_call *out);

/** "enqueued", "started", "done", "failed" */
const char *cddpi_call_state_name(enum cddpi_call_state state);

#endif
