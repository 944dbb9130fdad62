/* save_behind.h - owns the checkpoint that a thread of rank 0 writes in the background
 * (train.checkpoint_async): from a copy of the state, so that training need not wait for the disk.
 * Other ranks may make parts of the copy, and help to write it (save_share.h).
 *
 * There is one at a time, and one copy. When the next checkpoint begins, the one before it is
 * complete or has failed: a checkpoint that is due by time waits with its beginning, training goes
 * on; one that is due by steps or was asked for stops training until then. A checkpoint counts only
 * when rank 0 knows that it is whole: then folder.saved_step names it and the launcher is told. */
#ifndef CDDPI_TRAIN_SAVE_BEHIND_H
#define CDDPI_TRAIN_SAVE_BEHIND_H

#include "checkpoint/saving.h"
#include "train/save_share.h"

struct cddpi_trainer;

#define CDDPI_TRAINING_GOES_ON "; training goes on" /* what a failed checkpoint does not end */

/* Only rank 0 has a thread, a copy, and somebody who asks; other ranks only set the times and the
 * share. */
struct cddpi_save_behind {
    cddp_saving *saving;             /* NULL: none is being written */
    struct cddpi_snapshot_copy copy; /* what it writes; the memory is kept for the next one */
    struct cddpi_save_share share;   /* of all ranks */
    uint64_t step, epoch;            /* of the last checkpoint that began */
    int64_t began_ns;                /* when training stopped for it; set by who saves */
    int64_t stood_ns;                /* for how long; 0: training has not gone on yet */
    bool is_asked;                   /* a checkpoint was asked for, and has not begun yet */
    bool untold;       /* a whole checkpoint was not reported, since a later one was asked for */
    bool told_memory;  /* has warned that there is no memory for a copy */
    uint64_t progress; /* how far the thread was when last looked at ... */
    int64_t moved_ns;  /* ... and since when */
    int64_t waits_ns;  /* since when the run waits for it */
    bool told_wait;    /* has said that it waits with its end */
};

/** Whether the configuration and memory allow a copy of @p bytes bytes, when the memory of an
 *  earlier one has @p there bytes. Rank 0. */
bool cddpi_save_behind_may_copy(struct cddpi_trainer *trainer, uint64_t bytes, uint64_t there);
/** Copy @p snapshot, unless ranks have (share.is_taken), and begin to write it.
 *  @param source     As of cddpi_snapshot_write(); for the call only.
 *  @param out_begun  False: the caller writes it, because the configuration or memory do not allow
 *                    a copy.
 *  @return Also errors of @p source. */
CDDP_CHECKED cddp_status cddpi_save_behind_begin(struct cddpi_trainer *trainer,
                                                 const cddp_snapshot *snapshot,
                                                 const struct cddpi_snapshot_source *source,
                                                 unsigned keep, unsigned spare, bool *out_begun);
/** The checkpoint of the current step is whole, and no thread has written it: note and report it.
 *  @param is_last  None follows. */
void cddpi_save_behind_note(struct cddpi_trainer *trainer, bool is_last);
/** A checkpoint could not be written: print this thread's last error and @p end as a warning, and
 *  tell the launcher. Rank 0. */
void cddpi_save_behind_tell_failure(struct cddpi_trainer *trainer, const char *end);
/** Without waiting: if the thread is done, note and report the checkpoint, or print why it has
 *  failed. Any rank. */
void cddpi_save_behind_look(struct cddpi_trainer *trainer);
/** The same, but wait until no checkpoint is being written. Meanwhile all ranks communicate, so
 *  that waiting does not look like a failure. Collective.
 *  @param end  Of the text of a failure: CDDPI_TRAINING_GOES_ON, or "".
 *  @return CDDP_ERR_TIMEOUT: not a byte was written in the group's deadline. */
CDDP_CHECKED cddp_status cddpi_save_behind_settle(struct cddpi_trainer *trainer, const char *end);
/** Wait for the thread, if a failed run has left one, but only for a few seconds, since others may
 *  wait for this process to end and to be started again; and release the copy.
 *  @return False: a thread is left, and uses the trainer until the process ends. */
bool cddpi_save_behind_fini(struct cddpi_trainer *trainer);

/** Which part of the bytes that are left a copy may take: train.checkpoint_async = "auto".
 *  @return Whether a copy of @p bytes fits when @p left bytes are left. */
bool cddpi_save_behind_fits(uint64_t bytes, uint64_t left);

#endif
