/* pack.h - splits a factor into its bf16 parts and arranges them as tiles, for amx/amx_gemm.c.
 *
 * A panel is 32 rows of op(A) or 32 columns of op(B). For each 32 elements of depth it has two
 * halves of 16 rows or columns, each with a tile of 1 KiB for every part. Depths p and p + 16 are
 * adjacent in both factors, so pairs can be formed without permutations. */
#ifndef CDDPI_KERNELS_CPU_AMX_PACK_H
#define CDDPI_KERNELS_CPU_AMX_PACK_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PARTS = 3,
    STEP = 32, /* depth of a tile */
    TILE_ROWS = 16,
    TILE_BYTES = 1024,
};

#define CDDPI_PACK_INLINE static inline __attribute__((always_inline))

/* A factor. Its dimensions are called depth (the one that is summed over) and length. */
struct factor {
    const float *data;
    size_t stride; /* between its rows */
    size_t length, depth;
    bool deep;  /* rows run along the depth: neighbours in depth are neighbours in memory */
    bool pairs; /* op(B): a row of a tile is a pair of depths; otherwise a row of op(A) */
};

/* The offset of the element at @p length and @p depth. */
static inline size_t factor_offset(const struct factor *factor, size_t length, size_t depth)
{
    return factor->deep ? length * factor->stride + depth : depth * factor->stride + length;
}

/* The nearest value that bf16 can represent; ties are rounded away from zero. */
CDDPI_PACK_INLINE __m512i rounded(__m512 x)
{
    __m512i half = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));

    return _mm512_and_si512(half, _mm512_set1_epi32((int)0xffff0000));
}

CDDPI_PACK_INLINE __m512i beside(__m512i low, __m512i high)
{
    return _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
}

/* One row of the tiles of three parts, from the depths p and p + 16. If a number would round to
 * infinity, its first part is bf16's largest value instead. An infinity leaves NaN in the last
 * part. */
CDDPI_PACK_INLINE void split(__m512 low, __m512 high, char *row)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000);
    const __m512 most = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f7f0000));
    enum { SMALLER_OF_BOTH = 2 }; /* in magnitude, with the sign of the first */
    __m512i low1 = rounded(_mm512_range_ps(low, most, SMALLER_OF_BOTH));
    __m512i high1 = rounded(_mm512_range_ps(high, most, SMALLER_OF_BOTH));
    __m512i low2, high2;

    _mm512_store_si512(row, beside(low1, high1));
    low = _mm512_sub_ps(low, _mm512_castsi512_ps(low1));
    high = _mm512_sub_ps(high, _mm512_castsi512_ps(high1));
    low2 = rounded(low);
    high2 = rounded(high);
    _mm512_store_si512(row + TILE_BYTES, beside(low2, high2));
    low = _mm512_sub_ps(low, _mm512_castsi512_ps(low2));
    high = _mm512_sub_ps(high, _mm512_castsi512_ps(high2));
    _mm512_store_si512(
        row + 2 * TILE_BYTES,
        beside(_mm512_castps_si512(low), _mm512_and_si512(_mm512_castps_si512(high), top)));
}

/* Transpose 16 x 16 elements. */
static inline void transpose(const float *from, size_t from_stride, float *to, size_t to_stride)
{
    __m512 a[16], b[16];

    for (int i = 0; i < 16; i++) {
        a[i] = _mm512_loadu_ps(from + (size_t)i * from_stride);
    }
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d x = _mm512_castps_pd(b[i + j]);
            __m512d y = _mm512_castps_pd(b[i + j + 2]);

            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_ps(to + (size_t)i * to_stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_ps(to + (size_t)(i + 8) * to_stride,
                         _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
        _mm512_storeu_ps(to + (size_t)(i + 4) * to_stride,
                         _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_ps(to + (size_t)(i + 12) * to_stride,
                         _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd));
    }
}

/* Tiles whose rows are the rows of @p from, or pairs of those rows. */
CDDPI_PACK_INLINE void split_rows(const float *from, size_t stride, char *tiles)
{
    for (size_t r = 0; r < TILE_ROWS; r++, from += stride) {
        split(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16), tiles + 64 * r);
    }
}

CDDPI_PACK_INLINE void split_pairs(const float *from, size_t stride, char *tiles)
{
    for (size_t r = 0; r < TILE_ROWS; r++, from += stride) {
        split(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16 * stride), tiles + 64 * r);
    }
}

/* The tiles for 16 of length and 32 of depth. */
static inline void pack_whole(const struct factor *factor, const float *from, size_t stride,
                              char *tiles)
{
    float turned[TILE_ROWS * STEP] __attribute__((aligned(64)));

    if (factor->deep && !factor->pairs) {
        split_rows(from, stride, tiles);
    } else if (!factor->deep && factor->pairs) {
        split_pairs(from, stride, tiles);
    } else if (factor->deep) {
        transpose(from, stride, turned, 16);
        transpose(from + 16, stride, turned + 16 * 16, 16);
        split_pairs(turned, 16, tiles);
    } else {
        transpose(from, stride, turned, 32);
        transpose(from + 16 * stride, stride, turned + 16, 32);
        split_rows(turned, 32, tiles);
    }
}

static inline size_t pack_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The same at an edge of the factor: missing elements are zero. @p edge is scratch memory for 16 x
 * 32 elements. */
static inline void pack_edge(const struct factor *factor, const float *from, size_t length,
                             size_t depth, float *edge, char *tiles)
{
    size_t rows = factor->deep ? length : depth;
    size_t columns = factor->deep ? depth : length;
    size_t stride = factor->deep ? STEP : TILE_ROWS;

    memset(edge, 0, TILE_ROWS * STEP * sizeof *edge);
    for (size_t r = 0; r < rows; r++) {
        memcpy(edge + r * stride, from + r * factor->stride, columns * sizeof *edge);
    }
    pack_whole(factor, edge, stride, tiles);
}

/* Pack 32 of the factor's length from @p at on, and its depths from @p begin to @p end. */
static inline void pack_panel(const struct factor *factor, size_t at, size_t begin, size_t end,
                              float *edge, char *tiles)
{
    for (size_t p = begin; p < end; p += STEP) {
        for (size_t i = at; i < at + 2 * TILE_ROWS; i += TILE_ROWS, tiles += PARTS * TILE_BYTES) {
            size_t length = i < factor->length ? pack_least(factor->length - i, TILE_ROWS) : 0;
            size_t depth = pack_least(end - p, STEP);
            const float *from = factor->data + (length > 0 ? factor_offset(factor, i, p) : 0);

            if (length == TILE_ROWS && depth == STEP) {
                pack_whole(factor, from, factor->stride, tiles);
            } else if (length > 0) {
                pack_edge(factor, from, length, depth, edge, tiles);
            } else {
                memset(tiles, 0, PARTS * TILE_BYTES);
            }
        }
    }
}

/* A panel of op(A) that is packed in pieces, each small enough to be done while the tiles multiply
 * other data. The panel has no edge. */
struct pieces {
    const float *from; /* the panel's first element */
    size_t stride;
    bool deep;
    uint32_t piece, tile, tiles; /* the next piece of the next tile, and how many tiles there are */
    char *to;                    /* that tile */
    float *turned;               /* 16 x 32 elements; unused if rows run along the depth */
};

enum { ROWS_A_PIECE = 4, TURNS = 2 };

CDDPI_PACK_INLINE void split_piece(const float *from, size_t stride, size_t first, char *tiles)
{
    for (size_t r = first; r < first + ROWS_A_PIECE; r++) {
        split(_mm512_loadu_ps(from + r * stride), _mm512_loadu_ps(from + r * stride + 16),
              tiles + 64 * r);
    }
}

/* Pack the next piece; does nothing once all are packed. */
CDDPI_PACK_INLINE void pack_piece(struct pieces *p)
{
    size_t at = p->tile % 2 * TILE_ROWS;
    size_t depth = p->tile / 2 * STEP;
    uint32_t turns = p->deep ? 0 : TURNS;

    if (p->tile == p->tiles) {
        return;
    }
    if (p->deep) {
        split_piece(p->from + at * p->stride + depth, p->stride, ROWS_A_PIECE * p->piece, p->to);
    } else if (p->piece < TURNS) {
        transpose(p->from + (depth + 16 * p->piece) * p->stride + at, p->stride,
                  p->turned + 16 * p->piece, STEP);
    } else {
        split_piece(p->turned, STEP, ROWS_A_PIECE * (p->piece - TURNS), p->to);
    }
    if (++p->piece == turns + TILE_ROWS / ROWS_A_PIECE) {
        p->piece = 0;
        p->tile++;
        p->to += PARTS * TILE_BYTES;
    }
}

#endif
