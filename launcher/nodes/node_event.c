/* node_event.c - owns the encoding of events in the store. */
#include "launcher/nodes/node_event.h"

#include "launcher/hosts/host_list.h"

#include "base/error.h"

#define EVENT struct cddpi_node_event

static const struct cddpi_field fields[] = {
    CDDPI_FIELD_OF_INT(EVENT, kind, CDDPI_EVENT_START, CDDPI_EVENT_SAVING),
    CDDPI_FIELD_OF_INT(EVENT, generation, 0, INT32_MAX),
    CDDPI_FIELD_OF_INT(EVENT, node, -1, CDDPI_MAX_NODES - 1),
    CDDPI_FIELD_OF_INT(EVENT, rank, -1, CDDPI_MAX_WORLD_SIZE - 1),
    CDDPI_FIELD_OF_INT(EVENT, number, 0, 65535),
    CDDPI_FIELD_OF_INT(EVENT, exit_status, 0, 255),
    CDDPI_FIELD_OF_BOOL(EVENT, may_restart),
    CDDPI_FIELD_OF_BOOL(EVENT, has_saved),
    CDDPI_FIELD_OF_TEXT(EVENT, text),
    {.type = CDDPI_FIELD_END},
};

const struct cddpi_message_form cddpi_node_event_form = {CDDPI_MESSAGE_EVENT, sizeof(EVENT),
                                                         sizeof(EVENT) + 128, fields};

cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, int count,
                                    struct cddpi_node_event *out)
{
    CDDPI_TRY(cddpi_message_decode(&cddpi_node_event_form, data, bytes, out));
    return out->node < count
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_FORMAT, "it tells of node %d of %d", out->node, count);
}
