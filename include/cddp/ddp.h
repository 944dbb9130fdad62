/** @file
 *  ddp.h - one model's gradients, kept equal across a group.
 *
 *      create            compare the ranks' models, broadcast rank 0's parameters and buffers
 *      each step:
 *        begin           the step's number, and how many samples this rank has in it
 *        grad_ready(i)   when backward has completed gradient i; never waits
 *        progress        (optional) during long compute without another call
 *        wait            until all gradients are the mean over the samples of all ranks
 *        (the optimizer updates the parameters)
 *      a rank without a backward in this step, whose data has ended or that has no micro-batch:
 *        follow          instead of begin, grad_ready and wait; then it updates, too
 *
 *  Every backward is begun and waited for. Without cddp_ddp_begin(), grad_ready and wait are
 *  errors: nothing else tells how much each rank's gradients count.
 *
 *  A step of several micro-batches has begin, backward and wait for each of them. Only the wait of
 *  a rank's last one synchronises; the others return at once. The caller sets its gradients to zero
 *  (or lets the backward overwrite them) before its first micro-batch of a step, and adds to them
 *  in the others. cddp never sets them to zero, and divides by no number of micro-batches. See
 *  cddp_step. With CDDP_STEP_BY_MICRO_BATCHES, cddp adds them up instead, so that results do not
 *  depend on the number of ranks.
 *
 *  A rank that has samples but none in this step, in a short last batch, may also begin the step
 *  with 0 samples and call wait: in a mean over samples it needs no backward.
 *
 *  After CDDP_ERR_ARGUMENT, CDDP_ERR_UNAVAILABLE and CDDP_ERR_BUSY (another thread is in a call)
 *  nothing has changed: call again. The same holds for calls at the wrong time: CDDP_ERR_STATE of
 *  grad_ready and wait without begin, CDDP_ERR_INCOMPLETE of any call but wait. After all other
 *  errors of begin, grad_ready, progress, wait and follow, the gradients are undefined and the
 *  handle has ended: later calls return CDDP_ERR_BROKEN. Destroy it. If all ranks got the same
 *  error from wait (a gradient is missing or was ready twice, or the ranks have begun steps of
 *  different numbers or micro_batches), the group is unharmed, and another handle can be made on
 *  it. Steps of different kinds need different collectives, so they break the group.
 *
 *  Gradients are collected in buckets. The reduction of a bucket (an all-reduce; a reduce-scatter
 *  with `shard`) starts as soon as this bucket and all buckets before it are complete, so every
 *  rank starts them in the same order.
 *
 *  Only the thread that drives compute uses a handle. Any thread may call cddp_ddp_param_count(),
 *  cddp_ddp_param_name(), cddp_ddp_param() and cddp_ddp_spans(): their results are constant.
 *
 *  In a group on a device, gradients are in device memory, and no call waits for the device. The
 *  calls then refer to the compute stream: grad_ready(i) says that the work that completes gradient
 *  i is in the stream, and work that is put into the stream after wait (or param_wait) sees the
 *  mean (or the parameter). In cddp_ddp_wait() the ranks' threads wait for each other, though not
 *  for the device. So a gradient that is missing on some rank is an error of that step. A failure
 *  on the device is an error of the next call. Everything else is the same, to the bit if the
 *  group is deterministic. The caller's gradient memory (`grad`, `flat_grads`) may come from any
 *  allocator of the device. With every backend but nccl, memory from cddp_group_alloc() saves a
 *  copy. */
#ifndef CDDP_DDP_H
#define CDDP_DDP_H

#include <cddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One model's gradients, kept equal across a group. */
typedef struct cddp_ddp cddp_ddp;

/** What the gradients of a step become. */
typedef enum cddp_step_kind {
    /** The mean over the samples of all ranks: each rank's gradients are a mean over its `samples`
     *  samples, and count as much. */
    CDDP_STEP_BY_SAMPLES = 0,
    /** The mean over ranks: each counts the same, whatever `samples` says. So the result depends on
     *  the number of ranks if they have unequal numbers of samples. */
    CDDP_STEP_BY_RANKS = 1,
    /** The sum over ranks, whatever `samples` says: this rank's loss was already divided by the
     *  number of samples of all ranks. This is fastest if the network does the sums (NCCL with
     *  NVLink switches). */
    CDDP_STEP_SUM = 2,
    /** The sum over the step's micro-batches, as one binary tree in their order: the result has the
     *  same bits on any number of ranks. The loss of each micro-batch was already divided by the
     *  number of samples of the whole step. The backward of each one overwrites the gradients
     *  (or adds to zeros), and cddp adds them up. A gradient that does not come in a micro-batch
     *  is zero there; one that comes in none of a rank's micro-batches needs allow_unused.
     *
     *  cddp keeps a rank's partial sums in memory of its own: up to log2 of its micro-batches times
     *  the gradients, in uneven runs up to twice as many. If each rank has as many micro-batches,
     *  and these are a power of two, the ranks' sums are reduced like those of CDDP_STEP_SUM.
     *  Otherwise ranks exchange partial sums. If the rank with most has n of them (2, seldom 3 or
     *  4), that sends (n + 1) / 2 times the bytes, more of them after the backward, and takes n
     *  times the memory of the gradients on each rank. This memory is shared, so in the first step
     *  that needs it, cddp_ddp_grad_ready() waits for the other ranks.
     *
     *  Gradients are of f32 or f64 (on a device, of f32), the hook is cddp_hook_identity(), and on
     *  a device the group is deterministic. Ranks that disagree about micro_batches may break the
     *  group. */
    CDDP_STEP_BY_MICRO_BATCHES = 3,
    CDDP_STEP_KIND_MAX_ENUM_ = 0x7fffffff

} cddp_step_kind;

/** Gradients that are reduced together, as a hook sees them. cddp makes it; it is valid only during
 *  the call of the hook. A newer cddp may add fields at the end. */
typedef struct cddp_bucket {
    /** Tells the hook which fields this cddp has set. */
    size_t struct_size;
    /** Private to cddp. */
    struct cddpi_bucket *inside;
    /** The handle's group, for the hook's collectives. */
    cddp_group *group;
    /** 0, 1, ... in the order in which buckets start. */
    size_t index;
    /** Whether this is the last bucket of the step. */
    bool is_last;
    /** 0. */
    uint32_t reserved;
    /** The gradients: `count` elements of `type`, 64-byte aligned unless they are in the caller's
     *  `flat_grads`. The hook may read and write them. */
    void *data;
    /** How many elements there are, including the padding between parameters. */
    size_t count;
    /** The type of the elements. */
    cddp_type type;
    /** How the hook combines the ranks' gradients. */
    cddp_step_kind kind;
    /** The number of this rank's samples in the step (CDDP_STEP_BY_SAMPLES): its gradients are the
     *  mean over them. */
    uint64_t samples;
    /** The step's number. */
    uint64_t step;

} cddp_bucket;
CDDP_NO_TAIL(cddp_bucket, step);

/** A communication hook: replaces the reduction of a bucket. Hooks are called in bucket order, in
 *  the thread that drives compute.
 *
 *  When the bucket is complete, cddp calls the hook with @p stage 0. The hook starts at most one
 *  collective on the group, and stores its handle in @p out_work; cddp owns the handle from then
 *  on. When that collective is done, cddp_ddp_wait() calls the hook with the next stage, and so on,
 *  until the hook stores NULL: then the bucket is finished, and its data must be what bucket->kind
 *  says. On a device, the hook puts all work on the data into the compute stream.
 *
 *  Any status but CDDP_OK ends the step on all ranks. A number that is no error of cddp counts as
 *  CDDP_ERR_ARGUMENT.
 *
 *  May call: anything of this group, but nothing of the cddp_ddp. */
typedef cddp_status (*cddp_hook_fn)(void *state, const cddp_bucket *bucket, int stage,
                                    cddp_work **out_work);

/** Scratch memory for a hook. The first call for a bucket allocates it with cddp_group_alloc();
 *  later calls return the same pointer.
 *
 *  Collective: first call.
 *  @param bytes  The size, the same on all ranks and in all calls for this bucket.
 *  @param out    The bucket owns the memory, until the buckets are rebuilt.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (another size than at first), CDDP_ERR_NO_MEMORY, or an error
 *          of the group. */
CDDP_CHECKED cddp_status cddp_bucket_scratch(const cddp_bucket *bucket, size_t bytes, void **out);

/** The built-in hook that reduces a bucket as it is, which is the default. Its state is NULL.
 *  Collective: ordered. */
CDDP_API cddp_status cddp_hook_identity(void *, const cddp_bucket *, int, cddp_work **);
/** The built-in hook that sends f32 buckets as bf16, accumulated in f32 and rounded once. It does
 *  not change buckets of other types. Its state is NULL. A step sends half the bytes of f32.
 *
 *  With a sharded optimizer, gradients are sent in 16 bits, too, but updated parameters are sent in
 *  their own type: the next update starts from them, and without rounding they stay equal on all
 *  ranks. Then a step sends 3/4 of the bytes of f32.
 *
 *  Collective: ordered. */
CDDP_API cddp_status cddp_hook_bf16(void *, const cddp_bucket *, int, cddp_work **);
/** Like cddp_hook_bf16(), but with f16.
 *  Collective: ordered. */
CDDP_API cddp_status cddp_hook_fp16(void *, const cddp_bucket *, int, cddp_work **);

/** How gradients are reduced; zero means default. */
typedef struct cddp_ddp_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The first bucket is complete when it holds at least this many bytes. It is smaller than the
     *  others, so that communication starts early. 0: chosen by cddp where bucket_bytes says so;
     *  otherwise 1 MiB, or bucket_bytes if that is smaller. */
    size_t first_bucket_bytes;
    /** Every other bucket is complete when it holds at least this many bytes. 0: chosen by cddp.
     *
     *  In a group over several hosts, rank 0 then chooses bucket_bytes, first_bucket_bytes and
     *  part_bytes for all ranks, so that little is left to send when backward ends. It computes
     *  them from the latency and bandwidth of the network, measured when the group was formed. It
     *  chooses when the handle is created and, without `shard`, again in the first cddp_ddp_wait(),
     *  when it knows at what times gradients become ready, if these may move (see
     *  `may_move_grads`). $CDDP_LOG=info shows the sizes. On one
     *  host, on a device, or if one of the three is given, 0 means 25 MiB. Results are the same to
     *  the bit with all sizes. */
    size_t bucket_bytes;
    /** The order in which backward completes gradients: the indices of all parameters that are not
     *  frozen, borrowed for the call. NULL: reverse registration order; after the first backward,
     *  the buckets are rebuilt once, in the order in which rank 0's gradients arrived, if gradients
     *  may move (see `may_move_grads`). If cddp chooses the sizes and `shard` is not set, buckets
     *  are rebuilt even if an order is given. */
    const size_t *ready_order;
    /** In a step, some parameters may have no gradient (find_unused_parameters in PyTorch): they
     *  contribute zero. A parameter without a gradient on all ranks keeps its old gradient. */
    bool allow_unused;
    /** The caller's gradient block, which holds all `grad` pointers: parameters that are not
     *  frozen, in registration order, back to back, of one type. It is never rearranged. NULL: no
     *  such block.
     *
     *  Memory from cddp_group_alloc() is reduced in place; so are pages that `share_flat_grads`
     *  lets ranks share. Any other memory is copied at each step, which takes 2 to 3 times as long
     *  (19 instead of 9 ms for 62 MB); the log says so once.
     *
     *  Buckets are ranges of the block. A bucket starts when its last gradient is ready. If
     *  neighbouring gradients become ready at very different times, the block is also cut between
     *  them, at most 64 times; cddp knows the times from `ready_order` or the first backward. The
     *  log says once if the first bucket cannot start before more than half of all other gradients
     *  are ready. */
    void *flat_grads;
    /** Let the ranks of one machine share the pages of `flat_grads`, if it is private CPU memory
     *  (malloc): until the handle is destroyed, shared memory replaces its whole pages, at the same
     *  addresses and with their contents. Then a forked child must not write there, and no other
     *  device or library may have registered the pages. $CDDP_SHARE_GRADS=0 forbids it. The same on
     *  all ranks. */
    bool share_flat_grads;
    /** Replaces the reduction of every bucket; NULL: cddp_hook_identity(). */
    cddp_hook_fn hook;
    /** Passed to the hook. */
    void *hook_state;
    /** Any text that has to be the same on all ranks; it is compared with the models. Borrowed for
     *  the call; NULL: no text. */
    const char *config;
    /** Use a sharded optimizer: each rank updates a shard of the parameters (see cddp_span). Then
     *  buckets are never rebuilt, and `flat_grads` is not possible. */
    bool shard;
    /** The first cddp_ddp_wait() may move the gradients in cddp's memory, so the caller asks
     *  cddp_ddp_grad() again after it. Buckets can then be rebuilt as backward needs them (see
     *  `ready_order` and `bucket_bytes`). false: the results of cddp_ddp_grad() never change; at
     *  $CDDP_LOG=info the log says if a rebuild would help. If every `grad` is the caller's,
     *  nothing of the caller's moves, and buckets are rebuilt anyway. */
    bool may_move_grads;
    /** A larger gradient is cut into parts of about this many bytes, at most 64, each in a bucket
     *  of its own: while one part is sent, the next one is copied or cast. 0: gradients are not
     *  cut, unless cddp chooses the sizes (see bucket_bytes). Never used with `shard`, because a
     *  rank has at most one span of each gradient, nor with a custom hook, which may treat a
     *  gradient as a matrix. */
    size_t part_bytes;

} cddp_ddp_options;
/** The defaults of cddp_ddp_options. */
#define CDDP_DDP_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(cddp_ddp_options), 0, 0, NULL, false, NULL, false, NULL, NULL, NULL, false, false,  \
            0                                                                                      \
    }
CDDP_NO_TAIL(cddp_ddp_options, part_bytes);

/** Check that all ranks have the same model and options, broadcast rank 0's @p params and
 *  @p buffers, and plan the buckets. Every rank succeeds, or every rank fails with the same status
 *  and text.
 *
 *  Collective: yes.
 *  @param group    May be destroyed before the handle, which keeps it alive.
 *  @param params   Of CDDP_F32, CDDP_F64, CDDP_F16 or CDDP_BF16. At least one is not frozen. Names
 *                  are copied. The memory of `data` and `grad` outlives the handle and does not
 *                  move. In a group on a device, `data` may be in CPU memory or in device memory;
 *                  with a sharded optimizer, in device memory only. `grad` NULL: in memory that
 *                  cddp allocates, which saves copies; see cddp_ddp_grad().
 *  @param buffers  State without a gradient (running means ...) of any type, which is only
 *                  broadcast here; may be NULL. No flags.
 *  @param options  NULL for all defaults.
 *  @param out      Release with cddp_ddp_destroy(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_MISMATCH (the text is a diff of
 *          the models or options), CDDP_ERR_UNAVAILABLE (an unknown flag), or an error of
 *          the group. */
CDDP_CHECKED cddp_status cddp_ddp_create(cddp_group *group, const cddp_param *params,
                                         size_t param_count, const cddp_param *buffers,
                                         size_t buffer_count, const cddp_ddp_options *options,
                                         cddp_ddp **out);
/** Release the handle, and the gradient memory that cddp allocated for it. Waits for updates that
 *  cddp_ddp_params_start() sends. In the middle of a step it breaks the group.
 *
 *  Collective: ordered. */
CDDP_API void cddp_ddp_destroy(cddp_ddp *ddp);

/** Where the gradient of parameter @p index is: the caller's `grad`, or cddp's memory in a bucket,
 *  which is 64-byte aligned and zero at first. NULL for a frozen parameter.
 *
 *  It stays there until the handle is destroyed. Only with options.may_move_grads, cddp's memory
 *  may move once, with its contents, in the first cddp_ddp_wait(): then call this function again
 *  after it. While another thread is in a call on the handle, the result is NULL, and
 *  cddp_last_error() says why.
 *  Collective: no. */
CDDP_API void *cddp_ddp_grad(cddp_ddp *ddp, size_t index);

/** The step that a backward belongs to, for cddp_ddp_begin(). All defaults are zero. Set `samples`:
 *  with 0 samples, a rank contributes nothing. */
typedef struct cddp_step {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The step's number, the same on all ranks. Errors name it. */
    uint64_t number;
    /** CDDP_STEP_BY_SAMPLES: this rank's gradients are a mean over this many samples (or tokens, if
     *  the loss is a mean over tokens). With micro-batches: the samples of all of this rank's
     *  micro-batches of the step, read at its last one. 0: this rank contributes nothing. If every
     *  rank has 0, wait returns CDDP_ERR_STATE. Other kinds do not read it. */
    uint64_t samples;
    /** The same on all ranks. */
    cddp_step_kind kind;
    /** 0. */
    uint32_t reserved;
    /** Which of the step's micro-batches, over all ranks, the coming backward is for. Rank r of
     *  world_size has those of cddp_share_of(0, micro_batches, r, world_size), and begins them in
     *  their order. 0 if micro_batches is 0. */
    uint64_t micro_batch;
    /** How many micro-batches the step has, those of all ranks together; the same on all ranks.
     *  0: the step is not divided, so each rank has one backward. If there are fewer than ranks,
     *  the last ranks have none, and call cddp_ddp_follow() instead. With
     *  CDDP_STEP_BY_MICRO_BATCHES it is not 0, and a rank without any begins the step (its
     *  micro_batch is not read) and waits. */
    uint64_t micro_batches;

} cddp_step;
/** The defaults of cddp_step. */
#define CDDP_STEP_INIT                                                                             \
    {                                                                                              \
        sizeof(cddp_step), 0, 0, CDDP_STEP_BY_SAMPLES, 0, 0, 0                                     \
    }
CDDP_NO_TAIL(cddp_step, micro_batches);

/** Begin a backward of @p step, before its first grad_ready:
 *
 *      cddp_step step = CDDP_STEP_INIT;
 *
 *      step.number = number;
 *      step.samples = samples;
 *      cddp_ddp_begin(ddp, &step);
 *
 *  With M micro-batches, where `share` is this rank's cddp_share_of(0, M, rank, world_size):
 *
 *      set all gradients to zero
 *      step.micro_batches = M;
 *      for (m = share.first; m < share.first + share.count; m++) {
 *          step.micro_batch = m;
 *          begin; forward; backward, which adds to the gradients; wait
 *      }
 *      if (share.count == 0) { follow }
 *      update
 *
 *  With CDDP_STEP_BY_MICRO_BATCHES, set them to zero before each backward instead, and in the place
 *  of follow, begin and wait.
 *
 *  With a sharded optimizer, it waits until all parameters have all ranks' updates. Ranks compare
 *  number, kind and micro_batches at the end of the step. A second begin before the first
 *  grad_ready replaces the first one.
 *  @param step  Borrowed for the call.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (NULL; there is no such kind; micro_batch is not the rank's
 *          next one, or the rank has none); CDDP_ERR_UNAVAILABLE (a field that this version does
 *          not know is not 0; CDDP_STEP_BY_MICRO_BATCHES, where it says so);
 *          CDDP_ERR_NO_MEMORY (for sums of micro-batches: the handle has ended);
 *          CDDP_ERR_INCOMPLETE (in the middle of a backward); CDDP_ERR_BROKEN (an earlier call
 *          failed); or an error of the group, with a sharded optimizer.
 *
 *  Collective: no; with a sharded optimizer it waits for what cddp_ddp_params_start() has started.
 */
CDDP_CHECKED cddp_status cddp_ddp_begin(cddp_ddp *ddp, const cddp_step *step);

/** Say that backward has finished gradient @p index, so that its bucket may start. Does not
 *  wait, but for memory that CDDP_STEP_BY_MICRO_BATCHES may need at first.
 *
 *  If the rank has a core to spare, or if data comes from other machines by TCP, a background
 *  thread of the group moves the data. Otherwise data moves only inside calls of cddp such as this
 *  one: see cddp_ddp_progress(). $CDDP_COMM_THREAD (0 or 1) overrides the choice.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (there is no such gradient), CDDP_ERR_STATE (the backward was
 *          not begun; or the second call for this gradient in it), CDDP_ERR_BROKEN, or an error of
 *          the group or the hook.
 *
 *  Collective: ordered, since it may start buckets. */
CDDP_CHECKED cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index);

/** Like cddp_ddp_grad_ready() for all parameters from @p first to @p first + @p count - 1, except
 *  frozen ones.
 *  @return as cddp_ddp_grad_ready(). After CDDP_ERR_ARGUMENT, none of these gradients is ready.
 *
 *  Collective: ordered. */
CDDP_CHECKED cddp_status cddp_ddp_grads_ready(cddp_ddp *ddp, size_t first, size_t count);

/** Advance the buckets that have started, without waiting. Call it during long compute without
 *  another call of cddp, on ranks without a core to spare (see cddp_ddp_grad_ready()). Once per
 *  millisecond is enough, and costs about as much as reading the clock. If a background thread or a
 *  device moves the data, this call only checks for failures. It may be called at any time, even in
 *  a forward.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_BROKEN, or an error of the group.
 *
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_ddp_progress(cddp_ddp *ddp);

/** End the backward. If it is this rank's only one or last one of the step, this is the step's
 *  collective: on return every gradient is what the step's kind says, the same on all ranks. After
 *  an earlier micro-batch it returns at once, and has sent nothing.
 *  @return CDDP_OK, CDDP_ERR_STATE (the backward was not begun; or no rank has samples),
 *          CDDP_ERR_INCOMPLETE (a parameter got no gradient on some rank and allow_unused is not
 *          set: every rank gets this error in this step, with the parameter's name),
 *          CDDP_ERR_MISMATCH (ranks have begun different steps), CDDP_ERR_NO_MEMORY,
 *          CDDP_ERR_BROKEN, or an error of the group or the hook.
 *
 *  Collective: yes, after a rank's last micro-batch of a step; otherwise no. */
CDDP_CHECKED cddp_status cddp_ddp_wait(cddp_ddp *ddp);

/** Take part in one step of the other ranks without a backward: for a rank that has no more batches
 *  while other ranks still train (PyTorch's Join), or that has none of a step's micro-batches.
 *  Afterwards this rank has the same gradients as the others, so it updates its parameters as they
 *  do, and all replicas stay equal (not with CDDP_STEP_BY_MICRO_BATCHES, see
 *  cddp_step.micro_batches):
 *
 *      while (next_batch()) { begin; forward; backward; wait; update }
 *      while (cddp_ddp_follow(ddp, &all) == CDDP_OK && !all) { update }
 *
 *  A rank whose data has ended calls it until @p out_all is true. That happens on all ranks in the
 *  same call, when no rank had a backward in it. Then there is nothing to update, and another epoch
 *  may begin.
 *
 *  This rank contributes nothing: it has no samples, and adds zeros. So a mean over ranks is still
 *  over all ranks of the group. The call takes the step for one of the same kind as this rank's
 *  last step, or at first for CDDP_STEP_BY_SAMPLES. If it is of another kind, the rank calls
 *  cddp_ddp_begin() with that kind (and 0 micro_batches) just before it. Ranks that disagree get
 *  CDDP_ERR_MISMATCH.
 *
 *  The call takes part only in the collectives of cddp_ddp. With a sharded optimizer, the caller
 *  still calls cddp_ddp_params_start(). If the trainer has collectives of its own in each step,
 *  this rank has to call those as well.
 *  @return as cddp_ddp_wait(); CDDP_ERR_INCOMPLETE also in the middle of a backward, or between
 *          this rank's micro-batches of a step.
 *
 *  Collective: yes. */
CDDP_CHECKED cddp_status cddp_ddp_follow(cddp_ddp *ddp, bool *out_all);

/** What cddp_ddp_broadcast() sends; combine them with |. */
enum {
    CDDP_BROADCAST_PARAMS = 1, /**< the parameters, including frozen ones */
    CDDP_BROADCAST_BUFFERS = 2 /**< the buffers */
};

/** Broadcast the parameters, the buffers, or both from rank @p root: after @p root has loaded a
 *  checkpoint, or for buffers before each forward. With a sharded optimizer, the parameters are
 *  those of cddp_ddp_param(). Call it between backward passes. On a device, it runs in the order of
 *  the compute stream.
 *
 *  Collective: yes.
 *  @param flags  CDDP_BROADCAST_PARAMS, CDDP_BROADCAST_BUFFERS, or both; the same on all ranks.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (there is no such rank, or @p flags are 0 or unknown),
 *          CDDP_ERR_INCOMPLETE (in the middle of a backward), CDDP_ERR_BROKEN, or an error of
 *          the group. */
CDDP_CHECKED cddp_status cddp_ddp_broadcast(cddp_ddp *ddp, int root, uint32_t flags);

/** A range of a parameter that one rank updates, with a sharded optimizer (ZeRO stage 1).
 *
 *  With options.shard, each gradient is reduced only to the rank that updates it. Each rank's
 *  optimizer updates 1/world_size of the parameters, and keeps state for these only:
 *
 *      wait              gradients are the mean over ranks inside this rank's spans, and undefined
 *                        elsewhere
 *      (the optimizer updates the parameters inside this rank's spans)
 *      params_start      starts to send this rank's updates to all ranks
 *      param_wait(i)     before the next forward reads parameter i: it has all ranks' updates
 *
 *  cddp_ddp_create() moves the parameters that are not frozen to memory that cddp allocates, and
 *  releases with the handle: see cddp_ddp_param(). An element-wise update gives the same bits as
 *  without shards. */
typedef struct cddp_span {
    /** Index of the parameter. */
    size_t param;
    /** Its first element, counted as if the parameter had one dimension. */
    size_t first;
    /** How many elements the span has. */
    size_t count;

} cddp_span;

/** How many parameters the handle has, including frozen ones: what cddp_ddp_create() was given.
 *  0 if @p ddp is not a handle.
 *  Collective: no. */
CDDP_API size_t cddp_ddp_param_count(const cddp_ddp *ddp);

/** The name of parameter @p index. The handle owns the text. NULL if there is no such parameter.
 *  Collective: no. */
CDDP_API const char *cddp_ddp_param_name(const cddp_ddp *ddp, size_t index);

/** Where parameter @p index is: in the caller's `data`, or with shards in cddp's memory, 64-byte
 *  aligned. NULL if there is no such parameter.
 *  Collective: no. */
CDDP_API void *cddp_ddp_param(cddp_ddp *ddp, size_t index);

/** The spans that rank @p rank updates, in the order of parameters. The spans of all ranks together
 *  contain each element once. The handle owns the array.
 *  Collective: no.
 *  @param out_count  How many spans there are; may be 0.
 *  @return The spans; NULL without shards. */
CDDP_API const cddp_span *cddp_ddp_spans(const cddp_ddp *ddp, int rank, size_t *out_count);

/** Say that this rank has updated its spans, once after each update. It waits only for parameters
 *  of the call before, if nothing has waited for them yet.
 *
 *  Collective: yes.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (no shards), CDDP_ERR_INCOMPLETE (in the middle of a
 *          backward), CDDP_ERR_BROKEN, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_params_start(cddp_ddp *ddp);

/* Collective: no, all of these. */
/** Wait until parameter @p index has all ranks' updates. Call it before you read the parameter.
 *  cddp_ddp_begin() waits for all parameters.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_BROKEN, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_param_wait(cddp_ddp *ddp, size_t index);
/** Like cddp_ddp_param_wait(), for all parameters. */
CDDP_CHECKED cddp_status cddp_ddp_params_wait(cddp_ddp *ddp);

/** Copy all parameters, with all ranks' updates, to the caller's memory (`data` in
 *  cddp_ddp_create()), so that the caller can save or evaluate them from there. The optimizer stays
 *  sharded, so after the next update the copy is out of date. Without shards there is nothing to
 *  copy.
 *
 *  Collective: yes.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_INCOMPLETE (in the middle of a backward),
 *          CDDP_ERR_BROKEN, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_unshard(cddp_ddp *ddp);

/** Save all parameters, with all ranks' updates, and all buffers in one safetensors file, each
 *  under its own name. Rank 0 writes it, atomically. Call it between steps. Other state of the
 *  training (momentum, the number of steps) is saved if it is registered as a buffer.
 *
 *  Collective: yes.
 *  @param path      The file; read on rank 0 only.
 *  @param metadata  As for cddp_safetensors_write(); read on rank 0 only, may be NULL.
 *  @return CDDP_ERR_INCOMPLETE: this rank is in the middle of a step, and does not take part.
 *          Otherwise the same on all ranks: CDDP_OK; CDDP_ERR_ARGUMENT (a parameter and a buffer
 *          have one name, a name is not UTF-8 ...), CDDP_ERR_IO or CDDP_ERR_NO_MEMORY of rank 0,
 *          after which training can go on; CDDP_ERR_BROKEN, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_save(cddp_ddp *ddp, const char *path,
                                       const char *const *metadata);

/** Load what cddp_ddp_save() has saved, with any number of ranks and with or without shards: rank 0
 *  reads the file, and the parameters and buffers of all ranks get its values. Names, types and
 *  shapes must match, and neither side may have a tensor that the other lacks. With a sharded
 *  optimizer, the parameters are those of cddp_ddp_param(). Call it between steps.
 *
 *  Collective: yes.
 *  @param path  The file; read on rank 0 only.
 *  @return CDDP_ERR_INCOMPLETE: this rank is in the middle of a step, and does not take part.
 *          Otherwise the same on all ranks: CDDP_OK; CDDP_ERR_NOT_FOUND (there is no such file),
 *          CDDP_ERR_FORMAT, CDDP_ERR_ARGUMENT, CDDP_ERR_IO or CDDP_ERR_NO_MEMORY of rank 0, after
 *          which nothing has changed (unless the file was truncated while it was read);
 *          CDDP_ERR_BROKEN, or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_load(cddp_ddp *ddp, const char *path);

/** Gather the state that a sharded optimizer keeps for one parameter (momentum ...) from all ranks,
 *  so that it can be saved. Loading needs no call: each rank copies its span from the whole state.
 *
 *  Collective: yes.
 *  @param index  A parameter that is not frozen.
 *  @param own    This rank's elements, as many as its span of the parameter has (see
 *                cddp_ddp_spans()); NULL if it has no span. In place: the span's part of @p out.
 *  @param type   The type of the state, which may differ from the parameter's.
 *  @param out    Room for as many elements as the parameter has, in the same kind of memory as
 *                @p own.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (also without shards), CDDP_ERR_BROKEN, CDDP_ERR_NO_MEMORY,
 *          or an error of the group. */
CDDP_CHECKED cddp_status cddp_ddp_gather_state(cddp_ddp *ddp, size_t index, const void *own,
                                               cddp_type type, void *out);

/** The cost of the last synchronised step. Times are in nanoseconds.
 *
 *  On a device, times are measured in the streams, and everything but `steps` is about the last
 *  step that was finished when cddp_ddp_wait() was called. Exposed communication is then the time
 *  for which the compute stream waited. A step that begins while more than three steps are
 *  unfinished is not measured. */
typedef struct cddp_ddp_stats {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** How many synchronised steps there were so far. */
    uint64_t steps;
    /** Exposed communication of the last step: the time in wait, which compute did not hide. With a
     *  sharded optimizer on the CPU, it includes the time in param_wait, params_wait, begin and
     *  params_start since the step before, where this rank waits for updated parameters. */
    uint64_t exposed_ns;
    /** The time from the start of the first bucket to the end of the last one. */
    uint64_t comm_ns;
    /** Exposed communication of all steps. */
    uint64_t total_exposed_ns;
    /** How many buckets there are. */
    size_t buckets;
    /** Bytes of gradients that a step reduces, without padding. */
    size_t bytes;
    /** The rank for which the others waited longest in the last step; -1: unknown. */
    int slowest_rank;
    /** The part of exposed_ns before the last rank called wait. In this time other ranks still
     *  computed, so a faster network does not shorten it. Between hosts, its error is about the
     *  latency of the network.
     *
     *  On a device: how much longer the compute stream waited on this rank than on the rank where
     *  it waited least. It belongs to the newest step whose times all ranks knew at their last
     *  wait, which is older than the step of exposed_ns. */
    uint64_t peer_wait_ns;
    /** The rest of exposed_ns, while all ranks waited: the time to move and add data, and with a
     *  sharded optimizer to wait for updated parameters. */
    uint64_t transfer_ns;
    /** peer_wait_ns of all steps (on a device, of all steps for which it was measured). On the CPU,
     *  total_peer_wait_ns and total_transfer_ns add up to total_exposed_ns. */
    uint64_t total_peer_wait_ns;
    /** transfer_ns of all steps, likewise. */
    uint64_t total_transfer_ns;

} cddp_ddp_stats;
/** An empty cddp_ddp_stats. */
#define CDDP_DDP_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_ddp_stats), 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0                                   \
    }
CDDP_NO_TAIL(cddp_ddp_stats, total_transfer_ns);
/** Get the cost of the last synchronised step.
 *  Collective: no.
 *  @param out  Initialised with CDDP_DDP_STATS_INIT. Only fields within out->struct_size are
 *              written.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (struct_size is not set); CDDP_ERR_BUSY (another thread is
 *          in a call on the handle). */
CDDP_CHECKED cddp_status cddp_ddp_get_stats(const cddp_ddp *ddp, cddp_ddp_stats *out);

/** When one bucket of the last synchronised step was reduced. Times are in nanoseconds since the
 *  first grad_ready of the backward. */
typedef struct cddp_bucket_stats {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Bytes of the bucket's gradients, without padding. */
    size_t bytes;
    /** How many parameters the bucket holds. */
    size_t params;
    /** When its reduction started. */
    uint64_t start_ns;
    /** When its reduction was done. */
    uint64_t end_ns;

} cddp_bucket_stats;
/** The defaults of cddp_bucket_stats. */
#define CDDP_BUCKET_STATS_INIT                                                                     \
    {                                                                                              \
        sizeof(cddp_bucket_stats), 0, 0, 0, 0                                                      \
    }
CDDP_NO_TAIL(cddp_bucket_stats, end_ns);
/** Get the times of bucket @p bucket of the last synchronised step.
 *  Collective: no.
 *  @param out  Initialised with CDDP_BUCKET_STATS_INIT. Only fields within out->struct_size are
 *              written.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (struct_size is not set, or there was no such bucket);
 *          CDDP_ERR_BUSY (another thread is in a call on the handle). */
CDDP_CHECKED cddp_status cddp_ddp_get_bucket_stats(const cddp_ddp *ddp, size_t bucket,
                                                   cddp_bucket_stats *out);

#ifdef __cplusplus
}
#endif
#endif
