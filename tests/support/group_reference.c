/* group_reference.c - the expected result of a reduction, computed one element at a time in plain
 * scalar code. */
#include "support/group_reference.h"

/* Round @p value to nearest even in a format with @p bits fraction bits and exponents from @p
 * low. */
static double reference_round(double value, int bits, int low, double largest)
{
    int exponent;
    double unit;
    double rounded;

    if (value == 0 || isnan(value) || isinf(value)) {
        return value;
    }
    (void)frexp(value, &exponent);
    exponent = exponent - 1 < low ? low : exponent - 1;
    unit = ldexp(1, exponent - bits);
    rounded = nearbyint(value / unit) * unit;
    return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

static double reference_decode16(uint16_t bits, int fraction_bits, int bias)
{
    int fraction = bits & ((1 << fraction_bits) - 1);
    int exponent = (bits & 0x7fff) >> fraction_bits;
    double size = exponent == 0
                      ? ldexp(fraction, 1 - bias - fraction_bits)
                      : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);

    if (exponent == 2 * bias + 1) {
        size = fraction != 0 ? NAN : INFINITY;
    }
    return bits & 0x8000 ? -size : size;
}

/* @p value must be representable in the format. What bits mean grows with them, up to infinity, so
 * that its own are found by halving. */
static uint16_t reference_encode16(double value, int fraction_bits, int bias)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int low = 0;
    int high = (2 * bias + 1) << fraction_bits;

    while (low < high) {
        int middle = (low + high) / 2;

        if (reference_decode16((uint16_t)middle, fraction_bits, bias) < fabs(value)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return reference_decode16((uint16_t)low, fraction_bits, bias) == fabs(value)
               ? (uint16_t)(sign | low)
               : 0x7fff;
}

double reference_load(const void *data, cddp_type type)
{
    float f32;
    double f64;
    uint16_t half;

    switch (type) {
    case CDDP_F32:
        memcpy(&f32, data, 4);
        return f32;
    case CDDP_F64:
        memcpy(&f64, data, 8);
        return f64;
    default:
        memcpy(&half, data, 2);
        return type == CDDP_F16 ? reference_decode16(half, 10, 15)
                                : reference_decode16(half, 7, 127);
    }
}

static int64_t reference_whole(const void *data, cddp_type type)
{
    int32_t i32;
    int64_t i64;

    if (type == CDDP_I32) {
        memcpy(&i32, data, 4);
        return i32;
    }
    if (type == CDDP_I64) {
        memcpy(&i64, data, 8);
        return i64;
    }
    return type == CDDP_I8 ? *(const signed char *)data : *(const unsigned char *)data;
}

static double reference_apply(double a, double b, cddp_op op, bool f64)
{
    double value;

    switch (op) {
    case CDDP_OP_MIN:
        return b < a ? b : a;
    case CDDP_OP_MAX:
        return b > a ? b : a;
    case CDDP_OP_PROD:
        value = a * b;
        break;
    default:
        value = a + b; /* the rounded double sum of two floats is their float sum */
    }
    return f64 ? value : (float)value;
}

static int64_t reference_apply_whole(int64_t a, int64_t b, cddp_op op)
{
    switch (op) {
    case CDDP_OP_AND:
        return a & b;
    case CDDP_OP_OR:
        return a | b;
    case CDDP_OP_XOR:
        return a ^ b;
    case CDDP_OP_MIN:
        return b < a ? b : a;
    case CDDP_OP_MAX:
        return b > a ? b : a;
    case CDDP_OP_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static void reference_store_whole(void *out, int64_t value, cddp_type type)
{
    uint32_t low = (uint32_t)value;

    if (type == CDDP_I64) {
        memcpy(out, &value, 8);
    } else if (type == CDDP_I32) {
        memcpy(out, &low, 4);
    } else {
        *(unsigned char *)out = (unsigned char)value;
    }
}

void reference_store(void *out, double value, cddp_type type)
{
    float f32 = (float)value;
    uint16_t half;

    if (type == CDDP_F64) {
        memcpy(out, &value, 8);
    } else if (type == CDDP_F32) {
        memcpy(out, &f32, 4);
    } else {
        half = type == CDDP_F16
                   ? reference_encode16(reference_round(value, 10, -14, 65504), 10, 15)
                   : reference_encode16(reference_round(value, 7, -126, 3.3895313892515355e38), 7,
                                        127);
        memcpy(out, &half, 2);
    }
}

void reference_reduce(void *out, const void *const *values, int n, cddp_type type, cddp_op op,
                      const double *weights)
{
    bool whole = type == CDDP_I32 || type == CDDP_I64 || type == CDDP_U8 || type == CDDP_I8 ||
                 type == CDDP_BOOL;
    bool f64 = type == CDDP_F64;
    double real[REFERENCE_RANKS];
    int64_t number[REFERENCE_RANKS];
    double total = 0;
    bool equal = true;
    int left = n;

    for (int r = 0; weights != NULL && r < n; r++) {
        total += weights[r];
        equal = equal && weights[r] == weights[0];
    }
    if (weights != NULL && equal && total > 0) {
        op = CDDP_OP_MEAN;
        weights = NULL;
    }
    for (int r = 0; r < n; r++) {
        number[r] = whole ? reference_whole(values[r], type) : 0;
        real[r] = whole ? 0 : reference_load(values[r], type);
        if (weights != NULL && (total == 0 || weights[r] == 0)) {
            real[r] = 0;
        } else if (weights != NULL) {
            real[r] = f64 ? real[r] * (weights[r] / total)
                          : (float)real[r] * (float)(weights[r] / total);
        }
    }
    for (; left > 1; left = (left + 1) / 2) {
        for (int i = 0; i < left / 2; i++) {
            number[i] = reference_apply_whole(number[2 * i], number[2 * i + 1], op);
            real[i] = reference_apply(real[2 * i], real[2 * i + 1], op, f64);
        }
        if (left % 2 == 1) {
            number[left / 2] = number[left - 1];
            real[left / 2] = real[left - 1];
        }
    }
    if (type == CDDP_BOOL && (op == CDDP_OP_SUM || op == CDDP_OP_MEAN)) {
        number[0] = number[0] != 0; /* whether any value was nonzero */
    }
    if (whole) {
        reference_store_whole(out, op == CDDP_OP_MEAN ? number[0] / n : number[0], type);
        return;
    }
    if (op == CDDP_OP_MEAN) {
        real[0] = f64 ? real[0] * (1.0 / n) : (float)real[0] * (float)(1.0 / n);
    }
    reference_store(out, real[0], type);
}

void reference_fill(void *out, int rank, size_t index, cddp_type type)
{
    uint32_t mixed = ((uint32_t)index * 2654435761u) ^ ((uint32_t)rank * 40503u + 977u) * 69069u;
    int value = (int)(mixed >> 16 & 1023) - 512;

    if (type == CDDP_I32) {
        reference_store_whole(out, (int64_t)value * 3000017, type);
    } else if (type == CDDP_I64) {
        reference_store_whole(out, (int64_t)value * 9007199254740993, type);
    } else if (type == CDDP_U8 || type == CDDP_I8) {
        reference_store_whole(out, value & 255, type);
    } else if (type == CDDP_BOOL) {
        reference_store_whole(out, value % 3 == 0, type);
    } else if (type == CDDP_F16 || type == CDDP_BF16) {
        uint16_t bits = (uint16_t)((type == CDDP_F16 ? 0x3400 : 0x3e80) + (mixed >> 16 & 0x3ff) +
                                   (mixed & 0x8000));

        memcpy(out, &bits, 2);
    } else {
        reference_store(out, value * 1.1 + 1.0 / 3, type);
    }
}
