/* bf16.c - owns the conversions of bf16.h. They move as much memory as the products that follow
 * them, so AVX-512 has its own version, in tiles of 16 registers; other CPUs use plain C. */
#include "kernels/cpu/bf16.h"

#include "kernels/cpu/isa.h"

#include <string.h>

/* 16 x 16 pairs: a tile has 32 rows and 16 columns, or 16 rows and 32 columns. */
enum { LANES = 16, PAIR_ROWS = 16, BLOCK = CDDPI_BF16_ROWS * CDDPI_BF16_COLUMNS };

CDDPI_BODY uint16_t rounded(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Offset in the packed form of a matrix with @p rows rows. */
CDDPI_BODY size_t packed_at(size_t rows, size_t row, size_t column)
{
    size_t down = (rows + CDDPI_BF16_ROWS - 1) / CDDPI_BF16_ROWS;
    size_t block = column / CDDPI_BF16_COLUMNS * down + row / CDDPI_BF16_ROWS;

    return block * BLOCK + row % CDDPI_BF16_ROWS / 2 * (2 * CDDPI_BF16_COLUMNS) +
           column % CDDPI_BF16_COLUMNS * 2 + row % 2;
}

static void zero_packed(uint16_t *out, size_t rows, size_t columns)
{
    if (rows % CDDPI_BF16_ROWS != 0 || columns % CDDPI_BF16_COLUMNS != 0) {
        memset(out, 0, cddpi_bf16_packed_count(rows, columns) * sizeof *out);
    }
}

/* Rows [row, row_end) and columns [column, column_end) of the matrix. */
struct bf16_part {
    size_t row, row_end, column, column_end;
};

static void split_part(const float *x, size_t rows, size_t columns, const struct bf16_part *part,
                       const struct cddpi_bf16_forms *out)
{
    for (size_t r = part->row; r < part->row_end; r++) {
        for (size_t c = part->column; c < part->column_end; c++) {
            uint16_t value = rounded(x[r * columns + c]);

            if (out->sums != NULL) {
                out->sums[c] += (double)x[r * columns + c];
            }
            if (out->plain != NULL) {
                out->plain[r * columns + c] = value;
            }
            if (out->packed != NULL) {
                out->packed[packed_at(rows, r, c)] = value;
            }
            if (out->transposed != NULL) {
                out->transposed[c * rows + r] = value;
            }
        }
    }
}

static void pack_part(const float *x, size_t columns, const struct bf16_part *part, uint16_t *out)
{
    for (size_t r = part->row; r < part->row_end; r++) {
        for (size_t c = part->column; c < part->column_end; c++) {
            out[packed_at(columns, c, r)] = rounded(x[r * columns + c]);
        }
    }
}

void cddpi_bf16_split_generic(const float *x, size_t rows, size_t columns,
                              const struct cddpi_bf16_forms *out)
{
    if (out->packed != NULL) {
        zero_packed(out->packed, rows, columns);
    }
    split_part(x, rows, columns, &(struct bf16_part){0, rows, 0, columns}, out);
}

void cddpi_bf16_pack_transposed_generic(const float *x, size_t rows, size_t columns, uint16_t *out)
{
    zero_packed(out, columns, rows);
    pack_part(x, columns, &(struct bf16_part){0, rows, 0, columns}, out);
}

CDDPI_BODY void body_round_bf16(const float *x, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)rounded(x[i]) << 16;

        memcpy(&out[i], &bits, sizeof bits);
    }
}

CDDPI_VARIANTS(round_bf16, (const float *x, float *out, size_t count), (x, out, count))

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw")))
#define AVX512_BODY AVX512 static inline __attribute__((always_inline))

/* Rounded values in the upper half of each element; the lower half is not cleared. */
AVX512_BODY __m512i round_high(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);

    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
}

/* The pairs (low, high) of 16 columns, with low first in memory. */
AVX512_BODY __m512i pair(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
}

/* The upper halves of 32 elements. */
AVX512_BODY void store_row(uint16_t *out, __m512i first, __m512i second)
{
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first, _mm512_loadu_si512(odd), second));
}

/* v[i] = element i of each of the 16 vectors */
AVX512_BODY void transpose(__m512i v[LANES])
{
    __m512i t[LANES];

    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

/* A matrix, and the start of a tile in it. */
struct tile {
    const float *x;
    size_t rows, columns, row, column;
};

/* 32 rows x 16 columns. */
AVX512_BODY void pair_tile(const struct tile *tile, const struct cddpi_bf16_forms *out)
{
    const float *from = tile->x + tile->row * tile->columns + tile->column;
    __m512i pairs[PAIR_ROWS];

    for (size_t i = 0; i < PAIR_ROWS; i++) {
        pairs[i] = pair(round_high(_mm512_loadu_ps(from + 2 * i * tile->columns)),
                        round_high(_mm512_loadu_ps(from + (2 * i + 1) * tile->columns)));
    }
    if (out->packed != NULL) {
        uint16_t *to = out->packed + packed_at(tile->rows, tile->row, tile->column);

        for (size_t i = 0; i < PAIR_ROWS; i++) {
            _mm512_storeu_si512(to + i * 2 * CDDPI_BF16_COLUMNS, pairs[i]);
        }
    }
    if (out->transposed != NULL) {
        uint16_t *to = out->transposed + tile->column * tile->rows + tile->row;

        transpose(pairs);
        for (size_t i = 0; i < LANES; i++) {
            _mm512_storeu_si512(to + i * tile->rows, pairs[i]);
        }
    }
}

/* 32 rows x 32 columns, in whole cache lines. */
AVX512_BODY void plain_tile(const struct tile *tile, uint16_t *plain)
{
    size_t at = tile->row * tile->columns + tile->column;

    for (size_t r = 0; r < CDDPI_BF16_ROWS; r++) {
        const float *from = tile->x + at + r * tile->columns;

        store_row(plain + at + r * tile->columns, round_high(_mm512_loadu_ps(from)),
                  round_high(_mm512_loadu_ps(from + LANES)));
    }
}

AVX512_BODY void add_half(double *sums, __m256 part)
{
    _mm512_storeu_pd(sums, _mm512_add_pd(_mm512_loadu_pd(sums), _mm512_cvtps_pd(part)));
}

/* LANES columns: the rows of half a tile are summed in float32, then added in float64. */
AVX512_BODY void sum_columns(const float *from, size_t columns, double *sums)
{
    enum { HALF = CDDPI_BF16_ROWS / 2 };

    for (size_t first = 0; first < CDDPI_BF16_ROWS; first += HALF) {
        __m512 sum = _mm512_loadu_ps(from + first * columns);

        for (size_t r = 1; r < HALF; r++) {
            sum = _mm512_add_ps(sum, _mm512_loadu_ps(from + (first + r) * columns));
        }
        add_half(sums, _mm512_castps512_ps256(sum));
        add_half(sums + LANES / 2, _mm512_extractf32x8_ps(sum, 1));
    }
}

AVX512_BODY void sum_tile(const struct tile *tile, double *sums)
{
    const float *from = tile->x + tile->row * tile->columns + tile->column;

    sum_columns(from, tile->columns, sums + tile->column);
    sum_columns(from + LANES, tile->columns, sums + tile->column + LANES);
}

AVX512_BODY void split_tile(struct tile tile, const struct cddpi_bf16_forms *out)
{
    if (out->sums != NULL) {
        sum_tile(&tile, out->sums);
    }
    if (out->plain != NULL) {
        plain_tile(&tile, out->plain);
    }
    if (out->packed != NULL || out->transposed != NULL) {
        pair_tile(&tile, out);
        tile.column += LANES;
        pair_tile(&tile, out);
    }
}

/* All tiles of a part that has no incomplete ones. */
AVX512_BODY void split_tiles(const float *x, size_t rows, size_t columns,
                             const struct bf16_part *part, const struct cddpi_bf16_forms *out)
{
    for (size_t row = part->row; row < part->row_end; row += CDDPI_BF16_ROWS) {
        for (size_t column = part->column; column < part->column_end; column += 2 * LANES) {
            split_tile((struct tile){x, rows, columns, row, column}, out);
        }
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Work in parts whose rows and columns touch few pages. Otherwise, transposing large matrices
 * mostly waits for TLB misses. */
AVX512 static void split_avx512(const float *x, size_t rows, size_t columns,
                                const struct cddpi_bf16_forms *out)
{
    enum { PART_ROWS = 128, PART_COLUMNS = 512 };
    size_t down = rows / CDDPI_BF16_ROWS * CDDPI_BF16_ROWS;
    size_t across = columns / (2 * LANES) * (2 * LANES);

    for (size_t row = 0; row < down; row += PART_ROWS) {
        for (size_t column = 0; column < across; column += PART_COLUMNS) {
            const struct bf16_part part = {row, least(row + PART_ROWS, down), column,
                                           least(column + PART_COLUMNS, across)};

            split_tiles(x, rows, columns, &part, out);
        }
    }
    split_part(x, rows, columns, &(struct bf16_part){0, down, across, columns}, out);
    split_part(x, rows, columns, &(struct bf16_part){down, rows, 0, columns}, out);
}

/* 16 rows x 32 columns: the elements of a pair are neighbours in a row already. */
AVX512_BODY void pack_tile(const float *from, size_t columns, uint16_t *to)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                          0);
    __m512i pairs[LANES];

    for (size_t i = 0; i < LANES; i++) {
        __m512i first = round_high(_mm512_loadu_ps(from + i * columns));
        __m512i second = round_high(_mm512_loadu_ps(from + i * columns + LANES));
        __m512i low = _mm512_permutex2var_epi32(first, even, second);
        __m512i high = _mm512_permutex2var_epi32(
            first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), second);

        pairs[i] = pair(low, high);
    }
    transpose(pairs);
    for (size_t i = 0; i < PAIR_ROWS; i++) {
        _mm512_storeu_si512(to + i * 2 * CDDPI_BF16_COLUMNS, pairs[i]);
    }
}

AVX512 static void pack_avx512(const float *x, size_t rows, size_t columns, uint16_t *out)
{
    size_t whole = columns / CDDPI_BF16_ROWS * CDDPI_BF16_ROWS;
    size_t row = 0;

    for (; row + LANES <= rows; row += LANES) {
        for (size_t column = 0; column < whole; column += CDDPI_BF16_ROWS) {
            pack_tile(x + row * columns + column, columns, out + packed_at(columns, column, row));
        }
    }
    pack_part(x, columns, &(struct bf16_part){0, row, whole, columns}, out);
    pack_part(x, columns, &(struct bf16_part){row, rows, 0, columns}, out);
}
#endif

void cddpi_bf16_split(const float *x, size_t rows, size_t columns,
                      const struct cddpi_bf16_forms *out)
{
#if defined(__x86_64__)
    if (cddpi_isa() == CDDPI_ISA_LEVEL_AVX512) {
        if (out->packed != NULL) {
            zero_packed(out->packed, rows, columns);
        }
        split_avx512(x, rows, columns, out);
        return;
    }
#endif
    cddpi_bf16_split_generic(x, rows, columns, out);
}

void cddpi_bf16_pack_transposed(const float *x, size_t rows, size_t columns, uint16_t *out)
{
#if defined(__x86_64__)
    if (cddpi_isa() == CDDPI_ISA_LEVEL_AVX512) {
        zero_packed(out, columns, rows);
        pack_avx512(x, rows, columns, out);
        return;
    }
#endif
    cddpi_bf16_pack_transposed_generic(x, rows, columns, out);
}
