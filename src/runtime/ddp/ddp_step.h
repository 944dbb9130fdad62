/* ddp_step.h - owns the course of a step: its backward, the reduction of its buckets, its end, and
 * what ranks exchange at its end. */
#ifndef CDDPI_DDP_STEP_H
#define CDDPI_DDP_STEP_H

#include "ddp/ddp.h"

/* What every rank sends to all others at the end of each synchronised step. */
struct cddpi_step_status {
    int32_t status;
    uint32_t flags;  /* CDDPI_STEP_ */
    uint64_t number; /* this and the next two: see cddp_step */
    uint64_t micro_batches;
    uint64_t samples;
    int64_t arrival_ns; /* when its last bucket was started; on a device: minus the time that it
                           waited in the last step whose times are known */
    int64_t wait_ns;    /* when it entered cddp_ddp_wait(); on a device: how many steps' times it
                           knows */
};

enum {
    CDDPI_STEP_ZERO_FILLED = 1,
    CDDPI_STEP_ORDER_KNOWN = 2,
    CDDPI_STEP_FOLLOWS = 4,   /* the rank has no backward in the step, and only takes part */
    CDDPI_STEP_MAY_MOVE = 16, /* the rank's gradients may move to other buckets */
    CDDPI_STEP_KIND_SHIFT = 8 /* a cddp_step_kind */
};

/** The kind of step that a rank has told. */
static inline cddp_step_kind cddpi_step_kind_of(const struct cddpi_step_status *said)
{
    return (cddp_step_kind)(said->flags >> CDDPI_STEP_KIND_SHIFT);
}

/** This rank's weight in the step's mean over samples; < 0: it is a mean over ranks, or a sum. */
static inline double cddpi_step_weight(const cddp_ddp *ddp)
{
    return ddp->backward.step.kind == CDDP_STEP_BY_SAMPLES ? (double)ddp->backward.step.samples
                                                           : -1;
}

/** How many bytes of @p slot are in @p bucket; the first is byte @p out_first of the slot. */
static inline size_t cddpi_bucket_part_of(const struct cddpi_bucket *bucket,
                                          const struct cddpi_ddp_slot *slot, size_t *out_first)
{
    const struct cddpi_bucket_plan *plan = bucket->ddp->layout.plan;
    const struct cddpi_bucket_plan_bucket *planned = &plan->buckets[bucket->index];

    *out_first = planned->is_part ? planned->offset - plan->offsets[slot - bucket->ddp->slots] : 0;
    return planned->is_part ? planned->payload : slot->bytes;
}

/* ddp_begin.c */
/** Begin a backward of @p step, which the caller gives. */
cddp_status cddpi_ddp_open(cddp_ddp *ddp, const cddp_step *step);
/** Fail with CDDP_ERR_STATE, since @p call came without cddp_ddp_begin(). */
cddp_status cddpi_ddp_not_open(const char *call);
/** The backward has ended: the next one is this rank's next micro-batch, or of another step. */
void cddpi_ddp_close(cddp_ddp *ddp);

/* reducer.c */
/** The first gradient of a backward is ready, at @p now_ns. */
cddp_status cddpi_ddp_begin_backward(cddp_ddp *ddp, int64_t now_ns);
/** Start all buckets that are complete and whose predecessors were started. */
cddp_status cddpi_ddp_start_buckets(cddp_ddp *ddp);
/** An operation of the step could not be started: @p status and the stored text say why. If the
 * real reason is that a bucket has failed meanwhile, return that bucket's status and text instead.
 */
cddp_status cddpi_ddp_not_started(cddp_ddp *ddp, cddp_status status);

/* bucket.c */
/** The bucket that a hook sees as @p seen, which may be NULL. @p call begins the error text. */
cddp_status cddpi_bucket_of(const cddp_bucket *seen, const char *call, struct cddpi_bucket **out);
/** cddp_bucket_scratch(). */
cddp_status cddpi_bucket_scratch(struct cddpi_bucket *bucket, size_t bytes, void **out);
/** The name of a parameter of which @p bucket holds the gradient or a part of it. */
const char *cddpi_bucket_member(const struct cddpi_bucket *bucket, size_t member);
/** Call the hook's next stage. */
cddp_status cddpi_bucket_advance(struct cddpi_bucket *bucket);
/** Put "ddp: bucket 2 of 5 (b ... a): " before the stored text. */
cddp_status cddpi_bucket_failed(const struct cddpi_bucket *bucket, cddp_status status);
/** With a sharded optimizer: how many elements of @p bucket each rank updates, with padding. */
size_t cddpi_shard_elements(const struct cddpi_bucket *bucket);

/* hooks.c */
/** Allocate what a built-in hook needs, so that cddp_ddp_grad_ready() does not have to.
 *  Collective. */
cddp_status cddpi_bucket_prepare(struct cddpi_bucket *bucket);

/* finish.c */
/** cddp_ddp_wait() within a call. */
cddp_status cddpi_ddp_wait(cddp_ddp *ddp);
/** Make the handle ready for the next backward. */
void cddpi_ddp_end_backward(cddp_ddp *ddp);

/* unused.c */
/** Complete the buckets that wait for parameters without a gradient in this backward. */
void cddpi_unused_complete(cddp_ddp *ddp);
/** Restore the gradients of parameters that no rank used. Collective; all buckets must be done. */
cddp_status cddpi_unused_restore(cddp_ddp *ddp);
void cddpi_unused_release(cddp_ddp *ddp);

/* step_status.c */
/** Start the exchange of step statuses: it sends this rank's status to all ranks. */
cddp_status cddpi_step_status_start(cddp_ddp *ddp);
/** Wait for the step statuses of all ranks. If any rank has failed, all fail with the same text. */
cddp_status cddpi_step_status_finish(cddp_ddp *ddp);

#endif
