/* fuzz_image.c - an image file, decoded and resized. The first three bytes select the part: the
 * seed of a random part, and the size of the sample. */
#include "data/images/image_decode.h"
#include "data/images/sample.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 3, MOST_SIZE = 32, MOST_PIXELS = 1 << 20 };

static void use(const struct cddpi_image *image, const struct cddpi_image_view *view)
{
    size_t bytes = (size_t)view->window_width * (size_t)view->window_height * CDDPI_IMAGE_RGB;
    void *room = malloc(cddpi_image_resize_bytes(view));
    uint8_t *out = malloc(bytes);

    fuzz_check(room != NULL && out != NULL, "no memory");
    fuzz_check(view->left >= 0 && view->top >= 0 && view->width > 0 && view->height > 0 &&
                   view->left + view->width <= image->width &&
                   view->top + view->height <= image->height,
               "a part is no part of the image");
    cddpi_image_resize(image->pixels, image->width, view, room, out);
    fuzz_touch(out, bytes);
    free(room);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const double area[2] = {0.08, 1};
    static struct cddpi_image_memory memory; /* as a loader's thread, for image after image */
    struct cddpi_image image;
    struct cddpi_image_view view;
    uint8_t *file;
    bool flip;
    int side;

    if (size < HEAD_BYTES) {
        return 0;
    }
    side = 1 + data[1] % MOST_SIZE;
    file = malloc(size > HEAD_BYTES ? size - HEAD_BYTES
                                    : 1); /* so that a sanitizer knows its end */
    fuzz_check(file != NULL, "no memory");
    memcpy(file, data + HEAD_BYTES, size - HEAD_BYTES);
    if (cddpi_image_decode("input", file, size - HEAD_BYTES, &memory, &image) == CDDP_OK) {
        fuzz_check(image.width > 0 && image.height > 0, "an empty image");
        if ((size_t)image.width * (size_t)image.height <= MOST_PIXELS) {
            fuzz_touch(image.pixels, (size_t)image.width * (size_t)image.height * CDDPI_IMAGE_RGB);
            view = cddpi_view_at_random((struct cddpi_view_key){data[0], 0, data[2]}, image.width,
                                        image.height, side, area, &flip);
            use(&image, &view);
            view = cddpi_view_of_center(image.width, image.height, side + data[2] % 8, side);
            use(&image, &view);
        }
    } else {
        fuzz_check(strncmp(cddp_last_error(), "input: ", 7) == 0, "a failure names no file");
    }
    free(file);
    return 0;
}
