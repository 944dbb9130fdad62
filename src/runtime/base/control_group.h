/* control_group.h - this process's control groups (cgroups, version 1 or 2), and the numbers in the
 * kernel's files about them. */
#ifndef CDDPI_BASE_CONTROL_GROUP_H
#define CDDPI_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CDDPI_CONTROL_GROUP_BYTES = 400 };

/* One control group, as a folder of the file system. */
struct cddpi_control_group {
    bool is_v2;
    char path[CDDPI_CONTROL_GROUP_BYTES]; /* "": there is none */
    size_t mount_length; /* how much of the path is where the hierarchy is mounted */
};

/** That of this process which @p controller ("memory", "cpu") of version 1 belongs to, or that of
 *  version 2. */
void cddpi_control_group_find(bool is_v2, const char *controller, struct cddpi_control_group *out);

/** Go to the one above. False: there is none that can be seen. */
bool cddpi_control_group_leave(struct cddpi_control_group *group);

/** Open @p folder/@p name for reading; NULL: it cannot be read. */
FILE *cddpi_kernel_file_open(const char *folder, const char *name);

/** The number that is all of a file, or follows @p key at the beginning of one of its lines. False:
 *  there is none, and @p out is as it was. */
bool cddpi_kernel_file_number(const char *folder, const char *name, const char *key, uint64_t *out);

/** Tests only: look for /proc and /sys below @p root (borrowed); NULL ends it. */
void cddpi_kernel_files_set_root(const char *root);

#endif
