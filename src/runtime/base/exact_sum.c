/* exact_sum.c - carries between the parts of an exact sum, and its rounding. */
#include "base/exact_sum.h"

void cddpi_exact_carry(struct cddpi_exact_sum *sum)
{
    cddpi_exact_carry_parts(sum->parts);
}

/* A sum that has carried counts as a term: it, too, holds less than 2^32 in a part. */
void cddpi_exact_merge(struct cddpi_exact_sum *into, const struct cddpi_exact_sum *from)
{
    struct cddpi_exact_sum carried = *from;

    cddpi_exact_carry(&carried);
    if (into->parts[CDDPI_EXACT_TERMS] >= CDDPI_EXACT_TERMS_MOST) {
        cddpi_exact_carry(into);
    }
    for (int i = 0; i < CDDPI_EXACT_TERMS; i++) {
        into->parts[i] += carried.parts[i];
    }
    into->parts[CDDPI_EXACT_TERMS]++;
}

double cddpi_exact_value(const struct cddpi_exact_sum *sum)
{
    struct cddpi_exact_sum copy = *sum;

    return cddpi_exact_round(copy.parts);
}
