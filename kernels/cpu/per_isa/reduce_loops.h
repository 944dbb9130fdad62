/* reduce_loops.h - the loops of reduce_loops.c over one block of elements, and the steps of a
 * reduction for a block. It is compiled once for each instruction set, with CDDPI_ISA as its name.
 */
#ifndef CDDPI_KERNELS_CPU_PER_ISA_REDUCE_LOOPS_H
#define CDDPI_KERNELS_CPU_PER_ISA_REDUCE_LOOPS_H

#include "kernels/cpu/reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(CDDPI_ISA_AVX2) || defined(CDDPI_ISA_AVX512)
#include <immintrin.h>
#endif

/* A destination may be a source, element for element, so iterations are independent. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { BLOCK_BYTES = 4096, LEVELS = 14 };

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef int8_t i8;

typedef void combine_fn(void *out, const void *a, const void *b, size_t n);

#define COMBINE(T, name, expression)                                                               \
    static void T##_##name(void *out_, const void *a_, const void *b_, size_t n)                   \
    {                                                                                              \
        T *out = out_;                                                                             \
        const T *a = a_;                                                                           \
        const T *b = b_;                                                                           \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            T x = a[i];                                                                            \
            T y = b[i];                                                                            \
            out[i] = (T)(expression);                                                              \
        }                                                                                          \
    }

/* y when it is a NaN or decides; x when that is a NaN, since no comparison with it holds */
#define COMBINE_REAL(T)                                                                            \
    COMBINE(T, sum, x + y)                                                                         \
    COMBINE(T, prod, x *y)                                                                         \
    COMBINE(T, min, ((y < x) | (y != y)) ? y : x)                                                  \
    COMBINE(T, max, ((y > x) | (y != y)) ? y : x)
/* unsigned, so that it wraps around */
#define COMBINE_WHOLE(T, U)                                                                        \
    COMBINE(T, sum, (U)x + (U)y)                                                                   \
    COMBINE(T, prod, (U)x *(U)y)                                                                   \
    COMBINE(T, min, y < x ? y : x)                                                                 \
    COMBINE(T, max, y > x ? y : x)                                                                 \
    COMBINE(T, and, (U)x &(U)y)                                                                    \
    COMBINE(T, or, (U)x | (U)y)                                                                    \
    COMBINE(T, xor, (U)x ^ (U)y)

COMBINE_REAL(f32)
COMBINE_REAL(f64)
COMBINE_WHOLE(i32, uint32_t)
COMBINE_WHOLE(i64, uint64_t)
COMBINE_WHOLE(u8, uint32_t)
COMBINE_WHOLE(i8, uint32_t)

#define SCALE(T)                                                                                   \
    static void T##_scale(void *out_, const void *in_, T factor, size_t n)                         \
    {                                                                                              \
        T *out = out_;                                                                             \
        const T *in = in_;                                                                         \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            out[i] = in[i] * factor;                                                               \
        }                                                                                          \
    }
SCALE(f32)
SCALE(f64)

/* The finished value. The compiler chooses which of two NaNs an addition passes on, so results use
 * only one NaN. */
#define SETTLED(T, value) ((value) == (value) ? (value) : (T)NAN)

#define SETTLE(T)                                                                                  \
    static void T##_settle(void *out_, const void *in_, T factor, size_t n)                        \
    {                                                                                              \
        T *out = out_;                                                                             \
        const T *in = in_;                                                                         \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            T value = in[i] * factor;                                                              \
            out[i] = SETTLED(T, value);                                                            \
        }                                                                                          \
    }
SETTLE(f32)
SETTLE(f64)

/* The common sums in one pass, without temporaries; the same tree. */
#define SUMS(T)                                                                                    \
    static void T##_sum2(void *out_, const void *const *src, size_t at, T factor, size_t n)        \
    {                                                                                              \
        T *out = out_;                                                                             \
        const T *a = (const T *)src[0] + at;                                                       \
        const T *b = (const T *)src[1] + at;                                                       \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            T value = (a[i] + b[i]) * factor;                                                      \
            out[i] = SETTLED(T, value);                                                            \
        }                                                                                          \
    }                                                                                              \
    static void T##_sum2x2(void *out_, void *copy_, const void *const *src, size_t at, T factor,   \
                           size_t n)                                                               \
    {                                                                                              \
        T *out = out_;                                                                             \
        T *copy = copy_;                                                                           \
        const T *a = (const T *)src[0] + at;                                                       \
        const T *b = (const T *)src[1] + at;                                                       \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            T value = (a[i] + b[i]) * factor;                                                      \
            value = SETTLED(T, value);                                                             \
            out[i] = value;                                                                        \
            copy[i] = value;                                                                       \
        }                                                                                          \
    }                                                                                              \
    static void T##_sum4(void *out_, const void *const *src, size_t at, T factor, size_t n)        \
    {                                                                                              \
        T *out = out_;                                                                             \
        const T *a = (const T *)src[0] + at;                                                       \
        const T *b = (const T *)src[1] + at;                                                       \
        const T *c = (const T *)src[2] + at;                                                       \
        const T *d = (const T *)src[3] + at;                                                       \
                                                                                                   \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            T value = ((a[i] + b[i]) + (c[i] + d[i])) * factor;                                    \
            out[i] = SETTLED(T, value);                                                            \
        }                                                                                          \
    }
SUMS(f32)
SUMS(f64)

static void whole_divide(i64 *values, i64 divisor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] /= divisor;
    }
}

#define CONVERT(name, FROM, TO)                                                                    \
    static void name(TO *out, const FROM *in, size_t n)                                            \
    {                                                                                              \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            out[i] = (TO)in[i];                                                                    \
        }                                                                                          \
    }
CONVERT(i32_widen, i32, i64)
CONVERT(u8_widen, u8, i64)
CONVERT(i8_widen, i8, i64)
CONVERT(i32_narrow, i64, i32)
CONVERT(u8_narrow, i64, u8)
CONVERT(i8_narrow, i64, i8)

static inline uint32_t bits_of(f32 value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline f32 from_bits(uint32_t bits)
{
    f32 value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void bf16_load(f32 *out, const uint16_t *in, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        out[i] = from_bits((uint32_t)in[i] << 16);
    }
}

static void bf16_store(uint16_t *out, const f32 *in, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(in[i]);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        uint32_t quiet = bits >> 16 | 0x40;

        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
    }
}

/* The last step of a reduction: scale, and round to bf16. */
static void bf16_settle(uint16_t *out, const f32 *in, f32 factor, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(in[i] * factor);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
    }
}

/* The same as the CPU's instruction, which also makes signalling NaNs quiet. */
static inline f32 f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 0) {
        f32 value = (f32)fraction * 0x1p-24f;

        return from_bits(bits_of(value) | sign);
    }
    if (exponent == 31) {
        return from_bits(sign | 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000 : 0));
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t f32_to_f16(f32 value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t size = bits & 0x7fffffff;

    if (size > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    }
    if (size >= 0x47800000) { /* 65536 and more */
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x38800000) { /* below 2^-14: let the adder round at 2^-24 */
        f32 rounded = from_bits(size) + 0.5f;

        return (uint16_t)(sign | (bits_of(rounded) - bits_of(0.5f)));
    }
    size += 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | ((size - 0x38000000) >> 13));
}

static void f16_load(f32 *out, const uint16_t *in, size_t n)
{
    size_t i = 0;

#if defined(CDDPI_ISA_AVX512)
    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(in + i))));
    }
#elif defined(CDDPI_ISA_AVX2)
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
    }
#endif
    for (; i < n; i++) {
        out[i] = f16_to_f32(in[i]);
    }
}

static void f16_store(uint16_t *out, const f32 *in, size_t n)
{
    size_t i = 0;

#if defined(CDDPI_ISA_AVX512)
    for (; i + 16 <= n; i += 16) {
        _mm256_storeu_si256((void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
#elif defined(CDDPI_ISA_AVX2)
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; i++) {
        out[i] = f32_to_f16(in[i]);
    }
}

/* Unaligned words: a block of 4-byte elements need not start at a multiple of 8. */
typedef uint64_t __attribute__((aligned(1), may_alias)) loose_word;

/* Copy through registers with a plain loop: blocks are small and in the cache. */
static void copy_block(void *out_, const void *in_, size_t bytes)
{
    size_t words = bytes / 8;
    loose_word *out = out_;
    const loose_word *in = in_;

    INDEPENDENT
    for (size_t i = 0; i < words; i++) {
        out[i] = in[i];
    }
    memcpy((char *)out_ + words * 8, (const char *)in_ + words * 8, bytes - words * 8);
}

/* How one reduction treats a block: the type it accumulates in, and the first and last step. */
struct plan {
    cddp_type type;
    cddp_type inner; /* accumulated in this: cddpi_reduce_sum_type() */
    combine_fn *combine;
    const double *factors;
    double scale; /* of the result; 1: no scaling (floating types) */
    i64 divisor;  /* of the result; 0: no division (integer types) */
    size_t block; /* elements */
};

static combine_fn *combine_for(cddp_type inner, cddp_op op)
{
#define ARITHMETIC(type)                                                                           \
    [CDDP_OP_SUM] = type##_sum, [CDDP_OP_MEAN] = type##_sum /* and scaled afterwards */,           \
    [CDDP_OP_MIN] = type##_min, [CDDP_OP_MAX] = type##_max, [CDDP_OP_PROD] = type##_prod
#define BITWISE(type)                                                                              \
    [CDDP_OP_AND] = type##_and, [CDDP_OP_OR] = type##_or, [CDDP_OP_XOR] = type##_xor
    static combine_fn *const table[][CDDP_OP_XOR + 1] = {
        [CDDP_F32] = {ARITHMETIC(f32)},
        [CDDP_F64] = {ARITHMETIC(f64)},
        [CDDP_I32] = {ARITHMETIC(i32), BITWISE(i32)},
        [CDDP_I64] = {ARITHMETIC(i64), BITWISE(i64)},
        [CDDP_U8] = {ARITHMETIC(u8), BITWISE(u8)},
        [CDDP_I8] = {ARITHMETIC(i8), BITWISE(i8)},
        [CDDP_BOOL] = {[CDDP_OP_SUM] = u8_or,
                       [CDDP_OP_MIN] = u8_and,
                       [CDDP_OP_MAX] = u8_or,
                       [CDDP_OP_PROD] = u8_and,
                       BITWISE(u8)},
    };

    return table[inner][op];
}

static struct plan plan_for(cddp_type type, cddp_op op, const double *factors, int ranks)
{
    struct plan plan = {type, cddpi_reduce_sum_type(type, op), NULL, factors, 1.0, 0, 0};
    bool mean = op == CDDP_OP_MEAN;

    if (mean && (plan.inner == CDDP_F32 || plan.inner == CDDP_F64)) {
        plan.scale = plan.inner == CDDP_F32 ? (double)(float)(1.0 / ranks) : 1.0 / ranks;
    } else if (mean) {
        plan.divisor = ranks;
    }
    plan.combine = combine_for(plan.inner, op);
    plan.block = BLOCK_BYTES / cddp_type_bytes(plan.inner);
    return plan;
}

/* Source values in the inner type: in place, or converted into @p buffer. @p factor: the source's,
 * or NULL. Returns NULL if the factor is 0, so the source is not read. */
static const void *leaf(const struct plan *plan, const void *source, size_t at,
                        const double *factor, void *buffer, size_t n)
{
    const char *in = (const char *)source + at * cddp_type_bytes(plan->type);
    const void *value = in;

    if (factor != NULL && *factor == 0) {
        return NULL;
    }
    if (plan->type == CDDP_F16) {
        f16_load(buffer, (const void *)in, n);
        value = buffer;
    } else if (plan->type == CDDP_BF16) {
        bf16_load(buffer, (const void *)in, n);
        value = buffer;
    } else if (plan->type != plan->inner) {
        if (plan->type == CDDP_I32) {
            i32_widen(buffer, (const void *)in, n);
        } else if (plan->type == CDDP_I8) {
            i8_widen(buffer, (const void *)in, n);
        } else {
            u8_widen(buffer, (const void *)in, n);
        }
        value = buffer;
    }
    if (factor != NULL) {
        if (plan->inner == CDDP_F32) {
            f32_scale(buffer, value, (f32)*factor, n);
        } else {
            f64_scale(buffer, value, *factor, n);
        }
        value = buffer;
    }
    return value;
}

/* Write the finished values to @p out, in the outer type. */
static void finish(const struct plan *plan, void *out, const void *value, void *buffer, size_t n)
{
    if (value == NULL) { /* all sources were skipped */
        memset(out, 0, n * cddp_type_bytes(plan->type));
        return;
    }
    if (plan->type == CDDP_F32) {
        f32_settle(out, value, (f32)plan->scale, n);
        return;
    }
    if (plan->type == CDDP_F64) {
        f64_settle(out, value, plan->scale, n);
        return;
    }
    if (plan->type == CDDP_BF16) {
        bf16_settle(out, value, (f32)plan->scale, n);
        return;
    }
    if (plan->type == CDDP_F16) {
        f32_settle(buffer, value, (f32)plan->scale, n);
        f16_store(out, buffer, n);
        return;
    }
    if (plan->divisor != 0) {
        if (value != buffer) {
            memcpy(buffer, value, n * sizeof(i64));
        }
        whole_divide(buffer, plan->divisor, n);
        value = buffer;
    }
    if (plan->type == plan->inner) {
        if (out != value) {
            memcpy(out, value, n * cddp_type_bytes(plan->type));
        }
    } else if (plan->type == CDDP_I32) {
        i32_narrow(out, value, n);
    } else if (plan->type == CDDP_I8) {
        i8_narrow(out, value, n);
    } else {
        u8_narrow(out, value, n);
    }
}

#endif
