/* exact_sum.h - sums of doubles without rounding: an integer that covers every finite double, after
 * Neal, "Fast exact summation using small and large superaccumulators", 2015. So neither the order
 * of the terms nor how they are divided among ranks changes a bit of the result.
 *
 * Ranks' sums are added up by an all-reduce of parts: CDDPI_EXACT_PARTS numbers of CDDP_I64,
 * CDDP_SUM, after cddpi_exact_carry() on each rank. One thread at a time. */
#ifndef CDDPI_EXACT_SUM_H
#define CDDPI_EXACT_SUM_H

#include <stdint.h>
#include <string.h>

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

/* All zero: the sum of nothing. */
struct cddpi_exact_sum {
    int64_t parts[CDDPI_EXACT_PARTS];
};

/** Bring @p sum into its only form: parts are in [0, 2^32), but for the last, which has the sign.
 *  Any number of terms may follow. */
void cddpi_exact_carry(struct cddpi_exact_sum *sum);

/** Add the terms of @p from to @p into. */
void cddpi_exact_merge(struct cddpi_exact_sum *into, const struct cddpi_exact_sum *from);

/** The sum, rounded once, to the nearest double, ties to even; zero is +0. As for a sum of doubles,
 *  one that is too large is infinite, and infinities of both signs or a NaN make NaN. */
double cddpi_exact_value(const struct cddpi_exact_sum *sum);

/** Add @p value, whatever it is. */
static inline void cddpi_exact_add(struct cddpi_exact_sum *sum, double value)
{
    uint64_t bits;
    uint64_t mantissa;
    uint64_t low;
    uint64_t high;
    int64_t sign;
    unsigned exponent;
    unsigned shift;
    int64_t *at;

    memcpy(&bits, &value, sizeof bits);
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (unsigned)(bits >> 52) & 0x7ff;
    if (exponent == 0x7ff) {
        sum->parts[mantissa != 0       ? CDDPI_EXACT_NAN
                   : (bits >> 63) != 0 ? CDDPI_EXACT_NEGATIVE
                                       : CDDPI_EXACT_POSITIVE]++;
        return;
    }
    if (sum->parts[CDDPI_EXACT_TERMS] >= CDDPI_EXACT_TERMS_MOST) {
        cddpi_exact_carry(sum);
    }
    sum->parts[CDDPI_EXACT_TERMS]++;
    if (exponent != 0) { /* else it is subnormal */
        mantissa |= UINT64_C(1) << 52;
        exponent--;
    }
    shift = exponent % 32;
    at = &sum->parts[exponent / 32];
    low = mantissa << shift;
    high = mantissa >> 32 >> (32 - shift); /* what the shift has lost */
    sign = -(int64_t)(bits >> 63);         /* 0, or -1, and (x ^ -1) - -1 is -x */
    at[0] += ((int64_t)(low & 0xffffffff) ^ sign) - sign;
    at[1] += ((int64_t)(low >> 32) ^ sign) - sign;
    at[2] += ((int64_t)high ^ sign) - sign;
}

#endif
