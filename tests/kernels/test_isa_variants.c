/* test_isa_variants.c - the kernels that choose an instruction set by themselves (CDDPI_VARIANTS,
 * and the forms of bf16): with each, the same bits, also in place. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/elementwise.h"
#include "support/isa.h"
#include "support/test.h"

static const size_t some_rows[] = {1, 3, 16, 17, 70};
static const size_t some_columns[] = {1, 7, 16, 33, 1024, 1027};

static void rows_and_columns(struct isa_arena *arena, size_t rows, size_t columns)
{
    size_t count = rows * columns;
    float *x = isa_numbers(count);
    float *y = isa_numbers(count);
    float *bias = isa_numbers(columns);
    uint32_t *list = malloc(rows * sizeof *list);
    float *masked;

    for (size_t r = 0; r < rows; r++) {
        list[r] = isa_draw() % (uint32_t)rows;
    }
    cddpi_nn_add_bias(isa_copy(arena, "add_bias", x, count), bias, rows, columns);
    cddpi_nn_add_bias_relu(isa_copy(arena, "add_bias_relu", x, count), bias, rows, columns);
    cddpi_nn_add_column_sums(x, isa_copy(arena, "add_column_sums", bias, columns), rows, columns);
    masked = isa_out(arena, "mask_column_sums", count);
    cddpi_nn_mask_column_sums(x, y, masked, isa_copy(arena, "its sums", bias, columns), rows,
                              columns);
    masked = isa_copy(arena, "mask_column_sums in place", x, count);
    cddpi_nn_mask_column_sums(masked, y, masked, isa_copy(arena, "its sums", bias, columns), rows,
                              columns);
    masked = isa_copy(arena, "mask_column_sums over y", y, count);
    cddpi_nn_mask_column_sums(x, masked, masked, isa_copy(arena, "its sums", bias, columns), rows,
                              columns);
    cddpi_nn_add_listed_rows(x, list, rows, columns,
                             isa_copy(arena, "add_listed_rows", bias, columns));
    free(list);
    free(bias);
    free(y);
    free(x);
}

static void elements(struct isa_arena *arena, size_t count)
{
    float *a = isa_numbers(count);
    float *b = isa_numbers(count);
    float *y = isa_numbers(count);
    float *over;

    cddpi_nn_relu(a, isa_out(arena, "relu", count), count);
    over = isa_copy(arena, "relu in place", a, count);
    cddpi_nn_relu(over, over, count);
    cddpi_nn_relu_backward(a, y, isa_out(arena, "relu_backward", count), count);
    over = isa_copy(arena, "relu_backward over dy", a, count);
    cddpi_nn_relu_backward(over, y, over, count);
    over = isa_copy(arena, "relu_backward over y", y, count);
    cddpi_nn_relu_backward(a, over, over, count);
    cddpi_nn_relu_backward_sum(a, b, y, isa_out(arena, "relu_backward_sum", count), count);
    over = isa_copy(arena, "relu_backward_sum over b", b, count);
    cddpi_nn_relu_backward_sum(a, over, y, over, count);
    cddpi_nn_add(a, b, isa_out(arena, "add", count), count);
    over = isa_copy(arena, "add over b", b, count);
    cddpi_nn_add(a, over, over, count);
    cddpi_nn_add_relu(a, b, isa_out(arena, "add_relu", count), count);
    over = isa_copy(arena, "add_relu over a", a, count);
    cddpi_nn_add_relu(over, b, over, count);
    cddpi_nn_round_bf16(a, isa_out(arena, "round_bf16", count), count);
    over = isa_copy(arena, "round_bf16 in place", a, count);
    cddpi_nn_round_bf16(over, over, count);
    free(y);
    free(b);
    free(a);
}

static size_t layout_elements(const struct cddpi_nn_layout *layout)
{
    size_t padded = (layout->channels + layout->block - 1) / layout->block * layout->block;

    return layout->samples * padded * layout->spatial;
}

static void layouts(struct isa_arena *arena, size_t channels, size_t spatial, size_t block)
{
    const struct cddpi_nn_layout layout = {3, channels, spatial, block};
    const struct cddpi_nn_layout plain_layout = {3, channels, spatial, 1};
    size_t count = layout_elements(&layout);
    size_t plain_count = layout_elements(&plain_layout);
    float *plain = isa_numbers(plain_count);
    float *mean = isa_numbers(3 * channels);
    uint8_t *kept = malloc((channels * spatial + 7) / 8);
    float *x = isa_out(arena, "from_plain", count);

    cddpi_nn_from_plain(plain, &layout, x);
    cddpi_nn_to_plain(x, &layout, isa_out(arena, "to_plain", plain_count));
    cddpi_nn_global_mean(x, &layout, isa_out(arena, "global_mean", 3 * channels));
    cddpi_nn_global_mean_backward(mean, &layout, isa_out(arena, "global_mean_backward", count));
    for (size_t i = 0; i < (channels * spatial + 7) / 8; i++) {
        kept[i] = (uint8_t)isa_draw();
    }
    for (size_t n = 0; n < 3; n++) {
        cddpi_nn_dropout(x + n * count / 3, kept, 1.25f, isa_out(arena, "dropout", count / 3),
                         channels, spatial, block);
    }
    for (size_t other = 1; other <= channels; other += channels > 8 ? 7 : 1) {
        const struct cddpi_nn_layout to = {3, channels, spatial, other};

        cddpi_nn_reblock(x, &layout, isa_out(arena, "reblock", layout_elements(&to)), &to);
        if (channels % other == 0 && channels % block == 0 &&
            (other % block == 0 || block % other == 0)) {
            cddpi_nn_regroup(x, &layout, isa_out(arena, "regroup", layout_elements(&to)), &to);
        }
    }
    free(kept);
    free(mean);
    free(plain);
}

static void windows(struct isa_arena *arena, size_t lanes, size_t kernel, size_t stride,
                    size_t padding)
{
    struct cddpi_nn_window window = {.planes = 2,
                                     .lanes = lanes,
                                     .height = 9,
                                     .width = 11,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .padding = padding};
    size_t in, out, lines, row;
    float *x, *dy, *columns;
    int32_t *from;

    window.out_height = (window.height + 2 * padding - kernel) / stride + 1;
    window.out_width = (window.width + 2 * padding - kernel) / stride + 1;
    in = window.planes * window.height * window.width * lanes;
    out = window.planes * window.out_height * window.out_width * lanes;
    lines = window.planes * window.out_height;
    row = window.out_width * kernel * kernel * lanes;
    x = isa_numbers(in);
    dy = isa_numbers(out);
    from = isa_take(arena, "max_pool's places", out * sizeof *from);
    cddpi_nn_max_pool(x, &window, isa_out(arena, "max_pool", out), from);
    cddpi_nn_max_pool_backward(dy, from, &window, isa_out(arena, "max_pool_backward", in));
    cddpi_nn_avg_pool(x, &window, isa_out(arena, "avg_pool", out));
    cddpi_nn_avg_pool_backward(dy, &window, isa_out(arena, "avg_pool_backward", in));
    columns = isa_out(arena, "columns", (lines - 2) * row);
    cddpi_nn_columns(x, &window, 1, lines - 2, columns);
    cddpi_nn_add_columns(columns, &window, 1, lines - 2, isa_copy(arena, "add_columns", x, in));
    free(dy);
    free(x);
}

/* Without the sums: on AVX-512, they are of blocks of rows (test_nn_bf16_kernels.c). */
static void bf16_forms(struct isa_arena *arena, size_t rows, size_t columns)
{
    size_t packed = cddpi_bf16_packed_count(rows, columns);
    float *x = isa_numbers(rows * columns);
    struct cddpi_bf16_forms forms = {isa_take(arena, "plain bf16", rows * columns * 2),
                                     isa_take(arena, "packed bf16", packed * 2),
                                     isa_take(arena, "transposed bf16", rows * columns * 2), NULL};

    cddpi_bf16_split(x, rows, columns, &forms);
    cddpi_bf16_pack_transposed(
        x, rows, columns,
        isa_take(arena, "pack_transposed", cddpi_bf16_packed_count(columns, rows) * 2));
    free(x);
}

static void compute(struct isa_arena *arena)
{
    for (size_t r = 0; r < sizeof some_rows / sizeof *some_rows; r++) {
        for (size_t c = 0; c < sizeof some_columns / sizeof *some_columns; c++) {
            rows_and_columns(arena, some_rows[r], some_columns[c]);
            elements(arena, some_rows[r] * some_columns[c]);
            bf16_forms(arena, some_rows[r], some_columns[c]);
        }
    }
    for (size_t channels = 1; channels < 40; channels = channels * 2 + 1) {
        static const size_t blocks[] = {1, 8, 16};

        for (size_t b = 0; b < 3; b++) {
            layouts(arena, channels, 35, blocks[b]);
            layouts(arena, channels + 1, 16, blocks[b]);
        }
        layouts(arena, channels, 35, channels);
    }
    for (size_t lanes = 1; lanes < 36; lanes += lanes < 16 ? 5 : 16) {
        windows(arena, lanes, 3, 1, 1);
        windows(arena, lanes, 2, 2, 0);
        windows(arena, lanes, 5, 3, 2);
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    isa_compare(compute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
