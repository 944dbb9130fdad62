/* image.h - converts bytes of images to floats by a table, so that all code paths round alike, and
 * resizes images. */
#ifndef CDDPI_KERNELS_CPU_IMAGE_H
#define CDDPI_KERNELS_CPU_IMAGE_H

#include "base/shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CDDPI_IMAGE_VALUES = 256 };

/** out[i] = table[in[i]]. */
CDDPI_SHARED void cddpi_image_lookup(const float table[CDDPI_IMAGE_VALUES], const uint8_t *in,
                                     size_t count, float *out);

/** Copy one plane through a window of the same size, which begins at row @p top and column @p left
 *  of the plane (negative: before it). Outside the plane, bytes count as 0. @p flip mirrors the
 *  window's columns. */
CDDPI_SHARED void cddpi_image_crop(const float table[CDDPI_IMAGE_VALUES], const uint8_t *in,
                                   int height, int width, int top, int left, bool flip, float *out);

/* --- image_resize.c: resizes images of 8 bits and three interleaved channels by a triangle filter
 * that widens with the reduction ("bilinear with antialias"). The bits equal those of Pillow's
 * Image.resize(BILINEAR), which torchvision's transforms call. --- */

enum { CDDPI_IMAGE_RGB = 3 };

/* The box of an image is resized to whole_width x whole_height, and only a window of that is
 * computed. The box is inside the image, the window inside the resized box; no side is empty. */
struct cddpi_image_view {
    int left, top, width, height; /* the box, in pixels of the image */
    int whole_width, whole_height;
    int window_left, window_top, window_width, window_height;
};

/** The size of `memory` that cddpi_image_resize() needs for @p view, in bytes. */
size_t cddpi_image_resize_bytes(const struct cddpi_image_view *view);

/** @param pixels  Rows of @p width pixels.
 *  @param memory  cddpi_image_resize_bytes() bytes, aligned to 8.
 *  @param out     window_height x window_width pixels. */
void cddpi_image_resize(const uint8_t *pixels, int width, const struct cddpi_image_view *view,
                        void *memory, uint8_t *out);

/** Convert pixels to planes: plane c of @p out is channel c, mapped by tables[c]. @p flip mirrors
 *  each row. */
void cddpi_image_to_planes(const uint8_t *pixels, int width, int height, bool flip,
                           const float tables[][256], float *out);

#endif
