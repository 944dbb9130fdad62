/* carrier.h - what takes bytes from a rank on one host to a rank on another: one row each, tcp and
 * mpi. It knows nothing of collectives: net/ above it decides what goes where, and in which order.
 *
 * A transfer is one message between two ranks of the group, in one direction: both sides start it
 * with the same channel, tag and number of bytes. Between two ranks a carrier delivers in any
 * order, so transfers that are under way at the same time in one direction and channel differ in
 * their tags. Transfers of one channel never wait for those of another.
 *
 * One thread at a time calls start, forget and progress: the one that runs the group's queue. */
#ifndef CDDPI_GROUP_NET_CARRIER_H
#define CDDPI_GROUP_NET_CARRIER_H

#include "base/error.h"
#include "group/join/group_agree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cddpi_carrier;

enum cddpi_net_channel {
    CDDPI_NET_COLLECTIVES, /* between any two ranks, mostly leaders; in lock step */
    CDDPI_NET_MESSAGES,    /* cddp_send() and cddp_recv(): may stay untaken for long */
    CDDPI_NET_CHANNELS
};

/* A carrier may leave out all but the low bits of a tag, which tell apart what both sides mean; the
 * others keep calls that differ from being taken for each other. */
enum {
    CDDPI_NET_TAG_BITS = 30,
    CDDPI_NET_TAG_LOW_BITS = 22 /* what MPI's libraries allow, with a bit for the channel */
};

/* One message. The caller's memory, like what `data` points to: both stay until `is_done` is set or
 * forget() was called. All but `is_done` and `state` are the caller's to fill. */
struct cddpi_transfer {
    int peer; /* rank of the group, on another host */
    enum cddpi_net_channel channel;
    uint32_t tag; /* below 1 << CDDPI_NET_TAG_BITS */
    bool is_send;
    void *data; /* a send only reads it; may be NULL when bytes is 0 */
    size_t bytes;
    size_t cut_bytes; /* a carrier that cuts sends messages of so many bytes: the same on both
                         sides; 0: as it likes */
    bool is_done;     /* set by start or progress: data may be used again, or has arrived */

    _Alignas(8) unsigned char state[96]; /* the carrier's own */
};

/* What a carrier learns when it is opened. All is borrowed: arrays live as long as the carrier. */
struct cddpi_carrier_params {
    int rank;
    int world_size;
    const int *host_of; /* by rank: number of its host */
    const int *leaders; /* by host: the rank that connects to the other leaders at once; pairs of
                           other ranks connect when they first have a transfer */
    int host_count;
    const char *job;     /* id and generation, so that a stranger of another job is refused */
    uint32_t generation; /* of the job */
    const char *token;   /* the job's secret, "" if there is none; never sent */
    uint32_t timeout_ms; /* of opening, and of connecting later */
    bool only_control;   /* nothing is transferred: no more than check(), abort(), describe() and
                            interface() need; not for mpi */

    /* Among all ranks of the group, by other means: to tell each other addresses. */
    const struct cddpi_exchange *exchange;

    /* Called from any thread when progress() may do more, or check() or broken() has news, while
     * nobody is inside a call. Does not wait. */
    void (*wake)(void *context);
    void *wake_context; /* host_failed's, too */

    /* Whether this host's ranks have failed, which other hosts have not been told: then @p out is
     * why, and they have been from now on. A carrier with a thread of its own asks it now and then,
     * since this rank may be computing. Any thread; NULL: nobody is to be asked. */
    bool (*host_failed)(void *context, struct cddpi_failure *out);
};

/* A row of the list of carriers. */
struct cddpi_carrier_ops {
    const char *name;
    bool is_blind; /* check() says nothing of a host that vanishes */
    bool cuts;     /* it looks at a transfer's cut_bytes */

    /* Whether it could serve, as far as one rank knows: the library is there, mpirun started us.
     * Words why not. */
    cddp_status (*probe)(void);
    /* Collective: every rank succeeds or every rank fails with the same status. On failure nothing
     * stays open. */
    cddp_status (*open)(const struct cddpi_carrier_params *params, struct cddpi_carrier **out);
    void (*close)(struct cddpi_carrier *carrier);

    /* Begin @p transfer, which may be done at once, or be held for others until flush() or
     * progress(). Never waits. */
    cddp_status (*start)(struct cddpi_carrier *carrier, struct cddpi_transfer *transfer);
    /* Move what can be moved without waiting. @p out_any: whether a transfer was done. */
    cddp_status (*progress)(struct cddpi_carrier *carrier, bool *out_any);
    /* Send what start() has held. NULL: it holds nothing. @p out_any: whether a transfer was done.
     */
    cddp_status (*flush)(struct cddpi_carrier *carrier, bool *out_any);
    /* The group has failed: forget all transfers, whose memory may go. False: some of it is still
     * read or written, by a library that does not give it back, and may do so as long as the
     * process lives. */
    bool (*forget)(struct cddpi_carrier *carrier);

    /* Waiting: a descriptor that is readable while progress() can do something, or -1 if there is
     * none and progress() has to be called now and then. prepare is called before a sleep on it,
     * then progress() once more. */
    int (*descriptor)(struct cddpi_carrier *carrier);
    void (*prepare_sleep)(struct cddpi_carrier *carrier);

    /* CDDP_OK, or CDDP_ERR_PEER for a rank that died or whose host is not to be reached any more:
     * the text names both, and cddpi_error_blame() the rank. Cheap; any thread. */
    cddp_status (*check)(struct cddpi_carrier *carrier);
    /* Append to the text of a timeout what is known about @p peer, that is waited for: its host and
     * address, since when nothing has been heard of it. */
    void (*describe)(struct cddpi_carrier *carrier, int peer, char *out, size_t bytes);
    /* Let the leaders of all other hosts fail as @p failure says. Any thread; does not wait. */
    void (*abort)(struct cddpi_carrier *carrier, const struct cddpi_failure *failure);
    /* Whether another host's abort has come: then @p out is its failure. Cheap; any thread. */
    bool (*aborted)(struct cddpi_carrier *carrier, struct cddpi_failure *out);
    /* The program ends by exit(), without closing this: the leaders of other hosts are to know that
     * this rank has left, and has not died. Other threads may still be inside a call. Waits a
     * moment at most. NULL: they see only that it is gone. */
    void (*exits)(struct cddpi_carrier *carrier);
    /* The name of the network interface by which this rank reaches another host; false: it reaches
     * none yet. NULL: the carrier does not know. */
    bool (*interface)(struct cddpi_carrier *carrier, char *out, size_t bytes);
};

/* What all carriers begin with: an implementation embeds it as its first member. */
struct cddpi_carrier {
    const struct cddpi_carrier_ops *ops;
};

/* in tcp/ */
extern const struct cddpi_carrier_ops cddpi_tcp_carrier;

#endif
