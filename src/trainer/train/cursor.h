/* cursor.h - owns the position of a run in its data, and reads it from a checkpoint. */
#ifndef CDDPI_TRAIN_CURSOR_H
#define CDDPI_TRAIN_CURSOR_H

#include <cddp/status.h>
#include <stdint.h>

struct cddpi_config;
struct cddpi_trainer;

/* The position does not depend on the number of ranks. */
struct cddpi_cursor {
    uint64_t step;     /* updates done */
    uint64_t epoch;    /* complete epochs done */
    uint64_t position; /* samples of the current epoch that were used */
};

/** The name of the data's order in checkpoints. */
const char *cddpi_cursor_order(const struct cddpi_trainer *trainer);
/** The number of threads on which a run's bits depend; 1 with train.micro_batch. */
int64_t cddpi_cursor_threads(const struct cddpi_config *config);
/** Read the position at which the checkpoint at @p path was written. The file may be malformed, so
 *  the cursor is checked to be one that a run over the same data can reach.
 *  @return CDDP_OK; CDDP_ERR_FORMAT: names file and field; CDDP_ERR_CONFIG: the checkpoint is of
 *          another run than @p trainer's; or why the file cannot be read. */
CDDP_CHECKED cddp_status cddpi_cursor_read(struct cddpi_trainer *trainer, const char *path,
                                           struct cddpi_cursor *out);

#endif
