/* gzip.c - owns the inflation of gzip'd data files, by libdeflate's decoder of the raw stream. The
 * wrapper around it is read here, so that a failure can say where it is and what was expected. */
#include "data/gzip.h"

#include "base/error.h"

#include <libdeflate.h>
#include <string.h>

enum { HEADER_BYTES = 10, TRAILER_BYTES = 8 };
enum {
    FLAG_HEADER_CRC = 2,
    FLAG_EXTRA = 4,
    FLAG_NAME = 8,
    FLAG_COMMENT = 16,
    FLAGS_RESERVED = 224
};

#define MOST_BYTES (UINT64_C(16) << 30)

enum { MOST_PER_BYTE = 1032 }; /* the deflate format's limit: a run of 258 bytes from two bits */

/* The file being read. */
struct input {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    size_t at; /* everything before is done */
};

static uint32_t read_u32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes)
{
    return in_bytes >= 2 && in[0] == 0x1f && in[1] == 0x8b;
}

/* @at moves past the text and its zero; false when the file ends before. */
static bool skip_text(const struct input *input, size_t *at)
{
    const uint8_t *end = memchr(input->data + *at, 0, input->bytes - *at);

    if (end == NULL) {
        return false;
    }
    *at = (size_t)(end - input->data) + 1;
    return true;
}

static bool skip_options(const struct input *input, uint8_t flags, size_t *at)
{
    if (flags & FLAG_EXTRA) {
        if (input->bytes - *at < 2) {
            return false;
        }
        *at += 2 + (size_t)(input->data[*at] | input->data[*at + 1] << 8);
        if (*at > input->bytes) {
            return false;
        }
    }
    if ((flags & FLAG_NAME && !skip_text(input, at)) ||
        (flags & FLAG_COMMENT && !skip_text(input, at))) {
        return false;
    }
    if (flags & FLAG_HEADER_CRC) {
        *at += 2;
    }
    return *at <= input->bytes;
}

/* Moves the input to the member's compressed data. */
static cddp_status read_header(struct input *input)
{
    const uint8_t *header = input->data + input->at;
    size_t left = input->bytes - input->at;
    size_t at = input->at + HEADER_BYTES;

    if (!cddpi_is_gzip(header, left)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: %zu bytes that are not gzip follow its end at byte %zu", input->path,
                          left, input->at);
    }
    if (left >= HEADER_BYTES && (header[2] != 8 || header[3] & FLAGS_RESERVED)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: gzip header at byte %zu: method %d and flags %#x, expected method 8 "
                          "and flags below 0x20",
                          input->path, input->at, header[2], header[3]);
    }
    if (left < HEADER_BYTES || !skip_options(input, header[3], &at)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: truncated: ends at byte %zu, inside the gzip header at byte %zu",
                          input->path, input->bytes, input->at);
    }
    input->at = at;
    return CDDP_OK;
}

/* The last four bytes hold the length of the last member modulo 2^32: right for almost all files,
 * and to be distrusted all the same. */
static size_t first_guess(const struct input *input, uint64_t limit)
{
    uint64_t said = input->bytes >= 4 ? read_u32(input->data + input->bytes - 4) : 0;

    if (said < input->bytes || said > limit) {
        said = 4 * (uint64_t)input->bytes;
    }
    return (size_t)(said < limit ? said : limit);
}

/* Inflate one member's data behind @done bytes of @pages, which grow as needed. */
static cddp_status inflate_member(struct libdeflate_decompressor *inflater, struct input *input,
                                  uint64_t limit, size_t done, struct cddpi_pages *pages,
                                  size_t *out_made)
{
    for (;;) {
        size_t used, made;
        enum libdeflate_result result = libdeflate_deflate_decompress_ex(
            inflater, input->data + input->at, input->bytes - input->at, pages->data + done,
            pages->bytes - done, &used, &made);
        cddp_status status;

        if (result == LIBDEFLATE_SUCCESS) {
            input->at += used;
            *out_made = made;
            return CDDP_OK;
        }
        if (result != LIBDEFLATE_INSUFFICIENT_SPACE) {
            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: the gzip data from byte %zu on are corrupt, or cut off where the "
                "file ends at byte %zu",
                input->path, input->at, input->bytes);
        }
        if (pages->bytes >= limit) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: inflates to more than %llu bytes", input->path,
                              (unsigned long long)limit);
        }
        status = cddpi_pages_resize(
            input->path, (size_t)(pages->bytes < limit / 2 ? 2 * pages->bytes : limit), pages);
        if (status != CDDP_OK) {
            return status;
        }
    }
}

static cddp_status check_trailer(struct input *input, const uint8_t *made, size_t made_bytes)
{
    const uint8_t *trailer = input->data + input->at;
    uint32_t crc;

    if (input->bytes - input->at < TRAILER_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: truncated: ends at byte %zu, inside the gzip trailer at byte %zu",
                          input->path, input->bytes, input->at);
    }
    crc = libdeflate_crc32(0, made, made_bytes);
    if (crc != read_u32(trailer)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: corrupt: the gzip trailer at byte %zu has CRC %08x, the data %08x",
                          input->path, input->at, read_u32(trailer), crc);
    }
    if ((uint32_t)made_bytes != read_u32(trailer + 4)) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: corrupt: the gzip trailer at byte %zu says %u bytes (modulo 2^32), the "
            "data are %zu",
            input->path, input->at, read_u32(trailer + 4), made_bytes);
    }
    input->at += TRAILER_BYTES;
    return CDDP_OK;
}

static cddp_status inflate_all(struct libdeflate_decompressor *inflater, struct input *input,
                               uint64_t limit, struct cddpi_pages *pages, size_t *out_bytes)
{
    size_t done = 0;

    while (input->at < input->bytes) {
        size_t made = 0;
        cddp_status status = read_header(input);

        if (status == CDDP_OK) {
            status = inflate_member(inflater, input, limit, done, pages, &made);
        }
        if (status == CDDP_OK) {
            status = check_trailer(input, pages->data + done, made);
        }
        if (status != CDDP_OK) {
            return status;
        }
        done += made;
    }
    if (done == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: inflates to nothing", input->path);
    }
    *out_bytes = done;
    return CDDP_OK;
}

cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes, bool shareable,
                         struct cddpi_pages *out)
{
    struct input input = {path, in, in_bytes, 0};
    uint64_t limit = in_bytes < MOST_BYTES / MOST_PER_BYTE ? MOST_PER_BYTE * in_bytes : MOST_BYTES;
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    struct cddpi_pages pages = {NULL, 0, -1};
    size_t bytes = 0;
    cddp_status status;

    if (inflater == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the inflater", path);
    }
    status = cddpi_pages_create(path, first_guess(&input, limit), shareable, &pages);
    if (status == CDDP_OK) {
        status = inflate_all(inflater, &input, limit, &pages, &bytes);
    }
    if (status == CDDP_OK) {
        status = cddpi_pages_resize(path, bytes, &pages);
    }
    libdeflate_free_decompressor(inflater);
    if (status != CDDP_OK) {
        cddpi_pages_free(&pages);
        return status;
    }
    *out = pages;
    return CDDP_OK;
}
