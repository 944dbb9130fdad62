/* token_folder.h - a folder of a test's own, and opening the files of tokens in it. */
#ifndef CDDP_TESTS_TOKEN_FOLDER_H
#define CDDP_TESTS_TOKEN_FOLDER_H

#include "data/dataset.h"
#include "folder_support.h"
#include "token_support.h"

static inline cddp_status open_tokens(const char *pattern, int context, struct cddpi_dataset *out)
{
    char *patterns[] = {in_folder(pattern)};

    return cddpi_dataset_open_tokens(patterns, 1, context, 0, NULL, out);
}

#endif
