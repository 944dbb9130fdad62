/* gzip.c - gzip files for tests. */
#include "support/gzip.h"

size_t support_gzip(const void *data, size_t bytes, void *out, size_t room)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
    size_t packed;

    assert_non_null(compressor);
    packed = libdeflate_gzip_compress(compressor, data, bytes, out, room);
    assert_true(packed > 0);
    libdeflate_free_compressor(compressor);
    return packed;
}
