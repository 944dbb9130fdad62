/* dataset.h - samples by index: images of bytes with a class each, in memory that ranks of a
 * machine share. Read-only after opening, so any thread may read. */
#ifndef CDDPI_DATA_DATASET_H
#define CDDPI_DATA_DATASET_H

#include <cddp/group.h>

struct cddpi_dataset {
    uint64_t count;
    int channels, height, width;
    int classes;
    const uint8_t *images;               /* count x channels x height x width */
    const uint8_t *labels;               /* count */
    struct cddpi_dataset_memory *memory; /* what holds them */
};

/** Open IDX files (http://yann.lecun.com/exdb/mnist/: unsigned bytes, 3 dimensions for images and 1
 * for labels; also 4 dimensions N x C x H x W), plain or gzip'd, told apart by content. With a @p
 * group (all its ranks call this) one rank of a machine inflates and the others map what it made;
 * NULL: alone.
 *  @param classes  Labels must be below it; 0: one more than the largest label.
 *  @return CDDP_OK on all ranks or an error on all ranks: CDDP_ERR_NOT_FOUND, CDDP_ERR_FORMAT
 * (names the file, what is wrong and where), CDDP_ERR_IO, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_dataset_open_idx(const char *images_path, const char *labels_path,
                                                int classes, cddp_group *group,
                                                struct cddpi_dataset *out);
void cddpi_dataset_close(struct cddpi_dataset *dataset); /* accepts a zeroed or closed one */

#endif
