/* exact_parts.h - the parts of an exact sum (exact_sum.h), and the arithmetic on them. Kernels of
 * devices have the same: they define CDDPI_EXACT_INLINE. Any thread. */
#ifndef CDDPI_EXACT_PARTS_H
#define CDDPI_EXACT_PARTS_H

#include <stdint.h>
#include <string.h>

#ifndef CDDPI_EXACT_INLINE
#define CDDPI_EXACT_INLINE static inline
#endif

/* parts[i] counts units of 2^(32 i - 1074). A double's 53 bits begin in part 63 or below and so end
 * in part 65 or below, whose other 45 bits hold sums far beyond the largest double. */
enum {
    CDDPI_EXACT_VALUES = 66,
    CDDPI_EXACT_POSITIVE = CDDPI_EXACT_VALUES, /* how many terms were infinite */
    CDDPI_EXACT_NEGATIVE,                      /* -infinite */
    CDDPI_EXACT_NAN,
    CDDPI_EXACT_TERMS, /* since the last carry: at least how many terms parts hold */
    CDDPI_EXACT_PARTS
};

/* A term adds less than 2^32 to a part, so parts hold 2^31 terms. Half of them are kept for those
 * of others: any number of merges, and an all-reduce of up to 2^30 ranks that have carried. */
enum { CDDPI_EXACT_TERMS_MOST = 1 << 30 };

/* A finite number: what it adds to parts[first], parts[first + 1] and parts[first + 2]. */
struct cddpi_exact_term {
    int first;
    int64_t at[3];
};

CDDPI_EXACT_INLINE uint64_t cddpi_exact_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

CDDPI_EXACT_INLINE double cddpi_exact_from_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

CDDPI_EXACT_INLINE struct cddpi_exact_term cddpi_exact_term_of(double value)
{
    uint64_t bits = cddpi_exact_bits(value);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    unsigned exponent = (unsigned)(bits >> 52) & 0x7ff;
    int64_t sign = -(int64_t)(bits >> 63); /* 0, or -1, and (x ^ -1) - -1 is -x */
    struct cddpi_exact_term term;
    uint64_t low, high;
    unsigned shift;

    if (exponent != 0) { /* else it is subnormal */
        mantissa |= UINT64_C(1) << 52;
        exponent--;
    }
    shift = exponent % 32;
    low = mantissa << shift;
    high = mantissa >> 32 >> (32 - shift); /* what the shift has lost */
    term.first = (int)(exponent / 32);
    term.at[0] = ((int64_t)(low & 0xffffffff) ^ sign) - sign;
    term.at[1] = ((int64_t)(low >> 32) ^ sign) - sign;
    term.at[2] = ((int64_t)high ^ sign) - sign;
    return term;
}

/* Bring parts into their only form: in [0, 2^32), but for the last, which has the sign. */
CDDPI_EXACT_INLINE void cddpi_exact_carry_parts(int64_t *parts)
{
    for (int i = 0; i < CDDPI_EXACT_VALUES - 1; i++) {
        parts[i + 1] += parts[i] >> 32; /* rounds down, with our compilers */
        parts[i] &= 0xffffffff;
    }
    parts[CDDPI_EXACT_TERMS] = 0;
}

/* Whether one of the lowest @p count bits is set. */
CDDPI_EXACT_INLINE int cddpi_exact_any_below(const int64_t *parts, int count)
{
    int any = ((uint64_t)parts[count / 32] & ((UINT64_C(1) << count % 32) - 1)) != 0;

    for (int i = 0; i < count / 32; i++) {
        any |= parts[i] != 0;
    }
    return any;
}

/* The 64 bits from bit @p first on, which is in part 63 or below. */
CDDPI_EXACT_INLINE uint64_t cddpi_exact_bits_from(const int64_t *parts, int first)
{
    int i = first / 32;
    int shift = first % 32;

    return ((uint64_t)parts[i] | (uint64_t)parts[i + 1] << 32) >> shift | (uint64_t)parts[i + 2]
                                                                              << 32 << (32 - shift);
}

/* The nearest double to a number >= 0 of which bit @p highest is the highest. */
CDDPI_EXACT_INLINE uint64_t cddpi_exact_nearest(const int64_t *parts, int highest)
{
    int lowest = highest > 52 ? highest - 52 : 0; /* of the bits that are kept */
    uint64_t kept;

    if (highest > 2097) { /* 2^1024 or more */
        return UINT64_C(0x7ff) << 52;
    }
    kept = cddpi_exact_bits_from(parts, lowest) & ((UINT64_C(1) << 53) - 1);
    if (lowest > 0) {
        int half = (int)(cddpi_exact_bits_from(parts, lowest - 1) & 1);

        kept += half && (cddpi_exact_any_below(parts, lowest - 1) || (kept & 1) != 0);
    }
    /* The exponent is lowest + 1, but 0 if subnormal; bit 52 of kept, and a carry, add to it. */
    return ((uint64_t)lowest << 52) + kept;
}

/* Round @p parts, which are changed, as cddpi_exact_value() does. */
CDDPI_EXACT_INLINE double cddpi_exact_round(int64_t *parts)
{
    int positive = parts[CDDPI_EXACT_POSITIVE] != 0;
    int negative = parts[CDDPI_EXACT_NEGATIVE] != 0;
    int top = CDDPI_EXACT_VALUES - 1;
    int highest = 0;

    if (parts[CDDPI_EXACT_NAN] != 0 || (positive && negative)) {
        return cddpi_exact_from_bits(UINT64_C(0x7ff8) << 48);
    }
    if (positive || negative) {
        return cddpi_exact_from_bits((UINT64_C(0x7ff) | (uint64_t)negative << 11) << 52);
    }
    cddpi_exact_carry_parts(parts);
    negative = parts[top] < 0;
    if (negative) {
        for (int i = 0; i < CDDPI_EXACT_VALUES; i++) {
            parts[i] = -parts[i];
        }
        cddpi_exact_carry_parts(parts);
    }
    while (top > 0 && parts[top] == 0) {
        top--;
    }
    if (parts[top] == 0) {
        return 0;
    }
    while (parts[top] >> highest > 1) {
        highest++;
    }
    return cddpi_exact_from_bits(cddpi_exact_nearest(parts, 32 * top + highest) | (uint64_t)negative
                                                                                      << 63);
}

#endif
