/* ddp.h - one model's gradients, kept equal across a group.
 *
 *     create            manifests are compared, rank 0's parameters and buffers are broadcast
 *     each step:
 *       begin           (optional) this rank's sample count, or "do not synchronise"
 *       grad_ready(i)   as backward completes each gradient; never waits
 *       wait            all gradients are the mean over ranks
 *
 * Gradients are gathered in buckets; a bucket's all-reduce is started as soon as it and all before
 * it are complete, strictly in index order on every rank. A handle belongs to the thread that
 * drives compute.
 *
 * In a group on a device gradients lie in its memory, and no call waits for it. Calls then speak of
 * the compute stream: grad_ready(i) says that the work which completes gradient i has been put into
 * it, and what is put there behind wait (or param_wait) sees the mean (or the parameter). The
 * ranks' threads meet in wait, so that a gradient that lacks somewhere is an error of that very
 * step; what fails on a device is an error of the next call. Everything else is the same, to the
 * bit if the group is deterministic. The caller's own memory (`grad`, `flat_grads`) may come from
 * any allocator of the device's; backends but nccl reduce memory of cddp_group_alloc() with a copy
 * less. */
#ifndef CDDP_DDP_H
#define CDDP_DDP_H

#include <cddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_MAX_DIMS = 8 };

typedef struct cddp_ddp cddp_ddp;

/* One tensor of the model. All memory stays the caller's, outlives the handle and does not move. */
typedef struct cddp_param {
    const char *name; /* unique; copied */
    cddp_type type; /* CDDP_F32, CDDP_F64, CDDP_F16 or CDDP_BF16 for parameters; any for buffers */
    int dims;       /* 0 to CDDP_MAX_DIMS; 0 is a scalar */
    int64_t shape[CDDP_MAX_DIMS]; /* row-major */
    void *data;                   /* product of shape elements; in either memory of a group on a
                                     device, except that shards need the device's */
    void *grad;  /* parameters: where backward writes, of the same shape and type, or NULL: cddp
                    gives  the memory (then no copies are made), see cddp_ddp_grad() */
    bool frozen; /* has no gradient: broadcast and compared, never reduced */
} cddp_param;

typedef struct cddp_bucket cddp_bucket;

/* Replaces a bucket's reduction. Called with @p stage 0 when the bucket is complete, in bucket
 * order; it starts at most one collective on the group and gives its handle in @p out_work (owned
 * by cddp from then on), or NULL when the bucket is finished. While it gives work it is called
 * again, from cddp_ddp_wait() and again in bucket order, with the next stage once that work is
 * done. When it is finished the bucket's data must be the mean over ranks. Runs on the compute
 * thread; on a device, what it does to the data it puts into the compute stream. */
typedef cddp_status (*cddp_hook_fn)(void *state, cddp_bucket *bucket, int stage,
                                    cddp_work **out_work);

/* What a hook may ask of a bucket, while it is called. */
/** The group of the handle, for the hook's collectives. */
CDDP_API cddp_group *cddp_bucket_group(cddp_bucket *bucket);
/** Counted from 0, in the order in which buckets are started. */
CDDP_API size_t cddp_bucket_index(const cddp_bucket *bucket);
CDDP_API bool cddp_bucket_is_last(const cddp_bucket *bucket);
/** The gradients: cddp_bucket_count() elements of cddp_bucket_type(), 64-byte aligned unless they
 *  lie in the caller's `flat_grads`. */
CDDP_API void *cddp_bucket_data(cddp_bucket *bucket);
/** Elements, those between parameters that only align them included. */
CDDP_API size_t cddp_bucket_count(const cddp_bucket *bucket);
CDDP_API cddp_type cddp_bucket_type(const cddp_bucket *bucket);
/** This rank's weight as cddp_step has it; < 0: the mean is the plain one over ranks. */
CDDP_API double cddp_bucket_weight(const cddp_bucket *bucket);
/** Whether the step's gradients are to be added up, as cddp_step has it. */
CDDP_API bool cddp_bucket_is_sum(const cddp_bucket *bucket);
/** Memory of the bucket's own, @p bytes long (the same on all ranks), from cddp_group_alloc() at
 *  the first call, which is a collective; the same pointer at later calls.
 *  @param out  Owned by the bucket; gone when the buckets are rebuilt.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (not as many bytes as at first), CDDP_ERR_NO_MEMORY, or an
 *          error of the group. */
CDDP_CHECKED cddp_status cddp_bucket_scratch(cddp_bucket *bucket, size_t bytes, void **out);

/* Built-in hooks; their state is NULL. Identity is what happens without a hook. The others send f32
 * buckets as 16-bit numbers (accumulated in f32, rounded once) and leave buckets of other types
 * alone. */
CDDP_API cddp_status cddp_hook_identity(void *, cddp_bucket *, int, cddp_work **);
CDDP_API cddp_status cddp_hook_bf16(void *, cddp_bucket *, int, cddp_work **);
CDDP_API cddp_status cddp_hook_fp16(void *, cddp_bucket *, int, cddp_work **);

typedef struct cddp_ddp_options {
    size_t struct_size;
    size_t first_bucket_bytes; /* 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB. A bucket closes once it holds at least this much */
    const uint32_t
        *ready_order;  /* the order in which backward completes gradients: as many indices as
                          there are parameters that are not frozen, borrowed for the call; NULL:
                          reverse registration order, and after the first backward the
                          buckets are rebuilt once in rank 0's order of arrival */
    bool allow_unused; /* parameters may get no gradient in a step: they contribute zero, and one
                          that got none on any rank keeps its gradient as it was */
    void *flat_grads;  /* the caller's own gradient block holding all `grad` pointers (unfrozen
                          parameters  in registration order, back to back, one type): reduced where
                          it  lies, never  rearranged; NULL: none */
    cddp_hook_fn hook; /* NULL: identity */
    void *hook_state;
    const char *config; /* any text that must be the same on all ranks (part of the manifest),
                           borrowed for the call; NULL: none */
    bool shard;         /* each rank updates a shard of the parameters: see below. Buckets are never
                           rebuilt then, and `flat_grads` is not possible */
    bool reduce_late; /* with `shard`: gradients are asked for by cddp_ddp_mean(); then, where that
                         is faster, they are only reduced there (never on a device) */
} cddp_ddp_options;
#define CDDP_DDP_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(cddp_ddp_options), 0, 0, NULL, false, NULL, NULL, NULL, NULL, false, false          \
    }

/** Compare manifests, broadcast rank 0's @p params and @p buffers, plan the buckets. Collective:
 *  every rank succeeds or every rank fails, with the same text.
 *  @param group    Outlives the handle.
 *  @param params   At least one is not frozen.
 *  @param buffers  State that is broadcast here but has no gradient (running means ...); may be
 *                  NULL.
 *  @param options  NULL for all defaults.
 *  @param out      Release with cddp_ddp_destroy(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_MISMATCH (the text is a diff),
 *          or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_create(cddp_group *group, const cddp_param *params,
                                         size_t param_count, const cddp_param *buffers,
                                         size_t buffer_count, const cddp_ddp_options *options,
                                         cddp_ddp **out);
/** Not collective. Waits for what it has started. cddp's gradient memory goes with the handle. */
CDDP_API void cddp_ddp_destroy(cddp_ddp *ddp);

/** Where the gradient of parameter @p index lives: the caller's `grad`, or cddp's 64-byte aligned
 * memory in a bucket (zeroed at first); NULL for a frozen parameter. cddp's memory moves once, when
 * buckets are rebuilt inside the first cddp_ddp_wait(), contents included: ask again after it. */
CDDP_API void *cddp_ddp_grad(cddp_ddp *ddp, size_t index);

typedef struct cddp_step {
    size_t struct_size;
    double weight; /* how many samples this rank's gradients are the mean of; the result is the mean
                      over   all samples. < 0: plain mean over ranks. 0: this rank contributes
                      nothing */
    bool no_sync;  /* gradients only accumulate: nothing is sent, wait returns at once */
    uint64_t sum; /* 1: this rank's gradients are its part of the mean already, as of a loss divided
                     by the samples of all ranks: they are added up, and weight is not looked at.
                     The fastest for backends that add on the way (NCCL's, with NVLink's switches).
                     A word, as programs built before it have nothing of their own there */
} cddp_step;
#define CDDP_STEP_INIT                                                                             \
    {                                                                                              \
        sizeof(cddp_step), -1.0, false, 0                                                          \
    }

/** Say how the coming backward is synchronised; before its first grad_ready. Without it (or with
 * NULL): plain mean. The values hold for one backward. All ranks must agree on no_sync and sum.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (weight is not finite), CDDP_ERR_STATE (in the middle of a
 *          backward), CDDP_ERR_CLOSED (an earlier call failed). */
CDDP_CHECKED cddp_status cddp_ddp_begin(cddp_ddp *ddp, const cddp_step *step);

/** Backward has finished gradient @p index, so its bucket may start. Does not wait.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (there is no such gradient), CDDP_ERR_STATE (a second time in
 *          one backward), CDDP_ERR_CLOSED, or an error of the group or the hook. */
CDDP_CHECKED cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index);

/** Wait until every gradient is the mean over ranks. A parameter that got no gradient (and without
 *  allow_unused) is CDDP_ERR_STATE with its name, in this very step and on every rank. On any error
 *  the gradients are undefined and the handle is of no more use: CDDP_ERR_CLOSED from then on.
 *  @return CDDP_OK, CDDP_ERR_STATE, CDDP_ERR_MISMATCH (ranks disagree about no_sync),
 *          CDDP_ERR_NO_MEMORY, CDDP_ERR_CLOSED, or an error of the group or the hook. */
CDDP_CHECKED cddp_status cddp_ddp_wait(cddp_ddp *ddp);

/* A sharded optimizer (ZeRO stage 1): with options.shard the gradients of a step are reduced only
 * to the rank that updates them, so that an optimizer works on, and keeps state for, 1/world_size
 * of the parameters:
 *
 *     wait              gradients are the mean over ranks inside this rank's spans; elsewhere they
 *                       are undefined
 *     (the optimizer updates the parameters inside this rank's spans)
 *     updated           everyone's updates are on their way to everyone
 *     param_wait(i)     as the next forward comes to parameter i: it is whole
 *
 * Parameters that are not frozen move, once, inside cddp_ddp_create(), to memory of cddp's that
 * goes with the handle: ask cddp_ddp_param(). An update that works element by element gives the
 * same bits as without shards. */
typedef struct cddp_span {
    size_t param;
    size_t first, count; /* elements of the parameter, as if it had one dimension */
} cddp_span;

/** Where parameter @p index lives: in the caller's `data`, or with shards in cddp's, 64-byte
 * aligned. NULL: there is no such parameter. */
CDDP_API void *cddp_ddp_param(cddp_ddp *ddp, size_t index);

/** What rank @p rank updates, in the order of parameters; together the spans of all ranks hold each
 *  element once. @p out_count may be 0. NULL and 0 without shards. Owned by the handle. */
CDDP_API const cddp_span *cddp_ddp_spans(const cddp_ddp *ddp, int rank, size_t *out_count);

/** The mean over ranks of elements [first, first + count) of the gradient of parameter @p index,
 * which lie in a span of this rank's; between wait and updated. Reads other ranks' memory where the
 *  reduction was left to this call (options.reduce_late), so ask for pieces that stay in the cache.
 *  @param scratch  @p count elements, 64-byte aligned, that may be used.
 *  @return The gradient itself, or @p scratch; NULL: there is no such gradient. */
CDDP_API const void *cddp_ddp_mean(cddp_ddp *ddp, size_t index, size_t first, size_t count,
                                   void *scratch);

/** This rank has updated its spans. Collective, once after each update; does not wait.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (no shards), CDDP_ERR_STATE (in the middle of a backward),
 *          CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_updated(cddp_ddp *ddp);

/** Wait until parameter @p index holds everyone's updates; before it is read. cddp_ddp_begin() does
 *  the same for all.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_param_wait(cddp_ddp *ddp, size_t index);
/** The same for all parameters. */
CDDP_CHECKED cddp_status cddp_ddp_params_wait(cddp_ddp *ddp);

/* What the last synchronised step cost. Times in nanoseconds. On a device they are the streams', of
 * the last step that was over when cddp_ddp_wait() was called (all but `steps`): exposed is how
 * long the compute stream stood still. A step that begins while more than three are unfinished is
 * not measured. */
typedef struct cddp_ddp_stats {
    size_t struct_size;
    uint64_t steps;            /* synchronised steps so far */
    uint64_t exposed_ns;       /* in the last step: time inside wait that compute did not hide */
    uint64_t comm_ns;          /* from the first bucket's start to the last one's end */
    uint64_t total_exposed_ns; /* over all steps */
    size_t buckets;
    size_t bytes;     /* reduced per step */
    int slowest_rank; /* the rank for which the others waited most in the last step; -1: unknown */
} cddp_ddp_stats;
#define CDDP_DDP_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_ddp_stats), 0, 0, 0, 0, 0, 0, -1                                               \
    }
/** Fills the fields that @p out->struct_size knows; CDDP_ERR_ARGUMENT if that is not set. */
CDDP_CHECKED cddp_status cddp_ddp_get_stats(const cddp_ddp *ddp, cddp_ddp_stats *out);

typedef struct cddp_bucket_stats {
    size_t struct_size;
    size_t bytes;
    size_t params;
    uint64_t start_ns; /* since begin of backward (the first grad_ready): when it was started */
    uint64_t end_ns;   /* and when its result was there */
} cddp_bucket_stats;
/** The same for bucket @p bucket of the last synchronised step; CDDP_ERR_ARGUMENT also when there
 *  was no such bucket in it. */
CDDP_CHECKED cddp_status cddp_ddp_get_bucket_stats(const cddp_ddp *ddp, size_t bucket,
                                                   cddp_bucket_stats *out);

#ifdef __cplusplus
}
#endif
#endif
