/* cursor.h - where a run is, and reading that from a checkpoint. */
#ifndef CDDPI_TRAIN_CURSOR_H
#define CDDPI_TRAIN_CURSOR_H

#include <cddp/status.h>

struct cddpi_trainer;

/* Independent of the number of ranks. */
struct cddpi_cursor {
    uint64_t step;     /* updates done */
    uint64_t epoch;    /* epochs done */
    uint64_t position; /* samples of the epoch under way that were used */
};

/** The word for the order of the data, as checkpoints have it. */
const char *cddpi_cursor_order(const struct cddpi_trainer *trainer);
/** Where the run was when it wrote the checkpoint at @p path. The file may be malformed: the cursor
 *  is checked to be one that a run over the same data can reach.
 *  @return CDDP_OK, CDDP_ERR_FORMAT (names file and field), CDDP_ERR_CONFIG: the run of @p trainer
 *          is another one; or why the file cannot be read. */
CDDP_CHECKED cddp_status cddpi_cursor_read(struct cddpi_trainer *trainer, const char *path,
                                           struct cddpi_cursor *out);

#endif
