/* sheet_png.c - writes PNG files: a header, the pixels deflated as one chunk, and an end. */
#include "train/engines/gan/sheet_png.h"

#include "base/alloc.h"
#include "base/error.h"

#include <libdeflate.h>
#include <string.h>

enum { SIGNATURE_BYTES = 8, HEADER_BYTES = 13, GREY = 0, COLOURS = 2, LEVEL = 6 };

static void store_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* Put a chunk; @p data begins with the four letters of its type. */
static cddp_status put_chunk(struct cddpi_writer *writer, const uint8_t *data, size_t bytes)
{
    uint8_t number[4];

    store_u32(number, (uint32_t)(bytes - 4));
    CDDPI_TRY(cddpi_writer_put(writer, number, sizeof number));
    CDDPI_TRY(cddpi_writer_put(writer, data, bytes));
    store_u32(number, libdeflate_crc32(0, data, bytes));
    return cddpi_writer_put(writer, number, sizeof number);
}

static cddp_status put_header(struct cddpi_writer *writer, size_t width, size_t height,
                              size_t channels)
{
    static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t header[4 + HEADER_BYTES] = {'I', 'H', 'D', 'R'};

    store_u32(header + 4, (uint32_t)width);
    store_u32(header + 8, (uint32_t)height);
    header[12] = 8; /* bits of a channel */
    header[13] = channels == 3 ? COLOURS : GREY;
    CDDPI_TRY(cddpi_writer_put(writer, signature, sizeof signature));
    return put_chunk(writer, header, sizeof header);
}

cddp_status cddpi_sheet_put_png(struct cddpi_writer *writer, const uint8_t *pixels, size_t width,
                                size_t height, size_t channels)
{
    static const uint8_t end[] = {'I', 'E', 'N', 'D'};
    size_t row = width * channels;
    size_t bytes = height * (row + 1); /* a row begins with the number of its filter: 0, none */
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(LEVEL);
    uint8_t *rows = cddpi_zalloc(bytes);
    uint8_t *chunk = NULL;
    size_t room = 0;
    cddp_status status;

    if (compressor != NULL) {
        room = libdeflate_zlib_compress_bound(compressor, bytes);
        chunk = cddpi_zalloc(4 + room);
    }
    if (rows == NULL || chunk == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to pack %zu bytes of images", bytes);
        goto out;
    }
    for (size_t y = 0; y < height; y++) {
        memcpy(rows + y * (row + 1) + 1, pixels + y * row, row);
    }
    memcpy(chunk, "IDAT", 4);
    CDDPI_TRY_GOTO(out, status, put_header(writer, width, height, channels));
    CDDPI_TRY_GOTO(
        out, status,
        put_chunk(writer, chunk,
                  4 + libdeflate_zlib_compress(compressor, rows, bytes, chunk + 4, room)));
    status = put_chunk(writer, end, sizeof end);

out:
    libdeflate_free_compressor(compressor);
    cddpi_free(chunk);
    cddpi_free(rows);
    return status;
}
