/* recorder.c - owns the ring of a group's most recent operations. */
#include "group/watch/recorder.h"

#include "group/group.h"

static struct cddpi_recorder_slot *slot_of(struct cddpi_recorder *recorder, uint64_t serial)
{
    return &recorder->slots[serial % CDDPI_RECORDER_CALLS];
}

#define PUT(field, value) atomic_store_explicit(&slot->field, value, memory_order_relaxed)
#define GET(field) atomic_load_explicit(&slot->field, memory_order_relaxed)

void cddpi_recorder_begin(struct cddpi_recorder *recorder, struct cddpi_group_op *op,
                          bool on_device)
{
    uint64_t serial = atomic_load_explicit(&recorder->serial, memory_order_relaxed) + 1;
    struct cddpi_recorder_slot *slot = slot_of(recorder, serial);

    op->serial = serial;
    op->started = op->started || on_device;
    PUT(serial, 0); /* a thread that reads the slot now sees that it is being written */
    atomic_thread_fence(memory_order_release);
    PUT(number, op->number);
    PUT(call, op->call);
    PUT(count, op->count);
    PUT(what, (uint64_t)(uint8_t)op->kind | (uint64_t)(uint8_t)op->type << 8 |
                  (uint64_t)(uint8_t)op->op << 16 | (uint64_t)op->weighted << 24 |
                  (uint64_t)on_device << 32);
    PUT(place, (uint64_t)(uint32_t)recorder->bucket << 32 | (uint32_t)op->root);
    PUT(enqueued_ns, op->start_ns);
    PUT(started_ns, op->started ? op->start_ns : 0);
    PUT(finished_ns, 0);
    PUT(state, op->started ? CDDPI_CALL_STARTED : CDDPI_CALL_ENQUEUED);
    atomic_store_explicit(&slot->serial, serial, memory_order_release);
    atomic_store_explicit(&recorder->serial, serial, memory_order_release);
}

void cddpi_recorder_start(struct cddpi_recorder *recorder, uint64_t serial)
{
    struct cddpi_recorder_slot *slot = slot_of(recorder, serial);

    if (serial != 0 && atomic_load_explicit(&slot->serial, memory_order_acquire) == serial) {
        PUT(started_ns, cddpi_now_ns());
        PUT(state, CDDPI_CALL_STARTED);
    }
}

void cddpi_recorder_end(struct cddpi_recorder *recorder, uint64_t serial, cddp_status status)
{
    struct cddpi_recorder_slot *slot = slot_of(recorder, serial);

    if (serial != 0 && atomic_load_explicit(&slot->serial, memory_order_acquire) == serial) {
        PUT(finished_ns, cddpi_now_ns());
        PUT(state, status == CDDP_OK ? CDDPI_CALL_DONE : CDDPI_CALL_FAILED);
    }
}

bool cddpi_recorder_read(const struct cddpi_recorder *recorder, uint64_t serial,
                         struct cddpi_recorded_call *out)
{
    const struct cddpi_recorder_slot *slot = &recorder->slots[serial % CDDPI_RECORDER_CALLS];
    uint64_t what;
    uint64_t place;

    if (serial == 0 || atomic_load_explicit(&slot->serial, memory_order_acquire) != serial) {
        return false;
    }
    what = GET(what);
    place = GET(place);
    *out = (struct cddpi_recorded_call){
        .serial = serial,
        .number = GET(number),
        .call = GET(call),
        .count = GET(count),
        .enqueued_ns = GET(enqueued_ns),
        .started_ns = GET(started_ns),
        .finished_ns = GET(finished_ns),
        .bucket = (int32_t)(uint32_t)(place >> 32),
        .root = (int32_t)(uint32_t)place,
        .kind = (uint8_t)what,
        .type = (uint8_t)(what >> 8),
        .op = (uint8_t)(what >> 16),
        .weighted = (uint8_t)(what >> 24),
        .state = (uint8_t)GET(state),
        .on_device = (what >> 32) != 0,
    };
    atomic_thread_fence(memory_order_acquire);
    return GET(serial) == serial;
}

const char *cddpi_call_state_name(enum cddpi_call_state state)
{
    static const char *const names[] = {CDDPI_CALL_STATE_MAP(CDDPI_CHOICE_WORD)};

    return names[state];
}
