/* npy.h - writes NumPy's files for tests, byte by byte. */
#ifndef CDDP_TESTS_SUPPORT_NPY_H
#define CDDP_TESTS_SUPPORT_NPY_H

#include "support/test.h"

enum { NPY_MOST = 1 << 20, NPZ_MEMBERS = 4 };

/* Put a .npy file of format @p version (1 to 3) at @p out, which has room for NPY_MOST bytes.
 * @p descr: such as "<f4"; @p shape: such as "(3, 4)". Returns its size. */
size_t support_npy(int version, const char *descr, const char *shape, const void *values,
                   size_t bytes, uint8_t *out);
/* The same for any header @p text. */
size_t support_npy_text(int version, const char *text, const void *values, size_t bytes,
                        uint8_t *out);
/* Write one to @p path. */
void support_write_npy(const char *path, const char *descr, const char *shape, const void *values,
                       size_t bytes);

struct npz_member {
    const char *name; /* with its .npy */
    const uint8_t *data;
    size_t bytes;
    int deflate; /* else stored */
};

/* Put an archive as numpy.savez() writes it at @p out, which has room for NPY_MOST bytes. @p wide:
 * as for more than 4 GiB, with zip64 records. Returns its size. */
size_t support_npz(const struct npz_member *members, size_t count, int wide, uint8_t *out);

#endif
