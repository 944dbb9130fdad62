/* test_nn_bf16_kernels.c - the factors of bf16 products, and conversions of images between
 * layouts. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/reduce.h"
#include "support/nn.h"

static float *made_up(size_t count, uint32_t stream)
{
    float *values = malloc((count + 1) * sizeof *values);

    for (size_t i = 0; i < count; i++) {
        values[i] = test_number(stream, i);
    }
    return values;
}

/* Forms of a matrix, with a number behind each that must stay. */
struct forms {
    struct cddpi_bf16_forms to;
    size_t counts[3];
};

static struct forms make_forms(size_t rows, size_t columns)
{
    struct forms forms = {
        .counts = {rows * columns, cddpi_bf16_packed_count(rows, columns), rows * columns}};
    uint16_t **places[] = {&forms.to.plain, &forms.to.packed, &forms.to.transposed};

    for (int i = 0; i < 3; i++) {
        *places[i] = malloc((forms.counts[i] + 1) * sizeof **places[i]);
        memset(*places[i], 0x55, (forms.counts[i] + 1) * sizeof **places[i]);
    }
    return forms;
}

static void free_forms(struct forms *forms)
{
    free(forms->to.plain);
    free(forms->to.packed);
    free(forms->to.transposed);
}

static const size_t shapes[][2] = {{1, 1},   {32, 16}, {32, 64},  {33, 65},   {7, 200},
                                   {200, 7}, {96, 48}, {70, 130}, {300, 1100}};

static void plain_and_transposed_forms_hold_what_a_cast_gives(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        float *x = made_up(rows * columns, 1);
        uint16_t *cast = malloc(rows * columns * sizeof *cast);
        struct forms forms = make_forms(rows, columns);

        cddpi_cast(cast, CDDP_BF16, x, CDDP_F32, rows * columns);
        cddpi_bf16_split(x, rows, columns, &forms.to);
        assert_memory_equal(forms.to.plain, cast, rows * columns * sizeof *cast);
        for (size_t i = 0; i < rows * columns; i++) {
            assert_int_equal(forms.to.transposed[i % columns * rows + i / columns], cast[i]);
        }
        assert_int_equal(forms.to.plain[rows * columns], 0x5555);
        assert_int_equal(forms.to.transposed[rows * columns], 0x5555);
        free_forms(&forms);
        free(cast);
        free(x);
    }
}

static void packed_form_holds_pairs_of_rows_in_blocks_filled_with_zeros(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        size_t blocks = (rows + 31) / 32;
        float *x = made_up(rows * columns, 2);
        struct forms forms = make_forms(rows, columns);

        cddpi_bf16_split(x, rows, columns, &forms.to);
        for (size_t i = 0; i < forms.counts[1]; i++) {
            size_t block = i / 2048;
            size_t row = block % blocks * 32 + i % 2048 / 128 * 2 + i % 2;
            size_t column = block / blocks * 64 + i % 128 / 2;
            bool inside = row < rows && column < columns;

            assert_int_equal(forms.to.packed[i],
                             inside ? forms.to.plain[row * columns + column] : 0);
        }
        assert_int_equal(forms.to.packed[forms.counts[1]], 0x5555);
        free_forms(&forms);
        free(x);
    }
}

static void packing_the_transpose_is_packing_what_was_transposed(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        float *x = made_up(rows * columns, 3);
        float *turned = malloc(rows * columns * sizeof *turned);
        struct forms direct = make_forms(columns, rows);
        struct forms expected = make_forms(columns, rows);

        for (size_t i = 0; i < rows * columns; i++) {
            turned[i % columns * rows + i / columns] = x[i];
        }
        cddpi_bf16_split(turned, columns, rows, &expected.to);
        cddpi_bf16_pack_transposed(x, rows, columns, direct.to.packed);
        assert_memory_equal(direct.to.packed, expected.to.packed,
                            (direct.counts[1] + 1) * sizeof(uint16_t));
        free_forms(&direct);
        free_forms(&expected);
        free(turned);
        free(x);
    }
}

static void sums_of_columns_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        float *x = made_up(rows * columns, 5);
        double *sums = malloc(3 * columns * sizeof *sums); /* and what is right, and magnitudes */
        struct forms forms = make_forms(rows, columns);

        for (size_t c = 0; c < columns; c++) {
            sums[c] = sums[columns + c] = (double)c;
            sums[2 * columns + c] = (double)c;
        }
        for (size_t i = 0; i < rows * columns; i++) {
            sums[columns + i % columns] += (double)x[i];
            sums[2 * columns + i % columns] += fabs((double)x[i]);
        }
        forms.to.sums = sums;
        cddpi_bf16_split(x, rows, columns, &forms.to);
        for (size_t c = 0; c < columns; c++) {
            double right = sums[columns + c];

            assert_true(isnan(right) ? isnan(sums[c])
                                     : sums[c] == right ||
                                           fabs(sums[c] - right) <= 1e-6 * sums[2 * columns + c]);
        }
        free_forms(&forms);
        free(x);
        free(sums);
    }
}

/* Numbers that round up, down, to even, to infinity, and those that are none. */
static void fill_with_edges(float *x, size_t count)
{
    static const uint32_t edges[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                                     0xff7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0xffffffff,
                                     0x00000001, 0x80008000, 0x00000000, 0x80000000};

    for (size_t i = 0; i < count; i++) {
        memcpy(&x[i], &edges[i % COUNT_OF(edges)], sizeof x[i]);
    }
}

static void every_instruction_set_makes_the_same_forms_of_every_number(void **state)
{
    enum { ROWS = 200, COLUMNS = 96 };
    float x[ROWS * COLUMNS];
    struct forms here = make_forms(ROWS, COLUMNS);
    struct forms generic = make_forms(ROWS, COLUMNS);
    uint16_t *packed[] = {malloc(2 * 256 * 96), malloc(2 * 256 * 96)};

    (void)state;
    fill_with_edges(x, ROWS * COLUMNS);
    cddpi_bf16_split(x, ROWS, COLUMNS, &here.to);
    cddpi_bf16_split_generic(x, ROWS, COLUMNS, &generic.to);
    assert_memory_equal(here.to.plain, generic.to.plain, 2 * generic.counts[0]);
    assert_memory_equal(here.to.packed, generic.to.packed, 2 * generic.counts[1]);
    assert_memory_equal(here.to.transposed, generic.to.transposed, 2 * generic.counts[2]);
    cddpi_bf16_pack_transposed(x, ROWS, COLUMNS, packed[0]);
    cddpi_bf16_pack_transposed_generic(x, ROWS, COLUMNS, packed[1]);
    assert_memory_equal(packed[0], packed[1], 2 * cddpi_bf16_packed_count(COLUMNS, ROWS));
    free_forms(&here);
    free_forms(&generic);
    free(packed[0]);
    free(packed[1]);
}

static void rounding_gives_what_bf16_can_hold(void **state)
{
    float x[100];
    float out[100];
    uint16_t half[100];
    float back[100];

    (void)state;
    fill_with_edges(x, COUNT_OF(x));
    cddpi_nn_round_bf16(x, out, COUNT_OF(x));
    cddpi_cast(half, CDDP_BF16, x, CDDP_F32, COUNT_OF(x));
    cddpi_cast(back, CDDP_F32, half, CDDP_BF16, COUNT_OF(x));
    assert_memory_equal(out, back, sizeof out);
}

static size_t place_of(const struct cddpi_nn_layout *layout, size_t n, size_t c, size_t s)
{
    size_t groups = (layout->channels + layout->block - 1) / layout->block;

    return ((n * groups + c / layout->block) * layout->spatial + s) * layout->block +
           c % layout->block;
}

static void images_keep_their_elements_from_any_layout_to_any(void **state)
{
    static const size_t cases[][3] = {{16, 32, 32}, {32, 16, 32}, {8, 16, 48}, {16, 16, 16},
                                      {16, 20, 20}, {8, 24, 24},  {1, 32, 32}, {32, 1, 32},
                                      {16, 48, 48}, {48, 16, 48}, {16, 8, 20}};
    enum { SAMPLES = 3, SPATIAL = 5, MOST = SAMPLES * SPATIAL * 64 };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cddpi_nn_layout from = {SAMPLES, cases[i][2], SPATIAL, cases[i][0]};
        struct cddpi_nn_layout to = {SAMPLES, cases[i][2], SPATIAL, cases[i][1]};
        float *plain = made_up(SAMPLES * SPATIAL * cases[i][2], 4);
        float in[MOST] = {0};
        float out[MOST];

        for (size_t e = 0; e < SAMPLES * SPATIAL * cases[i][2]; e++) {
            in[place_of(&from, e / (SPATIAL * cases[i][2]), e / SPATIAL % cases[i][2],
                        e % SPATIAL)] = plain[e];
        }
        memset(out, 0x55, sizeof out);
        cddpi_nn_convert(in, &from, out, &to);
        for (size_t e = 0; e < SAMPLES * SPATIAL * cases[i][2]; e++) {
            assert_true(plain[e] == out[place_of(&to, e / (SPATIAL * cases[i][2]),
                                                 e / SPATIAL % cases[i][2], e % SPATIAL)]);
        }
        free(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_transposed_forms_hold_what_a_cast_gives),
        cmocka_unit_test(packed_form_holds_pairs_of_rows_in_blocks_filled_with_zeros),
        cmocka_unit_test(packing_the_transpose_is_packing_what_was_transposed),
        cmocka_unit_test(sums_of_columns_are_those_of_float64),
        cmocka_unit_test(every_instruction_set_makes_the_same_forms_of_every_number),
        cmocka_unit_test(rounding_gives_what_bf16_can_hold),
        cmocka_unit_test(images_keep_their_elements_from_any_layout_to_any),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
