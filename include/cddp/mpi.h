/** @file
 *  mpi.h - a process group for an MPI program, made from a communicator.
 *
 *  This is the only header that needs MPI's mpi.h, so cddp.h does not include it. Its functions are
 *  inline: they are compiled into the program with the program's own MPI, since types differ from
 *  one MPI to another. The program links no library but cddp's. */
#ifndef CDDP_MPI_H
#define CDDP_MPI_H

#include <cddp/group.h>

#include <mpi.h>

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

/** MPI's error @p code as a status; its text becomes the failure of the call.
 *
 *  Collective: no. */
static inline cddp_status cddp_mpi_status(int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;

    if (code == MPI_SUCCESS) {
        return CDDP_OK;
    }
    return MPI_Error_string(code, text, &length) == MPI_SUCCESS ? cddp_fail(CDDP_ERR_PEER, text)
                                                                : CDDP_ERR_PEER;
}

/** cddp_bootstrap.broadcast by MPI. @p state points to the MPI_Comm.
 *
 *  Collective: yes. */
static inline cddp_status cddp_mpi_broadcast(void *state, void *data, size_t bytes)
{
    return cddp_mpi_status(bytes > INT_MAX
                               ? MPI_ERR_COUNT
                               : MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, *(MPI_Comm *)state));
}

/** cddp_bootstrap.all_gather by MPI. @p state points to the MPI_Comm.
 *
 *  Collective: yes. */
static inline cddp_status cddp_mpi_all_gather(void *state, const void *own, size_t bytes,
                                              void *out_all)
{
    return cddp_mpi_status(bytes > INT_MAX
                               ? MPI_ERR_COUNT
                               : MPI_Allgather(own, (int)bytes, MPI_BYTE, out_all, (int)bytes,
                                               MPI_BYTE, *(MPI_Comm *)state));
}

/** Join a group of the processes in @p comm, with the same ranks. @p comm may be MPI_COMM_WORLD, or
 *  a communicator of MPI_Comm_split(): then each part becomes a group of its own. Call MPI_Init()
 *  or MPI_Init_thread() first, and destroy the group before MPI_Finalize(). Only this call uses
 *  @p comm, for a few small broadcasts and gathers; it stays the caller's. The caller may go on
 *  calling MPI.
 *
 *  On one machine, the group's data goes through shared memory. Between machines it goes by MPI if
 *  cddp has its MPI module for this MPI, and MPI was started with MPI_THREAD_MULTIPLE, because a
 *  background thread of the group calls MPI. Otherwise it goes by TCP. $CDDP_CARRIER chooses one of
 *  the two.
 *
 *  With $CDDP_COMM_THREAD=0, a group on the CPU has no such thread, so MPI_THREAD_SERIALIZED is
 *  enough. Then every call of cddp that uses the group, or a handle over it, counts as a call of
 *  MPI: no other thread may call MPI at the same time.
 *
 *  Collective: yes.
 *  @param comm     An intra-communicator.
 *  @param options  As for cddp_group_create_by(): NULL for all defaults.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return as cddp_group_create_by(). An error of MPI ends the program, unless @p comm has another
 *          error handler, such as MPI_ERRORS_RETURN: then CDDP_ERR_PEER with MPI's text. */
__attribute__((warn_unused_result)) static inline cddp_status
cddp_group_create_from_mpi(MPI_Comm comm, const cddp_group_options *options, cddp_group **out)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;

    bootstrap.state = &comm;
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
