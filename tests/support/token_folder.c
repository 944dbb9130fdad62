/* token_folder.c - a folder for each test, and opening the token files in it. */
#include "support/token_folder.h"

cddp_status open_tokens(const char *pattern, int context, struct cddpi_dataset *out)
{
    char *patterns[] = {in_folder(pattern)};

    return cddpi_dataset_open_tokens(patterns, 1, context, 0, NULL, out);
}
