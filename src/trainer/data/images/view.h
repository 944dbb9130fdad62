/* view.h - which part of an image becomes a sample, as arithmetic: at random, or its middle. */
#ifndef CDDPI_DATA_IMAGES_VIEW_H
#define CDDPI_DATA_IMAGES_VIEW_H

#include "kernels/cpu/image_resize.h"

/* Whose random numbers are drawn: a view depends on nothing else. */
struct cddpi_view_key {
    uint64_t seed, epoch, sample;
};

/** As torchvision's RandomResizedCrop(size, scale=area, ratio=(3/4, 4/3)) and
 * RandomHorizontalFlip().
 *  @param area  The smallest and the largest part of the image, in (0, 1].
 *  @param out_flip  Set with probability 1/2. */
struct cddpi_image_view cddpi_view_at_random(struct cddpi_view_key key, int width, int height,
                                             int size, const double area[2], bool *out_flip);

/** As torchvision's Resize(resize) and CenterCrop(size), size <= resize. */
struct cddpi_image_view cddpi_view_of_center(int width, int height, int resize, int size);

#endif
