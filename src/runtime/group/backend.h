/* backend.h - what carries the processor's memory for one open group; group/transports.h says what
 * a backend, a transport, a device transport and a carrier are. */
#ifndef CDDPI_GROUP_BACKEND_H
#define CDDPI_GROUP_BACKEND_H

#include "base/error.h"
#include "group/operation.h"

struct cddpi_backend;
struct cddpi_late; /* group/watch/peer.h */

/* What a backend learns when it is opened. */
struct cddpi_open_params {
    int rank;
    int world_size;
    uint32_t timeout_ms;
    const int *names; /* by rank: what errors call it, where the ranks are some of a larger group's;
                         NULL: the same */
};

/* The cores of a rank's host. */
struct cddpi_cores {
    int ranks; /* of the group, on this host */
    int all;   /* that any of them may use */
    int own;   /* that this rank may use */
};

/* What a backend does for its group. advance, check and sleep are called by one thread at a time:
 * the one that runs the group's queue. */
struct cddpi_backend_ops {
    void (*close)(struct cddpi_backend *backend);
    /* Do what can be done now without waiting. @p out_done only on CDDP_OK. */
    cddp_status (*advance)(struct cddpi_backend *backend, struct cddpi_group_op *op,
                           bool *out_done);
    /* Before sleeping: whether @p op can still be completed. @p thorough asks the system whether
     * the peers live. Words what it finds. */
    cddp_status (*check)(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                         bool thorough);
    /* @p op failed elsewhere and will not be advanced again: release what it holds. */
    void (*drop)(struct cddpi_backend *backend, struct cddpi_group_op *op);
    /* Add the ranks that @p op waits for, unless another rank knows better which one is late. NULL:
     * this backend never knows. */
    void (*late)(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                 struct cddpi_late *late);
    /* Word the timeout of @p op. */
    cddp_status (*expired)(struct cddpi_backend *backend, const struct cddpi_group_op *op);
    /* Sleeping: prepare_sleep (@p op is all that is waited for, or NULL), advance once more, sleep
     * at most @p ns, and end_sleep. sleep returns whether it was woken. */
    uint32_t (*prepare_sleep)(struct cddpi_backend *backend, const struct cddpi_group_op *op);
    bool (*sleep)(struct cddpi_backend *backend, uint32_t ticket, int64_t ns);
    void (*end_sleep)(struct cddpi_backend *backend);
    /* The program ends without closing the group: tell the peers, by setting flags and nothing
     * else. NULL: there is nothing to tell. */
    void (*exits)(struct cddpi_backend *backend);
    void (*wake)(struct cddpi_backend *backend); /* end this rank's own sleep; any thread */
    /* Let every peer fail as @p failure says, which is copied. Any thread. */
    void (*abort)(struct cddpi_backend *backend, const struct cddpi_failure *failure);
    /* CDDP_OK, or what another thread's or rank's abort says, with the name of the rank that ended
     * the group before it: CDDP_ERR_CLOSED for one's own. Cheap. */
    cddp_status (*broken)(struct cddpi_backend *backend);
    /* The addresses at which this process sees every rank's counterpart of [memory, memory +
     * bytes), a part of what cddp_group_alloc() gave; false: it does not see them. NULL: it never
     * does. */
    bool (*peers)(struct cddpi_backend *backend, const void *memory, size_t bytes,
                  const void **out);
    void (*free_memory)(struct cddpi_backend *backend, void *memory);
    /* Whether CDDPI_ALLOC with `in`, whole pages of private memory, lets all ranks share those
     * where they are; free_memory() makes them private again. */
    bool shares_pages;
    /* A number for the place of [memory, memory + bytes) in memory of cddp_group_alloc(): the same
     * on ranks that see each other's by peers(); 0: it is other memory. NULL: it always is. */
    uint64_t (*place)(struct cddpi_backend *backend, const void *memory, size_t bytes);
    /* Write the name of the network interface that leads to the other hosts, at most @p bytes with
     * its end; false: it is not known on this rank. NULL: never. */
    bool (*interface)(struct cddpi_backend *backend, char *out, size_t bytes);
    /* Whether data of other machines arrive while this rank computes, and end a sleep. NULL: no. */
    bool (*has_wire)(const struct cddpi_backend *backend);
};

/* What all backends begin with: an implementation embeds it as its first member. */
struct cddpi_backend {
    const struct cddpi_backend_ops *ops;
};

#endif
