/* token_folder.h - a folder of a test's own, and opening the files of tokens in it. */
#ifndef CDDP_TESTS_TOKEN_FOLDER_H
#define CDDP_TESTS_TOKEN_FOLDER_H

#include "data/dataset.h"
#include "token_support.h"

static char *folder;

static inline int make_folder(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    return folder == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

/* A path below the folder, in one of a few static buffers. */
static inline char *in_folder(const char *name)
{
    static char buffers[8][4200];
    static int next;
    char *out = buffers[next++ % 8];

    snprintf(out, sizeof buffers[0], "%s/%s", folder, name);
    return out;
}

static inline cddp_status open_tokens(const char *pattern, int context, struct cddpi_dataset *out)
{
    char *patterns[] = {in_folder(pattern)};

    return cddpi_dataset_open_tokens(patterns, 1, context, 0, NULL, out);
}

#endif
