/* carrier.h - owns the carrier interface: how bytes get from a rank on one host to a rank on
 * another. There is one row each for tcp and mpi. A carrier knows nothing about collectives: net/
 * above it decides what is sent where and in which order.
 *
 * A transfer is one message from one rank of the group to another. Both sides start it with the
 * same channel, tag and number of bytes. A carrier may deliver the messages between two ranks in
 * any order, so transfers that are in progress at the same time in one direction and channel must
 * have different tags. Transfers of one channel never wait for those of another channel.
 *
 * Only the thread that runs the group's queue calls start, forget and progress. */
#ifndef CDDPI_GROUP_NET_CARRIER_H
#define CDDPI_GROUP_NET_CARRIER_H

#include "base/error.h"
#include "group/join/group_agree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cddpi_carrier;

enum cddpi_net_channel {
    CDDPI_NET_COLLECTIVES, /* between any two ranks, mostly leaders, which advance in lock step */
    CDDPI_NET_MESSAGES,    /* cddp_send() and cddp_recv(): a message may wait long for its recv */
    CDDPI_NET_CHANNELS
};

/* A carrier may transmit only the low bits of a tag. They distinguish the transfers of matching
 * calls; the other bits keep different calls from being matched with each other. */
enum {
    CDDPI_NET_TAG_BITS = 30,
    CDDPI_NET_TAG_LOW_BITS = 22 /* the limit of MPI libraries, less one bit for the channel */
};

/* One message. The caller owns this struct and the memory at `data`, and keeps both until `is_done`
 * is set or forget() was called. The caller fills in all fields except `is_done` and `state`. */
struct cddpi_transfer {
    int peer; /* rank of the group, on another host */
    enum cddpi_net_channel channel;
    uint32_t tag; /* below 1 << CDDPI_NET_TAG_BITS */
    bool is_send;
    void *data; /* a send only reads it; may be NULL when bytes is 0 */
    size_t bytes;
    size_t cut_bytes; /* a carrier with `cuts` sends messages of at most this many bytes; the same
                         on both sides; 0: the carrier chooses */
    bool is_done;     /* set by start or progress: a send's data may be reused, a recv's data has
                         arrived */

    _Alignas(8) unsigned char state[96]; /* private to the carrier */
};

/* What a carrier gets when it is opened. Everything is borrowed; arrays live as long as the
 * carrier. */
struct cddpi_carrier_params {
    int rank;
    int world_size;
    const int *host_of; /* by rank: number of its host */
    const int *leaders; /* by host: the rank that connects to the other leaders when the carrier
                           opens; other pairs of ranks connect at their first transfer */
    int host_count;
    const char *job;     /* id and generation, so that ranks of another job are refused */
    uint32_t generation; /* of the job */
    const char *token;   /* the job's secret; "": none; never sent */
    uint32_t timeout_ms; /* for opening, and for connecting later */
    bool only_control; /* no transfers: open only what check(), abort(), describe() and interfaces()
                          need; not for mpi */

    /* Exchanges data among all ranks of the group by other means, such as addresses. */
    const struct cddpi_exchange *exchange;

    /* The carrier calls this from any thread if, while no thread is inside a call, progress() can
     * do more or check() or broken() would return something new. Does not wait. */
    void (*wake)(void *context);
    void *wake_context; /* host_failed's, too */

    /* Whether this host's ranks have failed and other hosts do not know it yet. If so, @p out is
     * the failure, and the carrier must send it to the other hosts. A carrier with its own thread
     * calls this periodically, since this rank may be computing, and before it says goodbye. Any
     * thread; may be NULL. */
    bool (*host_failed)(void *context, struct cddpi_failure *out);
};

/* A row of the list of carriers. */
struct cddpi_carrier_ops {
    const char *name;
    bool is_blind; /* check() does not detect a host that disappears */
    bool cuts;     /* it uses a transfer's cut_bytes */

    /* Whether it could serve, as far as one rank knows: the library is present, mpirun started this
     * process. On failure the text says why not. */
    cddp_status (*probe)(void);
    /* Collective: every rank succeeds or every rank fails with the same status. On failure nothing
     * stays open. */
    cddp_status (*open)(const struct cddpi_carrier_params *params, struct cddpi_carrier **out);
    void (*close)(struct cddpi_carrier *carrier);

    /* Start @p transfer. It may complete at once, or be held until flush() or progress() to be sent
     * with others. Never waits. */
    cddp_status (*start)(struct cddpi_carrier *carrier, struct cddpi_transfer *transfer);
    /* Transfer what is possible without waiting. @p out_any: whether a transfer completed. */
    cddp_status (*progress)(struct cddpi_carrier *carrier, bool *out_any);
    /* Send what start() has held. NULL: the carrier never holds transfers. @p out_any: whether a
     * transfer completed.
     */
    cddp_status (*flush)(struct cddpi_carrier *carrier, bool *out_any);
    /* Forget all transfers, since the group has failed; their memory may then be released. False: a
     * library still reads or writes some of that memory, and may do so until the process ends. */
    bool (*forget)(struct cddpi_carrier *carrier);

    /* For waiting: a descriptor that is readable while progress() can do something; -1: there is no
     * descriptor, and progress() must be called periodically. Before a sleep on it, prepare is
     * called, then progress() once more. */
    int (*descriptor)(struct cddpi_carrier *carrier);
    void (*prepare_sleep)(struct cddpi_carrier *carrier);

    /* CDDP_OK, or CDDP_ERR_PEER for a rank that died or whose host cannot be reached any more. The
     * text names rank and host; cddpi_error_blame() has recorded the rank. Cheap; any thread. */
    cddp_status (*check)(struct cddpi_carrier *carrier);
    /* Append to the text of a timeout what is known about @p peer, the rank that is late: its host,
     * its address, and when it was last heard from. */
    void (*describe)(struct cddpi_carrier *carrier, int peer, char *out, size_t bytes);
    /* Make the leaders of all other hosts fail with @p failure. Any thread; does not wait. */
    void (*abort)(struct cddpi_carrier *carrier, const struct cddpi_failure *failure);
    /* Whether another host's abort has arrived; @p out is then its failure. Cheap; any thread. */
    bool (*aborted)(struct cddpi_carrier *carrier, struct cddpi_failure *out);
    /* The program calls exit() without closing the carrier: tell the leaders of other hosts that
     * this rank has left, and has not died. Other threads may still be inside a call. Waits only
     * briefly. NULL: other hosts see only that this rank is gone. */
    void (*exits)(struct cddpi_carrier *carrier);
    /* Get the names of the network interfaces through which this rank can reach the other hosts,
     * separated by commas, the one that it uses first; false: it reaches no host yet. NULL: the
     * carrier does not know them. */
    bool (*interfaces)(struct cddpi_carrier *carrier, char *out, size_t bytes);
};

/* The base of every carrier: an implementation embeds it as its first member. */
struct cddpi_carrier {
    const struct cddpi_carrier_ops *ops;
};

/* in tcp/ */
extern const struct cddpi_carrier_ops cddpi_tcp_carrier;

/* carriers.c: the list. With CDDP_ENCRYPT=1, a carrier that does not encrypt is chosen only if
 * $CDDP_CARRIER names it. */

/** Choose the carrier @p name, if it can serve as far as this rank knows. @p name NULL: the one
 *  that $CDDP_CARRIER names, else the best. Returns NULL and sets this thread's failure if no
 *  carrier has that name (CDDP_ERR_ARGUMENT) or it cannot serve. Ranks may get different results,
 *  so they must agree on one. Any thread. */
const struct cddpi_carrier_ops *cddpi_carrier_choose(const char *name);

/** Choose the best carrier that all ranks can use, among those that $CDDP_CARRIER allows.
 * Collective: every rank gets the same carrier or every rank fails. */
CDDP_CHECKED cddp_status cddpi_carrier_agree(const struct cddpi_exchange *exchange,
                                             const struct cddpi_carrier_ops **out);

/** Log a warning if CDDP_ENCRYPT=1 and @p carrier, which was requested by name, does not
 *  encrypt. */
void cddpi_carrier_warn(const struct cddpi_carrier_ops *carrier);

#endif
