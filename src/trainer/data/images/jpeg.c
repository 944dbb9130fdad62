/* jpeg.c - owns the decoding of JPEG files with libjpeg-turbo. The library reports an error by a
 * longjmp() out of its functions; no function that it jumps over has anything to clean up. */
#include "data/images/image_decode.h"

#include "base/error.h"

#include <cddp_config.h>

#if CDDP_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* The library's headers do not include what they need. */
#include <jpeglib.h>

#include <jerror.h>

enum {
    MOST_SCANS =
        500, /* of a progressive file; each scan passes over the whole image, so a large image */
    LEAST_SCANS = 32, /* may have fewer, but as many as any encoder writes */
    MOST_LIBRARY_BYTES = 1 << 30,
    CMYK = 4
};

struct jpeg_decoder {
    struct jpeg_decompress_struct library; /* first member: the library passes a pointer to it */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const char *path;
    struct cddpi_image_memory *memory;
    cddp_status status;
    uint8_t *pixels;
};

static struct jpeg_decoder *decoder_of(j_common_ptr library)
{
    return (struct jpeg_decoder *)(void *)library;
}

/* Jump back with the decoder's status, whose error text is set. */
static _Noreturn void give_up(struct jpeg_decoder *decoder)
{
    longjmp(decoder->failed, 1);
}

static void on_error(j_common_ptr library)
{
    struct jpeg_decoder *decoder = decoder_of(library);
    char text[JMSG_LENGTH_MAX];

    library->err->format_message(library, text);
    decoder->status = cddpi_fail(library->err->msg_code == JERR_OUT_OF_MEMORY ? CDDP_ERR_NO_MEMORY
                                                                              : CDDP_ERR_FORMAT,
                                 "%s: the JPEG file is damaged: %s", decoder->path, text);
    give_up(decoder);
}

/* A warning means that the library invented pixels. The exceptions are these three warnings, which
 * cameras and editors cause. */
static void on_message(j_common_ptr library, int level)
{
    int code = library->err->msg_code;

    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
        code != JWRN_JFIF_MAJOR) {
        on_error(library);
    }
}

static void on_output(j_common_ptr library)
{
    (void)library; /* the library prints nothing */
}

static void nothing(j_decompress_ptr library)
{
    (void)library;
}

/* Nothing to read: the whole file is in memory from the beginning. */
static boolean on_end(j_decompress_ptr library)
{
    struct jpeg_decoder *decoder = decoder_of((j_common_ptr)library);

    decoder->status = cddpi_fail(CDDP_ERR_FORMAT, "%s: the JPEG file is cut off", decoder->path);
    give_up(decoder);
}

static void skip(j_decompress_ptr library, long bytes)
{
    if (bytes > 0 && (size_t)bytes > library->src->bytes_in_buffer) {
        (void)on_end(library);
    }
    if (bytes > 0) {
        library->src->next_input_byte += bytes;
        library->src->bytes_in_buffer -= (size_t)bytes;
    }
}

/* The limit of scans: all of them together take about a second, and no small image is refused. */
static int most_scans(const struct jpeg_decompress_struct *library)
{
    static const uint64_t work = (uint64_t)1 << 31; /* pixels x scans */
    uint64_t pixels = (uint64_t)library->image_width * library->image_height;
    uint64_t most = pixels > 0 ? work / pixels : MOST_SCANS;

    return most > MOST_SCANS ? MOST_SCANS : most < LEAST_SCANS ? LEAST_SCANS : (int)most;
}

static void on_progress(j_common_ptr library)
{
    struct jpeg_decoder *decoder = decoder_of(library);
    int most = most_scans(&decoder->library);

    if (decoder->library.input_scan_number > most) {
        decoder->status = cddpi_fail(CDDP_ERR_FORMAT,
                                     "%s: the JPEG file has more than %d scans of %u x %u pixels: "
                                     "no camera makes such files",
                                     decoder->path, most, decoder->library.image_width,
                                     decoder->library.image_height);
        give_up(decoder);
    }
}

static void open_decoder(struct jpeg_decoder *decoder, const uint8_t *data, size_t bytes)
{
    struct jpeg_decompress_struct *library = &decoder->library;

    library->err = jpeg_std_error(&decoder->errors);
    decoder->errors.error_exit = on_error;
    decoder->errors.emit_message = on_message;
    decoder->errors.output_message = on_output;
    jpeg_create_decompress(library);
    library->mem->max_memory_to_use = MOST_LIBRARY_BYTES;
    decoder->progress.progress_monitor = on_progress;
    library->progress = &decoder->progress;
    decoder->source = (struct jpeg_source_mgr){.next_input_byte = data,
                                               .bytes_in_buffer = bytes,
                                               .init_source = nothing,
                                               .fill_input_buffer = on_end,
                                               .skip_input_data = skip,
                                               .resync_to_restart = jpeg_resync_to_restart,
                                               .term_source = nothing};
    library->src = &decoder->source;
}

/* Inks are stored inverted: a value is the part of the paper's white that remains, and K the part
 * that remains after black. */
static void convert_cmyk(const uint8_t *in, size_t width, uint8_t *out)
{
    for (size_t x = 0; x < width; x++, in += CMYK, out += 3) {
        for (int c = 0; c < 3; c++) {
            unsigned ink = (255u - in[c]) * in[3] + 128;

            out[c] = (uint8_t)(in[3] - ((ink + (ink >> 8)) >> 8));
        }
    }
}

static void read_rows(struct jpeg_decoder *decoder, uint8_t *pixels, uint8_t *cmyk)
{
    struct jpeg_decompress_struct *library = &decoder->library;
    size_t width = library->output_width;

    while (library->output_scanline < library->output_height) {
        uint8_t *out = pixels + (size_t)library->output_scanline * width * 3;
        JSAMPROW row = cmyk != NULL ? cmyk : out;

        if (jpeg_read_scanlines(library, &row, 1) == 1 && cmyk != NULL) {
            convert_cmyk(cmyk, width, out);
        }
    }
}

static void decode(struct jpeg_decoder *decoder)
{
    struct jpeg_decompress_struct *library = &decoder->library;
    size_t pixels, row_bytes;

    (void)jpeg_read_header(library, TRUE);
    decoder->status = cddpi_image_check_size(decoder->path, library->image_width,
                                             library->image_height);
    if (decoder->status != CDDP_OK) {
        give_up(decoder);
    }
    library->out_color_space = library->num_components == CMYK ? JCS_CMYK : JCS_RGB;
    library->dct_method = JDCT_ISLOW;
    pixels = (size_t)library->image_width * library->image_height * 3;
    row_bytes = library->num_components == CMYK ? (size_t)library->image_width * CMYK : 0;
    decoder->pixels = cddpi_image_memory_reserve(decoder->memory, pixels + row_bytes);
    if (decoder->pixels == NULL) {
        decoder->status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes of pixels",
                                     decoder->path, pixels + row_bytes);
        give_up(decoder);
    }
    (void)jpeg_start_decompress(library);
    read_rows(decoder, decoder->pixels, row_bytes > 0 ? decoder->pixels + pixels : NULL);
}

/* A separate function, so that longjmp() does not lose local variables of the caller. */
static void run(struct jpeg_decoder *decoder, const uint8_t *data, size_t bytes)
{
    if (setjmp(decoder->failed) == 0) {
        open_decoder(decoder, data, bytes);
        decode(decoder);
    }
}

cddp_status cddpi_image_decode_jpeg(const char *path, const uint8_t *data, size_t bytes,
                                    struct cddpi_image_memory *memory, struct cddpi_image *out)
{
    struct jpeg_decoder decoder;

    memset(&decoder, 0, sizeof decoder);
    decoder.path = path;
    decoder.memory = memory;
    run(&decoder, data, bytes);
    if (decoder.status == CDDP_OK) {
        *out = (struct cddpi_image){.pixels = decoder.pixels,
                                    .width = (int)decoder.library.output_width,
                                    .height = (int)decoder.library.output_height};
    }
    jpeg_destroy_decompress(&decoder.library); /* accepts one that was not created */
    return decoder.status;
}

#endif
