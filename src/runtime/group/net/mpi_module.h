/* mpi_module.h - what the MPI module (libcddp-mpi.so) and the library that opens it know of each
 * other. The module lies in net/mpi/, links the MPI that it was compiled for, and uses nothing of
 * libcddp but what is handed to it. */
#ifndef CDDPI_GROUP_NET_MPI_MODULE_H
#define CDDPI_GROUP_NET_MPI_MODULE_H

#include "base/module_loader.h"
#include "group/net/carrier.h"

/* What the module may call. Any thread. */
struct cddpi_mpi_host {
    const struct cddpi_module_host *base;
    /* cddpi_agree_by() */
    cddp_status (*agree)(const struct cddpi_exchange *exchange, cddp_status mine);
};

struct cddpi_mpi_module {
    struct cddpi_mpi_module_start start;
    /* Before all that follow; the same table every time. */
    void (*use)(const struct cddpi_mpi_host *host);
    const struct cddpi_carrier_ops *carrier;
    /* Start MPI, unless the program has, and give what all processes that mpirun has started can do
     * together by it. Collective among those. Nothing is to be closed. */
    cddp_status (*bootstrap)(uint32_t timeout_ms, cddp_bootstrap *out);
};

/** The module, opened once a process. CDDP_ERR_UNAVAILABLE: where it was looked for, and why that
 *  failed. Opening it calls nothing of MPI. Any thread. */
cddp_status cddpi_mpi_module_open(const struct cddpi_mpi_module **out);

#endif
