/* node_message.h - what cddp-run's nodes tell each other through the store: numbers and texts in a
 * row, each with its length. Who reads trusts none of it. */
#ifndef CDDPI_LAUNCHER_MESSAGE_H
#define CDDPI_LAUNCHER_MESSAGE_H

#include "store/store_wire.h"

#include <stdbool.h>

/* Zeroed is empty. Release buffer with cddpi_buffer_fini(). */
struct cddpi_message {
    struct cddpi_wire_buffer buffer;
    bool is_cut; /* memory was missing */
};

void cddpi_message_put_number(struct cddpi_message *message, int64_t number);
void cddpi_message_put_text(struct cddpi_message *message, const char *text);

struct cddpi_message_reader {
    const uint8_t *at;
    size_t left;
    bool is_bad; /* something was not there, or out of its range; later ones are not read */
};

/** The next number; @p low, and is_bad, if it is none in [@p low, @p high]. */
int64_t cddpi_message_number(struct cddpi_message_reader *reader, int64_t low, int64_t high);

/** The next text to @p out, which has room for @p bytes; "", and is_bad, if it does not fit there
 *  or has a NUL byte in it. */
void cddpi_message_text(struct cddpi_message_reader *reader, char *out, size_t bytes);

#endif
