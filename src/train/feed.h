/* feed.h - batches on their way to the device: while one is computed with, the next is copied.
 *
 * On the processor a batch is used where the loader made it. On a device there is memory for two;
 * the copy stream fills one behind the last use of what it held, and the compute stream begins with
 * it behind the copy. Nobody waits, but for the loader. Belongs to the thread that drives compute.
 */
#ifndef CDDPI_TRAIN_FEED_H
#define CDDPI_TRAIN_FEED_H

#include "data/loader.h"

struct cddpi_feed;

/** @param max_count  Samples of the loader's largest batch; @p input_bytes and @p labels those of
 *                    one sample's input, and how many labels it has.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_feed_create(struct cddpi_loader *loader, struct cddpi_device *device,
                                           int max_count, size_t input_bytes, size_t labels,
                                           struct cddpi_feed **out);
void cddpi_feed_destroy(struct cddpi_feed *feed); /* accepts NULL; first the streams are through */

/** The next batch, as cddpi_loader_next() gives it, with input, tokens and label where the model
 *  reads them; sample_ids stay the processor's. Valid until the next call. What is put into the
 *  compute stream from now on may read it. */
CDDP_CHECKED cddp_status cddpi_feed_next(struct cddpi_feed *feed, struct cddpi_loaded *out,
                                         int64_t *out_waited_ns);
/** All work with the batch is in the compute stream: fetch the next one, if the loader has it, and
 *  begin to copy it. Nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_feed_used(struct cddpi_feed *feed);
/** The loader is started anew, or cancelled: forget what was fetched. */
void cddpi_feed_forget(struct cddpi_feed *feed);

#endif
