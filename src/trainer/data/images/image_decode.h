/* image_decode.h - decodes JPEG and PNG files to pixels of three 8-bit channels. The files are not
 * trusted: the sizes they state are bounded, and a faulty file is an error that names it. */
#ifndef CDDPI_DATA_IMAGES_DECODE_H
#define CDDPI_DATA_IMAGES_DECODE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/* A larger file or image is refused. */
enum {
    CDDPI_IMAGE_MOST_SIDE = 65500,
    CDDPI_IMAGE_MOST_PIXELS = 1 << 26,
    CDDPI_IMAGE_MOST_FILE_BYTES = 1 << 28
};

/* Memory that is reused from image to image and only grows. One thread at a time. Zeroed: no memory
 * yet. */
struct cddpi_image_memory {
    void *data;
    size_t bytes;
};

/** Make sure that @p memory has at least @p bytes, aligned to 64. Its old contents are lost. NULL:
 *  no memory. */
void *cddpi_image_memory_reserve(struct cddpi_image_memory *memory, size_t bytes);
void cddpi_image_memory_free(struct cddpi_image_memory *memory);

/* An image: rows of @p width pixels, each red, green, blue. The pixels are in the memory given to
 * the decoder. */
struct cddpi_image {
    const uint8_t *pixels;
    int width, height;
};

/** Decode the contents of a file; its first bytes tell the format. Greyscale becomes three equal
 *  channels, transparency is dropped, 16-bit channels keep their upper 8 bits, CMYK is converted as
 *  Pillow does it, and an Exif orientation is ignored. Any thread.
 *  @param path    For error texts, which begin with it.
 *  @param memory  Receives the pixels.
 *  @return CDDP_OK; CDDP_ERR_FORMAT: damaged, truncated, too large, or neither JPEG nor PNG;
 *          CDDP_ERR_UNAVAILABLE: the build lacks the library; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_image_decode(const char *path, const uint8_t *data, size_t bytes,
                                            struct cddpi_image_memory *memory,
                                            struct cddpi_image *out);

/* Decoders of the two formats. The caller has checked the format's first bytes. */
CDDP_CHECKED cddp_status cddpi_image_decode_jpeg(const char *path, const uint8_t *data,
                                                 size_t bytes, struct cddpi_image_memory *memory,
                                                 struct cddpi_image *out);
CDDP_CHECKED cddp_status cddpi_image_decode_png(const char *path, const uint8_t *data, size_t bytes,
                                                struct cddpi_image_memory *memory,
                                                struct cddpi_image *out);

/** CDDP_OK, or CDDP_ERR_UNAVAILABLE: this build cannot decode JPEG (PNG). */
CDDP_CHECKED cddp_status cddpi_image_jpeg_available(const char *path);
CDDP_CHECKED cddp_status cddpi_image_png_available(const char *path);

/** Check the size that the header of file @p path states, before memory is allocated for it. */
CDDP_CHECKED cddp_status cddpi_image_check_size(const char *path, uint64_t width, uint64_t height);

#endif
