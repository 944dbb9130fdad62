/* weights_file_support.h - files of weights that tests write and load. */
#ifndef CDDP_TESTS_WEIGHTS_FILE_SUPPORT_H
#define CDDP_TESTS_WEIGHTS_FILE_SUPPORT_H

#include "weights_support.h"

static inline void assert_loads(const char *name)
{
    static struct params params;

    make_params(&params, &small, false);
    if (cddpi_weights_load(in_folder(name), HEADS, params.tensors, params.count) != CDDP_OK) {
        fail_msg("%s: %s", name, cddp_last_error());
    }
    assert_filled(&params);
}

enum {
    PADDED = 256,
    LLMC_ELEMENTS = (PADDED + CONTEXT) * EMBED + BLOCKS * (12 * EMBED * EMBED + 13 * EMBED) +
                    2 * EMBED
};

static inline void write_text(const char *name, const char *text)
{
    support_write_file(in_folder(name), text, strlen(text));
}

#endif
