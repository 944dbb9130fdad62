/* control_group.h - finds this process's control groups (cgroups v1 and v2), and reads numbers from
 * the kernel's files about them. */
#ifndef CDDPI_BASE_CONTROL_GROUP_H
#define CDDPI_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CDDPI_CONTROL_GROUP_BYTES = 400 };

/* One control group, as a folder in the file system. */
struct cddpi_control_group {
    bool is_v2;
    char path[CDDPI_CONTROL_GROUP_BYTES]; /* "": no such group */
    size_t mount_length; /* the path begins with the mount point, which has this length */
};

/** Find this process's group: in version 1 the one for @p controller ("memory", "cpu"), in version
 *  2 the only one. */
void cddpi_control_group_find(bool is_v2, const char *controller, struct cddpi_control_group *out);

/** Go to the parent group. False: no parent is visible. */
bool cddpi_control_group_leave(struct cddpi_control_group *group);

/** Open @p folder/@p name for reading. NULL: it cannot be read. */
FILE *cddpi_kernel_file_open(const char *folder, const char *name);

/** Read a number: the first in the file if @p key is "", else the one after @p key at the start of
 *  a line. False: there is no such number; @p out is unchanged. */
bool cddpi_kernel_file_number(const char *folder, const char *name, const char *key, uint64_t *out);

/** Tests only: look for /proc and /sys below @p root (borrowed). NULL restores the default. */
void cddpi_kernel_files_set_root(const char *root);

#endif
