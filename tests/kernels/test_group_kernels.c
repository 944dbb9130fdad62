/* test_group_kernels.c - reductions and casts: the same bits on every instruction set. */
#include "kernels/cpu/reduce.h"
#include "support/group_reference.h"
#include "support/test.h"

enum { COUNT = 2500, MAX_SOURCES = 13 };

static unsigned char sources[MAX_SOURCES][COUNT * 8];
static unsigned char first[COUNT * 8];
static unsigned char other[2][COUNT * 8];
static unsigned char kept[COUNT * 8];

static const cddp_type types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16, CDDP_I32,
                                  CDDP_I64, CDDP_U8,  CDDP_I8,  CDDP_BOOL};

/* More than a block of the kernel. */
static size_t count_of(cddp_type type)
{
    return cddp_type_bytes(type) == 1 ? 2 * COUNT : COUNT;
}

static void compare_isas(cddp_type type, cddp_op op, int n, const double *factors)
{
    struct cddpi_reduce how = {type, op, n, 1, factors};
    const void *src[MAX_SOURCES];
    void *dst[2] = {first, NULL};
    size_t bytes = count_of(type) * cddp_type_bytes(type);
    size_t isas;
    const struct cddpi_reduce_isa *const *isa = cddpi_reduce_isas(&isas);

    for (int s = 0; s < n; s++) {
        src[s] = sources[s];
        for (size_t i = 0; i < count_of(type); i++) {
            reference_fill(sources[s] + i * cddp_type_bytes(type), s, i, type);
        }
    }
    isa[0]->reduce(&how, dst, src, count_of(type));
    for (size_t k = 1; k < isas; k++) {
        how.destinations = 2;
        dst[0] = other[0];
        dst[1] = other[1];
        isa[k]->reduce(&how, dst, src, count_of(type));
        assert_memory_equal(other[0], first, bytes);
        assert_memory_equal(other[1], first, bytes);
        dst[1] = sources[n / 2]; /* in place */
        memcpy(kept, sources[n / 2], bytes);
        isa[k]->reduce(&how, dst, src, count_of(type));
        assert_memory_equal(sources[n / 2], first, bytes);
        memcpy(sources[n / 2], kept, bytes);
    }
    for (size_t i = 0; i < count_of(type) && factors == NULL; i += 17) {
        const void *values[MAX_SOURCES];
        uint64_t expected = 0;

        for (int s = 0; s < n; s++) {
            values[s] = sources[s] + i * cddp_type_bytes(type);
        }
        reference_reduce(&expected, values, n, type, op, NULL);
        assert_memory_equal(first + i * cddp_type_bytes(type), &expected, cddp_type_bytes(type));
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    static const double factors[MAX_SOURCES] = {.1, 0, .2, .05, 0, 0, .3, .15, .1, 0, 0, .1, 0};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int n = 1; n <= MAX_SOURCES; n++) {
            for (int op = CDDP_OP_SUM; op <= (t < 4 ? CDDP_OP_PROD : CDDP_OP_XOR); op++) {
                if (types[t] != CDDP_BOOL || op != CDDP_OP_MEAN) {
                    compare_isas(types[t], (cddp_op)op, n, NULL);
                }
            }
            if (t < 4) {
                compare_isas(types[t], CDDP_OP_SUM, n, factors);
            }
        }
    }
}

static void a_result_may_lie_where_a_source_lies(void **state)
{
    struct cddpi_reduce how = {CDDP_F32, CDDP_OP_SUM, 3, 3, NULL};
    float a[] = {1, 2, 3};
    float b[] = {10, 20, 30};
    float c[] = {100, 200, 300};
    void *dst[] = {a, b, c};
    const void *src[] = {a, b, c};

    (void)state;
    cddpi_reduce(&how, dst, src, 3);
    assert_true(a[2] == 333 && b[1] == 222 && c[0] == 111);
}

static bool is_nan16(uint16_t bits, cddp_type type)
{
    return (bits & 0x7fff) > (type == CDDP_F16 ? 0x7c00 : 0x7f80);
}

/* All 65536 numbers there and back, on every instruction set; NaN stays one. */
static void check_all_halves(cddp_type type)
{
    static uint16_t in[65536];
    static uint16_t back[65536];
    static float wide[65536];
    static float wide_generic[65536];
    size_t isas;
    const struct cddpi_reduce_isa *const *isa = cddpi_reduce_isas(&isas);

    for (int i = 0; i < 65536; i++) {
        in[i] = (uint16_t)i;
    }
    isa[0]->cast(wide_generic, CDDP_F32, in, type, 65536);
    for (size_t k = 0; k < isas; k++) {
        isa[k]->cast(wide, CDDP_F32, in, type, 65536);
        assert_memory_equal(wide, wide_generic, sizeof wide);
        isa[k]->cast(back, type, wide, CDDP_F32, 65536);
        for (int i = 0; i < 65536; i++) {
            if (is_nan16(in[i], type)) {
                assert_true(is_nan16(back[i], type));
            } else {
                assert_int_equal(back[i], in[i]);
                assert_true((double)wide[i] == reference_load(&in[i], type) ||
                            reference_load(&in[i], type) != reference_load(&in[i], type));
            }
        }
    }
}

static void a_cast_to_a_type_of_the_same_size_may_be_in_place(void **state)
{
    static uint16_t in[COUNT], out[COUNT], over[COUNT];
    size_t isas;
    const struct cddpi_reduce_isa *const *isa = cddpi_reduce_isas(&isas);

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        in[i] = (uint16_t)(i * 40503u);
    }
    for (size_t k = 0; k < isas; k++) {
        for (int t = 2; t < 4; t++) {
            cddp_type to = t == 2 ? CDDP_BF16 : CDDP_F16;

            isa[0]->cast(out, to, in, types[t], COUNT);
            memcpy(over, in, sizeof in);
            isa[k]->cast(over, to, over, types[t], COUNT);
            assert_memory_equal(over, out, sizeof out);
        }
    }
}

static void every_16_bit_number_survives_a_trip_to_f32(void **state)
{
    (void)state;
    check_all_halves(CDDP_F16);
    check_all_halves(CDDP_BF16);
}

/* Floats of every size and sign, among them those that lie half way. */
static void casts_round_to_nearest_even_everywhere(void **state)
{
    static float in[1 << 16];
    static uint16_t generic[1 << 16];
    static uint16_t out[1 << 16];
    size_t isas;
    const struct cddpi_reduce_isa *const *isa = cddpi_reduce_isas(&isas);

    (void)state;
    for (uint32_t i = 0; i < 1 << 16; i++) {
        uint32_t bits = i << 16 | (i % 3 == 0 ? 0x8000 : i % 3 == 1 ? 0x1000 : i * 40503u % 65536);

        memcpy(&in[i], &bits, 4);
    }
    for (int t = 2; t < 4; t++) {
        isa[0]->cast(generic, types[t], in, CDDP_F32, 1 << 16);
        for (size_t k = 1; k < isas; k++) {
            isa[k]->cast(out, types[t], in, CDDP_F32, 1 << 16);
            assert_memory_equal(out, generic, sizeof out);
        }
        for (uint32_t i = 0; i < 1 << 16; i += 13) {
            uint64_t wanted = 0;
            uint16_t expected;

            if (in[i] != in[i]) {
                assert_true(is_nan16(generic[i], types[t]));
                continue;
            }
            reference_store(&wanted, in[i], types[t]);
            memcpy(&expected, &wanted, sizeof expected);
            if (generic[i] != expected &&
                !(isinf(reference_load(&generic[i], types[t])) && expected == 0x7fff)) {
                double got = reference_load(&generic[i], types[t]);

                fail_msg("%s of %a is %a", cddp_type_name(types[t]), (double)in[i], got);
            }
        }
    }
}

static void a_nan_is_never_lost(void **state)
{
    (void)state;
    for (size_t t = 0; t < 4; t++) {
        for (int op = CDDP_OP_SUM; op <= CDDP_OP_PROD; op++) {
            for (int bad = 0; bad < 5; bad++) {
                struct cddpi_reduce how = {types[t], (cddp_op)op, 5, 1, NULL};
                const void *src[5];
                void *dst[1] = {first};
                double got;

                for (int s = 0; s < 5; s++) {
                    reference_fill(sources[s], s, 1, types[t]);
                    src[s] = sources[s];
                }
                memset(sources[bad], 0xff, 8);
                cddpi_reduce(&how, dst, src, 1);
                got = reference_load(first, types[t]);
                assert_true(got != got);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(a_result_may_lie_where_a_source_lies),
        cmocka_unit_test(a_cast_to_a_type_of_the_same_size_may_be_in_place),
        cmocka_unit_test(every_16_bit_number_survives_a_trip_to_f32),
        cmocka_unit_test(casts_round_to_nearest_even_everywhere),
        cmocka_unit_test(a_nan_is_never_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
