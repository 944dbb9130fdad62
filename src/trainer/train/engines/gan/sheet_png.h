/* sheet_png.h - writes pixels as a PNG file, which every browser and viewer shows. */
#ifndef CDDPI_TRAIN_SHEET_PNG_H
#define CDDPI_TRAIN_SHEET_PNG_H

#include "base/file.h"

#include <stdint.h>

/** Put a PNG file of 8 bits a channel. @p channels: 1 (grey) or 3 (red, green, blue).
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, or the writer's failure. */
CDDP_CHECKED cddp_status cddpi_sheet_put_png(struct cddpi_writer *writer, const uint8_t *pixels,
                                             size_t width, size_t height, size_t channels);

#endif
