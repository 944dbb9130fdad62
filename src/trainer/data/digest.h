/* digest.h - owns the digests that tell whether a dataset is the same as at an earlier start. */
#ifndef CDDPI_DATA_DIGEST_H
#define CDDPI_DATA_DIGEST_H

#include "data/dataset.h"

#include <stdint.h>

enum { CDDPI_DATA_DIGESTS = 2 };

/** Digests of @p dataset's contents: one of its images (or tokens, or image files), one of its
 *  labels. File names and compression do not matter. Small data are hashed whole; of large data, a
 *  few MiB of evenly spread samples. 0: unknown, because an image file cannot be read now or there
 *  are no such data. */
void cddpi_dataset_digest(const struct cddpi_dataset *dataset, uint64_t out[CDDPI_DATA_DIGESTS]);

#endif
