/* images.h - folders of small image files, made without a library, and the vectors of
 * scripts/make_image_vectors.py. */
#ifndef CDDP_TESTS_SUPPORT_IMAGES_H
#define CDDP_TESTS_SUPPORT_IMAGES_H

#include "support/test.h"

#include <stdbool.h>

/* Skip the test where this build decodes no PNG (or no JPEG) files. */
void need_png(void);
void need_jpeg(void);

/* Write a PNG file of @p width x @p height pixels of three bytes at @p path. */
void write_png(const char *path, int width, int height, const uint8_t *pixels);

/* Write @p per_class images into each of @p classes folders "c0", "c1" ... of @p root, which is
 * made: blocks of @p side pixels, of a colour that tells the class, with noise that @p seed
 * decides. */
void make_image_folder(const char *root, int classes, int per_class, int side, unsigned seed);

/* A line of the vectors: its words, and its bytes. */
struct image_vector {
    char kind[16], name[32];
    int numbers[8]; /* those before the bytes */
    int number_count;
    uint8_t *file, *pixels; /* file: NULL but for kind "file" */
    size_t file_bytes, pixel_bytes;
};

/* Call @p use with each vector of @p kind; returns how many there were. */
int each_image_vector(const char *kind, void (*use)(const struct image_vector *vector));

/* The contents of the vector file @p name, to be released with free(). */
uint8_t *image_vector_file(const char *name, size_t *out_bytes);

#endif
