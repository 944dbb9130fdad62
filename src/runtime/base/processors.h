/* processors.h - how many CPUs this process may really use: those in its affinity mask (which
 * excludes CPUs outside its cpusets and offline CPUs), limited by the quotas of its control groups
 * (docker --cpus, a pod's limits, systemd's CPUQuota=). */
#ifndef CDDPI_BASE_PROCESSORS_H
#define CDDPI_BASE_PROCESSORS_H

#include <stdbool.h>

struct cddpi_processors {
    int allowed; /* CPUs in the affinity mask, which the kernel keeps within cpusets and online CPUs
                  */
    double quota;    /* CPU time that control groups allow, in CPUs; 0: unlimited */
    char limit[512]; /* the source of the quota, for texts: "cpu.max 1.5 of /sys/fs/cgroup/a"; "":
                        none */
    int count; /* the smaller of both, at least 1. The quota is rounded to the nearest integer: less
                  than half a CPU gains less than another rank or thread costs */
};

void cddpi_processors(struct cddpi_processors *out);

/** The number of @p count CPUs that @p quota has time for, at least 1. All of them if @p quota is
 *  0. */
int cddpi_processors_within(int count, double quota);

#endif
