/* exact_sum.c - carries between the parts of an exact sum, and its rounding. */
#include "base/exact_sum.h"

#include <math.h>
#include <stdbool.h>

enum { TOP = CDDPI_EXACT_VALUES - 1 };

/* Rounds down, which >> of a negative number does with our compilers. */
static void carry(int64_t *parts)
{
    for (int i = 0; i < TOP; i++) {
        parts[i + 1] += parts[i] >> 32;
        parts[i] &= 0xffffffff;
    }
}

void cddpi_exact_carry(struct cddpi_exact_sum *sum)
{
    carry(sum->parts);
    sum->parts[CDDPI_EXACT_TERMS] = 0;
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

/* Whether one of the lowest @p count bits is set. */
static bool any_below(const int64_t *parts, int count)
{
    bool any = ((uint64_t)parts[count / 32] & ((UINT64_C(1) << count % 32) - 1)) != 0;

    for (int i = 0; i < count / 32; i++) {
        any |= parts[i] != 0;
    }
    return any;
}

/* The 64 bits from bit @p first on. */
static uint64_t bits_from(const int64_t *parts, int first)
{
    int i = first / 32;
    int shift = first % 32;

    return ((uint64_t)parts[i] | (uint64_t)parts[i + 1] << 32) >> shift | (uint64_t)parts[i + 2]
                                                                              << 32 << (32 - shift);
}

/* Round a number >= 0 to a double's bits. Bit @p highest is its highest. */
static uint64_t round_to_double(const int64_t *parts, int highest)
{
    int lowest = highest > 52 ? highest - 52 : 0; /* of the bits that are kept */
    uint64_t kept = bits_from(parts, lowest) & ((UINT64_C(1) << 53) - 1);

    if (lowest > 0) {
        bool half = (bits_from(parts, lowest - 1) & 1) != 0;

        kept += half && (any_below(parts, lowest - 1) || (kept & 1) != 0);
    }
    /* The exponent is lowest + 1, but 0 if subnormal; bit 52 of kept, and a carry, add to it. */
    return ((uint64_t)lowest << 52) + kept;
}

/* The value of parts that have carried and are >= 0. */
static double magnitude(const int64_t *parts)
{
    const uint64_t infinite = UINT64_C(0x7ff) << 52;
    uint64_t bits = 0;
    double value;
    int top = TOP;

    while (top > 0 && parts[top] == 0) {
        top--;
    }
    if (parts[top] != 0) {
        int highest = 32 * top + 63 - __builtin_clzll((uint64_t)parts[top]);

        bits = highest > 2097 ? infinite : round_to_double(parts, highest);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

double cddpi_exact_value(const struct cddpi_exact_sum *sum)
{
    int64_t parts[CDDPI_EXACT_VALUES + 2]; /* and zeros, for reading beyond the last bit */
    bool positive = sum->parts[CDDPI_EXACT_POSITIVE] != 0;
    bool negative = sum->parts[CDDPI_EXACT_NEGATIVE] != 0;

    if (sum->parts[CDDPI_EXACT_NAN] != 0 || (positive && negative)) {
        return NAN;
    }
    if (positive || negative) {
        return positive ? INFINITY : -INFINITY;
    }
    memcpy(parts, sum->parts, sizeof sum->parts[0] * CDDPI_EXACT_VALUES);
    parts[CDDPI_EXACT_VALUES] = parts[CDDPI_EXACT_VALUES + 1] = 0;
    carry(parts);
    if (parts[TOP] >= 0) {
        return magnitude(parts);
    }
    for (int i = 0; i < CDDPI_EXACT_VALUES; i++) {
        parts[i] = -parts[i];
    }
    carry(parts);
    return -magnitude(parts);
}
