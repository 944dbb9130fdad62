/* pipeline_feed.h - owns a chunk's batches on a device: as many as are between forward and
 * backward, and one more, which is copied there while the device computes. */
#ifndef CDDPI_PARALLEL_PIPELINE_FEED_H
#define CDDPI_PARALLEL_PIPELINE_FEED_H

#include "device/device.h"
#include "nn/model.h"

struct cddpi_pipeline_feed;

/** @param spec   Of the model, for the sizes of its data.
 *  @param most   At most this many batches are between forward and backward.
 *  @param model  Borrowed; outlives the feed. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_create(const struct cddpi_model_spec *spec, int most,
                                                    struct cddpi_model *model,
                                                    struct cddpi_device *device,
                                                    uint32_t timeout_ms,
                                                    struct cddpi_pipeline_feed **out);
void cddpi_pipeline_feed_destroy(struct cddpi_pipeline_feed *feed); /* accepts NULL */

/** Make room for batches of @p samples samples. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_make_room(struct cddpi_pipeline_feed *feed,
                                                       int samples);
/** Start copying what the chunk reads of @p batch, in CPU memory that stays as it is until
 *  cddpi_pipeline_feed_settle(). The batches of a step have the numbers from 0 on, in order.
 *  @return also CDDP_ERR_ARGUMENT: labels that the model does not have. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_put(struct cddpi_pipeline_feed *feed, int number,
                                                 const struct cddpi_batch *batch, bool training);
/** Batch @p number on the device, for work that is enqueued in the compute stream from now on. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_take(struct cddpi_pipeline_feed *feed, int number,
                                                  struct cddpi_batch *out);
/** All work with batch @p number is in the compute stream. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_release(struct cddpi_pipeline_feed *feed, int number);
/** Wait until everything that was put is copied. */
CDDP_CHECKED cddp_status cddpi_pipeline_feed_settle(struct cddpi_pipeline_feed *feed);
size_t cddpi_pipeline_feed_bytes(const struct cddpi_pipeline_feed *feed);

#endif
