/* ddp.h - the inside of a cddp_ddp: parameters, slots, buckets and the state of the current
 * backward.
 *
 * A slot is a parameter that is not frozen; slots are numbered in registration order, and the plan
 * knows nothing else. Everything here belongs to the thread that drives compute. */
#ifndef CDDPI_DDP_H
#define CDDPI_DDP_H

#include "base/error.h"
#include "base/handle.h"
#include "ddp/bucket_plan.h"
#include "ddp/sizes.h"
#include "device/device.h"
#include "group/join/adopt.h"

#include <cddp/ddp.h>

#include <string.h>

struct cddpi_manifest;

struct cddpi_param {
    char *name;
    void *data;
    void *home;    /* the caller's memory, from which a sharded optimizer moves the data */
    size_t count;  /* elements */
    uint32_t slot; /* UINT32_MAX: frozen */
    cddp_type type;
};

struct cddpi_ddp_slot {
    uint32_t param;
    size_t bytes;
    void *grad;           /* where backward writes */
    unsigned char *slice; /* where it is reduced: the same memory unless `copied` */
    bool owned;           /* grad is cddp's and moves with the plan */
    bool copied;          /* grad is the caller's: copied to the slice and back */
    bool ready;           /* got its gradient in this backward */
    bool used;            /* got one since the last synchronised step */
    bool zero_filled;     /* unused in this step: its slice holds zeros */
    size_t backup;        /* where in the backup the slice's old contents are, if not copied */
};

struct cddp_bucket {
    cddp_ddp *ddp;
    size_t index;
    void *data;
    size_t count; /* elements, padding included */
    cddp_type type;
    size_t missing; /* members that are not ready */
    cddp_work *work;
    int stage; /* the hook's next one */
    bool finished;
    bool copied;
    void *scratch;
    size_t scratch_bytes;
    int64_t start_ns;
    int64_t end_ns; /* 0: not known yet */
};

/* A plan with its memory. */
struct cddpi_layout {
    struct cddpi_bucket_plan *plan;
    struct cddp_bucket *buckets;
    unsigned char *block; /* of cddp_group_alloc(), or the caller's flat block */
};

/* What every rank tells all others at the end of each synchronised step. */
struct cddpi_step_status {
    int32_t status;
    uint32_t flags;     /* CDDPI_STEP_ */
    uint64_t backward;  /* how many backward passes there were before */
    double weight;      /* of the step: see cddp_step */
    int64_t arrival_ns; /* when it had finished its own work; on a device: the longer it waited for
                           others in the last step whose times are known, the less */
    int64_t wait_ns; /* when it came to its wait; on a device: which step's times it knows last */
};

enum {
    CDDPI_STEP_ZERO_FILLED = 1,
    CDDPI_STEP_ORDER_KNOWN = 2,
    CDDPI_STEP_SUM = 4,
    CDDPI_STEP_JOINED = 8 /* the rank is through, and only takes part */
};

/* Of a sharded optimizer: see ddp_shard.c. */
struct cddpi_ddp_shards {
    unsigned char *block; /* the parameters, laid out as the buckets */
    cddp_span *spans;     /* rank after rank */
    size_t *first;        /* by rank, and one more: where its spans begin */
    bool deferred;        /* cddp_ddp_mean() reduces */
    const void **peers;   /* deferred: by rank, its gradients as they are seen here */
    double *weights;      /* deferred: by rank, of the last step; then as many factors */
    const void **src;     /* deferred: scratch of cddp_ddp_mean() */
    cddp_work **gathers;  /* by bucket: updates on their way, or NULL */
    cddp_type copy_type;  /* of copies (copies.h) */
    bool has_copies;
    unsigned char
        *copies; /* laid out as the block, in elements: of `separate` tensors of the plan */
    /* Captured work on a device waits for these events, since handles do not last. */
    struct cddpi_event **gathered; /* by bucket: its updates have come */
    bool *awaited;                 /* by bucket: in what is being captured */
    bool updated;                  /* once at least */
    bool has_moved;                /* in the last wait */
    uint64_t waited_ns; /* for updates, since the last wait of a step; on the processor */
};

struct cddpi_timing; /* of steps on a device: see timing.c */

/* How the buckets are chosen. */
struct cddpi_ddp_planning {
    struct cddpi_bucket_plan_tensor *tensors; /* by slot */
    struct cddpi_bucket_plan_rule rule;       /* its `order` is NULL */
    bool chooses_sizes;                       /* rank 0 does, from the link */
    struct cddpi_bucket_sizes sizes;          /* the last choice */
    struct cddpi_group_link link;             /* the choice was made from it */
    bool rebuild_due;                         /* after the first backward */
    bool late_due;                            /* see cddpi_layout_tell_late() */
    bool order_is_assumed; /* the caller gave no order, and the buckets may not change */
};

/* The current backward: reset when its step ends, except `number` and the arrays. */
struct cddpi_ddp_backward {
    bool begun;
    bool joined; /* this rank has no step of its own and takes part in the others': see uneven.c */
    cddp_step step;
    uint64_t number;    /* how many there were before */
    size_t next_bucket; /* the first that was not started */
    size_t seen;        /* the first bucket that was not seen to have ended */
    int64_t begin_ns;
    int64_t arrival_ns; /* when the last bucket was started */
    int64_t wait_ns;    /* when cddp_ddp_wait() was entered */
    uint32_t *arrivals; /* slots, in the order in which they became ready */
    size_t arrival_count;
    double *ready_s; /* by slot: when it became ready, in seconds since `begin_ns` */
};

/* The end of a synchronised step: what ranks tell each other, and what the step has cost. */
struct cddpi_ddp_step_end {
    struct cddpi_step_status *statuses; /* by rank */
    cddp_work *status_work;             /* their exchange */
    int64_t clock_origin_ns; /* subtracted from times that are sent: clocks of machines differ */
    int64_t peers_ns;        /* how much later than this rank the last one came to its wait */
    uint64_t times_known;    /* on a device: the number of steps whose times are known */
    uint64_t split_steps;    /* on a device: the last step whose wait was split */
    bool all_joined;         /* in the last step no rank had a step of its own */
    cddp_step last_step;     /* the last synchronised one */
    unsigned char *used_map; /* by slot: whether any rank used it */
    unsigned char *backup;   /* of gradients that zero-filling overwrites */
    size_t backup_bytes;
};

struct cddpi_ddp_failure {
    struct cddpi_failure pending; /* only this rank knows it: the step status tells the others */
    bool broken;                  /* the handle has ended: every later call fails */
    struct cddpi_failure cause;   /* why it has ended */
    bool reported; /* every rank has the same error at the same place, so the group is unharmed */
};

struct cddpi_ddp_trace {
    bool looked;     /* CDDP_TRACE was read */
    bool owns_steps; /* this handle opened the trace, and tells it when steps begin */
    int64_t step_ns; /* when this step began */
};

struct cddp_ddp {
    struct cddpi_handle handle;
    cddp_group *group;           /* with a reference */
    struct cddpi_device *device; /* where gradients are, and sharded parameters */
    int rank;
    int world_size;
    bool one_machine;
    bool allow_unused;
    bool in_place; /* one rank's gradients are their mean already: they are not copied */
    cddp_hook_fn hook;
    void *hook_state;

    struct cddpi_param *params;
    size_t param_count;
    struct cddpi_param *buffers; /* slot is UINT32_MAX */
    size_t buffer_count;
    struct cddpi_ddp_slot *slots;
    size_t slot_count;
    unsigned char *flat;          /* the caller's block of gradients, or NULL */
    struct cddpi_adopted adopted; /* the pages of `flat` that ranks share */

    struct cddpi_ddp_planning planning;
    struct cddpi_layout layout;
    struct cddpi_ddp_shards *shards; /* NULL: each rank updates all parameters */
    struct cddpi_ddp_backward backward;
    struct cddpi_ddp_step_end end;
    struct cddpi_ddp_failure failure;
    struct cddpi_ddp_trace trace;

    struct cddpi_timing *timing; /* of a device's streams; NULL before the first step */
    cddp_ddp_stats stats;
    cddp_bucket_stats *bucket_stats;
    size_t bucket_stats_room; /* the most buckets that any plan had so far */
};

/* ddp_agree.c */
/** Let all ranks compare @p text, the manifest; @p own is this rank's failure so far, whose text
 *  is cddp_last_error(). Every rank returns the same status with the same text. */
cddp_status cddpi_ddp_agree(cddp_group *group, cddp_status own, const char *text);

/* ddp_entry.c: what every public call begins and ends with */
/** Begin the public call @p call (its name without cddp_) on @p ddp, which may be NULL: see
 *  base/handle.h. The group is entered, which one thread at a time can be in. On CDDP_OK the call
 *  ends with cddpi_ddp_leave(). */
cddp_status cddpi_ddp_enter(cddp_ddp *ddp, const char *call);
/** End the call. Returns @p status. */
cddp_status cddpi_ddp_leave(cddp_ddp *ddp, cddp_status status);
/** Whether @p ddp may be asked for @p call, which gives what never changes; any thread. */
bool cddpi_ddp_may_ask(const cddp_ddp *ddp, const char *call);

/* failure.c */
/** CDDP_OK, or CDDP_ERR_CLOSED with the failure that ended the handle. */
cddp_status cddpi_ddp_usable(const cddp_ddp *ddp);
/** End the handle because of the stored failure. Returns @p status. */
cddp_status cddpi_ddp_break(cddp_ddp *ddp, cddp_status status);
/** Keep the stored text as this rank's failure until the step's end. Returns @p status. */
cddp_status cddpi_ddp_set_pending(cddp_ddp *ddp, cddp_status status);

/* ddp_layout.c */
/** Plan for slots that become ready in @p order (NULL: as the rule says). Local.
 *  @param out  Release with cddpi_layout_release(). */
cddp_status cddpi_layout_make(cddp_ddp *ddp, const uint32_t *order, struct cddpi_layout *out);
/** Give @p layout memory and let it take the place of the present one (whose gradients move);
 *  it is the handle's from then on. Collective. */
cddp_status cddpi_layout_install(cddp_ddp *ddp, struct cddpi_layout *layout);
void cddpi_layout_release(cddp_ddp *ddp, struct cddpi_layout *layout);
/** Rebuild the buckets in rank 0's order of arrival, if all gradients arrived there. Collective. */
cddp_status cddpi_layout_rebuild(cddp_ddp *ddp);
/** After the first backward in which all gradients arrived: warn if the order in which they lie in
 *  the caller's block keeps the first bucket waiting. */
void cddpi_layout_tell_late(cddp_ddp *ddp);

/* choice.c */
/** Set the rule's sizes, as the caller gave them or as usual, and whether they are to be chosen,
 *  and from which link. Local, and the same on all ranks. */
void cddpi_sizes_begin(cddp_ddp *ddp, const cddp_ddp_options *options);
/** Let rank 0 choose sizes for all, for gradients that are ready in @p order (NULL: as the rule
 *  says) and, if @p measured, at the times of this backward. Collective. */
cddp_status cddpi_sizes_choose(cddp_ddp *ddp, const uint32_t *order, bool measured,
                               bool *out_changed);
/** Tell the log about the plan; @p measured: it was chosen from the arrivals of a backward. */
void cddpi_sizes_tell(const cddp_ddp *ddp, bool measured);

/* bucket.c */
/** Whether @p bucket is there; @p call is for the text. */
cddp_status cddpi_bucket_check(const cddp_bucket *bucket, const char *call);
/** Call the hook's next stage. */
cddp_status cddpi_bucket_advance(struct cddp_bucket *bucket);
/** Put "ddp: bucket 2 of 5 (b ... a): " before the stored text. */
cddp_status cddpi_bucket_failed(const struct cddp_bucket *bucket, cddp_status status);
/** The bytes of @p bucket that are @p slot's, from its byte @p out_first on. */
size_t cddpi_bucket_part_of(const struct cddp_bucket *bucket, const struct cddpi_ddp_slot *slot,
                            size_t *out_first);
/** How many elements of @p bucket a rank updates if the optimizer is sharded, with padding. */
size_t cddpi_shard_elements(const struct cddp_bucket *bucket);

/* hooks.c */
/** Allocate what a built-in hook needs, so that grad_ready need not. Collective. */
cddp_status cddpi_bucket_prepare(struct cddp_bucket *bucket);

/* register.c */
/** Check and keep the parameters and buffers of @p model. Local. */
cddp_status cddpi_ddp_register(cddp_ddp *ddp, const struct cddpi_manifest *model);
/** What is stored when there is no memory for @p count of them. */
cddp_status cddpi_ddp_no_memory(size_t count);

/* ddp_memory.c */
/** Copy memory, or clear it, in the compute stream. */
cddp_status cddpi_ddp_copy(const cddp_ddp *ddp, void *to, const void *from, size_t bytes);
cddp_status cddpi_ddp_clear(const cddp_ddp *ddp, void *memory, size_t bytes);
/** Whether gradients, and sharded parameters, are where the group is. */
cddp_status cddpi_ddp_check_memory(const cddp_ddp *ddp, bool sharded);

/* timing.c: what a step on a device costs, by events that are read after they have passed. On the
 * processor these do nothing. */
enum cddpi_timing_point { CDDPI_AT_WAIT, CDDPI_AFTER_WAIT };
cddp_status cddpi_timing_begin(cddp_ddp *ddp); /* of a backward */
cddp_status cddpi_timing_bucket_start(const struct cddp_bucket *bucket);
cddp_status cddpi_timing_bucket_end(const struct cddp_bucket *bucket); /* behind its reduction */
cddp_status cddpi_timing_mark(cddp_ddp *ddp, enum cddpi_timing_point point);
/** Put steps that are over into the statistics; does not wait. */
cddp_status cddpi_timing_read(cddp_ddp *ddp);
void cddpi_timing_release(cddp_ddp *ddp);

/* ddp_trace.c */
/** CDDP_LOG=debug: a line for each bucket of the present layout. */
void cddpi_ddp_log_plan(const cddp_ddp *ddp);
/** Backward begins. */
void cddpi_ddp_trace_begin(cddp_ddp *ddp);
/** The step's wait, which began at @p entered_ns, is over; the buckets are still those of the step.
 */
void cddpi_ddp_trace_end(cddp_ddp *ddp, int64_t entered_ns);

/* unused.c */
/** Complete the buckets with parameters that got no gradient in this backward. */
void cddpi_unused_complete(cddp_ddp *ddp);
/** Give parameters that no rank used their gradients back. Collective; all buckets are done. */
cddp_status cddpi_unused_restore(cddp_ddp *ddp);
void cddpi_unused_release(cddp_ddp *ddp);

/* step_status.c */
/** Start telling all ranks how this one's step went. */
cddp_status cddpi_step_status_start(cddp_ddp *ddp);
/** Wait for all ranks' step statuses. Fails with the same text on every rank if any has failed. */
cddp_status cddpi_step_status_finish(cddp_ddp *ddp);

/* ddp_shard.c */
/** Move the parameters to the memory in which they are sharded. Collective; the buckets have
 * theirs.
 */
cddp_status cddpi_shard_install(cddp_ddp *ddp);
/** Let @p layout take the place of the present one behind a reduction, before anything is updated:
 *  gradients become whole, since other ranks need them then, and move with the parameters.
 *  Collective. */
cddp_status cddpi_shard_move(cddp_ddp *ddp, struct cddpi_layout *layout);
void cddpi_shard_release(cddp_ddp *ddp); /* accepts a handle without shards */
/** Wait for all updates that are on their way. */
cddp_status cddpi_shard_finish(cddp_ddp *ddp);
/** Let each parameter have a copy of @p counts elements: see copies.h. Before the plan. */
void cddpi_shard_plan_copies(cddp_ddp *ddp, cddp_type type, const size_t *counts);
/** A capture begins: no updates are waited for in it yet. */
void cddpi_shard_capture(cddp_ddp *ddp);
/** Release the handles of updates on their way: a replay waits for those updates. */
void cddpi_shard_forget(cddp_ddp *ddp);

/* broadcast.c */
/** Every rank's @p tensors become root's; @p what names them in errors. Collective. */
cddp_status cddpi_ddp_broadcast(cddp_group *group, const char *what,
                                const struct cddpi_param *tensors, size_t count, int root);

/* uneven.c */
/** After the step statuses have come: whether anybody had a step, and which backward it was. */
void cddpi_ddp_read_joined(cddp_ddp *ddp);

/* reducer.c */
/** A backward begins, at @p now_ns. */
cddp_status cddpi_ddp_begin_backward(cddp_ddp *ddp, int64_t now_ns);
/** Start all buckets that are complete and whose predecessors were started. */
cddp_status cddpi_ddp_start_buckets(cddp_ddp *ddp);
/** An operation of the step could not be started, with @p status and the thread's text. If that is
 *  because a bucket has failed meanwhile, that bucket's status and text say why. */
cddp_status cddpi_ddp_not_started(cddp_ddp *ddp, cddp_status status);

/* finish.c */
/** cddp_ddp_wait() within a call. */
cddp_status cddpi_ddp_wait(cddp_ddp *ddp);
/** Make the handle ready for the next backward. */
void cddpi_ddp_end_backward(cddp_ddp *ddp);

#endif
