/* test_exact_sum.c - sums without rounding: compared with integers of 2300 bits, in any order and
 * in any parts. */
#include "base/exact_sum.h"
#include "support/test.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

enum { LIMBS = 72, COUNT = 4000, DRAWS = 60 };

/* An integer in units of 2^-1074, in two's complement. */
struct big {
    uint32_t limbs[LIMBS];
};

static uint64_t seed = 88172645463325252u;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 2685821657736338717u;
}

static double from_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void assert_same(double a, double b)
{
    assert_int_equal(bits_of(a), bits_of(b));
}

static void negate(struct big *big)
{
    uint64_t carry = 1;

    for (int i = 0; i < LIMBS; i++) {
        carry += (uint32_t)~big->limbs[i];
        big->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void add_big(struct big *into, const struct big *from)
{
    uint64_t carry = 0;

    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)into->limbs[i] + from->limbs[i];
        into->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Infinity is what follows the largest double: 2^1024. */
static struct big big_of(double value)
{
    struct big big = {{0}};
    int exponent;
    double fraction = isinf(value) ? 0.5 : frexp(fabs(value), &exponent);
    uint64_t mantissa = (uint64_t)(fraction * 0x1p53);

    exponent = isinf(value) ? 1025 : exponent;
    for (int bit = 0; bit < 53; bit++) {
        int at = exponent - 53 + 1074 + bit;

        if ((mantissa >> bit & 1) != 0) {
            assert_true(at >= 0);
            big.limbs[at / 32] |= 1u << at % 32;
        }
    }
    if (value < 0) {
        negate(&big);
    }
    return big;
}

static int compare_big(const struct big *a, const struct big *b)
{
    for (int i = LIMBS - 1; i >= 0; i--) {
        if (a->limbs[i] != b->limbs[i]) {
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
        }
    }
    return 0;
}

/* |sum - value| */
static struct big distance(const struct big *sum, double value)
{
    struct big result = big_of(-value);

    add_big(&result, sum);
    if ((result.limbs[LIMBS - 1] >> 31) != 0) {
        negate(&result);
    }
    return result;
}

/* Neither neighbour of @p value is nearer to @p sum, and one that is as near is odd. */
static void assert_nearest(const struct big *sum, double value)
{
    struct big own = distance(sum, value);

    for (int i = 0; i < 2; i++) {
        double other = nextafter(value, i == 0 ? INFINITY : -INFINITY);
        struct big others = distance(sum, other);
        int order = compare_big(&own, &others);

        if (!isinf(value) || fabs(other) < fabs(value)) {
            assert_true(order < 0 || (order == 0 && (bits_of(value) & 1) == 0));
        }
    }
}

/* A finite number; the exponent is in [@p low, @p high) of 0 to 2047. */
static double draw_number(unsigned low, unsigned high)
{
    uint64_t exponent = low + draw() % (high - low);

    return from_bits((draw() & ~(UINT64_C(0x7ff) << 52)) | exponent << 52);
}

static struct big sum_big(const double *values, int count)
{
    struct big sum = {{0}};

    for (int i = 0; i < count; i++) {
        struct big one = big_of(values[i]);

        add_big(&sum, &one);
    }
    return sum;
}

static void add_all(struct cddpi_exact_sum *sum, const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        cddpi_exact_add(sum, values[i]);
    }
}

static double sum_of(const double *values, int count)
{
    struct cddpi_exact_sum sum = {{0}};

    add_all(&sum, values, count);
    return cddpi_exact_value(&sum);
}

static void sums_are_the_nearest_doubles(void **state)
{
    static double values[COUNT];

    (void)state;
    for (int round = 0; round < DRAWS; round++) {
        unsigned low = (unsigned)(draw() % 2047);
        unsigned high = round % 3 == 0 ? 2047 : low + 1 + (unsigned)(draw() % (2047 - low));
        int count = 1 + (int)(draw() % (round % 2 == 0 ? 5 : COUNT));
        struct big exact;

        for (int i = 0; i < count; i++) {
            values[i] = draw_number(round % 3 == 0 ? 0 : low, high);
        }
        exact = sum_big(values, count);
        assert_nearest(&exact, sum_of(values, count));
    }
}

/* Large terms that go away leave the small ones. */
static void cancelled_terms_leave_nothing(void **state)
{
    static double values[COUNT];

    (void)state;
    for (int round = 0; round < DRAWS; round++) {
        double left = draw_number(0, 2047);

        for (int i = 0; i < COUNT; i += 2) {
            values[i] = draw_number(0, 2047);
            values[i + 1] = -values[i];
        }
        assert_same(sum_of(values, COUNT), 0.0);
        values[0] = left; /* in place of a pair */
        values[1] = 0;
        assert_same(sum_of(values, COUNT), left);
    }
}

/* Fisher and Yates. */
static void shuffle(double *values, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(draw() % (uint64_t)(i + 1));
        double kept = values[i];

        values[i] = values[j];
        values[j] = kept;
    }
}

/* As an all-reduce of integers adds them. */
static void add_parts(struct cddpi_exact_sum *into, const struct cddpi_exact_sum *from)
{
    for (int i = 0; i < CDDPI_EXACT_PARTS; i++) {
        into->parts[i] += from->parts[i];
    }
}

static void neither_order_nor_parts_change_a_sum(void **state)
{
    static double values[COUNT];

    (void)state;
    for (int round = 0; round < DRAWS; round++) {
        struct cddpi_exact_sum whole = {{0}};
        struct cddpi_exact_sum merged = {{0}};
        struct cddpi_exact_sum reduced = {{0}};
        int ranks = 1 + (int)(draw() % 9);

        for (int i = 0; i < COUNT; i++) {
            values[i] = draw_number(0, round % 2 == 0 ? 2047 : 1100);
        }
        add_all(&whole, values, COUNT);
        shuffle(values, COUNT);
        for (int rank = 0, at = 0; rank < ranks; rank++) {
            int end = rank == ranks - 1 ? COUNT : at + (int)(draw() % (uint64_t)(COUNT - at + 1));
            struct cddpi_exact_sum part = {{0}};

            add_all(&part, values + at, end - at);
            cddpi_exact_merge(&merged, &part);
            cddpi_exact_carry(&part);
            add_parts(&reduced, &part);
            at = end;
        }
        assert_same(cddpi_exact_value(&whole), cddpi_exact_value(&merged));
        assert_same(cddpi_exact_value(&whole), cddpi_exact_value(&reduced));
        cddpi_exact_carry(&whole);
        cddpi_exact_carry(&merged);
        cddpi_exact_carry(&reduced);
        assert_memory_equal(&whole, &merged, sizeof whole);
        assert_memory_equal(&whole, &reduced, sizeof whole);
    }
}

static double sum2(double a, double b)
{
    return sum_of((const double[]){a, b}, 2);
}

static double sum3(double a, double b, double c)
{
    return sum_of((const double[]){a, b, c}, 3);
}

static void a_tie_goes_to_the_even_neighbour(void **state)
{
    const double tiny = 0x1p-1074;

    (void)state;
    assert_same(sum2(1, 0x1p-53), 1);
    assert_same(sum3(1, 0x1p-53, tiny), 1 + 0x1p-52);
    assert_same(sum3(1, 0x1p-53, -tiny), 1);
    assert_same(sum2(1 + 0x1p-52, 0x1p-53), 1 + 0x1p-51);
    assert_same(sum2(-1 - 0x1p-52, -0x1p-53), -1 - 0x1p-51);
    assert_same(sum3(-1, -0x1p-53, tiny), -1);
    assert_same(sum2(2 - 0x1p-52, 0x1p-53), 2); /* the carry goes into the exponent */
    assert_same(sum2(0x1p62, tiny), 0x1p62);
}

static void the_ends_of_the_range_are_exact(void **state)
{
    const double tiny = 0x1p-1074;

    (void)state;
    assert_same(sum_of(NULL, 0), 0.0);
    assert_same(sum2(-0.0, -0.0), 0.0);
    assert_same(sum2(tiny, tiny), 2 * tiny);
    assert_same(sum2(-3 * tiny, tiny), -2 * tiny);
    assert_same(sum2(DBL_MIN, -tiny), DBL_MIN - tiny);
    assert_same(sum2(DBL_MIN - tiny, tiny), DBL_MIN);
    assert_same(sum2(2 * DBL_MIN, tiny), 2 * DBL_MIN);
    assert_same(sum2(2 * DBL_MIN, 3 * tiny), 2 * DBL_MIN + 4 * tiny);
    assert_same(sum2(DBL_MAX, tiny), DBL_MAX);
    assert_same(sum2(DBL_MAX, 0x1p970), INFINITY); /* half of the last place */
    assert_same(sum3(DBL_MAX, 0x1p970, -tiny), DBL_MAX);
    assert_same(sum2(-DBL_MAX, -DBL_MAX), -INFINITY);
    assert_same(sum3(-DBL_MAX, -DBL_MAX, DBL_MAX), -DBL_MAX);
    assert_same(sum3(INFINITY, -DBL_MAX, INFINITY), INFINITY);
    assert_same(sum3(-INFINITY, DBL_MAX, 1), -INFINITY);
    assert_true(isnan(sum2(INFINITY, -INFINITY)));
    assert_true(isnan(sum2(NAN, -INFINITY)));
    assert_true(isnan(sum2(1, -NAN)));
}

/* Parts are as full as 2^30 terms make them, and the sum still counts. */
static void carries_come_in_time(void **state)
{
    struct cddpi_exact_sum sum = {{0}};
    struct cddpi_exact_sum other;

    (void)state;
    for (int i = 0; i < CDDPI_EXACT_VALUES; i++) {
        sum.parts[i] = INT64_C(0xffffffff) * (CDDPI_EXACT_TERMS_MOST - 1);
    }
    sum.parts[CDDPI_EXACT_VALUES - 1] = 0; /* below 2^1024 */
    sum.parts[CDDPI_EXACT_VALUES - 2] = 0;
    sum.parts[CDDPI_EXACT_VALUES - 3] = 0;
    sum.parts[CDDPI_EXACT_TERMS] = CDDPI_EXACT_TERMS_MOST - 1;
    other = sum;
    cddpi_exact_add(&sum, 1);
    assert_int_equal(sum.parts[CDDPI_EXACT_TERMS], CDDPI_EXACT_TERMS_MOST);
    cddpi_exact_add(&sum, -1);
    assert_int_equal(sum.parts[CDDPI_EXACT_TERMS], 1);
    for (int i = 0; i < CDDPI_EXACT_TERMS; i++) {
        assert_true(sum.parts[i] > -INT64_C(0x100000000) && sum.parts[i] < INT64_C(0x100000000));
    }
    assert_same(cddpi_exact_value(&sum), cddpi_exact_value(&other));
    cddpi_exact_carry(&sum);
    for (int i = 0; i < 3; i++) { /* three times what is held, by merging */
        cddpi_exact_merge(&sum, &other);
        cddpi_exact_merge(&other, &(struct cddpi_exact_sum){{0}});
    }
    assert_same(cddpi_exact_value(&sum), 4 * cddpi_exact_value(&other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_nearest_doubles),
        cmocka_unit_test(cancelled_terms_leave_nothing),
        cmocka_unit_test(neither_order_nor_parts_change_a_sum),
        cmocka_unit_test(a_tie_goes_to_the_even_neighbour),
        cmocka_unit_test(the_ends_of_the_range_are_exact),
        cmocka_unit_test(carries_come_in_time),
    };

    return cmocka_run_group_tests_name("exact_sum", tests, NULL, NULL);
}
