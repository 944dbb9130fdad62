/* weights_file.c - weight files that tests write and load. */
#include "support/weights_file.h"

void assert_loads(const char *name)
{
    static struct params params;

    make_params(&params, &small, false);
    if (cddpi_weights_load(in_folder(name), HEADS, params.tensors, params.count) != CDDP_OK) {
        fail_msg("%s: %s", name, cddp_last_error());
    }
    assert_filled(&params);
}

void write_text(const char *name, const char *text)
{
    support_write_file(in_folder(name), text, strlen(text));
}
