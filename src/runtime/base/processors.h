/* processors.h - how many processors this process may really use: what its affinity mask, with
 * cpusets and processors that are offline, leaves, and what the quotas of its control groups
 * (docker --cpus, a pod's limits, systemd's CPUQuota=) give in time. */
#ifndef CDDPI_BASE_PROCESSORS_H
#define CDDPI_BASE_PROCESSORS_H

#include <stdbool.h>

struct cddpi_processors {
    int allowed;     /* by the mask, which the kernel keeps within cpusets and to what is online */
    double quota;    /* processors' time that control groups give; 0: as much as there is */
    char limit[512]; /* what gives it, for texts: "cpu.max 1.5 of /sys/fs/cgroup/a"; "": nothing */
    int count;       /* the less of both, at least 1. Half a processor and more counts as one: less
                        brings a rank or a thread less than it costs */
};

void cddpi_processors(struct cddpi_processors *out);

/** As many of @p count, at least 1, as @p quota has time for; all if it is 0. */
int cddpi_processors_within(int count, double quota);

#endif
