/* token_folder.h - a folder for each test, and opening the token files in it. */
#ifndef CDDP_TESTS_SUPPORT_TOKEN_FOLDER_H
#define CDDP_TESTS_SUPPORT_TOKEN_FOLDER_H

#include "data/dataset.h"
#include "support/folder.h"
#include "support/tokens.h"

cddp_status open_tokens(const char *pattern, int context, struct cddpi_dataset *out);

#endif
