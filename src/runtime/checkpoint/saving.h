/* saving.h - how a program that writes one snapshot after another does so behind its work: the copy
 * keeps its memory for the next one, and waiting has a limit. cddp_snapshot_write() is for others.
 */
#ifndef CDDPI_CHECKPOINT_SAVING_H
#define CDDPI_CHECKPOINT_SAVING_H

#include "checkpoint/shared_copy.h"

#include <pthread.h>

/* A copy of a snapshot. All zeros: empty. */
struct cddpi_snapshot_copy {
    cddp_snapshot snapshot; /* all that it points to is in `memory` ... */
    unsigned char *memory;
    size_t bytes;                     /* of `memory`: for the largest snapshot so far */
    struct cddpi_shared_copy *shared; /* ... but for data that is here, borrowed; NULL: none */
};

/** The bytes of memory that a copy of @p snapshot takes. */
size_t cddpi_snapshot_copy_bytes(const cddp_snapshot *snapshot);
/** Copy @p from, in place of what @p copy holds; without data, if copy->shared has it: see
 *  cddpi_shared_copy_bind().
 *  @param from    As cddpi_snapshot_read() gives it, with tensors for which
 *                 cddpi_safetensors_check() has passed, but for data that @p source has.
 *  @param source  NULL: all data is in memory.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, or what source->fetch() returns. */
CDDP_CHECKED cddp_status cddpi_snapshot_copy_take(struct cddpi_snapshot_copy *copy,
                                                  const cddp_snapshot *from,
                                                  const struct cddpi_snapshot_source *source);
void cddpi_snapshot_copy_release(struct cddpi_snapshot_copy *copy); /* accepts an empty one */

/* How a thread writes a copy. */
struct cddpi_saving_options {
    unsigned keep, spare; /* as of cddpi_snapshot_write() */
    /* Called by the thread before it writes anything; if it fails, nothing is written. NULL: none.
     */
    cddp_status (*check)(const cddp_snapshot *snapshot);
};

/** Write @p copy below @p dir in a thread, like cddp_snapshot_write() with a handle. The thread has
 *  the lowest priority, so that it takes processor time that the program does not need. The folder
 *  is opened, or made, at once: if it is moved later, the snapshot is in it.
 *  @param copy  Its memory is borrowed until the handle is destroyed.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_saving_begin(const char *dir, struct cddpi_snapshot_copy *copy,
                                            const struct cddpi_saving_options *options,
                                            cddp_saving **out);
/** Start a thread called @p name that runs @p body with the lowest priority. It blocks all signals,
 *  which are for the program's own threads.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_saving_thread(const char *name, void *(*body)(void *),
                                             void *argument, pthread_t *out);
/** Like cddp_saving_test(), but wait for up to @p timeout_ms. */
CDDP_CHECKED cddp_status cddpi_saving_wait_for(cddp_saving *saving, uint32_t timeout_ms,
                                               bool *out_done);
/** A number that grows while bytes are written. Any thread. */
uint64_t cddpi_saving_progress(const cddp_saving *saving);

#endif
