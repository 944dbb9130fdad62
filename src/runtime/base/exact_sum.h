/* exact_sum.h - sums of doubles without rounding: an integer that covers every finite double, after
 * Neal, "Fast exact summation using small and large superaccumulators", 2015. So neither the order
 * of the terms nor how they are divided among ranks changes a bit of the result.
 *
 * Ranks' sums are added up by an all-reduce of parts: CDDPI_EXACT_PARTS numbers of CDDP_I64,
 * CDDP_SUM, after cddpi_exact_carry() on each rank. One thread at a time. */
#ifndef CDDPI_EXACT_SUM_H
#define CDDPI_EXACT_SUM_H

#include "base/exact_parts.h"
#include "base/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: the sum of nothing. */
struct cddpi_exact_sum {
    int64_t parts[CDDPI_EXACT_PARTS];
};

/** Bring @p sum into its only form: parts are in [0, 2^32), but for the last, which has the sign.
 *  Any number of terms may follow. */
CDDPI_SHARED void cddpi_exact_carry(struct cddpi_exact_sum *sum);

/** Add the terms of @p from to @p into. */
void cddpi_exact_merge(struct cddpi_exact_sum *into, const struct cddpi_exact_sum *from);

/** The sum, rounded once, to the nearest double, ties to even; zero is +0. As for a sum of doubles,
 *  one that is too large is infinite, and infinities of both signs or a NaN make NaN. */
CDDPI_SHARED double cddpi_exact_value(const struct cddpi_exact_sum *sum);

/** Add @p value, whatever it is. */
static inline void cddpi_exact_add(struct cddpi_exact_sum *sum, double value)
{
    struct cddpi_exact_term term;

    if (value - value != 0) { /* it is infinite, or a NaN */
        sum->parts[value > 0   ? CDDPI_EXACT_POSITIVE
                   : value < 0 ? CDDPI_EXACT_NEGATIVE
                               : CDDPI_EXACT_NAN]++;
        return;
    }
    if (sum->parts[CDDPI_EXACT_TERMS] >= CDDPI_EXACT_TERMS_MOST) {
        cddpi_exact_carry(sum);
    }
    sum->parts[CDDPI_EXACT_TERMS]++;
    term = cddpi_exact_term_of(value);
    for (int i = 0; i < 3; i++) {
        sum->parts[term.first + i] += term.at[i];
    }
}

#ifdef __cplusplus
}
#endif
#endif
