/* view.h - chooses the part of an image that becomes a sample, at random or the centre. Pure
 * functions. */
#ifndef CDDPI_DATA_IMAGES_VIEW_H
#define CDDPI_DATA_IMAGES_VIEW_H

#include "kernels/cpu/image.h"

/* The key of the random numbers. A random view depends on this key and on the sizes only. */
struct cddpi_view_key {
    uint64_t seed, epoch, sample;
};

/** As torchvision's RandomResizedCrop(size, scale=area, ratio=(3/4, 4/3)) and
 *  RandomHorizontalFlip().
 *  @param area  The smallest and the largest area, as fractions of the image, in (0, 1].
 *  @param out_flip  Set with probability 1/2. */
struct cddpi_image_view cddpi_view_at_random(struct cddpi_view_key key, int width, int height,
                                             int size, const double area[2], bool *out_flip);

/** As torchvision's Resize(resize) and CenterCrop(size), size <= resize. */
struct cddpi_image_view cddpi_view_of_center(int width, int height, int resize, int size);

#endif
