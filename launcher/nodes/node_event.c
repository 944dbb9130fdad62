/* node_event.c - owns how the events of a job's log are written in the store. */
#include "launcher/nodes/node_event.h"

#define EVENT struct cddpi_node_event

CDDPI_MESSAGE_FORM(cddpi_node_event_form, EVENT, EVENT, sizeof(EVENT) + 128,
                   CDDPI_NUMBER(EVENT, kind, CDDPI_EVENT_START, CDDPI_EVENT_CARD),
                   CDDPI_NUMBER(EVENT, generation, 0, INT32_MAX),
                   CDDPI_NUMBER(EVENT, node, -1, CDDPI_NODE_NUMBERS - 1),
                   CDDPI_NUMBER(EVENT, rank, -1, CDDPI_MAX_WORLD_SIZE - 1),
                   CDDPI_NUMBER(EVENT, number, 0, 65535), CDDPI_NUMBER(EVENT, exit_status, 0, 255),
                   CDDPI_NUMBER(EVENT, may_restart, 0, 1), CDDPI_NUMBER(EVENT, has_saved, 0, 1),
                   CDDPI_NUMBER(EVENT, has_kept, 0, 1), CDDPI_TEXT(EVENT, address),
                   CDDPI_TEXT(EVENT, text));

cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, struct cddpi_node_event *out)
{
    return cddpi_message_decode(&cddpi_node_event_form, data, bytes, out);
}
