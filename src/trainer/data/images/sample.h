/* sample.h - makes one sample from an image file: read, decode, crop, resize. */
#ifndef CDDPI_DATA_IMAGES_SAMPLE_H
#define CDDPI_DATA_IMAGES_SAMPLE_H

#include "data/dataset.h"
#include "data/images/image_decode.h"
#include "data/images/view.h"

/* How samples are made. */
struct cddpi_image_use {
    int size;       /* height and width of the sample */
    int resize;     /* length of the shorter side before the centre is cut out; at least size */
    double area[2]; /* area of random crops: smallest and largest, as fractions of the image */
    bool random;    /* crop at random; false: the centre */
    bool flip;      /* also mirror horizontally with probability 1/2 */
};

/* Reusable memory for making samples, one at a time. */
struct cddpi_image_scratch {
    struct cddpi_image_memory file, pixels, resizing, window;
};

void cddpi_image_scratch_free(struct cddpi_image_scratch *scratch);

/** Make sample @p key.sample of @p files. Any thread, with its own scratch.
 *  @param tables  The float for each byte, per channel.
 *  @param out     3 x size x size.
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND, CDDP_ERR_IO; as cddpi_image_decode(). Error texts begin
 *          with the file. */
CDDP_CHECKED cddp_status cddpi_image_sample(const struct cddpi_image_files *files,
                                            const struct cddpi_image_use *use,
                                            struct cddpi_view_key key, const float tables[][256],
                                            struct cddpi_image_scratch *scratch, float *out);

#endif
