/** @file
 *  mpi.h - a process group for a program of MPI, on a communicator of its own.
 *
 * This header stands alone: it is the only one that needs mpi.h, and cddp.h does not include it.
 * What it defines is compiled into the program, with the program's own MPI, whichever that is (the
 * types of MPI differ from one to the other): there is no library to link but cddp's. */
#ifndef CDDP_MPI_H
#define CDDP_MPI_H

#include <cddp/group.h>

#include <mpi.h>

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

/** For cddp_group_create_from_mpi(): @p context points to the communicator. */
static inline int cddp_mpi_broadcast(void *context, void *data, size_t bytes)
{
    return bytes > INT_MAX ? MPI_ERR_COUNT
                           : MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, *(MPI_Comm *)context);
}

/** For cddp_group_create_from_mpi(): @p context points to the communicator. */
static inline int cddp_mpi_all_gather(void *context, const void *own, size_t bytes, void *out_all)
{
    return bytes > INT_MAX ? MPI_ERR_COUNT
                           : MPI_Allgather(own, (int)bytes, MPI_BYTE, out_all, (int)bytes, MPI_BYTE,
                                           *(MPI_Comm *)context);
}

/** Join a group of the processes of @p comm, with its ranks: MPI_COMM_WORLD, or a part of it, of
 *  which each becomes a group of its own. MPI must have been started, by MPI_Init() or
 *  MPI_Init_thread(). @p comm is used during this call only, for a few small broadcasts and
 *  gathers. It stays the caller's, who may go on calling MPI, and destroys the group before
 *  MPI_Finalize().
 *
 *  On one machine the group's data goes through shared memory. Between machines it goes by MPI if
 *  cddp has its MPI module, built for this MPI, and MPI was started with MPI_THREAD_MULTIPLE (the
 *  group calls it in a thread of its own), else by TCP ($CDDP_CARRIER). MPI_THREAD_SERIALIZED does
 *  for groups on the processor with CDDP_COMM_THREAD=0 in the environment: they have no such
 *  thread then, and every call of cddp for the group, or for a handle over it, counts as a call of
 *  MPI, beside which no other thread of the program calls MPI.
 *  @param comm     An intra-communicator.
 *  @param options  As for cddp_group_create_by(): NULL for all defaults.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return as cddp_group_create_by(). An error of MPI ends the program, unless @p comm has another
 *          error handler (MPI_ERRORS_RETURN): then CDDP_ERR_PEER with MPI's number. */
__attribute__((warn_unused_result)) static inline cddp_status
cddp_group_create_from_mpi(MPI_Comm comm, const cddp_group_options *options, cddp_group **out)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;

    bootstrap.context = &comm;
    bootstrap.broadcast = cddp_mpi_broadcast;
    bootstrap.all_gather = cddp_mpi_all_gather;
    if (MPI_Comm_rank(comm, &bootstrap.rank) != MPI_SUCCESS ||
        MPI_Comm_size(comm, &bootstrap.world_size) != MPI_SUCCESS) {
        bootstrap.world_size = 0; /* which cddp_group_create_by() refuses */
    }
    return cddp_group_create_by(&bootstrap, options, out);
}

#ifdef __cplusplus
}
#endif
#endif
