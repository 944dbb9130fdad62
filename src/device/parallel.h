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

/** Bind the calling thread to @p core; nothing for one that is any.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: the process may not use that processor any more. */
CDDP_CHECKED cddp_status cddpi_core_bind(const struct cddpi_core *core);

#endif
