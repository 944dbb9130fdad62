/* ddp_shard.h - owns the sharded optimizer: each rank updates its part of all parameters. */
#ifndef CDDPI_DDP_SHARD_H
#define CDDPI_DDP_SHARD_H

#include "ddp/ddp.h"

/* How a bucket's updates reach all ranks. */
struct cddpi_shard_bucket {
    cddp_work *gather; /* the running all_gather of its updates, or NULL */
    /* A captured graph waits for this event: `gather` does not outlive a step. */
    struct cddpi_event *gathered; /* its updates have arrived */
    bool awaited;                 /* the graph being captured waits for `gathered` */
};

/* The state of a sharded optimizer: see ddp_shard.c. */
struct cddpi_ddp_shards {
    unsigned char *block; /* the parameters, laid out as the buckets */
    cddp_span *spans;     /* of rank 0, then those of rank 1, ... */
    size_t *first;        /* by rank: the index of its first span; one more entry for the end */
    bool deferred;        /* gradients are reduced in cddpi_ddp_mean() */
    const void **peers;   /* deferred: by rank, its gradients in this process's memory */
    double *weights;      /* deferred: by rank, of the last step; then one factor for each rank */
    const void **src;     /* deferred: scratch of cddpi_ddp_mean() */
    struct cddpi_shard_bucket *buckets;
    cddp_type copy_type; /* of copies (copies.h) */
    bool has_copies;
    unsigned char *copies; /* of `separate` tensors, element by element laid out as the block */
    bool updated;          /* at least once */
    bool has_moved;        /* the last cddp_ddp_wait() gave it another plan */
    uint64_t waited_ns; /* CPU: how long updates were waited for since the last cddp_ddp_wait() */
};

/* ddp_shard.c */
/** Move the parameters to a block that is laid out as the buckets, which must have their memory.
 *  Collective. */
cddp_status cddpi_shard_install(cddp_ddp *ddp);
/** Replace the present layout by @p layout, after a reduction and before any update. Every rank
 *  first gathers all reduced gradients, since the new layout gives it other parts of them; then
 *  gradients and parameters move. Collective. */
cddp_status cddpi_shard_move(cddp_ddp *ddp, struct cddpi_layout *layout);
void cddpi_shard_release(cddp_ddp *ddp); /* accepts a handle without shards */
/** Plan a copy of @p counts[i] elements for each parameter i: see copies.h. Call it before the
 *  buckets are planned. */
void cddpi_shard_plan_copies(cddp_ddp *ddp, cddp_type type, const size_t *counts);
/** The copy of the element that is at byte @p offset of the block. */
unsigned char *cddpi_shard_copy_at(const cddp_ddp *ddp, size_t offset);

/* shard_gather.c */
/** Wait until all updates of other ranks have arrived. */
cddp_status cddpi_shard_finish(cddp_ddp *ddp);
/** A capture begins: its graph waits for no updates yet. */
void cddpi_shard_capture(cddp_ddp *ddp);
/** Release the handles of running updates: the replayed graph itself waits for them. */
void cddpi_shard_forget(cddp_ddp *ddp);

#endif
