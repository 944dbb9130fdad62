/* png.c - owns the decoding of PNG files with libpng. The library reports an error by a longjmp()
 * out of its functions; no function that it jumps over has anything to clean up. */
#include "data/images/image_decode.h"

#include "base/error.h"

#include <cddp_config.h>

#if CDDP_HAVE_PNG

#include <png.h>
#include <setjmp.h>
#include <string.h>

enum {
    MOST_CHUNK_BYTES = 1 << 24, /* of chunks other than the image: profiles, texts */
    MOST_KEPT_CHUNKS = 128
};

struct png_decoder {
    png_structp library;
    png_infop info;
    jmp_buf failed;
    const char *path;
    const uint8_t *data; /* the unread rest of the file */
    size_t bytes;
    struct cddpi_image_memory *memory;
    cddp_status status;
    struct cddpi_image image;
};

static _Noreturn void give_up(struct png_decoder *decoder)
{
    longjmp(decoder->failed, 1);
}

static void on_error(png_structp library, png_const_charp text)
{
    struct png_decoder *decoder = png_get_error_ptr(library);

    decoder->status = cddpi_fail(CDDP_ERR_FORMAT, "%s: the PNG file is damaged: %s", decoder->path,
                                 text);
    give_up(decoder);
}

static void on_warning(png_structp library, png_const_charp text)
{
    (void)library; /* warnings are about other chunks: profiles, texts, times */
    (void)text;
}

static void on_read(png_structp library, png_bytep out, size_t bytes)
{
    struct png_decoder *decoder = png_get_io_ptr(library);

    if (bytes > decoder->bytes) {
        decoder->status = cddpi_fail(CDDP_ERR_FORMAT, "%s: the PNG file is cut off", decoder->path);
        give_up(decoder);
    }
    memcpy(out, decoder->data, bytes);
    decoder->data += bytes;
    decoder->bytes -= bytes;
}

static void open_decoder(struct png_decoder *decoder)
{
    decoder->library = png_create_read_struct(PNG_LIBPNG_VER_STRING, decoder, on_error, on_warning);
    if (decoder->library != NULL) {
        decoder->info = png_create_info_struct(decoder->library);
    }
    if (decoder->info == NULL) {
        decoder->status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to decode it",
                                     decoder->path);
        give_up(decoder);
    }
    png_set_read_fn(decoder->library, decoder, on_read);
    png_set_user_limits(decoder->library, CDDPI_IMAGE_MOST_SIDE, CDDPI_IMAGE_MOST_SIDE);
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    /* Profiles, texts and the like are skipped without inflating them: a file may have any number
     * of them, and they do not change a pixel. */
    png_set_keep_unknown_chunks(decoder->library, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
#endif
    png_set_chunk_malloc_max(decoder->library, MOST_CHUNK_BYTES);
    png_set_chunk_cache_max(decoder->library, MOST_KEPT_CHUNKS);
}

/* Convert any format to 8-bit red, green and blue. Returns the number of passes over the rows. */
static int convert(struct png_decoder *decoder)
{
    png_structp library = decoder->library;
    int passes;

    png_set_expand(library);
    png_set_strip_16(library);
    png_set_strip_alpha(library);
    png_set_gray_to_rgb(library);
    passes = png_set_interlace_handling(library);
    png_read_update_info(library, decoder->info);
    return passes;
}

static void decode(struct png_decoder *decoder)
{
    png_structp library = decoder->library;
    uint32_t width, height;
    size_t row_bytes;
    uint8_t *pixels;

    png_read_info(library, decoder->info);
    width = png_get_image_width(library, decoder->info);
    height = png_get_image_height(library, decoder->info);
    decoder->status = cddpi_image_check_size(decoder->path, width, height);
    if (decoder->status != CDDP_OK) {
        give_up(decoder);
    }
    row_bytes = (size_t)width * 3;
    pixels = cddpi_image_memory_reserve(decoder->memory, row_bytes * height);
    if (pixels == NULL) {
        decoder->status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes of pixels",
                                     decoder->path, row_bytes * height);
        give_up(decoder);
    }
    for (int passes = convert(decoder); passes > 0; passes--) {
        if (png_get_rowbytes(library, decoder->info) != row_bytes) {
            png_error(library, "its rows have another length than its header says");
        }
        for (uint32_t y = 0; y < height; y++) {
            png_read_row(library, pixels + y * row_bytes, NULL);
        }
    }
    png_read_end(library, NULL);
    decoder->image = (struct cddpi_image){pixels, (int)width, (int)height};
}

/* A separate function, so that longjmp() does not lose local variables of the caller. */
static void run(struct png_decoder *decoder)
{
    if (setjmp(decoder->failed) == 0) {
        open_decoder(decoder);
        decode(decoder);
    }
}

cddp_status cddpi_image_decode_png(const char *path, const uint8_t *data, size_t bytes,
                                   struct cddpi_image_memory *memory, struct cddpi_image *out)
{
    struct png_decoder decoder;

    memset(&decoder, 0, sizeof decoder);
    decoder.path = path;
    decoder.data = data;
    decoder.bytes = bytes;
    decoder.memory = memory;
    run(&decoder);
    if (decoder.status == CDDP_OK) {
        *out = decoder.image;
    }
    png_destroy_read_struct(&decoder.library, &decoder.info, NULL);
    return decoder.status;
}

#endif
