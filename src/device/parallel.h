/* parallel.h - the devices of one process, as cddp/parallel.h names them. */
#ifndef CDDPI_DEVICE_PARALLEL_H
#define CDDPI_DEVICE_PARALLEL_H

#include <cddp/parallel.h>

struct cddp_devices {
    int count;
    struct cddpi_core {
        char name[16];
        int cpu; /* the kernel's number of the processor; -1: any */
    } cores[];
};

#endif
