/** @file
 *  ddp.h - one model's gradients, kept equal across a group.
 *
 *     create            manifests are compared, rank 0's parameters and buffers are broadcast
 *     each step:
 *       begin           (optional) this rank's sample count, or "do not synchronise"
 *       grad_ready(i)   as backward completes each gradient; never waits
 *       progress        (optional) in long stretches of compute without any other call
 *       wait            all gradients are the mean over ranks
 *     at the end:
 *       join            (optional) until all are through, where ranks have unequal numbers of steps
 *
 * Gradients are gathered in buckets; a bucket's all-reduce is started as soon as it and all before
 * it are complete, strictly in index order on every rank. A handle belongs to the thread that
 * drives compute; what never changes after cddp_ddp_create() (cddp_ddp_param(), cddp_ddp_spans())
 * any thread may ask.
 *
 * In a group on a device gradients lie in its memory, and no call waits for it. Calls then speak of
 * the compute stream: grad_ready(i) says that the work which completes gradient i has been put into
 * it, and what is put there behind wait (or param_wait) sees the mean (or the parameter). The
 * ranks' threads wait for each other in wait, so that a gradient that is missing on some rank is an
 * error of that very step; what fails on a device is an error of the next call. Everything else is
 * the same, to the bit if the group is deterministic. The caller's own memory (`grad`,
 * `flat_grads`) may come from any allocator of the device's; all backends but nccl copy it once
 * more than memory of cddp_group_alloc(). */
#ifndef CDDP_DDP_H
#define CDDP_DDP_H

#include <cddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_MAX_DIMS = 8 };

/** One model's gradients, kept equal across a group. */
typedef struct cddp_ddp cddp_ddp;

/** One tensor of the model. All memory stays the caller's, outlives the handle and does not move.
 *  Arrays of it cross the border, so it has no struct_size, and will not change. */
typedef struct cddp_param {
    /** Unique among parameters and buffers; copied. */
    const char *name;
    /** CDDP_F32, CDDP_F64, CDDP_F16 or CDDP_BF16 for parameters; any for buffers. */
    cddp_type type;
    /** 0 to CDDP_MAX_DIMS; 0 is a scalar. */
    int dims;
    /** Row-major. */
    int64_t shape[CDDP_MAX_DIMS];
    /** As many elements as the product of the shape; in a group on a device in either memory,
     *  but in the device's if the optimizer is sharded. */
    void *data;
    /** Where backward writes a parameter's gradient, of the same shape and type; NULL: in memory
     *  of cddp's (then no copies are made), see cddp_ddp_grad(). Not used for buffers. */
    void *grad;
    /** Has no gradient: broadcast and compared, never reduced. */
    bool frozen;

} cddp_param;

/** Gradients that are reduced together; valid while a hook is called with it. */
typedef struct cddp_bucket cddp_bucket;

/** Replaces a bucket's reduction. Called with @p stage 0 when the bucket is complete, in bucket
 * order; it starts at most one collective on the group and gives its handle in @p out_work (owned
 * by cddp from then on), or NULL when the bucket is finished. After each work that it gives it is
 * called with the next stage once that work is done, from cddp_ddp_wait() and again in bucket
 * order. When the bucket is finished its data must be the mean over ranks. The hook runs on the
 * compute thread; on a device it puts all work on the data into the compute stream. */
typedef cddp_status (*cddp_hook_fn)(void *state, cddp_bucket *bucket, int stage,
                                    cddp_work **out_work);

/* What a hook may ask of a bucket, while it is called. */
/** The group of the handle, for the hook's collectives. */
CDDP_API cddp_group *cddp_bucket_group(cddp_bucket *bucket);
/** Counted from 0, in the order in which buckets are started. */
CDDP_API size_t cddp_bucket_index(const cddp_bucket *bucket);
/** Whether no other bucket follows in this step. */
CDDP_API bool cddp_bucket_is_last(const cddp_bucket *bucket);
/** The gradients: cddp_bucket_count() elements of cddp_bucket_type(), 64-byte aligned unless they
 *  lie in the caller's `flat_grads`. */
CDDP_API void *cddp_bucket_data(cddp_bucket *bucket);
/** How many elements the bucket has, padding between parameters included. */
CDDP_API size_t cddp_bucket_count(const cddp_bucket *bucket);
/** The type of its elements. */
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

/** The built-in hook that does what is done without a hook. Its state is NULL. */
CDDP_API cddp_status cddp_hook_identity(void *, cddp_bucket *, int, cddp_work **);
/** The built-in hook that sends f32 buckets as bf16 (accumulated in f32, rounded once) and leaves
 *  buckets of other types alone. Its state is NULL. A sharded optimizer's gradients go to the rank
 *  that updates them in 16 bits, too, but the updated parameters are sent in their own type: they
 *  are what the next update starts from, and without rounding ranks stay equal. A step then sends
 *  3/4 of the bytes of f32; without shards it sends half. */
CDDP_API cddp_status cddp_hook_bf16(void *, cddp_bucket *, int, cddp_work **);
/** The same with fp16. */
CDDP_API cddp_status cddp_hook_fp16(void *, cddp_bucket *, int, cddp_work **);

/** How gradients are reduced; zero means default. */
typedef struct cddp_ddp_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** The first bucket is complete once it holds at least this much, less than others so that
     *  sending begins early; 0: see bucket_bytes, else 1 MiB, or bucket_bytes if that is less. */
    size_t first_bucket_bytes;
    /** Each other bucket is complete once it holds at least this much. 0: in a group over several
     *  hosts rank 0 chooses this size, the first bucket's and part_bytes for all ranks, from the
     *  link's latency and bandwidth, which were measured when the group formed, so that as little
     *  as possible is left to send when backward ends: when the handle is created, and without
     *  `shard` once more inside the first cddp_ddp_wait(), from when gradients were ready in its
     *  backward. $CDDP_LOG=info tells what it chose. On one host, on a device, or if any of the
     *  three is given: 25 MiB. Sums are the same to the bit. */
    size_t bucket_bytes;
    /** The order in which backward completes gradients: as many indices as there are parameters
     *  that are not frozen, borrowed for the call; NULL: reverse registration order, and after the
     *  first backward the buckets are rebuilt once in rank 0's order of arrival. Where sizes are
     *  chosen, without `shard`, they are rebuilt also if an order is given. */
    const uint32_t *ready_order;
    /** Parameters may get no gradient in a step: they contribute zero, and one that got none on any
     *  rank keeps its gradient as it was. */
    bool allow_unused;
    /** The caller's own gradient block holding all `grad` pointers (unfrozen parameters in
     *  registration order, back to back, one type): reduced where it lies, never rearranged; NULL:
     *  none. Memory of cddp_group_alloc() is reduced in place. So is private memory (malloc) on the
     *  processor, where all ranks are on one machine: until the handle is destroyed they share its
     *  whole pages, at the same address, so a fork must not write there, nor may another device or
     *  library have the pages registered ($CDDP_SHARE_GRADS=0: not shared). Any other memory is
     *  copied at each step, which takes 2 to 3 times as long (19 instead of 9 ms for 62 MB); the
     * log says so. Buckets are ranges of the block: one starts when its last gradient is ready.
     * Ranges are also cut (64 times at most) where gradients that lie side by side become ready far
     * apart in backward, as far as the order is known (`ready_order`, or the first backward); where
     * the first bucket still waits for more than half of the others, the log says so once. */
    void *flat_grads;
    /** Replaces the reduction of every bucket; NULL: cddp_hook_identity(). */
    cddp_hook_fn hook;
    /** Given to the hook. */
    void *hook_state;
    /** Any text that must be the same on all ranks (part of the manifest), borrowed for the call;
     *  NULL: none. */
    const char *config;
    /** Each rank updates a shard of the parameters: see below. Buckets are never rebuilt then, and
     *  `flat_grads` is not possible. */
    bool shard;
    /** With `shard`: the caller gets gradients by cddp_ddp_mean(), which then reduces them itself
     *  where that is faster (never on a device). */
    bool reduce_late;
    /** 1: buckets are never rebuilt, so what cddp_ddp_grad() gives never changes; without
     *  `ready_order` they stay in reverse registration order. 64 bits wide, as cddp_step.sum is. */
    uint64_t keep_buckets;
    /** A gradient of more bytes than this is cut in parts of about so many (at most 64), each a
     *  bucket of its own: while one is sent, the next is copied or made narrow. 0: not, or chosen
     *  with bucket_bytes. Never cut with `shard`, where a rank has one span of a gradient at most
     * and the memory of a bucket is divided among ranks, nor for a hook of the caller's, which may
     * see a matrix in it. */
    size_t part_bytes;

} cddp_ddp_options;
/** A cddp_ddp_options of defaults. */
#define CDDP_DDP_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(cddp_ddp_options), 0, 0, NULL, false, NULL, NULL, NULL, NULL, false, false, 0, 0    \
    }

/** Compare manifests, broadcast rank 0's @p params and @p buffers, plan the buckets. Collective:
 *  every rank succeeds or every rank fails, with the same text.
 *  @param group    May be destroyed before the handle, which keeps it.
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
 * buckets are rebuilt inside the first cddp_ddp_wait(), contents included: ask again after it. NULL
 * with a text in cddp_last_error() also while another thread is in a call on the handle. */
CDDP_API void *cddp_ddp_grad(cddp_ddp *ddp, size_t index);

/** How the coming backward is synchronised. */
typedef struct cddp_step {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** How many samples this rank's gradients are the mean of; the result is the mean over all
     *  samples. < 0: plain mean over ranks. 0: this rank contributes nothing; on every rank:
     *  CDDP_ERR_STATE of wait. */
    double weight;
    /** Gradients only accumulate: nothing is sent, wait returns at once. */
    bool no_sync;
    /** 1: this rank's gradients are its part of the mean already, because its loss was divided by
     *  the samples of all ranks: they are added up, and weight is ignored. That is fastest where
     *  the network adds (NCCL with NVLink switches). 64 bits wide, so that struct_size differs in
     *  programs that were built before this field existed. */
    uint64_t sum;

} cddp_step;
/** A cddp_step of the plain mean. */
#define CDDP_STEP_INIT                                                                             \
    {                                                                                              \
        sizeof(cddp_step), -1.0, false, 0                                                          \
    }

/** Say how the coming backward is synchronised; before its first grad_ready. Without it (or with
 * NULL): plain mean. The values hold for one backward. All ranks must agree on no_sync and sum.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (weight is not finite), CDDP_ERR_STATE (in the middle of a
 *          backward), CDDP_ERR_CLOSED (an earlier call failed). */
CDDP_CHECKED cddp_status cddp_ddp_begin(cddp_ddp *ddp, const cddp_step *step);

/** Begin a backward whose gradients are the mean of @p samples samples of this rank's, so that the
 *  result is the mean over the samples of all ranks, however unequal their shares: cddp_ddp_begin()
 *  with a step of that weight. 0: this rank had none. All ranks call it, or none.
 *  @return as cddp_ddp_begin(). */
CDDP_CHECKED cddp_status cddp_ddp_begin_samples(cddp_ddp *ddp, uint64_t samples);

/** Say that backward has finished gradient @p index, so its bucket may start. Does not wait.
 *  Where the rank has a core to spare, or TCP brings the data from other machines, a thread of the
 *  group's moves them meanwhile ($CDDP_COMM_THREAD, 0 or 1, decides instead); else they only move
 *  inside calls of cddp, of which this is one: see cddp_ddp_progress().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (there is no such gradient), CDDP_ERR_STATE (a second time in
 *          one backward), CDDP_ERR_CLOSED, or an error of the group or the hook. */
CDDP_CHECKED cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index);

/** Say the same of the gradients of parameters @p first to @p first + @p count - 1 at once; those
 * of them that are frozen are passed over.
 *  @return as cddp_ddp_grad_ready(); after CDDP_ERR_ARGUMENT none of them is ready. */
CDDP_CHECKED cddp_status cddp_ddp_grads_ready(cddp_ddp *ddp, size_t first, size_t count);

/** Let the buckets that were started move on, and do not wait. For stretches of compute that last
 *  long without another call of cddp, on ranks without a core to spare (see cddp_ddp_grad_ready()):
 *  once a millisecond is often enough, and costs about as much as reading the clock. Where a thread
 *  of the group's or a device moves the data it only looks for failures. May be called at any time,
 *  also in a forward.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_progress(cddp_ddp *ddp);

/** Wait until every gradient is the mean over ranks. A parameter that got no gradient gives,
 * without allow_unused, CDDP_ERR_STATE with its name, in this very step and on every rank. On any
 * error the gradients are undefined and all later calls on the handle give CDDP_ERR_CLOSED.
 *  @return CDDP_OK, CDDP_ERR_STATE, CDDP_ERR_MISMATCH (ranks disagree about no_sync),
 *          CDDP_ERR_NO_MEMORY, CDDP_ERR_CLOSED, or an error of the group or the hook. */
CDDP_CHECKED cddp_status cddp_ddp_wait(cddp_ddp *ddp);

/** For ranks that are through before others are: take part in one step of theirs, with nothing to
 *  contribute. Afterwards the gradients are the same mean as theirs, so the caller updates its
 *  parameters as they do and all replicas stay equal:
 *
 *      while (next_batch()) { forward(); backward(); cddp_ddp_wait(ddp); update(); }
 *      while (cddp_ddp_join(ddp, &all) == CDDP_OK && !all) { update(); }
 *
 *  Every rank calls it until @p out_all is true, which it is on all ranks at once, when none of
 * them has trained any more: then there is nothing to update, and another epoch may begin. In steps
 *  with a weight this rank has weight 0; in the plain mean and in sums it adds zeros, so the plain
 *  mean is still over all ranks of the group. What it has accumulated with no_sync is left out.
 *
 *  The steps of the others are of the kind of this rank's last one (a weight, a sum or a plain
 *  mean); a rank that had none says by cddp_ddp_begin_samples(ddp, 0) that they have weights. Only
 *  the collectives of steps are taken part in (with a sharded optimizer the caller calls
 *  cddp_ddp_updated() as ever): collectives that the trainer itself adds to a step are its own.
 *  @return as cddp_ddp_wait(); CDDP_ERR_STATE also in the middle of a backward. */
CDDP_CHECKED cddp_status cddp_ddp_join(cddp_ddp *ddp, bool *out_all);

/** Let every rank have @p root's parameters (frozen ones, too), or buffers, or both: after @p root
 *  has loaded a checkpoint, or buffers before each forward. Where the optimizer is sharded,
 *  parameters are those that cddp_ddp_param() gives. Collective, between backward passes; on a
 *  device in the order of the compute stream.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (there is no such rank), CDDP_ERR_STATE (in the middle of a
 *          backward), CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_broadcast(cddp_ddp *ddp, int root, bool params, bool buffers);

/** A sharded optimizer (ZeRO stage 1): with options.shard the gradients of a step are reduced only
 * to the rank that updates them, so that its optimizer works on, and keeps state for, 1/world_size
 * of the parameters:
 *
 *     wait              gradients are the mean over ranks inside this rank's spans; elsewhere they
 *                       are undefined
 *     (the optimizer updates the parameters inside this rank's spans)
 *     updated           every rank's updates are sent to all ranks
 *     param_wait(i)     before the next forward uses parameter i: it is whole
 *
 * cddp_ddp_create() moves the parameters that are not frozen to memory of cddp's, which is released
 * with the handle: ask cddp_ddp_param(). An update that works element by element gives the same
 * bits as without shards. */
typedef struct cddp_span {
    /** Index of the parameter. */
    size_t param;
    /** Its first element, counted as if the parameter had one dimension. */
    size_t first;
    /** How many elements. */
    size_t count;

} cddp_span;

/** Where parameter @p index lives: in the caller's `data`, or with shards in cddp's memory, 64-byte
 *  aligned. NULL: there is no such parameter. */
CDDP_API void *cddp_ddp_param(cddp_ddp *ddp, size_t index);

/** What rank @p rank updates, in the order of parameters; together the spans of all ranks hold each
 *  element once. @p out_count may be 0. NULL and 0 without shards. Owned by the handle. */
CDDP_API const cddp_span *cddp_ddp_spans(const cddp_ddp *ddp, int rank, size_t *out_count);

/** The mean over ranks of elements [first, first + count) of the gradient of parameter @p index,
 *  which lie in a span of this rank's; between wait and updated. Reads other ranks' memory where
 * the reduction was left to this call (options.reduce_late), so ask for pieces that stay in the
 * cache.
 *  @param scratch  @p count elements, 64-byte aligned, that may be used.
 *  @return The gradient itself, or @p scratch; NULL: there is no such gradient. */
CDDP_API const void *cddp_ddp_mean(cddp_ddp *ddp, size_t index, size_t first, size_t count,
                                   void *scratch);

/** Say that this rank has updated its spans. Collective, once after each update; does not wait.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (no shards), CDDP_ERR_STATE (in the middle of a backward),
 *          CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_updated(cddp_ddp *ddp);

/** Wait until parameter @p index has all ranks' updates; call it before the parameter is read.
 *  cddp_ddp_begin() does the same for all.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_param_wait(cddp_ddp *ddp, size_t index);
/** The same for all parameters. */
CDDP_CHECKED cddp_status cddp_ddp_params_wait(cddp_ddp *ddp);

/** Write all parameters, with all ranks' updates, to the caller's memory that cddp_ddp_create() got
 *  as `data`, so that what saves or evaluates from there is right again. The optimizer stays
 * sharded: the next update needs another call. Collective; without shards the parameters are there
 * already.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (in the middle of a backward),
 *          CDDP_ERR_CLOSED, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_unshard(cddp_ddp *ddp);

/** Gather state of a sharded optimizer (momentum ...) that each rank keeps for its spans alone, so
 *  that it can be saved. Collective. The way back needs no call: a rank takes its span out of the
 *  whole.
 *  @param index  A parameter that is not frozen.
 *  @param own    This rank's elements: as many as its span of the parameter has (see
 *                cddp_ddp_spans()); NULL if it has none. May be where they belong in @p out.
 *  @param type   Of the state, which may be another than the parameter's.
 *  @param out    As many elements as the parameter has; of the same kind of memory as @p own.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (also without shards), CDDP_ERR_CLOSED, CDDP_ERR_NO_MEMORY,
 * or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_gather_state(cddp_ddp *ddp, size_t index, const void *own,
                                               cddp_type type, void *out);

/** What the last synchronised step cost. Times in nanoseconds. On a device they are the streams',
 * of the last step that was over when cddp_ddp_wait() was called (all but `steps`): exposed is how
 * long the compute stream waited. A step that begins while more than three are unfinished is not
 * measured. */
typedef struct cddp_ddp_stats {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** Synchronised steps so far. */
    uint64_t steps;
    /** Exposed communication of the last step: time inside wait that compute did not hide, and, of
     *  a sharded optimizer on the processor, inside param_wait, params_wait, begin and updated
     *  since the step before: there the parts of an update are waited for. */
    uint64_t exposed_ns;
    /** From the first bucket's start to the last one's end. */
    uint64_t comm_ns;
    /** Exposed communication of all steps. */
    uint64_t total_exposed_ns;
    /** How many buckets there are. */
    size_t buckets;
    /** Bytes of gradients that are reduced in a step, padding between them not counted. */
    size_t bytes;
    /** The rank for which the others waited most in the last step; -1: unknown. */
    int slowest_rank;
    /** That part of exposed_ns which passed before the last rank had come to its wait: it is the
     *  other ranks' compute, and no faster network shortens it. Between hosts it is exact to about
     *  the latency of the network. On a device: how much longer this rank's compute stream waited
     *  than that of the rank which waited least, in the newest step of which all ranks knew that at
     *  their last wait, so in an older one than exposed_ns is of. */
    uint64_t peer_wait_ns;
    /** The rest of it: what is left when all ranks wait, so moving and adding data (with a sharded
     *  optimizer also the waits for updated parameters). */
    uint64_t transfer_ns;
    /** Both of all steps (on a device, of those of which they were known); together they are
     *  total_exposed_ns on the processor. */
    uint64_t total_peer_wait_ns;
    /** See total_peer_wait_ns. */
    uint64_t total_transfer_ns;

} cddp_ddp_stats;
/** An empty cddp_ddp_stats. */
#define CDDP_DDP_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_ddp_stats), 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0                                   \
    }
/** Fills the fields that @p out->struct_size knows; CDDP_ERR_ARGUMENT if that is not set,
 *  CDDP_ERR_STATE while another thread is in a call on the handle. */
CDDP_CHECKED cddp_status cddp_ddp_get_stats(const cddp_ddp *ddp, cddp_ddp_stats *out);

/** When one bucket of the last synchronised step was reduced. Times in nanoseconds since the first
 *  grad_ready of the backward. */
typedef struct cddp_bucket_stats {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** Bytes of its gradients, without padding. */
    size_t bytes;
    /** How many parameters it holds. */
    size_t params;
    /** When its reduction was started. */
    uint64_t start_ns;
    /** When its result was there. */
    uint64_t end_ns;

} cddp_bucket_stats;
/** A cddp_bucket_stats of defaults. */
#define CDDP_BUCKET_STATS_INIT                                                                     \
    {                                                                                              \
        sizeof(cddp_bucket_stats), 0, 0, 0, 0                                                      \
    }
/** The times of bucket @p bucket of the last synchronised step. Fills the fields that
 *  @p out->struct_size knows; CDDP_ERR_ARGUMENT if that is not set, or there was no such bucket,
 *  CDDP_ERR_STATE while another thread is in a call on the handle. */
CDDP_CHECKED cddp_status cddp_ddp_get_bucket_stats(const cddp_ddp *ddp, size_t bucket,
                                                   cddp_bucket_stats *out);

#ifdef __cplusplus
}
#endif
#endif
