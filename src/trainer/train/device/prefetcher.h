/* prefetcher.h - brings batches to the model: while a device computes with one batch, the next is
 * copied to it.
 *
 * On the processor, a batch is used where the loader made it. On a device, there are two slots. The
 * copy stream fills a slot after the last use of its old batch, and the compute stream starts after
 * the copy. The host waits only for the loader. Belongs to the thread that drives compute. */
#ifndef CDDPI_TRAIN_DEVICE_PREFETCHER_H
#define CDDPI_TRAIN_DEVICE_PREFETCHER_H

#include "data/data_loader.h"
#include "nn/model.h"

struct cddpi_prefetcher;

/** @param loader, model  Borrowed; they outlive the prefetcher.
 *  @param device         The model's device; NULL: the processor, where @p model is not used.
 *  @param max_count      Samples of the loader's largest batch.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_prefetcher_create(struct cddpi_data_loader *loader,
                                                 struct cddpi_model *model,
                                                 struct cddpi_device *device,
                                                 const struct cddpi_dataset *data, int max_count,
                                                 struct cddpi_prefetcher **out);
void cddpi_prefetcher_destroy(struct cddpi_prefetcher *prefetcher); /* accepts NULL */

/** The loader was restarted: forget what was fetched. The next batch belongs to step @p step, and
 *  each batch after a last micro-batch to the next step. */
void cddpi_prefetcher_start(struct cddpi_prefetcher *prefetcher, uint64_t step);
/** Take the next batch, in memory that the model reads, valid until the next call. Work put into
 *  the compute stream from now on may read it. @p out->label NULL: the loader has no more.
 *  @return as cddpi_data_loader_next(); CDDP_ERR_ARGUMENT: labels that the model does not have;
 *          CDDP_ERR_DEVICE, CDDP_ERR_TIMEOUT. */
CDDP_CHECKED cddp_status cddpi_prefetcher_next(struct cddpi_prefetcher *prefetcher,
                                               struct cddpi_micro_batch *out);
/** Call it when all work with the batch is in the compute stream: fetches the next batch, if the
 *  loader has one, and starts its copy. Does nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_prefetcher_release(struct cddpi_prefetcher *prefetcher);
/** The micro-batch as the model's argument. */
struct cddpi_batch cddpi_prefetcher_batch(const struct cddpi_micro_batch *micro_batch);

#endif
