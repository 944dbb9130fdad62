/** @file
 *  group.h - process groups: the ranks that train together, and their collectives.
 *
 * A group belongs to one thread at a time (the one that drives compute), with its works and every
 * cddp_ddp over it: a call of another thread meanwhile gives CDDP_ERR_STATE and does nothing.
 * It belongs to the process that made it: in a fork every call gives CDDP_ERR_STATE, and destroying
 * a handle there gives back the fork's copy only. A child of fork() gets none of cddp's
 * connections, and another program none of its descriptors, so the other ranks miss a rank that
 * dies within seconds, also if a child of it lives on. (MPI's and NCCL's connections are theirs.)
 * NULL, and a handle that was destroyed, give CDDP_ERR_ARGUMENT or CDDP_ERR_STATE, or -1, NULL or
 * 0.
 *
 * All ranks of a group call the same collectives in the same order; ranks that disagree get
 * CDDP_ERR_MISMATCH with a text that says which rank called what. A dead or silent peer ends every
 * pending call with CDDP_ERR_PEER or CDDP_ERR_TIMEOUT. After such an error the group is broken:
 * every further call gives CDDP_ERR_CLOSED with the first error's text.
 *
 * Reductions are deterministic: a binary tree over the ranks in rank order (neighbours first: ranks
 * 0 and 1, 2 and 3, ...; then pairs of those; an odd one out goes up alone), f16 and bf16
 * accumulated in f32 and rounded once. Every rank gets the same bits, in every run.
 *
 * Each collective ends with a parameter `work`: NULL makes the call block until it is done;
 * otherwise it returns at once, the buffers stay in use, and the handle tells when it is done.
 *
 * A group on a device (options.device) has two kinds of memory and a compute stream, in which the
 * caller's kernels run (options.stream). Buffers in the processor's memory are treated as above.
 * Buffers in the device's are reduced there, in a stream of the group's that begins behind all that
 * the compute stream held at the call; no call waits for the device or for a peer (but NCCL's first
 * operations, which connect the ranks):
 *   - with `work` NULL the compute stream goes on behind the operation: what is put into it from
 *     then on sees the result;
 *   - with `work`, cddp_work_wait(work, 0) does the same, and cddp_work_test() asks the device;
 *   - errors of peers are found by a thread of the group's, within a second if ranks disagree or
 *     one is gone. The next call gives them, whatever it is; what was computed from the results of
 *     the operations that failed is undefined.
 * cddp_group_device() and cddp_group_stream() tell the device and the stream, and
 * cddp_group_set_stream() changes the stream; calls make that device the calling thread's current
 * one. All buffers of one operation lie in the same kind of memory, on all ranks. The order of sums
 * is that from above with options.deterministic; otherwise it is what is fastest. cddp_barrier() is
 * about ranks, not about their devices' work. */
#ifndef CDDP_GROUP_H
#define CDDP_GROUP_H

#include <cddp/store.h>
#include <cddp/types.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The ranks that train together. */
typedef struct cddp_group cddp_group;
/** One collective that was started. */
typedef struct cddp_work cddp_work;

/** Who joins which group, and how; zero means default. */
typedef struct cddp_group_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** "host" or "solo"; on a CUDA device also "nccl", or one of the two that host stands for
     * there: "ipc" (ranks whose devices reach each other's memory) or "staged" (through the
     * processor's). Several ranks may use one device with all of these but nccl. NULL:
     * $CDDP_BACKEND, else solo for one rank, else the best (on a device: nccl, ipc, staged). */
    const char *backend;
    /** "tcp://host:port" (rank 0 listens there), "file:///path", or "env://": as NULL, but an
     * environment that says nothing of a job is an error, and with world_size given MASTER_ADDR and
     * MASTER_PORT may say where (PyTorch's init_method). Borrowed for the call; NULL: what the
     * launcher says. */
    const char *rendezvous;
    /** The job's secret, borrowed for the call; NULL: $CDDP_TOKEN. Ranks on loopback or in a file
     * that have none get one that other users cannot read; beyond this machine it has at least 22
     * characters. */
    const char *token;
    /** The job's id, borrowed for the call; NULL: the launcher's. */
    const char *job;
    /** In [0, world_size); read only when world_size is not 0. */
    int rank;
    /** 0: rank and size come from the launcher, else from a lone process. */
    int world_size;
    /** This process's rank among those on its machine; read only when rank, world_size and
     *  local_world_size are given. */
    int local_rank;
    /** How many ranks this machine has; 0: all of them. */
    int local_world_size;
    /** Which generation of the job this group belongs to; 0: $CDDP_GENERATION. */
    uint32_t generation;
    /** Time limit of joining and of each collective; 0: $CDDP_TIMEOUT_MS, else 300000. */
    uint32_t timeout_ms;
    /** "cpu"; "cuda": the device that the local rank stands for; "cuda:N": the N-th of this
     *  process; NULL: $CDDP_DEVICE, else cpu. */
    const char *device;
    /** On a device: take sums in the order described above, whatever it costs. */
    bool deterministic;
    /** On a CUDA device: the compute stream, a cudaStream_t of the caller's (also cudaStreamLegacy)
     *  that outlives the group and its parts; NULL: one of cddp's, until cddp_group_set_stream().
     *  Kernels in any other stream, the default one included, are not waited for. */
    void *stream;

} cddp_group_options;
/** A cddp_group_options of defaults. */
#define CDDP_GROUP_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_group_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, false, NULL    \
    }

/** Join the group. Collective: every rank succeeds or every rank fails. Where rank and size come
 * from, in this order: the options; cddp-run's environment; torchrun's (RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR, MASTER_PORT); Open MPI's; that of MPICH's and Intel MPI's mpirun;
 * Slurm's; Kubernetes's; else this process is alone (RANK without WORLD_SIZE, or the
 * reverse, is an error). Ranks that an mpirun has started on several
 * hosts meet by MPI, or at CDDP_STORE if it is set.
 *  @param options  NULL for all defaults.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (also for variables of a launcher that make no sense);
 *          CDDP_ERR_UNAVAILABLE (the backend, the device, or sharing memory with a peer);
 *          CDDP_ERR_DEVICE; CDDP_ERR_PEER;
 *          CDDP_ERR_TIMEOUT when a rank did not come: the text says which; CDDP_ERR_NO_MEMORY;
 *          what cddp_store_open() gives for the rendezvous. */
CDDP_CHECKED cddp_status cddp_group_create(const cddp_group_options *options, cddp_group **out);

/** What processes that are connected already can do together: enough to meet. Both functions are
 *  collective, return 0 or an error's number, and are called only within the call that gets this.
 *  A program of MPI has them in cddp/mpi.h. */
typedef struct cddp_bootstrap {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** What the functions get; may be NULL. */
    void *context;
    /** In [0, world_size). */
    int rank;
    /** How many processes there are. */
    int world_size;
    /** Every process's @p bytes bytes of @p data become rank 0's. */
    int (*broadcast)(void *context, void *data, size_t bytes);
    /** @p out_all gets every process's @p bytes bytes of @p own, in rank order. */
    int (*all_gather)(void *context, const void *own, size_t bytes, void *out_all);

} cddp_bootstrap;
/** An empty cddp_bootstrap. */
#define CDDP_BOOTSTRAP_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_bootstrap), NULL, 0, 0, NULL, NULL                                             \
    }

/** Join a group of exactly the processes that @p bootstrap connects, with its ranks, whatever the
 *  environment says of a job. They meet in a store that rank 0 serves as long as this call lasts,
 *  on one machine at its loopback, else at all its addresses, with the token that all ranks were
 *  given. Where a rank has none, with a random one that bootstrap->broadcast() carries, which may
 * be read on its way; CDDP_ENCRYPT=1 makes that an error. Collective: every rank succeeds or every
 * rank fails, but for an error of bootstrap's functions.
 *  @param options  NULL for all defaults; rendezvous, rank and sizes in it are not read. The same
 *                  job, token, generation and deadline everywhere.
 *  @param out      Release with cddp_group_destroy(), which accepts NULL.
 *  @return as cddp_group_create(); CDDP_ERR_PEER where a function of @p bootstrap failed;
 *          CDDP_ERR_UNAVAILABLE: a rank reaches no address of rank 0's host. */
CDDP_CHECKED cddp_status cddp_group_create_by(const cddp_bootstrap *bootstrap,
                                              const cddp_group_options *options, cddp_group **out);

/** Leave. Not collective, does not wait: peers that still need this rank get CDDP_ERR_PEER. Pending
 *  work ends with CDDP_ERR_CLOSED; its handles still have to be destroyed. On a device: first waits
 *  for the operations that were called there without a handle, since they are under way already.
 *  Handles may be destroyed in any order: where a cddp_ddp uses the group, all this happens when
 *  that is destroyed, and until then only calls on the group itself fail. */
CDDP_API void cddp_group_destroy(cddp_group *group);

/* What a group is: fixed once it is made, so any thread may ask, and a fork, too. */
/** This process's rank, in [0, world_size). */
CDDP_API int cddp_group_rank(const cddp_group *group);
/** How many ranks the group has. */
CDDP_API int cddp_group_world_size(const cddp_group *group);
/** This process's rank among those on its machine. */
CDDP_API int cddp_group_local_rank(const cddp_group *group);
/** How many ranks of the group are on this machine. */
CDDP_API int cddp_group_local_world_size(const cddp_group *group);
/** The generation of the job in which the group was made. */
CDDP_API uint32_t cddp_group_generation(const cddp_group *group);
/** The deadline of each collective. */
CDDP_API uint32_t cddp_group_timeout_ms(const cddp_group *group);
/** A static string: what carries the device's memory if the group is on one. */
CDDP_API const char *cddp_group_backend(const cddp_group *group);
/** The device of the group's memory and compute stream, as cudaSetDevice() numbers those that this
 *  process sees; -1: the processor. */
CDDP_API int cddp_group_device(const cddp_group *group);

/** The compute stream, a cudaStream_t: the caller's, or cddp's own, in which the caller may work,
 *  too. NULL on the processor. */
CDDP_API void *cddp_group_stream(const cddp_group *group);
/** Let @p stream be the compute stream from now on, also that of groups that were split off: for
 *  trainers that learn from the group which device is theirs, and make their streams there. What is
 *  put into it begins behind all that the compute stream held so far. Not collective, does not
 *  wait.
 *  @param stream  A cudaStream_t of the group's device (cudaStreamLegacy for the default stream);
 *                 outlives the group and its parts, or the next call of this.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (NULL, a stream of another device, a group on the processor)
 *          or CDDP_ERR_STATE (it is being captured): then all is as before; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddp_group_set_stream(cddp_group *group, void *stream);

/** Ranks with the same @p color form a new group, ordered by (@p key, rank here). Collective; a
 *  negative color joins none and gets *out = NULL. The new group's generation, deadline, backend
 * and device are this one's; it may outlive this one, and is released by itself.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_UNAVAILABLE, or an error of
 *          this group. */
CDDP_CHECKED cddp_status cddp_group_split(cddp_group *group, int color, int key, cddp_group **out);

/** Break the group on purpose: pending and later calls of every rank fail, those of the others with
 *  CDDP_ERR_PEER and the text "rank R: " and @p reason. Any thread. */
CDDP_API void cddp_group_abort(cddp_group *group, const char *reason);

/** Memory that the backend reduces fastest (host: shared by all ranks, so that nothing is copied),
 *  64-byte aligned and zeroed. Collective, the same @p bytes everywhere. Pointers inside the block
 *  may be given to any collective. For a group on a device it is the device's memory, zeroed in the
 *  compute stream.
 *  @param out  Release with cddp_group_free(); what is left goes with the group.
 *  @return as a collective, and CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_group_alloc(cddp_group *group, size_t bytes, void **out);
/** The same in the processor's memory, wherever the group is. */
CDDP_CHECKED cddp_status cddp_group_alloc_host(cddp_group *group, size_t bytes, void **out);
/** Release @p memory of cddp_group_alloc() or cddp_group_alloc_host(); NULL is accepted. Every
 *  rank frees its blocks in the same order, but none waits for another; the device's memory is
 *  freed once the work in its streams is done. */
CDDP_API void cddp_group_free(cddp_group *group, void *memory);

/* Collectives. `count` is in elements; `in` and `out` may be the same pointer where both have the
 * same size; if they overlap otherwise, CDDP_ERR_ARGUMENT, as at an address that is not a multiple
 * of the element's size. A count of 0 is allowed. Ranks in arguments are of this group. All return
 * CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_MISMATCH, CDDP_ERR_PEER,
 * CDDP_ERR_TIMEOUT or CDDP_ERR_CLOSED; on an error the contents of `out` are undefined. With
 * `work`, errors of peers come from cddp_work_wait() and cddp_work_test(). */

/** out[i] = op over all ranks of in[i]. */
CDDP_CHECKED cddp_status cddp_all_reduce(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_op op, cddp_work **work);

/** The mean of in[i] weighted by each rank's @p weight (>= 0, finite): sum of weight_r * in_r[i]
 * over the sum of weights. A rank of weight 0 contributes nothing, whatever its buffer holds. With
 * equal weights the same bits as CDDP_OP_MEAN. Floating types only.
 *
 * If all weights are 0, out is 0 and the status CDDP_OK: nothing is divided by 0, no rank has
 * failed, and the last step of ranks that are all through (cddp_ddp_join()) is made of just that. A
 * cddp_ddp, where it would be a step of no samples, gives CDDP_ERR_STATE. */
CDDP_CHECKED cddp_status cddp_all_reduce_weighted(cddp_group *group, const void *in, void *out,
                                                  size_t count, cddp_type type, double weight,
                                                  cddp_work **work);

/** As all_reduce, but only @p root gets the result; `out` of the others may be NULL. */
CDDP_CHECKED cddp_status cddp_reduce(cddp_group *group, const void *in, void *out, size_t count,
                                     cddp_type type, cddp_op op, int root, cddp_work **work);

/** Every rank's @p data becomes root's. */
CDDP_CHECKED cddp_status cddp_broadcast(cddp_group *group, void *data, size_t count, cddp_type type,
                                        int root, cddp_work **work);

/** out holds world_size x count elements: every rank's @p count, in rank order. In place: in =
 *  out + rank * count. */
CDDP_CHECKED cddp_status cddp_all_gather(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_work **work);

/** `in` holds world_size x count elements; out gets this rank's @p count of the reduction. In
 * place: out = in + rank * count. */
CDDP_CHECKED cddp_status cddp_reduce_scatter(cddp_group *group, const void *in, void *out,
                                             size_t count, cddp_type type, cddp_op op,
                                             cddp_work **work);

/** The mean weighted as in cddp_all_reduce_weighted(), cut as by cddp_reduce_scatter(): with the
 * same bits as the first. */
CDDP_CHECKED cddp_status cddp_reduce_scatter_weighted(cddp_group *group, const void *in, void *out,
                                                      size_t count, cddp_type type, double weight,
                                                      cddp_work **work);

/** Root's `out` gets world_size x count elements; `out` of the others may be NULL. */
CDDP_CHECKED cddp_status cddp_gather(cddp_group *group, const void *in, void *out, size_t count,
                                     cddp_type type, int root, cddp_work **work);

/** Root's `in` holds world_size x count elements; everyone's out gets its @p count. */
CDDP_CHECKED cddp_status cddp_scatter(cddp_group *group, const void *in, void *out, size_t count,
                                      cddp_type type, int root, cddp_work **work);

/** `in` and `out` hold world_size x count elements; block r of `in` goes to rank r. */
CDDP_CHECKED cddp_status cddp_all_to_all(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, cddp_work **work);

/** Point to point, to or from another rank, in order between each pair; collectives and messages of
 *  other pairs are not waited for. Send may return before the peer receives. Counts or types that
 *  differ give CDDP_ERR_MISMATCH on the receiver, on a device on all ranks.
 *  On the device's memory, with every backend:
 *   - both sides' buffers lie there (counts of 0 lie nowhere);
 *   - a send is done once its receiver has all of it. So two ranks that send to each other pass
 *     `work` to their sends, or all compute streams wait until the deadline: send, recv, then
 *     cddp_work_wait() for both, in any order, never locks up;
 *   - for a message of more than a few MiB (64 pieces, of 1 MiB with up to 4 ranks, less with more)
 *     cddp_work_wait(), or a call without `work`, waits on the processor until its last pieces are
 *     in the stream, for which the peer must have taken the others;
 *   - a send whose receiver is 256 messages behind waits for it;
 *   - neither can be part of a CUDA graph that cddp captures: CDDP_ERR_UNAVAILABLE. */
CDDP_CHECKED cddp_status cddp_send(cddp_group *group, const void *data, size_t count,
                                   cddp_type type, int to, cddp_work **work);
/** Receive what cddp_send() sends. */
CDDP_CHECKED cddp_status cddp_recv(cddp_group *group, void *data, size_t count, cddp_type type,
                                   int from, cddp_work **work);

/** Wait until every rank has come here. */
CDDP_CHECKED cddp_status cddp_barrier(cddp_group *group, cddp_work **work);

/** Whether @p work is done, without waiting. Done includes failed: the status says which. */
CDDP_CHECKED cddp_status cddp_work_test(cddp_work *work, bool *out_done);

/** Wait until @p work is done. @p timeout_ms 0: the group's deadline, counted from the start of the
 *  work. When another timeout passes, nothing is broken: CDDP_ERR_TIMEOUT, and one may wait again.
 *  On the device's memory: with 0 the compute stream waits, and this call does not; with a deadline
 *  this call waits, too. */
CDDP_CHECKED cddp_status cddp_work_wait(cddp_work *work, uint32_t timeout_ms);

/** Release the handle; waits for unfinished work first, except for work on the device. NULL is
 *  accepted. */
CDDP_API void cddp_work_destroy(cddp_work *work);

#ifdef __cplusplus
}
#endif
#endif
