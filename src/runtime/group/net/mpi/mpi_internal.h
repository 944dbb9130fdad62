/* mpi_internal.h - declares what the files of the MPI module share. */
#ifndef CDDPI_GROUP_NET_MPI_INTERNAL_H
#define CDDPI_GROUP_NET_MPI_INTERNAL_H

#include "group/net/mpi_module.h"

#include <mpi.h>
#include <stdatomic.h>

/* engine.c: MPI as a whole, which is started once per process. */

/** The functions that libcddp gave to the module. */
extern const struct cddpi_mpi_host *cddpi_mpi_host;

/** Whether MPI has been started, or can be, as far as this process knows. On failure the text says
 *  why not. */
cddp_status cddpi_mpi_probe(void);
/** Start MPI, unless it is started already. Waits for the other processes that mpirun started. */
cddp_status cddpi_mpi_start(uint32_t timeout_ms);
/** Enter the section for MPI calls, in which only one thread may be at a time. CDDP_ERR_CLOSED: MPI
 *  has ended; then do not leave the section. */
cddp_status cddpi_mpi_enter(void);
/** The same without waiting, for any thread at any time. False: another thread is inside, possibly
 *  one that this module does not know of, or MPI has ended. */
bool cddpi_mpi_try_enter(void);
void cddpi_mpi_leave(void);
/** Set this thread's failure to the text from @p format, ": " and MPI's own text for @p code;
 *  returns @p status. Call it inside the section. */
cddp_status cddpi_mpi_fail(cddp_status status, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Do not end MPI properly after this: other processes may hang, and only mpirun can end them. */
void cddpi_mpi_give_up(void);

enum { CDDPI_MPI_HOST_BYTES = 64 };

/* The requests in progress, in arrays as MPI_Testsome() needs them. The first is the receive of
 * other hosts' abort, which belongs to no transfer. */
struct cddpi_mpi_requests {
    MPI_Request *requests;
    struct cddpi_transfer **transfers; /* several consecutive entries may belong to one transfer */
    size_t *bytes;                     /* of each request's message */
    int *done;
    MPI_Status *statuses;
    int count;
    int capacity;
};

struct mpi_carrier {
    struct cddpi_carrier base; /* first: see mpi_of() */
    struct cddpi_carrier_params params;
    MPI_Comm comm;                       /* of the group's ranks, in their order */
    char (*hosts)[CDDPI_MPI_HOST_BYTES]; /* names, by number of the host */
    _Atomic int64_t *heard_ns;           /* by rank: when the last message arrived; 0: none yet */
    struct cddpi_mpi_requests under_way;

    /* a message of unexpected length that was not reported yet, and when it arrived; 0: none */
    struct cddpi_failure misfit;
    int64_t misfit_ns;

    /* check(): set once by the thread that calls MPI */
    struct cddpi_failure broken;
    atomic_bool is_broken;

    /* aborted(): likewise */
    struct cddpi_failure aborted;
    atomic_bool is_aborted;
    struct cddpi_failure abort_in; /* the receive's buffer */

    /* abort(): its first caller writes this. The caller sends it, or the next thread that is inside
     * MPI. */
    struct cddpi_failure abort_out;
    atomic_int abort_state;   /* enum abort_state of carrier.c */
    MPI_Request *abort_sends; /* by host, host_count entries */
};

static inline struct mpi_carrier *mpi_of(struct cddpi_carrier *base)
{
    return (struct mpi_carrier *)(void *)base;
}

/* mpi_open.c: the functions of struct cddpi_carrier_ops with these names */
cddp_status cddpi_mpi_carrier_open(const struct cddpi_carrier_params *params,
                                   struct cddpi_carrier **out);
void cddpi_mpi_carrier_close(struct cddpi_carrier *base);

/* requests.c */
cddp_status cddpi_mpi_requests_reserve(struct cddpi_mpi_requests *requests, int count);
void cddpi_mpi_requests_free(struct cddpi_mpi_requests *requests);
/** Close the gaps of completed messages; the first entry always belongs to the abort. */
void cddpi_mpi_requests_compact(struct cddpi_mpi_requests *under_way);
/** Whether all requests are done; failed ones count as done. */
bool cddpi_mpi_requests_are_done(MPI_Request *requests, int count);
/** Cancel the receives from index @p from on for which nothing has arrived; MPI cannot cancel
 *  others. */
void cddpi_mpi_requests_cancel(struct cddpi_mpi_requests *under_way, int from);

/* carrier.c */
extern const struct cddpi_carrier_ops cddpi_mpi_carrier_ops;
/** Post the receive of other hosts' abort. Call it inside the section. */
cddp_status cddpi_mpi_carrier_listen(struct mpi_carrier *carrier);
/** Cancel the requests in progress, and wait briefly for those that cannot be cancelled. Call it
 *  inside the section. Returns whether no request is left. */
bool cddpi_mpi_carrier_drain(struct mpi_carrier *carrier);

#endif
