/* prefetcher.h - batches on their way to the model: while one is computed with on a device, the
 * next is copied there.
 *
 * On the processor a batch is used where the loader made it. On a device there is memory for two;
 * the copy stream fills one after the last use of what it held, and the compute stream begins with
 * it after the copy. The only wait is for the loader. Belongs to the thread that
 * drives compute. */
#ifndef CDDPI_TRAIN_DEVICE_PREFETCHER_H
#define CDDPI_TRAIN_DEVICE_PREFETCHER_H

#include "data/data_loader.h"
#include "nn/model.h"

struct cddpi_prefetcher;

/** @param loader, model  Borrowed; they outlive the prefetcher.
 *  @param device         Where the model is; NULL: the processor, where the model is not asked.
 *  @param max_count      Samples of the loader's largest batch.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_prefetcher_create(struct cddpi_data_loader *loader,
                                                 struct cddpi_model *model,
                                                 struct cddpi_device *device,
                                                 const struct cddpi_dataset *data, int max_count,
                                                 struct cddpi_prefetcher **out);
void cddpi_prefetcher_destroy(struct cddpi_prefetcher *prefetcher); /* accepts NULL */

/** The loader was started anew: what was fetched is forgotten, and the next batch is one of step
 *  @p step (those after a last micro-batch are of the next steps). */
void cddpi_prefetcher_start(struct cddpi_prefetcher *prefetcher, uint64_t step);
/** The next batch where the model reads it, valid until the next call; @p out->label NULL: the
 *  loader has no more. What is put into the compute stream from now on may read it. @return as
 * cddpi_data_loader_next(); CDDP_ERR_ARGUMENT: labels that the model does not have;
 * CDDP_ERR_DEVICE, CDDP_ERR_TIMEOUT. */
CDDP_CHECKED cddp_status cddpi_prefetcher_next(struct cddpi_prefetcher *prefetcher,
                                               struct cddpi_micro_batch *out);
/** All work with the batch is in the compute stream: fetch the next one, if the loader has it, and
 *  begin to copy it. Nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_prefetcher_release(struct cddpi_prefetcher *prefetcher);
/** What the model takes of it. */
struct cddpi_batch cddpi_prefetcher_batch(const struct cddpi_micro_batch *micro_batch);

#endif
