/* ddp.h - the inside of a cddp_ddp, and what each of its source files uses: how a public call
 * enters, how a failure ends the handle, and how its memory is copied.
 *
 * A slot is a parameter that is not frozen. Slots are numbered in registration order, and the plan
 * of buckets knows only slots. Everything here belongs to the thread that drives compute. */
#ifndef CDDPI_DDP_H
#define CDDPI_DDP_H

#include "base/error.h"
#include "base/handle.h"
#include "ddp/bucket_plan.h"
#include "device/device.h"
#include "group/engine/group_entry.h"
#include "group/join/adopt.h"

#include <cddp/ddp.h>

#include <string.h>

struct cddpi_param {
    char *name;
    void *data;
    void *home;    /* the caller's memory; a sharded optimizer moves `data` elsewhere */
    size_t count;  /* elements */
    uint32_t slot; /* UINT32_MAX: frozen */
    cddp_type type;
};

struct cddpi_ddp_slot {
    uint32_t param;
    size_t bytes;
    void *grad;           /* where backward writes */
    unsigned char *slice; /* where the gradient is reduced: `grad` itself unless `copied` */
    bool owned;           /* cddp allocated grad, which moves when the plan changes */
    bool copied;          /* the caller owns grad: it is copied to the slice and back */
    bool ready;           /* its gradient came in this backward */
    bool used;            /* a gradient came since the last synchronised step */
    bool zero_filled;     /* unused in this step: its slice holds zeros */
    size_t backup;        /* offset of the slice's old contents in the backup, unless `copied` */
};

struct cddpi_bucket {
    cddp_ddp *ddp;
    size_t index;
    void *data;
    size_t count; /* elements, padding included */
    cddp_type type;
    size_t missing; /* members that are not ready */
    cddp_work *work;
    int stage; /* the next one to call the hook with */
    bool finished;
    bool copied;
    void *scratch;
    size_t scratch_bytes;
    int64_t start_ns;
    int64_t end_ns; /* 0: not known yet */
};

/* A plan of buckets and their memory. */
struct cddpi_layout {
    struct cddpi_bucket_plan *plan;
    struct cddpi_bucket *buckets;
    unsigned char *block; /* from cddp_group_alloc(), or the caller's flat block */
};

struct cddpi_step_status; /* see ddp_step.h */
struct cddpi_micro_sums;  /* of a step's micro-batches: see micro_sums.h */
struct cddpi_ddp_shards;  /* of a sharded optimizer: see ddp_shard.h */
struct cddpi_timing;      /* of steps on a device: see ddp_observe.h */

/* How the buckets are chosen. */
struct cddpi_ddp_planning {
    struct cddpi_bucket_plan_tensor *tensors; /* by slot */
    struct cddpi_bucket_plan_rule rule;       /* its `order` is NULL */
    bool chooses_sizes;                       /* rank 0 does, from the link */
    struct cddpi_bucket_sizes sizes;          /* the last choice */
    struct cddpi_group_link link;             /* the choice was made from it */
    bool rebuild_due;                         /* after the first backward */
    bool may_move;                            /* what the rebuild would move on this rank */
    bool late_due;                            /* see cddpi_layout_tell_late() */
    bool order_is_given;                      /* by the caller */
};

/* The current backward: reset when it ends, except `step`, `done` and the arrays. */
struct cddpi_ddp_backward {
    bool opened;      /* cddp_ddp_begin() was called for it */
    bool begun;       /* a gradient became ready, or the step ends without any */
    bool follows;     /* it belongs to the other ranks' step: see cddp_ddp_follow() */
    bool accumulates; /* this rank has more micro-batches in the step, so nothing is sent */
    cddp_step step;   /* or the last one; micro_batches is world_size if the step is not divided */
    uint64_t done;    /* how many of this rank's micro-batches of the step came before */
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
    bool all_follow;         /* in the last step no rank had a backward of its own */
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
    unsigned char *dims; /* of each parameter, then of each buffer: only files need shapes */
    int64_t *shapes;     /* likewise, one after the other */
    struct cddpi_ddp_slot *slots;
    size_t slot_count;
    unsigned char *flat;          /* the caller's block of gradients, or NULL */
    struct cddpi_adopted adopted; /* the pages of `flat` that ranks share */

    struct cddpi_ddp_planning planning;
    struct cddpi_layout layout;
    struct cddpi_ddp_shards *shards; /* NULL: each rank updates all parameters */
    struct cddpi_micro_sums *sums;   /* NULL before the first sum over micro-batches */
    struct cddpi_ddp_backward backward;
    struct cddpi_ddp_step_end end;
    struct cddpi_ddp_failure failure;
    struct cddpi_ddp_trace trace;

    struct cddpi_timing *timing; /* of a device's streams; NULL before the first step */
    cddp_ddp_stats stats;
    cddp_bucket_stats *bucket_stats;
    size_t bucket_stats_room; /* the most buckets that any plan had so far */
};

/* ddp_handle.c */
/** Begin the public call @p call (its name without cddp_) on @p ddp in this function. The call ends
 *  when the function returns, at any place: see base/handle.h. */
#define CDDPI_ENTER_DDP(ddp, call) CDDPI_ENTER(&(ddp)->group->handle, cddpi_ddp_enter(ddp, call))
/** Begin the call. @p ddp may be NULL. This enters the group, which admits one thread at a time:
 *  after CDDP_OK, end the call with cddpi_group_leave(). */
cddp_status cddpi_ddp_enter(cddp_ddp *ddp, const char *call);
/** Whether @p ddp is valid for @p call, which reads what never changes. Any thread may ask. */
bool cddpi_ddp_may_ask(const cddp_ddp *ddp, const char *call);

/** CDDP_OK, or CDDP_ERR_BROKEN with the failure that ended the handle. */
cddp_status cddpi_ddp_usable(const cddp_ddp *ddp);
/** CDDP_OK, or CDDP_ERR_INCOMPLETE: @p call must not come in the middle of a backward. */
cddp_status cddpi_ddp_between(const cddp_ddp *ddp, const char *call);
/** End the handle because of the stored failure. Returns @p status. */
cddp_status cddpi_ddp_break(cddp_ddp *ddp, cddp_status status);
/** Abort the group because of the stored failure, since its other ranks wait for this one. Returns
 *  @p status. */
cddp_status cddpi_ddp_abort(cddp_group *group, cddp_status status);
/** Keep the stored text as this rank's failure until the step's end. Returns @p status. */
cddp_status cddpi_ddp_set_pending(cddp_ddp *ddp, cddp_status status);

/** Copy memory, or clear it, in the compute stream. */
cddp_status cddpi_ddp_copy(const cddp_ddp *ddp, void *to, const void *from, size_t bytes);
cddp_status cddpi_ddp_clear(const cddp_ddp *ddp, void *memory, size_t bytes);
/** Check that gradients, and parameters if @p sharded, are in the memory of the group's device. */
cddp_status cddpi_ddp_check_memory(const cddp_ddp *ddp, bool sharded);

#endif
