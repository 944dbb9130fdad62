/* micro_sums.h - steps whose gradients are a sum over micro-batches (CDDP_STEP_BY_MICRO_BATCHES):
 * this rank's partial sums, and the exchange of nodes of which no rank has all micro-batches.
 *
 * A rank adds up its run like a binary counter: each micro-batch's gradients, where backward has
 * put them, are merged with the sums that are their siblings. The last one of the run is merged
 * bucket by bucket, as buckets start, so that overlap stays as it is.
 *
 * In a pipeline, a rank's parameters are at different micro-batches at the same time. Then one
 * backward is for the rank's whole run, and each parameter counts the micro-batches that it had. */
#ifndef CDDPI_DDP_MICRO_SUMS_H
#define CDDPI_DDP_MICRO_SUMS_H

#include "ddp/ddp.h"
#include "ddp/micro_tree.h"

/* Where a micro-batch of this rank's run comes to the sums. */
struct cddpi_micro_place {
    int depth;  /* sums before it */
    int merges; /* how many of them it is merged with */
};

struct cddpi_micro_sums {
    uint64_t all;     /* micro-batches of the step that the next three are about */
    int most;         /* nodes of the rank with most */
    bool is_of_ranks; /* an ordinary sum over ranks has the bits of the tree */
    struct cddpi_micro_node stack[CDDPI_MICRO_NODES]; /* this rank's sums so far */
    int depth;
    int merges;                               /* of the micro-batch in progress */
    uint64_t run;                             /* micro-batches of a backward that is for all of this
                                                 rank's; else 0 */
    struct cddpi_micro_place *places;         /* of those micro-batches */
    uint64_t *arrived;                        /* by slot: how many of them came */
    unsigned char *blocks[CDDPI_MICRO_NODES]; /* of the stack; laid out as the buckets */
};

/** Whether the step in progress is a sum over micro-batches. */
static inline bool cddpi_is_by_micro_batches(const cddp_ddp *ddp)
{
    return ddp->backward.step.kind == CDDP_STEP_BY_MICRO_BATCHES;
}

/** Whether this rank has no micro-batch in the step in progress, which is a sum over them. */
bool cddpi_micro_is_idle(const cddp_ddp *ddp);

/** A micro-batch of the step in progress begins: plan its merges, and make room for its sum. */
cddp_status cddpi_micro_begin(cddp_ddp *ddp);
/** End a micro-batch that is not the rank's last one of the step: add its gradients to the sums. */
cddp_status cddpi_micro_keep(cddp_ddp *ddp);
/** The backward that begins is for all of this rank's micro-batches. */
cddp_status cddpi_micro_begin_run(cddp_ddp *ddp);
/** In such a backward, the gradient of @p slot has come for one more micro-batch. Unless that is
 * the last one, add it to the sums. */
cddp_status cddpi_micro_arrive(cddp_ddp *ddp, const struct cddpi_ddp_slot *slot, bool *out_last);
/** In the last micro-batch, @p bucket is complete: merge it with its siblings. */
cddp_status cddpi_micro_merge_bucket(const struct cddpi_bucket *bucket);
/** to = left + right, of @p bytes in the compute stream; @p to may be either. */
cddp_status cddpi_micro_add(const cddp_ddp *ddp, cddp_type type, void *to, const void *left,
                            const void *right, size_t bytes);
/** Whether ranks have to exchange nodes, since an ordinary sum over ranks is no node. */
bool cddpi_micro_exchanges(const cddp_ddp *ddp);
/** Stage @p stage of that exchange, in the place of a hook. */
cddp_status cddpi_micro_exchange(struct cddpi_bucket *bucket, int stage, cddp_work **out_work);
/** The step has ended. */
void cddpi_micro_end(cddp_ddp *ddp);
/** Release the sums' memory, which is made for the present layout. */
void cddpi_micro_release(cddp_ddp *ddp);
/** Release everything. */
void cddpi_micro_destroy(cddp_ddp *ddp);

#endif
