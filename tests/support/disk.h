/* disk.h - small disks for tests, where that is allowed. */
#ifndef CDDP_TESTS_SUPPORT_DISK_H
#define CDDP_TESTS_SUPPORT_DISK_H

#include "support/test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>

/* Let the folder @p path be a disk of @p size ("64k"), or skip the test. umount2(path, MNT_DETACH).
 */
void need_small_disk(const char *path, const char *size);

/* Fill the disk that @p path is to lie on, but for @p spare bytes. */
void fill_disk(const char *path, off_t spare);

#endif
