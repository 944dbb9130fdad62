/* weights_file.h - weight files that tests write and load. */
#ifndef CDDP_TESTS_SUPPORT_WEIGHTS_FILE_H
#define CDDP_TESTS_SUPPORT_WEIGHTS_FILE_H

#include "support/weights.h"

void assert_loads(const char *name);

enum {
    PADDED = 256,
    LLMC_ELEMENTS = (PADDED + CONTEXT) * EMBED + BLOCKS * (12 * EMBED * EMBED + 13 * EMBED) +
                    2 * EMBED
};

void write_text(const char *name, const char *text);

#endif
