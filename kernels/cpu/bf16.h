/* bf16.h - converts float32 matrices to operands of bf16 products, in the three layouts that such
 * products read. Values are rounded to nearest even; a NaN stays a NaN.
 *
 * plain: row-major. transposed: row-major, columns x rows. packed: the right factor of a product,
 * in blocks of 32 rows x 64 columns that interleave pairs of rows, i.e. [columns / 64][rows /
 * 32][16][64][2], padded with zeros (oneDNN's BA16a64b2a). */
#ifndef CDDPI_KERNELS_CPU_BF16_H
#define CDDPI_KERNELS_CPU_BF16_H

#include <stddef.h>
#include <stdint.h>

enum { CDDPI_BF16_ROWS = 32, CDDPI_BF16_COLUMNS = 64 };

/** Elements of the packed form of @p rows x @p columns. */
static inline size_t cddpi_bf16_packed_count(size_t rows, size_t columns)
{
    size_t down = (rows + CDDPI_BF16_ROWS - 1) / CDDPI_BF16_ROWS * CDDPI_BF16_ROWS;
    size_t across = (columns + CDDPI_BF16_COLUMNS - 1) / CDDPI_BF16_COLUMNS * CDDPI_BF16_COLUMNS;

    return down * across;
}

/* Where to write each form of a matrix; NULL: not needed. */
struct cddpi_bf16_forms {
    uint16_t *plain, *packed, *transposed;
    double *sums; /* receives += the float32 sum of each column */
};

/** Write all requested forms of @p x in one pass over it. */
void cddpi_bf16_split(const float *x, size_t rows, size_t columns,
                      const struct cddpi_bf16_forms *out);
/** The packed form of the transpose of @p x, which is columns x rows. */
void cddpi_bf16_pack_transposed(const float *x, size_t rows, size_t columns, uint16_t *out);
/** Round to float32 values that bf16 can represent, for a CPU without bf16. @p out may be @p x. */
void cddpi_nn_round_bf16(const float *x, float *out, size_t count);

/* cddpi_bf16_split() and cddpi_bf16_pack_transposed() in plain C, on any CPU; for tests. */
void cddpi_bf16_split_generic(const float *x, size_t rows, size_t columns,
                              const struct cddpi_bf16_forms *out);
void cddpi_bf16_pack_transposed_generic(const float *x, size_t rows, size_t columns, uint16_t *out);

#endif
