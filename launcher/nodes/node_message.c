/* node_message.c - owns the form of numbers and texts between nodes. */
#include "launcher/nodes/node_message.h"

#include <string.h>

static void append(struct cddpi_message *message, const void *data, size_t bytes)
{
    if (message->is_cut || !cddpi_buffer_reserve(&message->buffer, bytes)) {
        message->is_cut = true;
        return;
    }
    cddpi_buffer_append(&message->buffer, data, bytes);
}

void cddpi_message_put_number(struct cddpi_message *message, int64_t number)
{
    uint8_t bytes[8];

    cddpi_put_u64(bytes, (uint64_t)number);
    append(message, bytes, sizeof bytes);
}

void cddpi_message_put_text(struct cddpi_message *message, const char *text)
{
    uint8_t length[4];

    cddpi_put_u32(length, (uint32_t)strlen(text));
    append(message, length, sizeof length);
    append(message, text, strlen(text));
}

/* The next @p bytes bytes; NULL if there are not so many. */
static const uint8_t *take(struct cddpi_message_reader *reader, size_t bytes)
{
    const uint8_t *at = reader->at;

    if (reader->is_bad || reader->left < bytes) {
        reader->is_bad = true;
        return NULL;
    }
    reader->at += bytes;
    reader->left -= bytes;
    return at;
}

int64_t cddpi_message_number(struct cddpi_message_reader *reader, int64_t low, int64_t high)
{
    const uint8_t *at = take(reader, 8);
    int64_t number = at != NULL ? (int64_t)cddpi_get_u64(at) : low;

    if (number < low || number > high) {
        reader->is_bad = true;
        number = low;
    }
    return number;
}

void cddpi_message_text(struct cddpi_message_reader *reader, char *out, size_t bytes)
{
    const uint8_t *at = take(reader, 4);
    size_t length = at != NULL ? cddpi_get_u32(at) : 0;
    const uint8_t *text = at != NULL && length < bytes ? take(reader, length) : NULL;

    out[0] = '\0';
    if (text == NULL || memchr(text, '\0', length) != NULL) {
        reader->is_bad = true;
        return;
    }
    memcpy(out, text, length);
    out[length] = '\0';
}
