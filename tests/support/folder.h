/* folder.h - a folder of a test's own, which is gone after it. */
#ifndef CDDP_TESTS_SUPPORT_FOLDER_H
#define CDDP_TESTS_SUPPORT_FOLDER_H

#include "support/test.h"

extern char *folder;

int make_folder(void **state);
int remove_folder(void **state);

/* A path below the folder, in one of a few static buffers. */
char *in_folder(const char *name);

/* Write @p text to @p path ("/proc/meminfo") below the folder, and make the folders above it. */
void put_in_folder(const char *path, const char *text);

/* Each with a folder of its own. */
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
