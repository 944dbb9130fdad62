/* device_record.c - recordings of a device's work with operations of the group in it: what is told
 * about them, and replays, which are operations of the group themselves. */
#include "base/error.h"
#include "group/agree.h"
#include "group/device.h"

static const uint64_t hash_of_nothing = 0xcbf29ce484222325u; /* FNV-1a's */

static uint64_t add_to_hash(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

void cddpi_device_note_recorded(struct cddpi_group_device *side, const struct cddpi_group_op *op)
{
    side->recorded = add_to_hash(side->recorded, (uint64_t)op->kind);
    side->recorded = add_to_hash(side->recorded, (uint64_t)op->type * 16 + (uint64_t)op->op);
    side->recorded = add_to_hash(side->recorded, (uint64_t)op->root * 2 + op->weighted);
    side->recorded = add_to_hash(side->recorded, op->count);
}

bool cddpi_group_is_recording(const cddp_group *group)
{
    return group->device != NULL && group->device->recording;
}

cddp_status cddpi_group_records(const cddp_group *group)
{
    const struct cddpi_group_device *side = group->device;

    if (side == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "nothing can be recorded on the processor");
    }
    if (!side->ops->records(side->plane)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "operations of backend %s cannot be recorded",
                          side->ops->name);
    }
    return CDDP_OK;
}

cddp_status cddpi_group_record_begin(cddp_group *group)
{
    struct cddpi_group_device *side = group->device;
    cddp_status status = cddpi_watch_status(side);

    if (status == CDDP_OK) {
        status = cddpi_group_records(group);
    }
    if (status == CDDP_OK) {
        status = side->device->ops->record_begin(side->device);
    }
    side->recording = status == CDDP_OK;
    side->recorded = hash_of_nothing;
    return status;
}

cddp_status cddpi_group_record_end(cddp_group *group, struct cddpi_group_recording *out)
{
    struct cddpi_group_device *side = group->device;

    side->recording = false;
    out->calls = side->recorded;
    return side->device->ops->record_end(side->device, &out->work);
}

cddp_status cddpi_group_record_failed(cddp_group *group)
{
    struct cddpi_group_device *side = group->device;
    cddp_status status = cddpi_watch_status(side);

    if (status != CDDP_OK || side->ops->mend == NULL) {
        return status;
    }
    return cddpi_agree(group, side->ops->mend(side->plane));
}

cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_recording *recording)
{
    struct cddpi_group_device *side = group->device;
    struct cddpi_group_op op = {.kind = CDDPI_REPLAY, .type = CDDP_U8, .count = recording->calls};
    struct cddpi_flight *flight;
    cddp_status status = cddpi_watch_status(side);

    if (status != CDDP_OK) {
        return status;
    }
    flight = cddpi_flight_take(side, &op);
    if (flight == NULL) {
        return cddpi_watch_fail(side, CDDP_ERR_NO_MEMORY);
    }
    status = cddpi_watch_call(side, flight);
    if (status == CDDP_OK) {
        status = side->device->ops->replay(side->device, recording->work);
        if (status == CDDP_OK) {
            status = side->device->ops->record(side->device, flight->done, CDDPI_STREAM_COMPUTE);
        }
        if (status != CDDP_OK) {
            status = cddpi_flight_fail(side, flight, status);
        }
    }
    if (status == CDDP_OK) {
        cddpi_watch_add(side, flight);
    } else {
        side->told = true;
        cddpi_flight_put(side, flight);
    }
    return status;
}
