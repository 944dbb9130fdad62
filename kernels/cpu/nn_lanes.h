/* nn_lanes.h - sixteen float32 at once, in GNU C's vectors, for sources that are built once for
 * each set of instructions (CDDPI_ISA). The compiler splits a vector where registers are shorter;
 * there are always sixteen lanes and nothing is contracted, so every build gives the same bits. */
#ifndef CDDPI_KERNELS_NN_LANES_H
#define CDDPI_KERNELS_NN_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CDDPI_LANES_INLINE static inline __attribute__((always_inline))
#define CDDPI_LANES_JOIN2(a, b) a##b
#define CDDPI_LANES_JOIN(a, b) CDDPI_LANES_JOIN2(a, b)
#define CDDPI_LANES_TEXT2(a) #a
#define CDDPI_LANES_TEXT(a) CDDPI_LANES_TEXT2(a)

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(64)));
typedef int32_t lane_bits __attribute__((vector_size(64)));
typedef uint32_t lane_words __attribute__((vector_size(64)));

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

/* The first @p count (< 16) lanes; the rest are @p rest. */
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

/* A NaN of @p a is kept. */
CDDPI_LANES_INLINE lanes lanes_at_least(lanes a, float low)
{
    return lanes_select(a < low, lanes_of(low), a);
}

CDDPI_LANES_INLINE lanes lanes_at_most(lanes a, float high)
{
    return lanes_select(a > high, lanes_of(high), a);
}

CDDPI_LANES_INLINE lanes lanes_abs(lanes a)
{
    return (lanes)((lane_bits)a & 0x7fffffff);
}

/* In float64, from the first lane to the last. */
CDDPI_LANES_INLINE double lanes_sum(lanes a)
{
    double sum = 0;

    for (int i = 0; i < LANES; i++) {
        sum += (double)a[i];
    }
    return sum;
}

/* e^x for x <= 88, to 2 units in the last place; below -87.3, where float32 ends, it is 0. As in
 * Cephes: x = n ln 2 + r, a polynomial for e^r, and n added to the exponent. Adding 1.5 x 2^23
 * rounds to an integer and leaves that in the last bits. */
CDDPI_LANES_INLINE lanes lanes_exp(lanes x)
{
    const float low = -87.3f;
    lanes y = lanes_at_most(lanes_at_least(x, low), 88.0f);
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
