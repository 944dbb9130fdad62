/* fake_numbers.h - 16-bit floating-point types for the fakes, rounded to nearest even. */
#ifndef CDDP_TESTS_FAKE_NUMBERS_H
#define CDDP_TESTS_FAKE_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float fake_bf16_to_float(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float out;

    memcpy(&out, &bits, sizeof out);
    return out;
}

static inline uint16_t fake_float_to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float fake_f16_to_float(uint16_t value)
{
    int exponent = value >> 10 & 31;
    float fraction = (float)(value & 0x3ff);
    float size = exponent == 0    ? ldexpf(fraction, -24)
                 : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                  : ldexpf(1024 + fraction, exponent - 25);

    return (value & 0x8000) != 0 ? -size : size;
}

static inline uint16_t fake_float_to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    int exponent;
    float steps;

    if (isnan(value)) {
        return 0x7fff;
    }
    if (size >= 65520) {
        return sign | 0x7c00;
    }
    frexpf(size, &exponent); /* size is below 2^exponent */
    if (exponent < -13) {
        exponent = -13;
    }
    steps = nearbyintf(ldexpf(size, 11 - exponent)); /* in units of 2^(exponent - 11) */
    if (steps < 1024) {
        return (uint16_t)(sign | (uint16_t)steps); /* subnormal: below 2^-14 */
    }
    /* 2048 steps carry into the exponent */
    return (uint16_t)(sign | (uint16_t)(((exponent + 14) << 10) + (int)steps - 1024));
}

#endif
