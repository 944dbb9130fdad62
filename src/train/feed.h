/* feed.h - batches on their way to the model: while one is computed with on a device, the next is
 * copied there.
 *
 * On the processor a batch is used where the loader made it. On a device there is memory for two;
 * the copy stream fills one behind the last use of what it held, and the compute stream begins with
 * it behind the copy. Nobody waits, but for the loader. Belongs to the thread that drives compute.
 */
#ifndef CDDPI_TRAIN_FEED_H
#define CDDPI_TRAIN_FEED_H

#include "data/loader.h"
#include "nn/model.h"

struct cddpi_feed;

/* A batch where the model reads it. */
struct cddpi_fed {
    struct cddpi_batch batch; /* label NULL: the loader has no more */
    uint64_t share;           /* as struct cddpi_loaded has these */
    bool last, even;
    int place;         /* on a device: in which of the two it lies */
    int64_t waited_ns; /* for the loader */
};

/** @param loader, model  Borrowed; they outlive the feed.
 *  @param device         Where the model is; NULL: the processor, where the model is not asked.
 *  @param max_count      Samples of the loader's largest batch.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_feed_create(struct cddpi_loader *loader, struct cddpi_model *model,
                                           struct cddpi_device *device,
                                           const struct cddpi_dataset *data, int max_count,
                                           struct cddpi_feed **out);
void cddpi_feed_destroy(struct cddpi_feed *feed); /* accepts NULL */

/** The loader was started anew: what was fetched is forgotten, and the next batch is one of step
 *  @p step (those behind a last piece are of the next steps). */
void cddpi_feed_start(struct cddpi_feed *feed, uint64_t step);
/** The next batch, valid until the next call. What is put into the compute stream from now on may
 *  read it. @return as cddpi_loader_next(); CDDP_ERR_ARGUMENT: labels that the model does not
 *  have; CDDP_ERR_DEVICE, CDDP_ERR_TIMEOUT. */
CDDP_CHECKED cddp_status cddpi_feed_next(struct cddpi_feed *feed, struct cddpi_fed *out);
/** All work with the batch is in the compute stream: fetch the next one, if the loader has it, and
 *  begin to copy it. Nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_feed_used(struct cddpi_feed *feed);

#endif
