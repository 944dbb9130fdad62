/* optim_loops.c - owns the loops of cpu_optim.h. Compiled once for each instruction set, with
 * CDDPI_ISA as its name. */
#include "kernels/cpu/cpu_optim.h"

#include <math.h>
#include <string.h>

#if defined(CDDPI_ISA_AVX2) || defined(CDDPI_ISA_AVX512)
#include <immintrin.h>
#endif

#define CDDPI_INLINE static inline __attribute__((always_inline))
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

/* One of the three kinds of SGD. The callers pass the flags as constants. */
static inline __attribute__((always_inline)) void
sgd_loop(float *restrict p, const float *restrict g, float *restrict m, size_t n,
         const struct cddpi_sgd_step *step, bool has_momentum, bool nesterov)
{
    const float lr = step->lr;
    const float momentum = step->momentum;
    const float weight_decay = step->weight_decay;
    const float grad_scale = step->grad_scale;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] * grad_scale + weight_decay * p[i];

        if (has_momentum) {
            float b = momentum * m[i] + d;

            m[i] = b;
            d = nesterov ? d + momentum * b : b;
        }
        p[i] = p[i] - lr * d;
    }
}

static void sgd(float *p, const float *g, float *m, size_t n, const struct cddpi_sgd_step *step)
{
    if (m == NULL) {
        sgd_loop(p, g, m, n, step, false, false);
    } else if (step->nesterov) {
        sgd_loop(p, g, m, n, step, true, true);
    } else {
        sgd_loop(p, g, m, n, step, true, false);
    }
}

static void adamw(float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
                  size_t n, const struct cddpi_adamw_step *step)
{
    const struct cddpi_adamw_step s = *step;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] * s.grad_scale;
        float first = m[i] + (d - m[i]) * s.beta1_left;
        float second = v[i] * s.beta2 + s.beta2_left * d * d;
        float scale = sqrtf(second) / s.correction2 + s.epsilon;

        m[i] = first;
        v[i] = second;
        p[i] = p[i] * s.keep - s.step_size * first / scale;
    }
}

/* Sums of squares of blocks, each ((a0 + a1) + (a2 + a3)) with ak = (x[k] x[k] + x[k + 8] x[k + 8])
 * + (x[k + 4] x[k + 4] + x[k + 12] x[k + 12]) in float64. There, the square of a float32 is exact,
 * so FMA gives the same bits. */
enum { BLOCK = CDDPI_OPTIM_BLOCK, BLOCKS = 8 };

#if defined(CDDPI_ISA_AVX512)
CDDPI_INLINE __m512d eight_of_block(const float *x)
{
    __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + 8));

    return _mm512_fmadd_pd(a, a, _mm512_mul_pd(b, b));
}

/* Four of a block, and four of the next. */
CDDPI_INLINE __m512d fours_of_two(const float *x)
{
    __m512d a = eight_of_block(x);
    __m512d b = eight_of_block(x + BLOCK);

    return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xee));
}

/* Two of each of four blocks: of the first, third, first, third, second ... */
CDDPI_INLINE __m512d twos_of_four(const float *x)
{
    __m512d a = fours_of_two(x);
    __m512d b = fours_of_two(x + 2 * (size_t)BLOCK);

    return _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
}

/* Of all blocks, in some order. */
CDDPI_INLINE void sum_blocks(const float *x, double out[BLOCKS])
{
    const __m512i low = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
    __m512d a = twos_of_four(x);
    __m512d b = twos_of_four(x + 4 * (size_t)BLOCK);

    _mm512_storeu_pd(
        out, _mm512_add_pd(_mm512_permutex2var_pd(a, low, b), _mm512_permutex2var_pd(a, high, b)));
}
#elif defined(CDDPI_ISA_AVX2)
CDDPI_INLINE __m256d squares_of_four(const float *x)
{
    __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x));

    return _mm256_mul_pd(a, a);
}

CDDPI_INLINE __m256d four_of_block(const float *x)
{
    return _mm256_add_pd(_mm256_add_pd(squares_of_four(x), squares_of_four(x + 8)),
                         _mm256_add_pd(squares_of_four(x + 4), squares_of_four(x + 12)));
}

CDDPI_INLINE __m256d twos_of_two(const float *x)
{
    return _mm256_hadd_pd(four_of_block(x), four_of_block(x + BLOCK));
}

CDDPI_INLINE void sum_blocks(const float *x, double out[BLOCKS])
{
    for (size_t i = 0; i < BLOCKS; i += 4, x += 4 * (size_t)BLOCK) {
        __m256d a = twos_of_two(x);
        __m256d b = twos_of_two(x + 2 * (size_t)BLOCK);

        _mm256_storeu_pd(out + i, _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20),
                                                _mm256_permute2f128_pd(a, b, 0x31)));
    }
}
#else
CDDPI_INLINE double square(float x)
{
    return (double)x * x;
}

CDDPI_INLINE void sum_blocks(const float *x, double out[BLOCKS])
{
    for (size_t i = 0; i < BLOCKS; i++, x += BLOCK) {
        double four[4];

        for (size_t k = 0; k < 4; k++) {
            four[k] = (square(x[k]) + square(x[k + 8])) + (square(x[k + 4]) + square(x[k + 12]));
        }
        out[i] = (four[0] + four[1]) + (four[2] + four[3]);
    }
}
#endif

/* Squares are added up for this many blocks at a time. */
enum { CHUNK = 128, LANES = 16 };

static double largest_of(const double sums[CHUNK])
{
    double lanes[LANES] = {0};
    double largest = 0;

    for (size_t i = 0; i < CHUNK; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] = sums[i + lane] > lanes[lane] ? sums[i + lane] : lanes[lane];
        }
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    }
    return largest;
}

/* Take the multiple of a power of 2 that is nearest to *@p value; @p round is 3 x 2^51 times it. */
CDDPI_INLINE double take_multiple(double *value, double round)
{
    double multiple = (*value + round) - round;

    *value -= multiple;
    return multiple;
}

/* Split sums, of which the largest is in [2^m, 2^(m + 1)), into multiples of 2^(m - 42), 2^(m - 86)
 * and 2^(m - 130), and a rest, which is left in @p sums and is nearly always 0. There are no more
 * than 1024 sums, so float64 adds up each kind without rounding. */
static bool split(double sums[CHUNK], double largest, double out[3])
{
    double first[LANES] = {0};
    double second[LANES] = {0};
    double third[LANES] = {0};
    double rest[LANES] = {0};
    double left = 0;
    double round = cddpi_exact_from_bits(cddpi_exact_bits(largest) >> 52 << 52) * 1536;

    for (size_t i = 0; i < CHUNK; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            double value = sums[i + lane];

            first[lane] += take_multiple(&value, round);
            second[lane] += take_multiple(&value, round * 0x1p-44);
            third[lane] += take_multiple(&value, round * 0x1p-88);
            rest[lane] += fabs(value);
            sums[i + lane] = value;
        }
    }
    out[0] = out[1] = out[2] = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        out[0] += first[lane];
        out[1] += second[lane];
        out[2] += third[lane];
        left += rest[lane];
    }
    return left != 0;
}

/* Add sums exactly: few terms that hold all of them. */
static void add_sums(double sums[CHUNK], struct cddpi_exact_sum *sum)
{
    double largest = largest_of(sums);
    bool any = true;

    if (largest < (double)INFINITY) {
        double kinds[3];

        any = split(sums, largest, kinds);
        for (size_t i = 0; i < 3; i++) {
            cddpi_exact_add(sum, kinds[i]);
        }
    }
    for (size_t i = 0; any && i < CHUNK; i++) {
        cddpi_exact_add(sum, sums[i]);
    }
}

static void add_squares(const float *x, size_t n, struct cddpi_exact_sum *sum)
{
    while (n > 0) {
        double sums[CHUNK] = {0};
        size_t i = 0;

        for (; i < CHUNK && n >= BLOCKS * BLOCK; n -= BLOCKS * BLOCK, x += BLOCKS * BLOCK) {
            sum_blocks(x, sums + i);
            i += BLOCKS;
        }
        if (i < CHUNK && n > 0) {
            float rest[BLOCKS * BLOCK] = {0};

            memcpy(rest, x, n * sizeof *x);
            sum_blocks(rest, sums + i);
            n = 0;
        }
        add_sums(sums, sum);
    }
}

const struct cddpi_optim_kernels JOIN(cddpi_optim_kernels_, CDDPI_ISA);
const struct cddpi_optim_kernels JOIN(cddpi_optim_kernels_, CDDPI_ISA) = {TEXT(CDDPI_ISA), sgd,
                                                                          adamw, add_squares};
