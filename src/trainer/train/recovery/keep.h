/* keep.h - keeps the state of a run in memory that outlives its ranks (train.recovery), so that a
 * job that has lost ranks goes on from its last steps, and not from its last checkpoint.
 *
 * At the end of a step, each rank copies its part of the state: with a sharded optimizer what it
 * updates, else an equal part. Two rules make the parts one state:
 *
 *     A step is kept when every part of it is whole.
 *     The job goes on from the greatest step that is kept.
 *
 * No rank needs to hear of the others' copies: it copies before it sends gradients of the next
 * step, and without these no other rank can reach the end of that step. So ranks are at most one
 * copy apart, and each has the two newest.
 *
 * In a job of several launchers, mostly one on each machine, each rank also sends its copy to a
 * rank of another one, so that a machine may be lost. */
#ifndef CDDPI_TRAIN_KEEP_H
#define CDDPI_TRAIN_KEEP_H

#include "recovery/kept_memory.h"

#include <cddp/ddp.h>

struct cddpi_trainer;

/* Parts of a rank's machine that this rank can read: its own, and what earlier ranks have left. */
enum { CDDPI_KEEP_FILES = 8 };

/* The elements of one parameter, and of its moments, that a rank keeps. */
struct cddpi_kept_part;

/* The tensors of a state; on a device, copies of them in host memory. */
struct cddpi_kept_tensors {
    cddp_param *model; /* parameters, then running statistics; owned */
    cddp_param *list;  /* what each rank has whole, but for parameters; owned */
    size_t count;      /* of list */
    uint64_t bytes;    /* of list */
};

struct cddpi_keep {
    struct cddpi_kept_memory files[CDDPI_KEEP_FILES]; /* the first is this rank's own */
    int count;
    bool is_on;                       /* this run keeps its state, as far as this rank knows */
    bool is_off;                      /* all ranks know that one of them cannot */
    struct cddpi_kept_stamp restored; /* from which this run goes on; step 0: from none */
    bool was_refused;                 /* what was kept of it was refused, as all ranks know */
    uint64_t run, writer;             /* of the stamps; the same on all ranks */
    uint64_t layout;                  /* of the state */
    struct cddpi_kept_part *parts;    /* what this rank keeps; NULL until its first copy */
    size_t part_count;
    struct cddpi_kept_tensors tensors;
    uint64_t bytes;       /* of a copy */
    int copies;           /* made by this process */
    bool sends;           /* to rank `to`, and gets that of rank `from` */
    bool sends_none;      /* all ranks know that one of them has no memory for another's */
    int to, from;         /* in the group */
    uint64_t other_bytes; /* of what it gets */
    int64_t began_ns, spent_ns;
};

/** Whether train.recovery, the way to train and the device allow a run to keep its state; the same
 *  on all ranks. */
bool cddpi_keep_is_possible(const struct cddpi_trainer *trainer);

/** Open the memory that the launcher holds for this rank. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_open(struct cddpi_trainer *trainer);
/** The run begins, from what was restored, if anything: what else was kept of it is forgotten.
 *  Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_begin(struct cddpi_trainer *trainer);
void cddpi_keep_close(struct cddpi_keep *keep);

/** Whether rank 0 wants the state to be kept at the end of the step that begins: as often as
 *  train.recovery says. Other ranks: false. */
bool cddpi_keep_is_due(struct cddpi_trainer *trainer);
/** Keep the state at the end of a step in which all ranks have agreed on it. Where memory does not
 *  suffice, no rank keeps anything from then on, and rank 0 warns. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_step(struct cddpi_trainer *trainer);

/** The run fails, and its state may be the cause: a loss that is no number, or other replicas. The
 *  job does not go on from what it has kept. */
void cddpi_keep_refuse(const struct cddpi_trainer *trainer);

/** Restore the newest state that is kept, if it is not older than a checkpoint at step
 *  @p checkpoint. Sets trainer->cursor. Collective.
 *  @param checkpoint  Rank 0's is used. 0: there is none.
 *  @param out_found   Whether it was restored; the same on all ranks.
 *  @return An error of the group. CDDP_ERR_FORMAT: what was kept is not in order, and is forgotten.
 *          Where memory does not suffice, rank 0 says so, and the caller loads the checkpoint. */
CDDP_CHECKED cddp_status cddpi_keep_restore(struct cddpi_trainer *trainer, uint64_t checkpoint,
                                            bool *out_found);

#endif
