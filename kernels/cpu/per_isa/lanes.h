/* lanes.h - float32 in GNU C's vectors of register width, for sources that are compiled once for
 * each instruction set (CDDPI_ISA).
 *
 * Every build gives the same bits. Nothing is contracted to FMA, and a sum over a row always has
 * sixteen partial sums: element i is added to number i % 16, and the partial sums are combined in
 * one fixed order. */
#ifndef CDDPI_KERNELS_CPU_PER_ISA_LANES_H
#define CDDPI_KERNELS_CPU_PER_ISA_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define CDDPI_LANES 16
#elif defined(__AVX2__)
#define CDDPI_LANES 8
#else
#define CDDPI_LANES 4
#endif

#define CDDPI_LANES_INLINE static inline __attribute__((always_inline))
#define CDDPI_LANES_JOIN2(a, b) a##b
#define CDDPI_LANES_JOIN(a, b) CDDPI_LANES_JOIN2(a, b)

enum { LANES = CDDPI_LANES, GROUP = 16, PARTS = GROUP / LANES };

typedef float lanes __attribute__((vector_size(4 * CDDPI_LANES)));
typedef int32_t lane_bits __attribute__((vector_size(4 * CDDPI_LANES)));
typedef uint32_t lane_words __attribute__((vector_size(4 * CDDPI_LANES)));

/* The partial sums of a row. */
struct lane_sums {
    lanes part[PARTS];
};

CDDPI_LANES_INLINE lanes lanes_of(float x)
{
    return x - (lanes){0};
}

CDDPI_LANES_INLINE lanes lanes_load(const float *from)
{
    lanes v;

    memcpy(&v, from, sizeof v);
    return v;
}

CDDPI_LANES_INLINE void lanes_store(float *to, lanes v)
{
    memcpy(to, &v, sizeof v);
}

/* Load the first @p count (< LANES) elements; the other lanes are @p rest. */
CDDPI_LANES_INLINE lanes lanes_load_part(const float *from, size_t count, float rest)
{
    lanes v = lanes_of(rest);

    memcpy(&v, from, count * sizeof *from);
    return v;
}

CDDPI_LANES_INLINE void lanes_store_part(float *to, lanes v, size_t count)
{
    memcpy(to, &v, count * sizeof *to);
}

CDDPI_LANES_INLINE lanes lanes_select(lane_bits mask, lanes yes, lanes no)
{
    return (lanes)((mask & (lane_bits)yes) | (~mask & (lane_bits)no));
}

/* x86's instructions return the second operand if one is a NaN. */
#if defined(__AVX512F__)
#define CDDPI_LANES_MAX(a, b) _mm512_max_ps(a, b)
#define CDDPI_LANES_MIN(a, b) _mm512_min_ps(a, b)
#elif defined(__AVX2__)
#define CDDPI_LANES_MAX(a, b) _mm256_max_ps(a, b)
#define CDDPI_LANES_MIN(a, b) _mm256_min_ps(a, b)
#elif defined(__SSE2__)
#define CDDPI_LANES_MAX(a, b) _mm_max_ps(a, b)
#define CDDPI_LANES_MIN(a, b) _mm_min_ps(a, b)
#else
#define CDDPI_LANES_MAX(a, b) lanes_select((a) > (b), a, b)
#define CDDPI_LANES_MIN(a, b) lanes_select((a) < (b), a, b)
#endif

/* The larger, or @p b if one is a NaN. */
CDDPI_LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return CDDPI_LANES_MAX(a, b);
}

/* Clamp to [low, high]; a NaN stays a NaN. */
CDDPI_LANES_INLINE lanes lanes_clamp(lanes a, float low, float high)
{
    lanes floor = CDDPI_LANES_MAX(lanes_of(low), a);

    return CDDPI_LANES_MIN(lanes_of(high), floor);
}

CDDPI_LANES_INLINE lanes lanes_abs(lanes a)
{
    return (lanes)((lane_bits)a & 0x7fffffff);
}

CDDPI_LANES_INLINE float lanes_largest(lanes a)
{
    float part[LANES];

    lanes_store(part, a);
    for (int left = LANES / 2; left > 0; left /= 2) {
        for (int i = 0; i < left; i++) {
            part[i] = part[i + left] > part[i] ? part[i + left] : part[i];
        }
    }
    return part[0];
}

/* Add halves to halves: 0 + 8, 1 + 9 ..., then 0 + 4 ... */
CDDPI_LANES_INLINE double lane_sums_total(const struct lane_sums *sums)
{
    float part[GROUP];
    double half[GROUP / 2];

    memcpy(part, sums->part, sizeof part);
    for (int i = 0; i < GROUP / 2; i++) {
        half[i] = (double)part[i] + (double)part[i + GROUP / 2];
    }
    for (int left = GROUP / 4; left > 0; left /= 2) {
        for (int i = 0; i < left; i++) {
            half[i] += half[i + left];
        }
    }
    return half[0];
}

/* e^x for x <= 88, to 2 units in the last place; 0 below -87.3, where the normal numbers of float32
 * end. As in Cephes: x = n ln 2 + r, a polynomial for e^r, and n added to the exponent. Adding 1.5
 * x 2^23 rounds to an integer and leaves that in the low bits. */
CDDPI_LANES_INLINE lanes lanes_exp(lanes x)
{
    const float low = -87.3f;
    lanes y = lanes_clamp(x, low, 88.0f);
    lanes shifted = y * 1.44269504f + 12582912.0f;
    lanes n = shifted - 12582912.0f;
    lanes r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    lanes scale;

    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    scale = (lanes)(((lane_words)shifted << 23) + (127u << 23));
    return (lanes)(~(x < low) & (lane_bits)(p * scale));
}

#endif
