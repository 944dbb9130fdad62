/* npy.c - writes NumPy's files for tests. */
#include "support/npy.h"

#include <libdeflate.h>

size_t support_npy_text(int version, const char *text, const void *values, size_t bytes,
                        uint8_t *out)
{
    size_t head = version == 1 ? 10 : 12;
    size_t length = strlen(text);
    size_t padded = (head + length + 1 + 63) / 64 * 64 - head;

    assert_true(head + padded + bytes <= NPY_MOST);
    memset(out, ' ', head + padded);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    for (size_t i = 0; i < head - 8; i++) {
        out[8 + i] = (uint8_t)(padded >> (8 * i));
    }
    memcpy(out + head, text, length);
    out[head + padded - 1] = '\n';
    if (bytes > 0) {
        memcpy(out + head + padded, values, bytes);
    }
    return head + padded + bytes;
}

size_t support_npy(int version, const char *descr, const char *shape, const void *values,
                   size_t bytes, uint8_t *out)
{
    char text[512];

    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr,
             shape);
    return support_npy_text(version, text, values, bytes, out);
}

void support_write_npy(const char *path, const char *descr, const char *shape, const void *values,
                       size_t bytes)
{
    uint8_t *file = malloc(NPY_MOST);

    assert_non_null(file);
    support_write_file(path, file, support_npy(1, descr, shape, values, bytes, file));
    free(file);
}

/* A growing archive. */
struct zip {
    uint8_t *out;
    size_t at;
};

static void put(struct zip *zip, uint64_t value, size_t bytes)
{
    assert_true(zip->at + bytes <= NPY_MOST);
    for (size_t i = 0; i < bytes; i++) {
        zip->out[zip->at++] = i < sizeof value ? (uint8_t)(value >> (8 * i)) : 0;
    }
}

static void put_bytes(struct zip *zip, const void *data, size_t bytes)
{
    assert_true(zip->at + bytes <= NPY_MOST);
    memcpy(zip->out + zip->at, data, bytes);
    zip->at += bytes;
}

/* What a member's own header and its entry in the directory have in common. */
static void put_common(struct zip *zip, const struct npz_member *member, size_t packed, int wide,
                       size_t extra)
{
    put(zip, 45, 2);
    put(zip, 0, 2);
    put(zip, member->deflate ? 8 : 0, 2);
    put(zip, 0x210000, 4); /* time and date */
    put(zip, libdeflate_crc32(0, member->data, member->bytes), 4);
    put(zip, wide ? UINT32_MAX : packed, 4);
    put(zip, wide ? UINT32_MAX : member->bytes, 4);
    put(zip, strlen(member->name), 2);
    put(zip, extra, 2);
}

static size_t put_packed(struct zip *zip, const struct npz_member *member)
{
    struct libdeflate_compressor *compressor;
    size_t packed;

    if (!member->deflate) {
        put_bytes(zip, member->data, member->bytes);
        return member->bytes;
    }
    compressor = libdeflate_alloc_compressor(6);
    assert_non_null(compressor);
    packed = libdeflate_deflate_compress(compressor, member->data, member->bytes,
                                         zip->out + zip->at, NPY_MOST - zip->at);
    assert_true(packed > 0);
    libdeflate_free_compressor(compressor);
    zip->at += packed;
    return packed;
}

size_t support_npz(const struct npz_member *members, size_t count, int wide, uint8_t *out)
{
    struct zip zip = {out, 0};
    size_t local[NPZ_MEMBERS], packed[NPZ_MEMBERS], first, bytes, end;

    assert_true(count <= NPZ_MEMBERS);
    for (size_t i = 0; i < count; i++) {
        local[i] = zip.at;
        put(&zip, 0x04034B50, 4);
        put_common(&zip, &members[i], 0, 1, 20); /* numpy always writes wide ones here */
        put_bytes(&zip, members[i].name, strlen(members[i].name));
        put(&zip, 1 | 16 << 16, 4);
        put(&zip, members[i].bytes, 8);
        put(&zip, 0, 8);
        packed[i] = put_packed(&zip, &members[i]);
    }
    first = zip.at;
    for (size_t i = 0; i < count; i++) {
        put(&zip, 0x02014B50, 4);
        put(&zip, 45, 2);
        put_common(&zip, &members[i], packed[i], wide, wide ? 28 : 0);
        put(&zip, 0, 10); /* no comment, disk 0, no attributes */
        put(&zip, wide ? UINT32_MAX : local[i], 4);
        put_bytes(&zip, members[i].name, strlen(members[i].name));
        if (wide) {
            put(&zip, 1 | 24 << 16, 4);
            put(&zip, members[i].bytes, 8);
            put(&zip, packed[i], 8);
            put(&zip, local[i], 8);
        }
    }
    bytes = zip.at - first;
    end = zip.at;
    if (wide) {
        put(&zip, 0x06064B50, 4);
        put(&zip, 44, 8);
        put(&zip, 45 | 45 << 16, 4);
        put(&zip, 0, 8);
        put(&zip, count, 8);
        put(&zip, count, 8);
        put(&zip, bytes, 8);
        put(&zip, first, 8);
        put(&zip, 0x07064B50, 4);
        put(&zip, 0, 4);
        put(&zip, end, 8);
        put(&zip, 1, 4);
    }
    put(&zip, 0x06054B50, 4);
    put(&zip, 0, 4);
    put(&zip, wide ? 0xFFFF : count, 2);
    put(&zip, wide ? 0xFFFF : count, 2);
    put(&zip, wide ? UINT32_MAX : bytes, 4);
    put(&zip, wide ? UINT32_MAX : first, 4);
    put(&zip, 0, 2);
    return zip.at;
}
