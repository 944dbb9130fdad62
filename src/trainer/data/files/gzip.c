/* gzip.c - owns the inflation of gzip'd data files with libdeflate's raw decoder. This file parses
 * the gzip headers itself, so that an error text can say where the fault is and what was
 * expected. */
#include "data/files/data_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory_left.h"

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

enum { MOST_PER_BYTE = 1032 }; /* deflate's limit: two bits can stand for 258 bytes */

/* The inflater writes a stored block, of up to 65535 bytes, either whole or not at all. This much
 * room is always enough for the head of the contents. */
enum { HEAD_ROOM = 1 << 17 };

/* How large the contents may be, and which rule says so. */
struct limit {
    uint64_t bytes;
    enum { OF_FORMAT, OF_CONTENTS, OF_MEMORY } kind;
    struct cddpi_memory_left left; /* for OF_MEMORY */
};

/* The file being read. */
struct input {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    size_t at; /* everything before it is processed */
};

static uint32_t read_u32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes)
{
    return in_bytes >= 2 && in[0] == 0x1f && in[1] == 0x8b;
}

/* Move @p at past a text and its NUL. Returns false if the file ends first. */
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

/* Advance the input to the member's compressed data. */
static cddp_status read_header(struct input *input)
{
    const uint8_t *header = input->data + input->at;
    size_t left = input->bytes - input->at;
    size_t at = input->at + HEADER_BYTES;

    if (!cddpi_is_gzip(header, left)) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: the gzip data end at byte %zu, but %zu bytes follow that are not gzip",
            input->path, input->at, left);
    }
    if (left >= HEADER_BYTES && (header[2] != 8 || header[3] & FLAGS_RESERVED)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the gzip header at byte %zu has method %d and flags %#x, but only "
                          "method 8 and flags below 0x20 exist",
                          input->path, input->at, header[2], header[3]);
    }
    if (left < HEADER_BYTES || !skip_options(input, header[3], &at)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: truncated: the file ends at byte %zu, inside the gzip header that "
                          "begins at byte %zu",
                          input->path, input->bytes, input->at);
    }
    input->at = at;
    return CDDP_OK;
}

/* The last four bytes of a gzip file are the length of its last member modulo 2^32. That is right
 * for almost all files, but it cannot be trusted. */
static size_t first_guess(const struct input *input, const struct limit *limit)
{
    uint64_t said = input->bytes >= 4 ? read_u32(input->data + input->bytes - 4) : 0;

    if (said < input->bytes || said > limit->bytes) {
        said = 4 * (uint64_t)input->bytes;
    }
    return (size_t)(limit->kind != OF_CONTENTS && said < limit->bytes ? said : limit->bytes);
}

/* The size that the head of the contents states; 0: unknown. */
static uint64_t size_within(struct libdeflate_decompressor *inflater, struct input input,
                            cddpi_size_of size_of)
{
    uint8_t *head = cddpi_zalloc(HEAD_ROOM);
    size_t used = 0;
    size_t made = HEAD_ROOM;
    uint64_t size = 0;

    if (head != NULL && read_header(&input) == CDDP_OK) {
        enum libdeflate_result result = libdeflate_deflate_decompress_ex(
            inflater, input.data + input.at, input.bytes - input.at, head, HEAD_ROOM, &used, &made);

        if (result == LIBDEFLATE_SUCCESS || result == LIBDEFLATE_INSUFFICIENT_SPACE) {
            size = size_of(head, result == LIBDEFLATE_SUCCESS ? made : HEAD_ROOM);
        }
    }
    cddpi_free(head);
    return size;
}

static cddp_status find_limit(struct libdeflate_decompressor *inflater, const struct input *input,
                              cddpi_size_of size_of, struct limit *out)
{
    uint64_t size = size_of != NULL ? size_within(inflater, *input, size_of) : 0;

    out->kind = OF_FORMAT;
    out->bytes = input->bytes < MOST_BYTES / MOST_PER_BYTE ? MOST_PER_BYTE * input->bytes
                                                           : MOST_BYTES;
    if (size > 0 && size <= out->bytes) {
        out->kind = OF_CONTENTS;
        out->bytes = size;
        return cddpi_memory_need(size, "%s: inflated", input->path);
    }
    cddpi_memory_left(&out->left);
    if (out->left.bytes < out->bytes) {
        out->kind = OF_MEMORY;
        out->bytes = out->left.bytes > 0 ? out->left.bytes : 1;
    }
    return CDDP_OK;
}

static cddp_status exceeds(const struct input *input, const struct limit *limit)
{
    unsigned long long bytes = limit->bytes;

    if (limit->kind == OF_CONTENTS) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: too long: its header says that there are %llu bytes, but more follow", input->path,
            bytes);
    }
    if (limit->kind == OF_MEMORY) {
        char size[CDDPI_SIZE_TEXT];

        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "%s: inflates to more than the %s of memory that can be had (%s)",
                          input->path, cddpi_print_size(bytes, size), limit->left.limit);
    }
    return cddpi_fail(
        CDDP_ERR_FORMAT,
        "%s: the gzip file inflates to more than %llu bytes, the most that can be read",
        input->path, bytes);
}

/* Inflate one member to offset @p done of @p mapping, which grows as needed. */
static cddp_status inflate_member(struct libdeflate_decompressor *inflater, struct input *input,
                                  const struct limit *limit, size_t done,
                                  struct cddpi_growable_mapping *mapping, size_t *out_made)
{
    for (;;) {
        size_t used, made;
        enum libdeflate_result result = libdeflate_deflate_decompress_ex(
            inflater, input->data + input->at, input->bytes - input->at, mapping->data + done,
            mapping->bytes - done, &used, &made);

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
        if (mapping->bytes >= limit->bytes) {
            return exceeds(input, limit);
        }
        CDDPI_TRY(cddpi_growable_mapping_resize(
            input->path,
            (size_t)(mapping->bytes < limit->bytes / 2 ? 2 * mapping->bytes : limit->bytes),
            mapping));
    }
}

static cddp_status check_trailer(struct input *input, const uint8_t *made, size_t made_bytes)
{
    const uint8_t *trailer = input->data + input->at;
    uint32_t crc;

    if (input->bytes - input->at < TRAILER_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: truncated: the file ends at byte %zu, inside the gzip trailer that "
                          "begins at byte %zu",
                          input->path, input->bytes, input->at);
    }
    crc = libdeflate_crc32(0, made, made_bytes);
    if (crc != read_u32(trailer)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: corrupt: the gzip trailer at byte %zu gives the checksum %08x, but "
                          "the data have %08x",
                          input->path, input->at, read_u32(trailer), crc);
    }
    if ((uint32_t)made_bytes != read_u32(trailer + 4)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: corrupt: the gzip trailer at byte %zu says %u bytes (modulo 2^32), "
                          "but the data have %zu",
                          input->path, input->at, read_u32(trailer + 4), made_bytes);
    }
    input->at += TRAILER_BYTES;
    return CDDP_OK;
}

static cddp_status inflate_all(struct libdeflate_decompressor *inflater, struct input *input,
                               const struct limit *limit, struct cddpi_growable_mapping *mapping,
                               size_t *out_bytes)
{
    size_t done = 0;

    while (input->at < input->bytes) {
        size_t made = 0;

        CDDPI_TRY(read_header(input));
        CDDPI_TRY(inflate_member(inflater, input, limit, done, mapping, &made));
        CDDPI_TRY(check_trailer(input, mapping->data + done, made));
        done += made;
    }
    if (done == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: the gzip file holds no data", input->path);
    }
    *out_bytes = done;
    return CDDP_OK;
}

cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes, bool shareable,
                         cddpi_size_of size_of, struct cddpi_growable_mapping *out)
{
    struct input input = {path, in, in_bytes, 0};
    struct limit limit;
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    struct cddpi_growable_mapping mapping = {NULL, 0, -1};
    size_t bytes = 0;
    cddp_status status;

    CDDPI_TRY_MEMORY(inflater != NULL, "%s: no memory for the inflater", path);
    CDDPI_TRY_GOTO(done, status, find_limit(inflater, &input, size_of, &limit));
    CDDPI_TRY_GOTO(
        done, status,
        cddpi_growable_mapping_create(path, first_guess(&input, &limit), shareable, &mapping));
    CDDPI_TRY_GOTO(done, status, inflate_all(inflater, &input, &limit, &mapping, &bytes));
    CDDPI_TRY_GOTO(done, status, cddpi_growable_mapping_resize(path, bytes, &mapping));
    *out = mapping;
    mapping = (struct cddpi_growable_mapping){NULL, 0, -1};

done:
    libdeflate_free_decompressor(inflater);
    cddpi_growable_mapping_free(&mapping);
    return status;
}
