/* node_event.c - owns the form of an event in the store. */
#include "launcher/nodes/node_event.h"

void cddpi_node_event_put(struct cddpi_message *message, const struct cddpi_node_event *event)
{
    cddpi_message_put_number(message, (int64_t)event->kind);
    cddpi_message_put_number(message, event->generation);
    cddpi_message_put_number(message, event->node);
    cddpi_message_put_number(message, event->rank);
    cddpi_message_put_number(message, event->number);
    cddpi_message_put_number(message, event->exit_status);
    cddpi_message_put_number(message, event->may_restart);
    cddpi_message_put_number(message, event->has_saved);
    cddpi_message_put_text(message, event->text);
}

bool cddpi_node_event_take(const uint8_t *data, size_t bytes, int count,
                           struct cddpi_node_event *out)
{
    struct cddpi_message_reader reader = {data, bytes, false};

    out->kind = (enum cddpi_node_event_kind)cddpi_message_number(&reader, CDDPI_EVENT_START,
                                                                 CDDPI_EVENT_SAVING);
    out->generation = (int)cddpi_message_number(&reader, 0, INT32_MAX);
    out->node = (int)cddpi_message_number(&reader, -1, count - 1);
    out->rank = (int)cddpi_message_number(&reader, -1, CDDPI_MAX_WORLD_SIZE - 1);
    out->number = (int)cddpi_message_number(&reader, 0, 65535);
    out->exit_status = (int)cddpi_message_number(&reader, 0, 255);
    out->may_restart = cddpi_message_number(&reader, 0, 1) == 1;
    out->has_saved = cddpi_message_number(&reader, 0, 1) == 1;
    cddpi_message_text(&reader, out->text, sizeof out->text);
    return !reader.is_bad && reader.left == 0;
}
