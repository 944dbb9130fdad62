/* backend.h - owns the backend interface: how one open group moves data in CPU memory.
 * group/transports.h defines backend, transport, device transport and carrier. */
#ifndef CDDPI_GROUP_BACKEND_H
#define CDDPI_GROUP_BACKEND_H

#include "base/error.h"
#include "group/operation.h"

struct cddpi_backend;
struct cddpi_late; /* group/watch/peer.h */

/* What a backend gets when it is opened. */
struct cddpi_open_params {
    int rank;
    int world_size;
    uint32_t timeout_ms;
    const int *names; /* by rank: its number in error texts, for a group that is a part of a larger
                         one; NULL: the rank itself */
};

/* The cores of a rank's host. */
struct cddpi_cores {
    int ranks; /* of the group, on this host */
    int all;   /* that any of them may use */
    int own;   /* that this rank may use */
};

/* What a backend does for its group. Only the thread that runs the group's queue calls advance,
 * check and sleep, so there is one caller at a time. */
struct cddpi_backend_ops {
    void (*close)(struct cddpi_backend *backend);
    /* Do what is possible now without waiting. Sets @p out_done only on CDDP_OK. */
    cddp_status (*advance)(struct cddpi_backend *backend, struct cddpi_group_op *op,
                           bool *out_done);
    /* Before sleeping: whether @p op can still complete. @p thorough also asks the operating system
     * whether the peers are alive. Sets the error text. */
    cddp_status (*check)(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                         bool thorough);
    /* Release what @p op holds. It failed elsewhere and will not be advanced again. */
    void (*drop)(struct cddpi_backend *backend, struct cddpi_group_op *op);
    /* Add the ranks that @p op waits for, unless another rank knows better which rank is late.
     * NULL: this backend never knows. */
    void (*late)(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                 struct cddpi_late *late);
    /* Set the error text for the timeout of @p op. */
    cddp_status (*expired)(struct cddpi_backend *backend, const struct cddpi_group_op *op);
    /* To sleep, call prepare_sleep, advance once more, sleep for at most @p ns, then end_sleep. @p
     * op is the only operation waited for; NULL: there are several or none. sleep returns whether
     * it was woken. */
    uint32_t (*prepare_sleep)(struct cddpi_backend *backend, const struct cddpi_group_op *op);
    bool (*sleep)(struct cddpi_backend *backend, uint32_t ticket, int64_t ns);
    void (*end_sleep)(struct cddpi_backend *backend);
    /* The program exits without closing the group: tell the peers without waiting for a lock.
     * NULL: no peer needs this. */
    void (*exits)(struct cddpi_backend *backend);
    void (*wake)(struct cddpi_backend *backend); /* wake this rank; any thread */
    /* Make every peer fail with @p failure, which is copied. Any thread. */
    void (*abort)(struct cddpi_backend *backend, const struct cddpi_failure *failure);
    /* CDDP_OK, or the failure from an abort by another thread or rank, with the name of the rank
     * that ended the group earlier. If this rank ended it: CDDP_ERR_BROKEN. Cheap. */
    cddp_status (*broken)(struct cddpi_backend *backend);
    /* Get the addresses at which this process sees every rank's counterpart of [memory, memory +
     * bytes), which is part of memory from cddp_group_alloc(). False: it does not see them. NULL:
     * no process of this backend does. */
    bool (*peers)(struct cddpi_backend *backend, const void *memory, size_t bytes,
                  const void **out);
    void (*free_memory)(struct cddpi_backend *backend, void *memory);
    /* Whether CDDPI_ALLOC with `in` (whole pages of private memory) makes those pages shared by all
     * ranks without moving them; free_memory() makes them private again. */
    bool shares_pages;
    /* Identify the place of [memory, memory + bytes) within memory from cddp_group_alloc(). Ranks
     * that see each other's memory through peers() get the same number. 0: other memory. NULL:
     * always 0. */
    uint64_t (*place)(struct cddpi_backend *backend, const void *memory, size_t bytes);
    /* Write the names of the network interfaces to the other hosts, separated by commas: as many as
     * fit into @p bytes with the final zero. False: not known on this rank. NULL: never known. */
    bool (*interfaces)(struct cddpi_backend *backend, char *out, size_t bytes);
    /* Whether data from other machines can arrive while this rank computes, and wake a sleeping
     * rank. NULL: no. */
    bool (*has_wire)(const struct cddpi_backend *backend);
};

/* The base of every backend: an implementation embeds it as its first member. */
struct cddpi_backend {
    const struct cddpi_backend_ops *ops;
    /* Counts what `advance` has done for operations that are not done yet. While it grows, no
     * thread that advances them sleeps. Once it no longer grows, they spin for the usual time
     * first, except a thread that only serves the wire, which sleeps at once. A backend that
     * leaves it 0 gets one time of spinning for each operation. */
    uint32_t moves;
};

#endif
