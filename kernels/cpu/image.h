/* image.h - converts bytes of images to floats by a table, so that all code paths round alike. */
#ifndef CDDPI_KERNELS_CPU_IMAGE_H
#define CDDPI_KERNELS_CPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CDDPI_IMAGE_VALUES = 256 };

/** out[i] = table[in[i]]. */
void cddpi_image_lookup(const float table[CDDPI_IMAGE_VALUES], const uint8_t *in, size_t count,
                        float *out);

/** Copy one plane through a window of the same size, which begins at row @p top and column @p left
 *  of the plane (negative: before it). Outside the plane, bytes count as 0. @p flip mirrors the
 *  window's columns. */
void cddpi_image_crop(const float table[CDDPI_IMAGE_VALUES], const uint8_t *in, int height,
                      int width, int top, int left, bool flip, float *out);

#endif
