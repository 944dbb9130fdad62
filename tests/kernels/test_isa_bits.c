/* test_isa_bits.c - the kernels that choose an instruction set by themselves (CDDPI_VARIANTS, and
 * the forms of bf16): with each that CDDP_MAX_ISA allows, the same bits, also in place. The other
 * kernels have a table of their builds, which their own tests compare. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/elementwise.h"
#include "support/test.h"

#include <sys/mman.h>

enum { ARENA_BYTES = 64 << 20, MOST_PARTS = 4096, GAP = 16 };

/* What one process has computed: parts one after another, each with a gap behind it that must stay
 * zero. */
struct arena {
    size_t used;
    int count;
    struct {
        const char *name;
        size_t begin, bytes;
    } parts[MOST_PARTS];
    _Alignas(64) unsigned char data[ARENA_BYTES];
};

struct job {
    struct arena *arena;
    const char *isa;
};

static void *take(struct arena *arena, const char *name, size_t bytes)
{
    size_t begin = (arena->used + 63) / 64 * 64 + 4; /* not aligned to vectors */

    if (begin + bytes + GAP > ARENA_BYTES || arena->count == MOST_PARTS) {
        fprintf(stderr, "%s: no room\n", name);
        exit(1);
    }
    arena->parts[arena->count].name = name;
    arena->parts[arena->count].begin = begin;
    arena->parts[arena->count++].bytes = bytes;
    arena->used = begin + bytes + GAP;
    return arena->data + begin;
}

static uint64_t draw_state;

static uint32_t draw(void)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (uint32_t)(draw_state >> 20);
}

/* Numbers of many sizes, and zeros of both signs. */
static float number(void)
{
    uint32_t bits = draw();
    float value = (float)(int32_t)draw() * 0x1p-31f;

    return bits % 11 == 0 ? (bits % 2 == 0 ? 0.0f : -0.0f) : value * (float)(1u << bits % 13);
}

static float *numbers(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);

    for (size_t i = 0; values != NULL && i < count; i++) {
        values[i] = number();
    }
    if (values == NULL) {
        exit(1);
    }
    return values;
}

static float *out_of(struct arena *arena, const char *name, size_t count)
{
    return take(arena, name, count * sizeof(float));
}

/* An output that begins as @p from. */
static float *copy_of(struct arena *arena, const char *name, const float *from, size_t count)
{
    float *out = out_of(arena, name, count);

    memcpy(out, from, count * sizeof *out);
    return out;
}

static const size_t some_rows[] = {1, 3, 16, 17, 70};
static const size_t some_columns[] = {1, 7, 16, 33, 1024, 1027};

static void rows_and_columns(struct arena *arena, size_t rows, size_t columns)
{
    size_t count = rows * columns;
    float *x = numbers(count);
    float *y = numbers(count);
    float *bias = numbers(columns);
    uint32_t *list = malloc(rows * sizeof *list);
    float *masked;

    for (size_t r = 0; r < rows; r++) {
        list[r] = draw() % (uint32_t)rows;
    }
    cddpi_nn_add_bias(copy_of(arena, "add_bias", x, count), bias, rows, columns);
    cddpi_nn_add_bias_relu(copy_of(arena, "add_bias_relu", x, count), bias, rows, columns);
    cddpi_nn_add_column_sums(x, copy_of(arena, "add_column_sums", bias, columns), rows, columns);
    masked = out_of(arena, "mask_column_sums", count);
    cddpi_nn_mask_column_sums(x, y, masked, copy_of(arena, "its sums", bias, columns), rows,
                              columns);
    masked = copy_of(arena, "mask_column_sums in place", x, count);
    cddpi_nn_mask_column_sums(masked, y, masked, copy_of(arena, "its sums", bias, columns), rows,
                              columns);
    masked = copy_of(arena, "mask_column_sums over y", y, count);
    cddpi_nn_mask_column_sums(x, masked, masked, copy_of(arena, "its sums", bias, columns), rows,
                              columns);
    cddpi_nn_add_listed_rows(x, list, rows, columns,
                             copy_of(arena, "add_listed_rows", bias, columns));
    free(list);
    free(bias);
    free(y);
    free(x);
}

static void elements(struct arena *arena, size_t count)
{
    float *a = numbers(count);
    float *b = numbers(count);
    float *y = numbers(count);
    float *over;

    cddpi_nn_relu(a, out_of(arena, "relu", count), count);
    over = copy_of(arena, "relu in place", a, count);
    cddpi_nn_relu(over, over, count);
    cddpi_nn_relu_backward(a, y, out_of(arena, "relu_backward", count), count);
    over = copy_of(arena, "relu_backward over dy", a, count);
    cddpi_nn_relu_backward(over, y, over, count);
    over = copy_of(arena, "relu_backward over y", y, count);
    cddpi_nn_relu_backward(a, over, over, count);
    cddpi_nn_relu_backward_sum(a, b, y, out_of(arena, "relu_backward_sum", count), count);
    over = copy_of(arena, "relu_backward_sum over b", b, count);
    cddpi_nn_relu_backward_sum(a, over, y, over, count);
    cddpi_nn_add(a, b, out_of(arena, "add", count), count);
    over = copy_of(arena, "add over b", b, count);
    cddpi_nn_add(a, over, over, count);
    cddpi_nn_add_relu(a, b, out_of(arena, "add_relu", count), count);
    over = copy_of(arena, "add_relu over a", a, count);
    cddpi_nn_add_relu(over, b, over, count);
    cddpi_nn_round_bf16(a, out_of(arena, "round_bf16", count), count);
    over = copy_of(arena, "round_bf16 in place", a, count);
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

static void layouts(struct arena *arena, size_t channels, size_t spatial, size_t block)
{
    const struct cddpi_nn_layout layout = {3, channels, spatial, block};
    const struct cddpi_nn_layout plain_layout = {3, channels, spatial, 1};
    size_t count = layout_elements(&layout);
    size_t plain_count = layout_elements(&plain_layout);
    float *plain = numbers(plain_count);
    float *mean = numbers(3 * channels);
    uint8_t *kept = malloc((channels * spatial + 7) / 8);
    float *x = out_of(arena, "from_plain", count);

    cddpi_nn_from_plain(plain, &layout, x);
    cddpi_nn_to_plain(x, &layout, out_of(arena, "to_plain", plain_count));
    cddpi_nn_global_mean(x, &layout, out_of(arena, "global_mean", 3 * channels));
    cddpi_nn_global_mean_backward(mean, &layout, out_of(arena, "global_mean_backward", count));
    for (size_t i = 0; i < (channels * spatial + 7) / 8; i++) {
        kept[i] = (uint8_t)draw();
    }
    for (size_t n = 0; n < 3; n++) {
        cddpi_nn_dropout(x + n * count / 3, kept, 1.25f, out_of(arena, "dropout", count / 3),
                         channels, spatial, block);
    }
    for (size_t other = 1; other <= channels; other += channels > 8 ? 7 : 1) {
        const struct cddpi_nn_layout to = {3, channels, spatial, other};

        cddpi_nn_reblock(x, &layout, out_of(arena, "reblock", layout_elements(&to)), &to);
        if (channels % other == 0 && channels % block == 0 &&
            (other % block == 0 || block % other == 0)) {
            cddpi_nn_regroup(x, &layout, out_of(arena, "regroup", layout_elements(&to)), &to);
        }
    }
    free(kept);
    free(mean);
    free(plain);
}

static void windows(struct arena *arena, size_t lanes, size_t kernel, size_t stride, size_t padding)
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
    x = numbers(in);
    dy = numbers(out);
    from = take(arena, "max_pool's places", out * sizeof *from);
    cddpi_nn_max_pool(x, &window, out_of(arena, "max_pool", out), from);
    cddpi_nn_max_pool_backward(dy, from, &window, out_of(arena, "max_pool_backward", in));
    cddpi_nn_avg_pool(x, &window, out_of(arena, "avg_pool", out));
    cddpi_nn_avg_pool_backward(dy, &window, out_of(arena, "avg_pool_backward", in));
    columns = out_of(arena, "columns", (lines - 2) * row);
    cddpi_nn_columns(x, &window, 1, lines - 2, columns);
    cddpi_nn_add_columns(columns, &window, 1, lines - 2, copy_of(arena, "add_columns", x, in));
    free(dy);
    free(x);
}

/* Without the sums: on AVX-512, they are of blocks of rows (test_nn_bf16_kernels.c). */
static void bf16_forms(struct arena *arena, size_t rows, size_t columns)
{
    size_t packed = cddpi_bf16_packed_count(rows, columns);
    float *x = numbers(rows * columns);
    struct cddpi_bf16_forms forms = {take(arena, "plain bf16", rows * columns * 2),
                                     take(arena, "packed bf16", packed * 2),
                                     take(arena, "transposed bf16", rows * columns * 2), NULL};

    cddpi_bf16_split(x, rows, columns, &forms);
    cddpi_bf16_pack_transposed(
        x, rows, columns,
        take(arena, "pack_transposed", cddpi_bf16_packed_count(columns, rows) * 2));
    free(x);
}

static int compute(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct arena *arena = job->arena;

    (void)rank;
    (void)world_size;
    setenv("CDDP_MAX_ISA", job->isa, 1);
    draw_state = 88172645463325252u;
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
    return 0;
}

static struct arena *arena_by(const char *isa)
{
    struct arena *arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job job = {arena, isa};

    assert_true(arena != MAP_FAILED);
    assert_int_equal(run_ranks(1, compute, &job), 0);
    return arena;
}

static void compare(const struct arena *a, const struct arena *b, const char *isa)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        if (memcmp(a->data + a->parts[i].begin, b->data + a->parts[i].begin, a->parts[i].bytes)) {
            fail_msg("%s (part %d): other bits by %s", a->parts[i].name, i, isa);
        }
    }
    assert_memory_equal(a->data, b->data, a->used);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    static const char *const others[] = {"avx2", "avx512"};
    struct arena *generic = arena_by("generic");

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct arena *other = arena_by(others[i]);

        compare(generic, other, others[i]);
        munmap(other, sizeof *other);
    }
    munmap(generic, sizeof *generic);
}

/* With instructions that write whole vectors, too. */
static void nothing_is_written_behind_an_output(void **state)
{
    static const char *const all[] = {"generic", "avx2", "avx512"};
    static const unsigned char zeros[GAP];

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct arena *arena = arena_by(all[k]);

        for (int i = 0; i < arena->count; i++) {
            const unsigned char *end = arena->data + arena->parts[i].begin + arena->parts[i].bytes;

            if (memcmp(end, zeros, GAP) != 0) {
                fail_msg("%s by %s wrote behind its output", arena->parts[i].name, all[k]);
            }
        }
        munmap(arena, sizeof *arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(nothing_is_written_behind_an_output),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
