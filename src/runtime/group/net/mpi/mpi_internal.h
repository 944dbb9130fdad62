/* mpi_internal.h - what the files of the MPI module share. */
#ifndef CDDPI_GROUP_NET_MPI_INTERNAL_H
#define CDDPI_GROUP_NET_MPI_INTERNAL_H

#include "group/net/mpi_module.h"

#include <mpi.h>
#include <stdatomic.h>

/* engine.c: MPI as a whole, which is started once a process. */

/** What libcddp has handed over. */
extern const struct cddpi_mpi_host *cddpi_mpi_host;

/** Whether MPI has been started, or can be, as far as this process knows. Words why not. */
cddp_status cddpi_mpi_probe(void);
/** Start MPI if nobody has. Waits for the other processes that mpirun has started. */
cddp_status cddpi_mpi_start(uint32_t timeout_ms);
/** Around calls of MPI, of which one thread at a time may make some. CDDP_ERR_CLOSED: MPI has been
 *  ended; then nothing is to be left. */
cddp_status cddpi_mpi_enter(void);
/** The same without waiting, for any thread at any time; false: another thread is inside, may be
 *  without our knowing, or MPI has been ended. */
bool cddpi_mpi_try_enter(void);
void cddpi_mpi_leave(void);
/** The text "what: " and MPI's own for @p code becomes this thread's failure; returns @p status.
 *  Inside. @p format: may be followed by its arguments. */
cddp_status cddpi_mpi_fail(cddp_status status, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** After this MPI is not ended properly: others may hang, which only mpirun can end. */
void cddpi_mpi_give_up(void);

/* world.c */
cddp_status cddpi_mpi_bootstrap(uint32_t timeout_ms, cddp_bootstrap *out);

enum { CDDPI_MPI_HOST_BYTES = 64 };

/* The requests that are under way, in arrays as MPI_Testsome() wants them. The first is the receive
 * of others' abort, which belongs to no transfer. */
struct cddpi_mpi_requests {
    MPI_Request *requests;
    struct cddpi_transfer **transfers; /* several in a row may be of one */
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
    _Atomic int64_t *heard_ns;           /* by rank: when the last message came; 0: none yet */
    struct cddpi_mpi_requests under_way;

    /* a message of another length than was expected, not told yet; and when it came, 0: none did */
    struct cddpi_failure misfit;
    int64_t misfit_ns;

    /* check(): set once by the thread that calls MPI */
    struct cddpi_failure broken;
    atomic_bool is_broken;

    /* aborted(): likewise */
    struct cddpi_failure aborted;
    atomic_bool is_aborted;
    struct cddpi_failure abort_in; /* what the receive writes to */

    /* abort(): the first caller writes; it sends, or whoever is inside MPI next */
    struct cddpi_failure abort_out;
    atomic_int abort_state;   /* enum abort_state of carrier.c */
    MPI_Request *abort_sends; /* by host; host_count of them */
};

static inline struct mpi_carrier *mpi_of(struct cddpi_carrier *base)
{
    return (struct mpi_carrier *)(void *)base;
}

/* mpi_open.c */
extern const struct cddpi_carrier_ops cddpi_mpi_carrier_ops;

/* requests.c */
cddp_status cddpi_mpi_requests_reserve(struct cddpi_mpi_requests *requests, int count);
void cddpi_mpi_requests_free(struct cddpi_mpi_requests *requests);

/* carrier.c: the functions of struct cddpi_carrier_ops, but for mpi_open.c's */
cddp_status cddpi_mpi_carrier_start(struct cddpi_carrier *base, struct cddpi_transfer *transfer);
cddp_status cddpi_mpi_carrier_progress(struct cddpi_carrier *base, bool *out_any);
bool cddpi_mpi_carrier_forget(struct cddpi_carrier *base);
cddp_status cddpi_mpi_carrier_check(struct cddpi_carrier *base);
void cddpi_mpi_carrier_describe(struct cddpi_carrier *base, int peer, char *out, size_t bytes);
void cddpi_mpi_carrier_abort(struct cddpi_carrier *base, const struct cddpi_failure *failure);
bool cddpi_mpi_carrier_aborted(struct cddpi_carrier *base, struct cddpi_failure *out);
/** Post the receive of others' abort. Inside. */
cddp_status cddpi_mpi_carrier_listen(struct mpi_carrier *carrier);
/** Cancel what is under way, and wait for what cannot be cancelled, but not for long. Inside.
 *  Returns whether nothing is left. */
bool cddpi_mpi_carrier_drain(struct mpi_carrier *carrier);

#endif
