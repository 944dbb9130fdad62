/* images.h - folders of small image files, written without a library, and the vectors of
 * scripts/make_image_vectors.py. */
#ifndef CDDP_TESTS_SUPPORT_IMAGES_H
#define CDDP_TESTS_SUPPORT_IMAGES_H

#include "support/test.h"

#include <stdbool.h>

/* Skip the test if this build cannot decode PNG (or JPEG) files. */
void need_png(void);
void need_jpeg(void);

/* Write a PNG file of @p width x @p height pixels of three bytes at @p path. */
void write_png(const char *path, int width, int height, const uint8_t *pixels);

/* Create @p root with @p classes folders "c0", "c1" ... of @p per_class images each. An image is @p
 * side x @p side pixels, in a colour that identifies its class, with noise that depends on @p
 * seed. */
void make_image_folder(const char *root, int classes, int per_class, int side, unsigned seed);

/* One line of the vector file: its words and its bytes. */
struct image_vector {
    char kind[16], name[32];
    int numbers[8]; /* the numbers before the bytes */
    int number_count;
    uint8_t *file, *pixels; /* file: NULL except for kind "file" */
    size_t file_bytes, pixel_bytes;
};

/* Call @p use with each vector of @p kind. Returns their number. */
int each_image_vector(const char *kind, void (*use)(const struct image_vector *vector));

/* The contents of the vector file @p name; release with free(). */
uint8_t *image_vector_file(const char *name, size_t *out_bytes);

#endif
