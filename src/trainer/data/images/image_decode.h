/* image_decode.h - JPEG and PNG files to pixels of three channels with 8 bits each. Files come from
 * strangers: what they say is bounded, and what is wrong with one is an error that names it. */
#ifndef CDDPI_DATA_IMAGES_DECODE_H
#define CDDPI_DATA_IMAGES_DECODE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/* A file with more than that is refused. */
enum {
    CDDPI_IMAGE_MOST_SIDE = 65500,
    CDDPI_IMAGE_MOST_PIXELS = 1 << 26,
    CDDPI_IMAGE_MOST_FILE_BYTES = 1 << 28
};

/* Memory that is used again for image after image: it only grows. One thread at a time. Zeroed:
 * there is none yet. */
struct cddpi_image_memory {
    void *data;
    size_t bytes;
};

/** At least @p bytes in @p memory, aligned to 64; what was there is lost. NULL: there is none. */
void *cddpi_image_memory_reserve(struct cddpi_image_memory *memory, size_t bytes);
void cddpi_image_memory_free(struct cddpi_image_memory *memory);

/* An image: rows of @p width pixels, red, green and blue of each; in the memory it was given. */
struct cddpi_image {
    const uint8_t *pixels;
    int width, height;
};

/** Decode the contents of a file, told apart by how they begin. Greyscale becomes three equal
 * channels, transparency is dropped, 16 bits are cut to their upper 8, CMYK is converted as Pillow
 * does it, an orientation in Exif data is not applied.
 *  @param path    For texts of failures.
 *  @param memory  Where the pixels will lie.
 *  @return CDDP_OK; CDDP_ERR_FORMAT: damaged, cut off, too large, or neither JPEG nor PNG;
 *          CDDP_ERR_UNAVAILABLE: the build lacks the library; CDDP_ERR_NO_MEMORY. Texts begin with
 *          the path. Any thread. */
CDDP_CHECKED cddp_status cddpi_image_decode(const char *path, const uint8_t *data, size_t bytes,
                                            struct cddpi_image_memory *memory,
                                            struct cddpi_image *out);

/* The two formats, whose contents begin as they should. */
CDDP_CHECKED cddp_status cddpi_image_decode_jpeg(const char *path, const uint8_t *data,
                                                 size_t bytes, struct cddpi_image_memory *memory,
                                                 struct cddpi_image *out);
CDDP_CHECKED cddp_status cddpi_image_decode_png(const char *path, const uint8_t *data, size_t bytes,
                                                struct cddpi_image_memory *memory,
                                                struct cddpi_image *out);

/** CDDP_OK, or CDDP_ERR_UNAVAILABLE: this build cannot decode JPEG (PNG). */
CDDP_CHECKED cddp_status cddpi_image_jpeg_available(const char *path);
CDDP_CHECKED cddp_status cddpi_image_png_available(const char *path);

/** Check a size that the file @p path says it has, before memory is taken for it. */
CDDP_CHECKED cddp_status cddpi_image_check_size(const char *path, uint64_t width, uint64_t height);

#endif
