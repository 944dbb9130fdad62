/* disk.h - small disks for tests, if this process may mount them. */
#ifndef CDDP_TESTS_SUPPORT_DISK_H
#define CDDP_TESTS_SUPPORT_DISK_H

#include "support/test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>

/* Mount a disk of @p size ("64k") at the folder @p path, or skip the test. Unmount it with
 * umount2(path, MNT_DETACH). */
void need_small_disk(const char *path, const char *size);

/* Fill the disk of the new file @p path, except @p spare bytes. */
void fill_disk(const char *path, off_t spare);

#endif
