/* folder_support.h - a folder of a test's own, which is gone after it. */
#ifndef CDDP_TESTS_FOLDER_SUPPORT_H
#define CDDP_TESTS_FOLDER_SUPPORT_H

#include "support.h"

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
    static char buffers[8][4400];
    static int next;
    char *out = buffers[next++ % 8];

    snprintf(out, sizeof buffers[0], "%s/%s", folder, name);
    return out;
}

/* Each with a folder of its own. */
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
