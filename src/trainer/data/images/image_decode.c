/* image_decode.c - owns what both image formats share: recognising the format, bounding the size,
 * and the memory of the pixels. */
#include "data/images/image_decode.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/foreign.h"

#include <cddp_config.h>

#include <string.h>

void *cddpi_image_memory_reserve(struct cddpi_image_memory *memory, size_t bytes)
{
    if (memory->bytes < bytes) {
        cddpi_free(memory->data);
        memory->data = cddpi_alloc_aligned(bytes);
        memory->bytes = memory->data != NULL ? bytes : 0;
    }
    return memory->data;
}

void cddpi_image_memory_free(struct cddpi_image_memory *memory)
{
    cddpi_free(memory->data);
    *memory = (struct cddpi_image_memory){NULL, 0};
}

cddp_status cddpi_image_check_size(const char *path, uint64_t width, uint64_t height)
{
    if (width == 0 || height == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: the image is empty: %llu x %llu pixels", path,
                          (unsigned long long)width, (unsigned long long)height);
    }
    if (width > CDDPI_IMAGE_MOST_SIDE || height > CDDPI_IMAGE_MOST_SIDE ||
        width * height > CDDPI_IMAGE_MOST_PIXELS) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the image has %llu x %llu pixels, but at most %d in all and %d a "
                          "side are read",
                          path, (unsigned long long)width, (unsigned long long)height,
                          CDDPI_IMAGE_MOST_PIXELS, CDDPI_IMAGE_MOST_SIDE);
    }
    return CDDP_OK;
}

cddp_status cddpi_image_jpeg_available(const char *path)
{
    return CDDP_HAVE_JPEG
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "%s: JPEG files cannot be read, since cddp was built without libjpeg: "
                            "install its headers (Debian's libjpeg62-turbo-dev) and build again",
                            path);
}

cddp_status cddpi_image_png_available(const char *path)
{
    return CDDP_HAVE_PNG
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "%s: PNG files cannot be read, since cddp was built without libpng: "
                            "install its headers (Debian's libpng-dev) and build again",
                            path);
}

cddp_status cddpi_image_decode(const char *path, const uint8_t *data, size_t bytes,
                               struct cddpi_image_memory *memory, struct cddpi_image *out)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    uint8_t head[4] = {0};

    (void)memory; /* a build without both libraries uses neither */
    (void)out;
    if (bytes >= sizeof jpeg && memcmp(data, jpeg, sizeof jpeg) == 0) {
        CDDPI_TRY(cddpi_image_jpeg_available(path));
#if CDDP_HAVE_JPEG
        return cddpi_image_decode_jpeg(path, data, bytes, memory, out);
#endif
    }
    if (bytes >= sizeof png && memcmp(data, png, sizeof png) == 0) {
        CDDPI_TRY(cddpi_image_png_available(path));
#if CDDP_HAVE_PNG
        return cddpi_image_decode_png(path, data, bytes, memory, out);
#endif
    }
    if (bytes == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: the file is empty", path);
    }
    memcpy(head, data, bytes < sizeof head ? bytes : sizeof head);
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "%s: neither a JPEG nor a PNG file: it has %zu bytes and begins with %02x "
                      "%02x %02x %02x%s",
                      path, bytes, head[0], head[1], head[2], head[3],
                      cddpi_foreign_words(data, bytes, words));
}
