/* sample.h - makes one sample from an image file: read, decode, choose a part, resize. */
#ifndef CDDPI_DATA_IMAGES_SAMPLE_H
#define CDDPI_DATA_IMAGES_SAMPLE_H

#include "data/dataset.h"
#include "data/images/image_decode.h"
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

/** Read the whole file @p path, of at most CDDPI_IMAGE_MOST_FILE_BYTES. Any thread.
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT (too large),
 *          CDDP_ERR_NO_MEMORY. Error texts begin with the file. */
CDDP_CHECKED cddp_status cddpi_image_read_file(const char *path, struct cddpi_image_memory *memory,
                                               size_t *out_bytes);

/** Resize @p image, of the file @p path, and copy the window of @p view to scratch->window.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_image_cut(const char *path, const struct cddpi_image *image,
                                         const struct cddpi_image_view *view,
                                         struct cddpi_image_scratch *scratch);

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
