/* sample.h - one sample of a dataset of image files: read, decoded, cut out, resized. */
#ifndef CDDPI_DATA_IMAGES_SAMPLE_H
#define CDDPI_DATA_IMAGES_SAMPLE_H

#include "data/dataset.h"
#include "data/images/image_decode.h"
#include "data/images/view.h"

/* What is asked of each sample. */
struct cddpi_image_use {
    int size;       /* of the sample's sides */
    int resize;     /* the shorter side before the middle is cut out; at least size */
    double area[2]; /* of random parts */
    bool random;    /* random parts, not the middle */
    bool flip;      /* and mirrored, with probability 1/2 */
};

/* Memory that samples are made in, one after the other. */
struct cddpi_image_scratch {
    struct cddpi_image_memory file, pixels, resizing, window;
};

void cddpi_image_scratch_free(struct cddpi_image_scratch *scratch);

/** Make sample @p key.sample of @p files.
 *  @param tables  How bytes of each channel become floats.
 *  @param out     3 x size x size.
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND, CDDP_ERR_IO; what cddpi_image_decode() says. Texts begin
 *          with the file. Any thread, with a scratch of its own. */
CDDP_CHECKED cddp_status cddpi_image_sample(const struct cddpi_image_files *files,
                                            const struct cddpi_image_use *use,
                                            struct cddpi_view_key key, const float tables[][256],
                                            struct cddpi_image_scratch *scratch, float *out);

#endif
