/* exact_sum.cuh - adds to exact sums (base/exact_sum.h) in device memory. */
#ifndef CDDPI_CUDA_EXACT_SUM_CUH
#define CDDPI_CUDA_EXACT_SUM_CUH

#include "base/exact_sum.h"

#include <string.h>

/* The same as cddpi_exact_add(), by one thread, but without a carry: @p sum holds fewer than 2^31
 * terms. */
__device__ __forceinline__ void exact_add(struct cddpi_exact_sum *sum, double value)
{
    uint64_t bits;
    uint64_t mantissa;
    unsigned exponent;

    memcpy(&bits, &value, sizeof bits);
    mantissa = bits & (((uint64_t)1 << 52) - 1);
    exponent = (unsigned)(bits >> 52) & 0x7ff;
    if (exponent == 0x7ff) {
        int which = CDDPI_EXACT_POSITIVE;

        if (mantissa != 0) {
            which = CDDPI_EXACT_NAN;
        } else if (bits >> 63 != 0) {
            which = CDDPI_EXACT_NEGATIVE;
        }
        sum->parts[which]++;
        return;
    }
    sum->parts[CDDPI_EXACT_TERMS]++;
    if (exponent != 0) { /* else it is subnormal */
        mantissa |= (uint64_t)1 << 52;
        exponent--;
    }
    unsigned shift = exponent % 32;
    uint64_t low = mantissa << shift;
    uint64_t high = mantissa >> 32 >> (32 - shift); /* what the shift has lost */
    int64_t sign = bits >> 63 != 0 ? -1 : 1;
    int64_t *at = &sum->parts[exponent / 32];

    at[0] += sign * (int64_t)(low & 0xffffffff);
    at[1] += sign * (int64_t)(low >> 32);
    at[2] += sign * (int64_t)high;
}

#endif
