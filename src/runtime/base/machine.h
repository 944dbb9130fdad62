/* machine.h - identifies this machine; finds this process's control groups (cgroups v1 and v2), and
 * reads numbers from the kernel's files about them; counts the CPUs that this process may use. */
#ifndef CDDPI_BASE_MACHINE_H
#define CDDPI_BASE_MACHINE_H

#include "base/shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CDDPI_MACHINE_BYTES = 64,
    CDDPI_MACHINE_RANKS = 512 /* the most ranks that can share memory */
};

/** The boot id of the running kernel, else the host name. It is equal for all processes of a
 *  machine, including those in other containers, and different on every other machine. Any
 *  thread. */
CDDPI_SHARED void cddpi_machine(char out[CDDPI_MACHINE_BYTES]);

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

/** Read a number: the first in the file if @p key is "", else the one after @p key at the start of
 *  a line. False: there is no such number; @p out is unchanged. */
bool cddpi_kernel_file_number(const char *folder, const char *name, const char *key, uint64_t *out);

/** Tests only: look for /proc and /sys below @p root (borrowed). NULL restores the default. */
void cddpi_kernel_files_set_root(const char *root);

/* The most CPUs of a machine. Linux has at most 8192. */
enum { CDDPI_MAX_CPUS = 8192 };

/** The numbers of the CPUs in this thread's affinity mask, ascending.
 *  @param out  Release with cddpi_free().
 *  @return Their count; 0 if they are unknown or there is no memory, with errno, and then @p out is
 *          NULL. */
int cddpi_allowed_cpus(int **out);

/* How many CPUs this process may really use: those in its affinity mask (which excludes CPUs
 * outside its cpusets and offline CPUs), limited by the quotas of its control groups (docker
 * --cpus, a pod's limits, systemd's CPUQuota=). */
struct cddpi_processors {
    int allowed; /* CPUs in the affinity mask, which the kernel keeps within cpusets and online CPUs
                  */
    double quota;    /* CPU time that control groups allow, in CPUs; 0: unlimited */
    char limit[512]; /* the source of the quota, for texts: "cpu.max 1.5 of /sys/fs/cgroup/a"; "":
                        none */
    int count; /* the smaller of both, at least 1. The quota is rounded to the nearest integer: less
                  than half a CPU gains less than another rank or thread costs */
};

CDDPI_SHARED void cddpi_processors(struct cddpi_processors *out);

/** The number of @p count CPUs that @p quota has time for, at least 1. All of them if @p quota is
 *  0. */
CDDPI_SHARED int cddpi_processors_within(int count, double quota);

#endif
