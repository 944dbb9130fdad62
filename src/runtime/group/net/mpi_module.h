/* mpi_module.h - owns the interface between the MPI module (libcddp-mpi.so) and the library that
 * opens it. The module is in net/mpi/, links the MPI that it was compiled for, and uses only those
 * functions of libcddp that it gets through this interface. */
#ifndef CDDPI_GROUP_NET_MPI_MODULE_H
#define CDDPI_GROUP_NET_MPI_MODULE_H

#include "base/module_loader.h"
#include "group/net/carrier.h"

/* The functions of libcddp that the module may call. Any thread. */
struct cddpi_mpi_host {
    const struct cddpi_module_host *base;
    /* cddpi_agree_by() */
    cddp_status (*agree)(const struct cddpi_exchange *exchange, cddp_status mine);
};

struct cddpi_mpi_module {
    struct cddpi_mpi_module_start start;
    /* Called before all functions below, with the same table every time. */
    void (*use)(const struct cddpi_mpi_host *host);
    const struct cddpi_carrier_ops *carrier;
    /* Start MPI, unless the program has done so, and return the exchanges among all processes that
     * mpirun started. Collective among those processes. The result needs no close. */
    cddp_status (*bootstrap)(uint32_t timeout_ms, cddp_bootstrap *out);
};

/** Get the module, which is opened once per process. CDDP_ERR_UNAVAILABLE: the text says where it
 *  was searched, and why that failed. Opening does not call MPI. Any thread. */
cddp_status cddpi_mpi_module_open(const struct cddpi_mpi_module **out);

#endif
