/* digest.h - tells whether data are the same as those of an earlier start. */
#ifndef CDDPI_DATA_DIGEST_H
#define CDDPI_DATA_DIGEST_H

#include "data/dataset.h"

#include <stdint.h>

enum { CDDPI_DATA_DIGESTS = 2 };

/** Digests of what @p dataset holds, whatever its files are called and however they are packed: of
 *  its images (or tokens, or image files) and of its labels. Of a few MiB at most: all bytes of
 * small data, samples of large ones, spread evenly. 0: not known, as an image file cannot be read
 * now, or there is none. */
void cddpi_dataset_digest(const struct cddpi_dataset *dataset, uint64_t out[CDDPI_DATA_DIGESTS]);

#endif
