/* recorder.h - the last operations of a group, kept in a ring of fixed size so that they can be
 * looked at when something is wrong.
 *
 * Always on. One thread at a time begins operations; the thread that runs them says that one has
 * started or ended; any thread may copy what is there. */
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

/* What is known of one operation. */
struct cddpi_recorded_call {
    uint64_t serial; /* counts all operations of the group, from 1 */
    uint64_t number; /* of collectives, or of messages of a pair */
    uint64_t call;   /* as errors name it: of the program's own calls; 0: it is not one */
    uint64_t count;  /* elements */
    int64_t enqueued_ns, started_ns, finished_ns; /* on the monotonic clock; 0: not yet */
    int32_t bucket;                               /* that it reduces; -1: none */
    int32_t root;
    uint8_t kind, type, op, weighted; /* as in struct cddpi_call */
    uint8_t state;                    /* enum cddpi_call_state */
    bool on_device;                   /* put into a device's stream */
};

/* One place of the ring. `serial` is 0 while the others are written. */
struct cddpi_recorder_slot {
    _Atomic uint64_t serial, number, call, count, what, place;
    _Atomic int64_t enqueued_ns, started_ns, finished_ns;
    _Atomic uint32_t state;
};

struct cddpi_recorder {
    _Atomic uint64_t serial; /* of the newest operation */
    int32_t bucket;          /* of what is begun next: the thread's that begins */
    struct cddpi_recorder_slot slots[CDDPI_RECORDER_CALLS];
};

struct cddpi_group_op;

/** @p op was called: gives it its serial. It may have started already: op->started; what is put
 * into a device's stream (@p on_device) has, as far as can be seen. */
void cddpi_recorder_begin(struct cddpi_recorder *recorder, struct cddpi_group_op *op,
                          bool on_device);
/** The operation of that serial goes on from now, or ends. 0 is no operation; one that the ring no
 *  longer has is left out. */
void cddpi_recorder_start(struct cddpi_recorder *recorder, uint64_t serial);
void cddpi_recorder_end(struct cddpi_recorder *recorder, uint64_t serial, cddp_status status);

/** The call of that serial; false: the ring no longer has it, or it is being written. */
bool cddpi_recorder_read(const struct cddpi_recorder *recorder, uint64_t serial,
                         struct cddpi_recorded_call *out);

/** "enqueued", "started", "done", "failed" */
const char *cddpi_call_state_name(enum cddpi_call_state state);

#endif
