/* npz.c - owns the zip archives that numpy.savez() writes: finds a member by the archive's central
 * directory, in which its sizes are, and inflates it if it is compressed. */
#include "base/error.h"
#include "base/memory_left.h"
#include "data/formats/npy.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <string.h>

enum { END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };
enum { MOST_COMMENT_BYTES = 65535, STORED = 0, DEFLATED = 8, MOST_MEMBERS = 100000 };
enum { DEFLATE_MOST = 1040 }; /* bytes that one compressed byte can stand for, and some more */

struct npz_entry {
    const uint8_t *name;
    size_t name_bytes;
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, bytes, local; /* `local`: where the member's own header is */
};

static uint64_t read_le(const uint8_t *from, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

bool cddpi_is_npz(const uint8_t *data, size_t bytes)
{
    return bytes >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "PK\5\6", 4) == 0);
}

/* Where the archive's directory is. */
struct npz_directory {
    uint64_t first, bytes, count;
};

/* A large archive has a second, wider end record before the locator that precedes the first. */
static cddp_status read_end64(const struct cddpi_data_file *archive, size_t end,
                              struct npz_directory *out)
{
    uint64_t at;

    if (end < LOCATOR_BYTES || memcmp(archive->data + end - LOCATOR_BYTES, "PK\6\7", 4) != 0) {
        return CDDP_OK;
    }
    at = read_le(archive->data + end - LOCATOR_BYTES + 8, 8);
    if (at > end || end - at < END64_BYTES || memcmp(archive->data + at, "PK\6\6", 4) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte %zu: the archive's end says that its directory is described at "
                          "byte %" PRIu64 ", where it is not",
                          end - LOCATOR_BYTES, at);
    }
    out->count = read_le(archive->data + at + 32, 8);
    out->bytes = read_le(archive->data + at + 40, 8);
    out->first = read_le(archive->data + at + 48, 8);
    return CDDP_OK;
}

static cddp_status find_directory(const struct cddpi_data_file *archive, struct npz_directory *out)
{
    size_t end = archive->bytes;
    size_t stop;

    if (archive->bytes < END_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT, "truncated: the archive has only %zu bytes",
                          archive->bytes);
    }
    end -= END_BYTES;
    stop = end > MOST_COMMENT_BYTES ? end - MOST_COMMENT_BYTES : 0;
    while (memcmp(archive->data + end, "PK\5\6", 4) != 0) {
        if (end == stop) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "truncated: the %zu bytes of the archive do not end with its "
                              "directory",
                              archive->bytes);
        }
        end--;
    }
    out->count = read_le(archive->data + end + 10, 2);
    out->bytes = read_le(archive->data + end + 12, 4);
    out->first = read_le(archive->data + end + 16, 4);
    CDDPI_TRY(read_end64(archive, end, out));
    if (out->first > end || out->bytes > end - out->first || out->count > MOST_MEMBERS) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte %zu: the archive's end says that %" PRIu64 " members are listed in "
                          "%" PRIu64 " bytes from byte %" PRIu64 " on, which is impossible",
                          end, out->count, out->bytes, out->first);
    }
    return CDDP_OK;
}

/* Replace sizes of 0xFFFFFFFF by those of the extra field that has them. */
static bool widen(const uint8_t *extra, size_t bytes, struct npz_entry *entry)
{
    uint64_t *values[] = {&entry->bytes, &entry->packed, &entry->local};

    while (bytes >= 4) {
        size_t length = (size_t)read_le(extra + 2, 2);
        size_t at = 4;

        if (length > bytes - 4) {
            return false;
        }
        for (size_t i = 0; read_le(extra, 2) == 1 && i < 3; i++) {
            if (*values[i] == UINT32_MAX) {
                if (at + 8 > 4 + length) {
                    return false;
                }
                *values[i] = read_le(extra + at, 8);
                at += 8;
            }
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
    return true;
}

/* Read the entry at @p *at, and move there behind it. */
static cddp_status read_entry(const struct cddpi_data_file *archive, uint64_t end, uint64_t *at,
                              struct npz_entry *out)
{
    const uint8_t *from = archive->data + *at;
    uint64_t name, extra, comment;

    if (end - *at < ENTRY_BYTES || memcmp(from, "PK\1\2", 4) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "byte %" PRIu64 ": a member should be listed here", *at);
    }
    name = read_le(from + 28, 2);
    extra = read_le(from + 30, 2);
    comment = read_le(from + 32, 2);
    if (name + extra + comment > end - *at - ENTRY_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte %" PRIu64 ": a member's name is longer than the directory", *at);
    }
    *out = (struct npz_entry){.name = from + ENTRY_BYTES,
                              .name_bytes = (size_t)name,
                              .flags = (unsigned)read_le(from + 8, 2),
                              .method = (unsigned)read_le(from + 10, 2),
                              .crc = (uint32_t)read_le(from + 16, 4),
                              .packed = read_le(from + 20, 4),
                              .bytes = read_le(from + 24, 4),
                              .local = read_le(from + 42, 4)};
    if (!widen(from + ENTRY_BYTES + name, (size_t)extra, out)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "byte %" PRIu64 ": a member's sizes are cut off", *at);
    }
    *at += ENTRY_BYTES + name + extra + comment;
    return CDDP_OK;
}

/* Append the name, cleaned, to those that the error text lists. */
static void list_name(const struct npz_entry *entry, char *names, size_t room)
{
    size_t length = strlen(names);
    size_t bytes = entry->name_bytes;

    if (bytes > 4 && memcmp(entry->name + bytes - 4, ".npy", 4) == 0) {
        bytes -= 4;
    }
    if (bytes + 3 > room - length) {
        return;
    }
    if (length > 0) {
        memcpy(names + length, ", ", 2);
        length += 2;
    }
    for (size_t i = 0; i < bytes; i++) {
        uint8_t c = entry->name[i];

        names[length++] = c < ' ' || c > '~' ? '?' : (char)c;
    }
    names[length] = '\0';
}

static cddp_status find_entry(const struct cddpi_data_file *archive, const char *name,
                              struct npz_entry *out)
{
    struct npz_directory directory = {0, 0, 0};
    size_t length = strlen(name);
    char names[160] = "";
    uint64_t at;

    CDDPI_TRY(find_directory(archive, &directory));
    at = directory.first;
    for (uint64_t i = 0; i < directory.count; i++) {
        struct npz_entry entry = {.name = NULL};

        CDDPI_TRY(read_entry(archive, directory.first + directory.bytes, &at, &entry));
        if (entry.name_bytes == length + 4 && memcmp(entry.name, name, length) == 0 &&
            memcmp(entry.name + length, ".npy", 4) == 0) {
            *out = entry;
            return CDDP_OK;
        }
        list_name(&entry, names, sizeof names);
    }
    return cddpi_fail(CDDP_ERR_FORMAT, "the archive has no array \"%s\"; its arrays are: %s", name,
                      names[0] != '\0' ? names : "none");
}

static cddp_status inflate_member(const struct npz_entry *entry, const uint8_t *packed,
                                  const char *path, struct cddpi_data_file *out)
{
    struct cddpi_growable_mapping mapping = {NULL, 0, -1};
    struct libdeflate_decompressor *decompressor;
    enum libdeflate_result result;
    cddp_status status;

    if (entry->bytes == 0 || entry->bytes / DEFLATE_MOST > entry->packed) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "the directory says that %" PRIu64 " bytes become %" PRIu64
                          ", which is impossible",
                          entry->packed, entry->bytes);
    }
    CDDPI_TRY(cddpi_memory_need(entry->bytes, "the compressed arrays of %s", path));
    CDDPI_TRY(cddpi_growable_mapping_create(path, (size_t)entry->bytes, false, &mapping));
    decompressor = libdeflate_alloc_decompressor();
    if (decompressor == NULL) {
        cddpi_growable_mapping_free(&mapping);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to inflate", path);
    }
    result = libdeflate_deflate_decompress(decompressor, packed, (size_t)entry->packed,
                                           mapping.data, mapping.bytes, NULL);
    libdeflate_free_decompressor(decompressor);
    if (result != LIBDEFLATE_SUCCESS ||
        libdeflate_crc32(0, mapping.data, mapping.bytes) != entry->crc) {
        cddpi_growable_mapping_free(&mapping);
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "the compressed bytes are damaged: they do not become the %" PRIu64
                          " bytes that were packed",
                          entry->bytes);
    }
    status = cddpi_data_file_freeze(path, &mapping, out);
    if (status != CDDP_OK) {
        cddpi_growable_mapping_free(&mapping);
    }
    return status;
}

static cddp_status open_entry(const struct cddpi_data_file *archive, const char *path,
                              const struct npz_entry *entry, struct cddpi_data_file *inflated,
                              const uint8_t **out_data, size_t *out_bytes)
{
    uint64_t at = entry->local;

    if (at > archive->bytes || archive->bytes - at < LOCAL_BYTES ||
        memcmp(archive->data + at, "PK\3\4", 4) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "byte %" PRIu64 ": the member should begin here", at);
    }
    at += LOCAL_BYTES + read_le(archive->data + at + 26, 2) + read_le(archive->data + at + 28, 2);
    if (at > archive->bytes || entry->packed > archive->bytes - at) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "truncated: the directory says that %" PRIu64
                          " bytes are at byte %" PRIu64 " of %zu",
                          entry->packed, at, archive->bytes);
    }
    if ((entry->flags & 1) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "the member is encrypted");
    }
    if (entry->method == DEFLATED) {
        CDDPI_TRY(inflate_member(entry, archive->data + at, path, inflated));
        *out_data = inflated->data;
        *out_bytes = inflated->bytes;
        return CDDP_OK;
    }
    if (entry->method != STORED || entry->packed != entry->bytes) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "the member is packed by method %u, but only members that are stored or "
                          "deflated can be read",
                          entry->method);
    }
    *out_data = archive->data + at;
    *out_bytes = (size_t)entry->bytes;
    return CDDP_OK;
}

cddp_status cddpi_npz_find(const struct cddpi_data_file *archive, const char *path,
                           const char *name, struct cddpi_data_file *inflated,
                           const uint8_t **out_data, size_t *out_bytes)
{
    struct npz_entry entry = {.name = NULL};
    cddp_status status;

    CDDPI_TRY(find_entry(archive, name, &entry));
    status = open_entry(archive, path, &entry, inflated, out_data, out_bytes);
    return status == CDDP_ERR_FORMAT ? cddpi_fail_prefix(status, "array \"%s\"", name) : status;
}

cddp_status cddpi_npz_measure(const struct cddpi_data_file *archive, const char *name,
                              uint64_t *out)
{
    struct npz_entry entry = {.name = NULL};

    CDDPI_TRY(find_entry(archive, name, &entry));
    *out = entry.method == DEFLATED && entry.bytes / DEFLATE_MOST <= entry.packed ? entry.bytes : 0;
    return CDDP_OK;
}
