/* folder.h - a folder for each test, removed after it. */
#ifndef CDDP_TESTS_SUPPORT_FOLDER_H
#define CDDP_TESTS_SUPPORT_FOLDER_H

#include "support/test.h"

extern char *folder;

int make_folder(void **state);
int remove_folder(void **state);

/* A path below the folder, in one of a few static buffers. */
char *in_folder(const char *name);

/* Write @p text to @p path ("/proc/meminfo") below the folder, and create the folders above it. */
void put_in_folder(const char *path, const char *text);

/* A case with its own folder. */
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
