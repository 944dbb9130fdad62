/** @file
 *  group.h - process groups: the ranks that train together, and their collectives.
 *
 *  One thread at a time (the one that drives compute) uses a group, its work handles and every
 *  cddp_ddp over it. A call from another thread meanwhile returns CDDP_ERR_BUSY and does nothing.
 *
 *  A group belongs to the process that created it. In a forked child, the questions that say so
 *  are answered, every other call returns CDDP_ERR_STATE, and destroying a handle releases only the
 *  child's copy. A forked child inherits none of cddp's connections, and a program started with
 *  exec() inherits no descriptor of cddp's. So the other ranks notice within seconds that a rank
 *  has died, even if a child of that rank lives on. (MPI and NCCL manage their own connections.)
 *
 *  For NULL, a call returns CDDP_ERR_ARGUMENT, and for a destroyed handle CDDP_ERR_CLOSED; a
 *  function that does not return a status returns -1, NULL or 0. But while a cddp_ddp keeps a
 *  destroyed group alive, cddp_group_get_info(), cddp_group_rank() and other questions are
 * answered.
 *
 *  All ranks of a group call the same collectives in the same order. Ranks that disagree get
 *  CDDP_ERR_MISMATCH; the text says which rank called what. If a peer dies or stays silent, every
 *  pending call fails with CDDP_ERR_PEER or CDDP_ERR_TIMEOUT. After such an error the group is
 *  broken: every further call returns CDDP_ERR_BROKEN with the text of the first error.
 *
 *  Reductions are deterministic: every rank gets the same bits, in every run. The ranks' values are
 *  combined in a binary tree in rank order: first neighbours (ranks 0 and 1, 2 and 3, ...), then
 *  pairs of those results, and so on; an odd one out moves up a level alone. f16 and bf16 are
 *  accumulated in f32 and rounded once.
 *
 *  Each collective ends with a parameter `work`. If it is NULL, the call blocks until the operation
 *  is done. Otherwise the call returns at once with a handle in *work, and the buffers stay in use
 *  until cddp_work_test(), cddp_work_wait() or cddp_work_wait_host() says that it is done.
 *
 *  A group on a device (options.device) has two kinds of memory, CPU memory and device memory, and
 *  a compute stream in which the caller's kernels run (options.stream). Buffers in CPU memory are
 *  handled as described above. Buffers in device memory are reduced on the device, in a stream that
 *  belongs to the group. The operation starts after all work that the compute stream holds at the
 *  time of the call. No call waits for the device or for a peer, except the first operations of
 *  NCCL, which connect the ranks, and large messages (see cddp_send()). How a caller waits:
 *   - with `work` NULL, the compute stream waits for the operation: work that is put into the
 *     stream after the call sees the result;
 *   - with `work`, cddp_work_wait() makes the compute stream wait, cddp_work_wait_host() blocks the
 *     thread, and cddp_work_test() queries the device;
 *   - a background thread of the group detects errors of peers, within a second if ranks disagree
 *     or a rank is gone. The next call, whatever it is, returns the error. Everything that was
 *     computed from the result of a failed operation is undefined.
 *
 *  cddp_group_get_info() returns the device and the stream, and cddp_group_set_stream() changes the
 *  stream. Calls make the group's device the current device of the calling thread. All buffers of
 *  one operation are in the same kind of memory, on all ranks. On a device, sums are taken in the
 *  order above only with options.deterministic; otherwise in the fastest order. cddp_barrier()
 *  synchronises the ranks, not the work on their devices. */
#ifndef CDDP_GROUP_H
#define CDDP_GROUP_H

#include <cddp/store.h>
#include <cddp/types.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A time limit of 0 milliseconds: the default limit. */
enum { CDDP_TIMEOUT_DEFAULT = 0 };

/** The ranks that train together. */
typedef struct cddp_group cddp_group;
/** The handle of an operation that was started. */
typedef struct cddp_work cddp_work;

/** How this process joins a group; zero means default. */
typedef struct cddp_group_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** "host" or "solo" (one rank). On a CUDA device also "nccl", "ipc" (devices access each
     *  other's memory) or "staged" (through CPU memory); "host" there stands for ipc or staged.
     *  Several ranks may share one device with every backend but nccl. NULL: $CDDP_BACKEND; if that
     *  is not set, solo for one rank, else the best one that works (on a device: nccl, then ipc,
     *  then staged). */
    const char *backend;
    /** Where the ranks meet: "tcp://host:port" (rank 0 listens there), "file:///path" or "env://".
     *  NULL: where the launcher says. "env://" (as PyTorch's init_method) is like NULL, except: it
     *  is an error if neither world_size nor a launcher's variables are set; and with world_size
     *  given, the ranks may meet at MASTER_ADDR and MASTER_PORT. Borrowed for the call. */
    const char *rendezvous;
    /** The job's secret, borrowed for the call; NULL: $CDDP_TOKEN. If neither is set, ranks that
     *  meet on loopback or in a file share a random token that other users cannot read. Between
     *  machines, a token needs at least 22 characters. */
    const char *token;
    /** The job's id, borrowed for the call; NULL: the launcher's. */
    const char *job;
    /** In [0, world_size); ignored if world_size is 0. */
    int rank;
    /** How many ranks there are; 0: rank and size come from the launcher, and without a launcher
     *  this process is alone. */
    int world_size;
    /** This process's rank among the ranks on its machine; ignored unless world_size and
     *  local_world_size are given. */
    int local_rank;
    /** How many ranks are on this machine; 0: the ranks find out. */
    int local_world_size;
    /** The generation of the job, which grows with each restart; 0: $CDDP_GENERATION. */
    uint32_t generation;
    /** Time limit for each collective; 0: $CDDP_TIMEOUT_MS, else 300000. */
    uint32_t timeout_ms;
    /** "cpu"; "cuda": the device is chosen by the local rank; "cuda:N": device N of those that this
     *  process sees. NULL: $CDDP_DEVICE, else cpu. */
    const char *device;
    /** On a device: take sums in the order described at the top of this file, even if that is
     *  slower. */
    bool deterministic;
    /** Zero. */
    uint8_t reserved[3];
    /** Time limit for joining; 0: timeout_ms. */
    uint32_t join_timeout_ms;
    /** On a CUDA device: the compute stream, a cudaStream_t of the caller (cudaStreamLegacy is
     *  allowed). It must outlive the group and all groups split from it. NULL: cddp makes a stream,
     *  which cddp_group_set_stream() can replace. Operations do not wait for kernels in any other
     *  stream, not even in the default stream. */
    void *stream;

} cddp_group_options;
/** The defaults of cddp_group_options. */
#define CDDP_GROUP_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_group_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, false, {0}, 0, \
            NULL                                                                                   \
    }
CDDP_NO_TAIL(cddp_group_options, stream);

/** Join the group. Every rank succeeds or every rank fails.
 *
 *  Collective: yes.
 *
 *  Rank and world size come from the first of these that has them: the options; the environment of
 *  cddp-run; of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT); of Open MPI; of
 *  the mpirun of MPICH and Intel MPI; of Slurm; of Kubernetes. Otherwise this process is alone.
 *  RANK without WORLD_SIZE, or the reverse, is an error. If an mpirun has started ranks on several
 *  hosts, they meet by MPI, or at $CDDP_STORE if that is set.
 *  @param options  NULL for all defaults.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (also if a launcher's variables make no sense);
 *          CDDP_ERR_UNAVAILABLE (no such backend or device here, or no memory can be shared with a
 *          peer); CDDP_ERR_DEVICE; CDDP_ERR_PEER; CDDP_ERR_TIMEOUT if a rank did not join (the text
 *          says which); CDDP_ERR_NO_MEMORY; an error of cddp_store_open() for the rendezvous. */
CDDP_CHECKED cddp_status cddp_group_create(const cddp_group_options *options, cddp_group **out);

/** Two collectives of the caller, by which processes that can already exchange bytes (by MPI, say)
 *  form a group. They are called only during the call that receives this struct. A failure that
 *  they word with cddp_fail() becomes the failure of that call. For MPI, cddp/mpi.h has them. */
typedef struct cddp_bootstrap {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Passed to the functions; may be NULL. */
    void *state;
    /** In [0, world_size). */
    int rank;
    /** How many processes there are. */
    int world_size;
    /** Copy rank 0's @p bytes bytes at @p data to every process's @p data.
     *  May call: anything but calls on the group that is being made. */
    cddp_status (*broadcast)(void *state, void *data, size_t bytes);
    /** Copy every process's @p bytes bytes at @p own to every @p out_all, in rank order.
     *  May call: anything but calls on the group that is being made. */
    cddp_status (*all_gather)(void *state, const void *own, size_t bytes, void *out_all);

} cddp_bootstrap;
/** An empty cddp_bootstrap. */
#define CDDP_BOOTSTRAP_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_bootstrap), NULL, 0, 0, NULL, NULL                                             \
    }
CDDP_NO_TAIL(cddp_bootstrap, all_gather);

/** Join a group of exactly the processes that @p bootstrap connects, with the ranks that it gives
 *  them. The environment's ranks and sizes are ignored. Every rank succeeds or every rank fails,
 *  unless a function of @p bootstrap fails.
 *
 *  Collective: yes.
 *
 *  The ranks meet in a store that rank 0 serves during this call: on loopback if all ranks are on
 *  one machine, else on all addresses. The store uses the job's token. If a rank has no token, rank
 *  0 makes a random one for all ranks and sends it with bootstrap->broadcast(), where others may be
 *  able to read it. With CDDP_ENCRYPT=1, a missing token is an error.
 *  @param options  NULL for all defaults. rendezvous, rank and the sizes are not read. All ranks
 *                  need the same job, token, generation and timeout_ms.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return as cddp_group_create(); what a function of @p bootstrap returned;
 *          CDDP_ERR_UNAVAILABLE if a rank reaches no address of rank 0's host. */
CDDP_CHECKED cddp_status cddp_group_create_by(const cddp_bootstrap *bootstrap,
                                              const cddp_group_options *options, cddp_group **out);

/** Leave the group, without waiting: peers that still need this rank get CDDP_ERR_PEER. Pending
 *  work ends with CDDP_ERR_CLOSED; its handles still have to be destroyed. On a device, the call
 *  first waits for operations of this rank that were started without a work handle.
 *
 *  Handles may be destroyed in any order. If a cddp_ddp uses the group, the rank leaves when that
 *  is destroyed; until then, only calls on the group itself fail.
 *
 *  Collective: no. */
CDDP_API void cddp_group_destroy(cddp_group *group);

/** What a group can be used for. */
typedef enum cddp_group_state {
    CDDP_GROUP_OPEN = 0,   /**< collectives can be called */
    CDDP_GROUP_BROKEN = 1, /**< this rank knows of a failure: every collective fails */
    CDDP_GROUP_CLOSED = 2, /**< the caller has destroyed it; a cddp_ddp keeps it alive */
    CDDP_GROUP_STATE_MAX_ENUM_ = 0x7fffffff

} cddp_group_state;

/** A group as it is now: all fields belong together. */
typedef struct cddp_group_info {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The generation of the job, which grows with each restart. */
    uint32_t generation;
    /** Whether collectives can be called. */
    cddp_group_state state;
    /** This process's rank, in [0, world_size). */
    int rank;
    /** How many ranks the group has. */
    int world_size;
    /** This process's rank among the ranks on its machine. */
    int local_rank;
    /** How many ranks of the group are on this machine. */
    int local_world_size;
    /** The number of this rank's machine among the machines of the job. Ranks with the same number
     *  share memory. */
    int host;
    /** The device of the group's memory and compute stream, numbered as for cudaSetDevice(); -1:
     *  the CPU. */
    int device;
    /** The time limit of each collective. */
    uint32_t timeout_ms;
    /** 0 */
    uint32_t reserved;
    /** The backend's name, a static string; for a group on a device, the backend for device
     *  memory. */
    const char *backend;
    /** The compute stream, a cudaStream_t: the caller's, or one that cddp made, which the caller
     *  may use, too. NULL for a group on the CPU. */
    void *stream;

} cddp_group_info;
/** An empty cddp_group_info. */
#define CDDP_GROUP_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(cddp_group_info), 0, CDDP_GROUP_OPEN, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL            \
    }
CDDP_NO_TAIL(cddp_group_info, stream);

/** Get what the group is now. Any thread may call it, also after a failure, and in a forked child.
 *
 *  Collective: no.
 *  @param out  Initialised with CDDP_GROUP_INFO_INIT. Unchanged on failure.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT; CDDP_ERR_CLOSED (the group was destroyed, and no cddp_ddp
 *          keeps it alive). */
CDDP_CHECKED cddp_status cddp_group_get_info(const cddp_group *group, cddp_group_info *out);

/* Collective: no, all of these. Any thread may call these two, also in a forked child. Their
 * results are constant. */
/** This process's rank, in [0, world_size). */
CDDP_API int cddp_group_rank(const cddp_group *group);
/** How many ranks the group has. */
CDDP_API int cddp_group_world_size(const cddp_group *group);

/** Translate ranks: the rank in @p group of the process that is rank @p rank in @p part. Both
 *  belong to one job: they are split from one group, or one is that group. Any thread may call it,
 *  also in a forked child.
 *
 *  Collective: no.
 *  @param part   NULL: @p rank is a rank of the job, such as the culprit of cddp_last_failure().
 *  @param group  NULL: return the rank in the job.
 *  @return -1: @p group does not have that process, or the arguments are wrong. */
CDDP_API int cddp_group_translate(const cddp_group *part, int rank, const cddp_group *group);

/** Set the time limit of operations that start from now on, as cddp_group_options.timeout_ms does.
 *  A longer one lets ranks wait for one that evaluates alone. Call it on every rank that waits: the
 *  first rank whose limit passes breaks the group. Groups that were split off keep their limit, and
 *  so do the first operations of NCCL, which connect the ranks.
 *
 *  Collective: no.
 *  @param timeout_ms  CDDP_TIMEOUT_DEFAULT: $CDDP_TIMEOUT_MS, else 300000. */
CDDP_CHECKED cddp_status cddp_group_set_timeout(cddp_group *group, uint32_t timeout_ms);

/** Make @p stream the compute stream of this group and of all groups split from it. This is for
 *  trainers that learn their device from the group and create their streams afterwards. Work in
 *  @p stream starts after everything that the old compute stream holds now. Does not wait.
 *
 *  Collective: no.
 *  @param stream  A cudaStream_t of the group's device (cudaStreamLegacy for the default stream).
 *                 It must stay valid until the group and all groups split from it are destroyed, or
 *                 until the next call of this function.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (NULL, a stream of another device, a group on the CPU) or
 *          CDDP_ERR_STATE (@p stream is being captured), which change nothing; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddp_group_set_stream(cddp_group *group, void *stream);

/** Split the group: ranks with the same @p color form a new group, ordered by @p key, then by their
 *  rank in this group. A rank with a negative color joins no group and gets *out =
 *  NULL. The new group has the same generation, timeout, backend and device. It may outlive this
 *  group, and is destroyed separately.
 *
 *  Collective: yes.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_UNAVAILABLE, or an error of
 *          this group. */
CDDP_CHECKED cddp_status cddp_group_split(cddp_group *group, int color, int key, cddp_group **out);

/** Break the group on purpose: pending and later calls fail on every rank. On the other ranks they
 *  fail with CDDP_ERR_PEER and the text "rank R: " and @p reason. Any thread.
 *
 *  Collective: no. */
CDDP_API void cddp_group_abort(cddp_group *group, const char *reason);

/** Flag of cddp_group_alloc(): in CPU memory, even if the group is on a device. */
enum { CDDP_ALLOC_HOST = 1 };

/** Allocate memory that the backend reduces fastest, 64-byte aligned and zeroed. With the host
 *  backend, all ranks share it, so collectives copy nothing. On a device it is device memory,
 *  zeroed in the compute stream. Every collective accepts pointers into the block. @p bytes and
 *  @p flags are the same on every rank.
 *
 *  Collective: yes.
 *  @param flags  0 or CDDP_ALLOC_HOST.
 *  @param out    Release with cddp_group_free(); blocks that are left are freed with the group.
 *  @return as a collective; CDDP_ERR_NO_MEMORY; CDDP_ERR_UNAVAILABLE (an unknown flag). */
CDDP_CHECKED cddp_status cddp_group_alloc(cddp_group *group, size_t bytes, uint32_t flags,
                                          void **out);
/** Free @p memory from cddp_group_alloc(); NULL is accepted. Device memory is freed once the work
 *  in its streams is done.
 *
 *  Collective: ordered. */
CDDP_API void cddp_group_free(cddp_group *group, void *memory);

/* Collective: yes, all of these. With `work`, the call does not wait.
 *
 * `count` is in elements and may be 0. `in` and `out` may be the same pointer if both have the same
 * size. Any other overlap gives CDDP_ERR_ARGUMENT, and so does an address that is not a multiple of
 * the element's size. Ranks in arguments are ranks of this group. All return CDDP_OK;
 * CDDP_ERR_ARGUMENT, CDDP_ERR_UNAVAILABLE (the group's device cannot do it), CDDP_ERR_STATE (a
 * forked child), CDDP_ERR_BUSY or CDDP_ERR_CLOSED, and nothing was done; CDDP_ERR_NO_MEMORY;
 * CDDP_ERR_MISMATCH, CDDP_ERR_PEER, CDDP_ERR_TIMEOUT, CDDP_ERR_DEVICE or CDDP_ERR_IO, and the group
 * is broken; CDDP_ERR_BROKEN. On an error, the contents of `out` are undefined. With `work`,
 * cddp_work_wait() and cddp_work_test() return the errors of peers. */

/** out[i] = op over all ranks of in[i]. */
CDDP_CHECKED cddp_status cddp_all_reduce(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_op op, cddp_work **work);

/** The weighted mean: out[i] = (sum of weight_r * in_r[i]) / (sum of weight_r), over all ranks r.
 *  @p weight is this rank's weight, finite and >= 0. A rank of weight 0 contributes nothing,
 *  whatever its buffer holds. With equal weights, the bits are the same as with CDDP_OP_MEAN.
 *  Floating types only.
 *
 *  If all weights are 0, every out[i] is 0 and the status is CDDP_OK; cddp_ddp_follow() relies on
 *  it. (cddp_ddp_wait() returns CDDP_ERR_STATE if no rank has samples in a step.) */
CDDP_CHECKED cddp_status cddp_all_reduce_weighted(cddp_group *group, const void *in, void *out,
                                                  size_t count, cddp_type type, double weight,
                                                  cddp_work **work);

/** Like cddp_all_reduce(), but only rank @p root gets the result. On other ranks, `out` may be
 *  NULL. */
CDDP_CHECKED cddp_status cddp_reduce(cddp_group *group, const void *in, void *out, size_t count,
                                     cddp_type type, cddp_op op, int root, cddp_work **work);

/** Copy the @p data of rank @p root to every rank's @p data. */
CDDP_CHECKED cddp_status cddp_broadcast(cddp_group *group, void *data, size_t count, cddp_type type,
                                        int root, cddp_work **work);

/** Every rank contributes @p count elements of `in`; every `out` gets all of them, world_size x
 *  count elements in rank order. In place: in = out + rank * count. */
CDDP_CHECKED cddp_status cddp_all_gather(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_work **work);

/** Reduce world_size x count elements of `in`, and give each rank its block of @p count elements in
 *  `out`. In place: out = in + rank * count. */
CDDP_CHECKED cddp_status cddp_reduce_scatter(cddp_group *group, const void *in, void *out,
                                             size_t count, cddp_type type, cddp_op op,
                                             cddp_work **work);

/** Like cddp_reduce_scatter() with the weighted mean of cddp_all_reduce_weighted(), with the same
 *  bits as that function. */
CDDP_CHECKED cddp_status cddp_reduce_scatter_weighted(cddp_group *group, const void *in, void *out,
                                                      size_t count, cddp_type type, double weight,
                                                      cddp_work **work);

/** Every rank contributes @p count elements of `in`; `out` of rank @p root gets all of them,
 *  world_size x count elements in rank order. On other ranks, `out` may be NULL. */
CDDP_CHECKED cddp_status cddp_gather(cddp_group *group, const void *in, void *out, size_t count,
                                     cddp_type type, int root, cddp_work **work);

/** `in` of rank @p root holds world_size x count elements; every rank's `out` gets its block of
 *  @p count elements. */
CDDP_CHECKED cddp_status cddp_scatter(cddp_group *group, const void *in, void *out, size_t count,
                                      cddp_type type, int root, cddp_work **work);

/** `in` and `out` hold world_size x count elements: block r of `in` goes to rank r, and block r of
 *  `out` comes from rank r. */
CDDP_CHECKED cddp_status cddp_all_to_all(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_work **work);

/** Send @p count elements to rank @p to, another rank of the group. Messages from one rank to
 *  another arrive in order. They do not wait for collectives, nor for messages between other ranks.
 *  A send may return before the peer receives. If counts or types differ, the receiver gets
 *  CDDP_ERR_MISMATCH; on a device, all ranks do.
 *
 *  For device memory, with every backend:
 *   - both sides' buffers are in device memory (this does not matter for a count of 0);
 *   - a send is done when its receiver has all the data. So two ranks that send to each other pass
 *     `work` to their sends; without it, their compute streams would wait for each other until the
 *     deadline. Send, recv, then cddp_work_wait() for both in any order never deadlocks;
 *   - for a message of more than 64 pieces (1 MiB each with up to 4 ranks, smaller with more),
 *     cddp_work_wait() blocks the calling thread until the peer has received the earlier pieces. So
 *     does a call without `work`;
 *   - a send waits if its receiver is 256 messages behind;
 *   - send and recv cannot be part of a CUDA graph that cddp captures: CDDP_ERR_UNAVAILABLE.
 *
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_send(cddp_group *group, const void *data, size_t count,
                                   cddp_type type, int to, cddp_work **work);
/** Receive @p count elements from rank @p from, which calls cddp_send().
 *
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_recv(cddp_group *group, void *data, size_t count, cddp_type type,
                                   int from, cddp_work **work);

/** Wait until every rank has called this function.
 *
 *  Collective: yes. */
CDDP_CHECKED cddp_status cddp_barrier(cddp_group *group, cddp_work **work);

/** Check whether @p work is done, without waiting. Failed work is done, too: then the status is its
 *  error.
 *
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_work_test(cddp_work *work, bool *out_done);

/** Order everything that follows after @p work. With CPU memory, the call returns when @p work is
 *  done. With device memory, the compute stream waits and the call does not (see cddp_send() for
 *  large messages). The group's time limit counts from the start of @p work; if it passes, the
 *  group breaks with CDDP_ERR_TIMEOUT.
 *
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_work_wait(cddp_work *work);

/** Block the calling thread until @p work is done, on every device and backend. Afterwards the data
 *  can be read by the CPU and by any stream.
 *
 *  Collective: no.
 *  @param timeout_ms  How long to wait. CDDP_TIMEOUT_DEFAULT: as long as the group's time limit
 *                     allows, as in cddp_work_wait().
 *  @param out_done    False: @p timeout_ms have passed. The status is CDDP_OK, nothing is broken,
 *                     and you may wait again. Failed work is done: the status is its error. */
CDDP_CHECKED cddp_status cddp_work_wait_host(cddp_work *work, uint32_t timeout_ms, bool *out_done);

/** Release the handle. Waits for unfinished work first, but not for work on a device. NULL is
 *  accepted.
 *
 *  Collective: no. */
CDDP_API void cddp_work_destroy(cddp_work *work);

#ifdef __cplusplus
}
#endif
#endif
