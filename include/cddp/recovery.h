/** @file
 *  recovery.h - keeps the state of a training loop in memory that outlives its processes, so that a
 *  job that has lost ranks goes on from its last steps, and not from its last checkpoint.
 *
 *      cddp_recovery_create(group, NULL, &recovery)
 *      cddp_recovery_add_ddp(recovery, ddp)         parameters and buffers
 *      cddp_recovery_add(recovery, &momentum) ...   whatever else makes the state
 *      for (step = 0;; step++):
 *          cddp_recovery_step(recovery, &step, &action)
 *          CDDP_RECOVERY_REPLACED: the state is that before `step`, which is done next
 *          CDDP_RECOVERY_STOP, or all steps are done: save a checkpoint, and leave the loop
 *          (forward, backward, update)
 *
 *  The launcher holds the memory: cddp-run, with --max-restarts, --elastic or --nnodes MIN:MAX. It
 *  starts processes again in place of those that are lost, with another number of ranks if need be.
 *  The first cddp_recovery_step() of these gives them the newest state that is kept. So, whichever
 *  ranks are killed, no step is lost, or few; only a step that was not complete is done again.
 *  (Ranks that are killed while a callback loads go back to the checkpoint.)
 *
 *  Each rank keeps a part of the state: what it alone has (with a sharded optimizer), else an equal
 *  share. In a job of several launchers, mostly one on each machine, it also sends its copy to a
 *  rank of another one, so that a machine may be lost. Two copies of each part are there at any
 *  moment, since ranks may be killed while they copy. A state of n bytes takes about 2 n bytes of
 *  memory on all machines together, and 4 n in a job of several launchers.
 *
 *  Two rules make the parts one state:
 *
 *      A step is kept when every part of it is whole.
 *      The job goes on from the greatest step that is kept.
 *
 *  Memory is lost with the launcher or its machine, and when the job ends. So a job also needs
 *  checkpoints, only less often.
 *
 *  One thread uses a handle: the one that drives the group. All handles of a process share the
 *  memory, so no two may be in a step at the same time. On a device, what work in the compute
 *  stream has written until the call is the state. */
#ifndef CDDP_RECOVERY_H
#define CDDP_RECOVERY_H

#include <cddp/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a loop registers as its state. */
typedef struct cddp_recovery cddp_recovery;

/** How a state is kept; zero means default. */
typedef struct cddp_recovery_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The name of the loop, the same on all ranks and in all processes of the job. A program with
     *  several loops gives each its own. Only one loop's state is kept: the one that has kept
     *  something most recently. NULL: "". */
    const char *name;
    /** Keep the state before each step whose number is a multiple of this. 0: as often as costs at
     *  most 2 % of the time, as rank 0 measures it. */
    uint64_t every_steps;
    /** 0: there are no flags yet. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;

} cddp_recovery_options;
/** The defaults of cddp_recovery_options. */
#define CDDP_RECOVERY_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(cddp_recovery_options), NULL, 0, 0, 0                                               \
    }
CDDP_NO_TAIL(cddp_recovery_options, reserved);

/** One array of the state, or this rank's part of it. */
typedef struct cddp_recovery_array {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The same on all ranks; no other array of the handle has it. */
    const char *name;
    /** `bytes` bytes, in CPU memory or that of the group's device. They have to stay there until
     *  the handle is destroyed. For those on a device, the handle takes as many bytes of pinned
     *  host memory. */
    void *data;
    /** How many bytes this rank has; may be 0, if `total_bytes` is set. */
    uint64_t bytes;
    /** If all ranks have the whole array, with the same bytes: 0. If each has another part of it:
     *  the size of the whole, the same on all ranks. */
    uint64_t total_bytes;
    /** Where this rank's part begins in the whole; together, the ranks have each byte exactly
     *  once. */
    uint64_t first_byte;

} cddp_recovery_array;
/** A cddp_recovery_array without data. */
#define CDDP_RECOVERY_ARRAY_INIT                                                                   \
    {                                                                                              \
        sizeof(cddp_recovery_array), NULL, NULL, 0, 0, 0                                           \
    }
CDDP_NO_TAIL(cddp_recovery_array, first_byte);

/** A part of the state that functions write and read. They may call cddp_fail() and
 *  cddp_recovery_get_info(), but nothing else of cddp. */
typedef struct cddp_recovery_callbacks {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** As in cddp_recovery_array. */
    const char *name;
    /** How many bytes `save` writes; the same on all ranks. */
    uint64_t bytes;
    /** Write this rank's `bytes` bytes to @p to. A failure ends the keeping of states until
     *  ranks are started again; the loop goes on. */
    cddp_status (*save)(void *state, void *to);
    /** Read what one rank has saved. It is called once for each rank that the job had then, in
     *  order: @p part is its number, of @p parts. What all ranks have alike is read from part 0; a
     *  sum over ranks needs all. A failure, and a process that ends here, mean that the job goes on
     *  from its checkpoint: see cddp_recovery_refuse(). */
    cddp_status (*load)(void *state, const void *from, int part, int parts);
    /** Passed to the functions. */
    void *state;

} cddp_recovery_callbacks;
/** cddp_recovery_callbacks without functions. */
#define CDDP_RECOVERY_CALLBACKS_INIT                                                               \
    {                                                                                              \
        sizeof(cddp_recovery_callbacks), NULL, 0, NULL, NULL, NULL                                 \
    }
CDDP_NO_TAIL(cddp_recovery_callbacks, state);

/** What a loop does next. */
typedef enum cddp_recovery_action {
    CDDP_RECOVERY_GO_ON = 0,    /**< do the step */
    CDDP_RECOVERY_REPLACED = 1, /**< the state was replaced: do the step that was returned */
    CDDP_RECOVERY_STOP = 2,     /**< a rank was asked to stop: save, and leave the loop */
    CDDP_RECOVERY_MAX_ENUM_ = 0x7fffffff
} cddp_recovery_action;

/** What was kept. Later versions append fields. */
typedef struct cddp_recovery_info {
    /** Set by the caller: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** How often this process has kept its part of the state. */
    uint64_t copies;
    /** How long that took in all, in nanoseconds. */
    uint64_t spent_ns;
    /** Bytes of this rank's part; 0: nothing was kept yet. */
    uint64_t bytes;
    /** The last step before which the state was kept; 0: none. */
    uint64_t kept_step;
    /** The step with which CDDP_RECOVERY_REPLACED has returned; 0: it has not. */
    uint64_t restored_step;

} cddp_recovery_info;
/** A cddp_recovery_info to be filled. */
#define CDDP_RECOVERY_INFO_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_recovery_info), 0, 0, 0, 0, 0                                                  \
    }
CDDP_NO_TAIL(cddp_recovery_info, restored_step);

/** Begin to register the state of a loop.
 *
 *  Collective: no.
 *  @param group    That of all ranks of the job. The handle holds a reference to it.
 *  @param options  The same on all ranks, borrowed for the call; NULL for all defaults.
 *  @param out      Release with cddp_recovery_destroy().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_UNAVAILABLE (an unknown flag,
 *          or a group of a part of the job's ranks). */
CDDP_CHECKED cddp_status cddp_recovery_create(cddp_group *group,
                                              const cddp_recovery_options *options,
                                              cddp_recovery **out);

/** Release the handle; NULL is accepted. What was kept stays with the launcher, so that a job whose
 *  ranks are killed at its very end does not begin anew. Collective: no. */
CDDP_API void cddp_recovery_destroy(cddp_recovery *recovery);

/** Register an array. All ranks register the same, in the same order, before the first step.
 *
 *  Collective: no.
 *  @param array  Borrowed for the call, except for its data.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (a name that is taken, a part outside of the whole ...);
 *          CDDP_ERR_STATE (a step was begun); CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_recovery_add(cddp_recovery *recovery,
                                           const cddp_recovery_array *array);

/** Register the parameters of @p ddp that are not frozen, and its buffers, which are kept as rank 0
 *  has them. With a sharded optimizer, each rank keeps the parameters that it updates; the caller
 *  registers the optimizer's state by span, with cddp_recovery_add().
 *
 *  Collective: no.
 *  @param ddp  A handle on the same group. Its parameters and buffers have to stay where they are.
 *  @return as cddp_recovery_add(). */
CDDP_CHECKED cddp_status cddp_recovery_add_ddp(cddp_recovery *recovery, cddp_ddp *ddp);

/** Register a part of the state that functions write and read.
 *
 *  Collective: no.
 *  @param callbacks  Borrowed for the call; the functions and their state have to stay.
 *  @return as cddp_recovery_add(). */
CDDP_CHECKED cddp_status cddp_recovery_add_callbacks(cddp_recovery *recovery,
                                                     const cddp_recovery_callbacks *callbacks);

/** A step begins: all ranks call this where the state is that after all steps before it, so after
 *  the last update, and before the next forward.
 *
 *  The first call looks for a state that earlier processes of the job have kept. If there is one,
 *  and it is not older than the caller's own, it replaces what is registered.
 *
 *  Each further call finds out whether a rank was asked to stop, as cddp_group_should_stop() does,
 *  and keeps the state if it is time to. It is always kept before CDDP_RECOVERY_STOP.
 *
 *  A state that cannot be kept is no error. If the launcher holds no memory, if a rank has too
 * little of it, if ranks have registered different states, or if a callback fails, nothing is kept
 * from then on; the log says why (the first of these at $CDDP_LOG=info), and a job that loses ranks
 * goes on from its checkpoint, or from what was kept before, if that is newer.
 *
 *  A loop may go back by itself, to an older checkpoint, say: where @p step is not greater than the
 *  last one that this process has kept, all that is kept is forgotten.
 *
 *  Collective: yes.
 *  @param step        How many steps are done. At the first call: 0, or what the caller's
 * checkpoint says. Rank 0's value counts and is returned on all ranks, so all must have loaded that
 * checkpoint. With CDDP_RECOVERY_REPLACED, it becomes that of the state, on all ranks.
 *  @param out_action  The same on all ranks.
 *  @return CDDP_OK; as a collective; CDDP_ERR_ARGUMENT; CDDP_ERR_NO_MEMORY;
 *          CDDP_ERR_MISMATCH (ranks are at different steps);
 *          CDDP_ERR_FORMAT (what was kept is not in order, or a callback did not read it: the state
 *          is undefined, and when the job starts again, it goes on from its checkpoint). */
CDDP_CHECKED cddp_status cddp_recovery_step(cddp_recovery *recovery, uint64_t *step,
                                            cddp_recovery_action *out_action);

/** The loop fails, and its state may be the cause, such as a loss that is not a number: when the
 *  job starts again, it does not go on from what was kept, but from its checkpoint.
 *  Collective: no; one rank's call is enough.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (no step was begun, or a callback calls it).
 */
CDDP_CHECKED cddp_status cddp_recovery_refuse(cddp_recovery *recovery);

/** Stay in this process when the job has lost ranks, or changes its members: wait for its next
 *  generation, and become one of its ranks. What the program has loaded stays. Without this call,
 *  the process ends, and the launcher starts another one.
 *
 *      do {
 *          status = train();              from cddp_group_create() to cddp_group_destroy()
 *      } while (!done && cddp_recovery_rejoin(status) == CDDP_OK);
 *
 *  The launcher is cddp-run as above, and has started this process itself: no script waits for it.
 *  The process keeps its number, its open files and its output; its rank may be another. The
 *  launcher answers, or lets the process go, as soon as it knows; if it is killed, so is this
 *  process. Signals that ask to stop have no effect meanwhile. If others than cddp-run have sent
 *  them, they count afterwards.
 *
 *  Before, destroy all groups of the process, and wait for snapshots that are written behind. Call
 *  it in the thread that created the groups, while no other thread reads or writes environment
 *  variables. The next group takes its rank from these, so create it with the defaults. CUDA has
 *  read which GPUs there are, so a job that leaves out an ill GPU keeps no process.
 *
 *  Collective: no.
 *  @param why  How the loop ended: CDDP_OK, after CDDP_RECOVERY_STOP (not when all steps are done);
 *              CDDP_ERR_PEER, CDDP_ERR_TIMEOUT or CDDP_ERR_BROKEN, because of another rank.
 *  @return CDDP_OK (the environment variables are those of a rank of the next generation:
 *          begin anew with cddp_group_create()); CDDP_ERR_CLOSED (the job ends, or has no place
 *          for this process: exit, and save nothing); CDDP_ERR_UNAVAILABLE (no launcher keeps
 *          this process); CDDP_ERR_ARGUMENT (another status: the failure is this process's own);
 *          CDDP_ERR_STATE (a group is not destroyed); CDDP_ERR_NO_MEMORY. After errors, exit as
 *          without this call. */
CDDP_CHECKED cddp_status cddp_recovery_rejoin(cddp_status why);

/** What was kept so far.
 *  Collective: no.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddp_recovery_get_info(const cddp_recovery *recovery,
                                                cddp_recovery_info *out);

#ifdef __cplusplus
}
#endif
#endif
