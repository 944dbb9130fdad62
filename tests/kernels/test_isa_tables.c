/* test_isa_tables.c - the kernels with a table of their builds: each build gives the same bits,
 * also in place. Those of reductions are in test_group_kernels.c. */
#include "kernels/cpu/cpu_optim.h"
#include "kernels/cpu/cpu_tokens.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/transformer.h"
#include "support/isa.h"
#include "support/test.h"

static const size_t some_rows[] = {1, 3, 16, 17, 70};
static const size_t some_columns[] = {1, 7, 16, 33, 1024, 1027};

/* Normalisation and softmax of rows. */
static void rows_of_transformers(struct isa_arena *arena, size_t rows, size_t columns)
{
    const struct cddpi_layer_norm_kernels *norm = cddpi_transformer_kernels()->layer_norm;
    const struct cddpi_softmax_kernels *softmax = cddpi_transformer_kernels()->softmax;
    size_t count = rows * columns;
    float *x = isa_numbers(count);
    float *dy = isa_numbers(count);
    float *weight = isa_numbers(columns);
    float *mean = isa_out(arena, "layer_norm's means", rows);
    float *inverse = isa_out(arena, "layer_norm's inverses", rows);
    float *over = isa_copy(arena, "layer_norm in place", x, count);
    double *scratch = malloc(CDDPI_LAYER_NORM_SCRATCH(columns) * sizeof *scratch);
    int32_t *label = malloc(rows * sizeof *label);
    int *correct = isa_take(arena, "softmax's count", sizeof *correct);
    double loss;

    norm->forward(x, weight, dy, 1e-5f, rows, columns, isa_out(arena, "layer_norm", count), mean,
                  inverse);
    norm->forward(over, weight, dy, 1e-5f, rows, columns, over, NULL, NULL);
    norm->backward(dy, x, weight, mean, inverse, rows, columns,
                   isa_out(arena, "layer_norm backward", count),
                   isa_copy(arena, "its weight's gradient", weight, columns),
                   isa_copy(arena, "its bias's gradient", weight, columns), scratch);
    over = isa_copy(arena, "layer_norm backward in place", dy, count);
    norm->backward(over, x, weight, mean, inverse, rows, columns, over,
                   isa_copy(arena, "its weight's gradient", weight, columns),
                   isa_copy(arena, "its bias's gradient", weight, columns), scratch);
    for (size_t r = 0; r < rows; r++) {
        label[r] = (int32_t)(isa_draw() % (uint32_t)columns);
    }
    over = isa_copy(arena, "softmax in place", x, count);
    inverse = isa_out(arena, "softmax's inverses", rows);
    loss = softmax->forward(over, label, rows, columns, over, inverse, correct);
    memcpy(isa_take(arena, "softmax's loss", sizeof loss), &loss, sizeof loss);
    softmax->backward(over, label, inverse, 0.7f, rows, columns,
                      isa_out(arena, "softmax backward", count));
    over = isa_copy(arena, "softmax backward in place", over, count);
    softmax->backward(over, label, inverse, 0.7f, rows, columns, over);
    free(label);
    free(scratch);
    free(weight);
    free(dy);
    free(x);
}

static void activations(struct isa_arena *arena, size_t count)
{
    static const uint32_t stream[4] = {1, 2, 3, 4};
    const struct cddpi_transformer_kernels *kernels = cddpi_transformer_kernels();
    float *x = isa_numbers(count);
    float *dy = isa_numbers(count);
    uint8_t *kept = isa_take(arena, "dropout's draws", (count + 7) / 8);
    float *over = isa_copy(arena, "dropout in place", x, count);

    kernels->dropout->draw(stream, 1u << 30, kept, count);
    kernels->dropout->apply(over, kept, 1.5f, over, count);
    kernels->dropout->apply(x, kept, 1.5f, isa_out(arena, "dropout", count), count);
    for (int exact = 0; exact < 2; exact++) {
        kernels->gelu->forward(x, exact, isa_out(arena, "gelu", count), count);
        kernels->gelu->backward(dy, x, exact, isa_out(arena, "gelu backward", count), count);
        over = isa_copy(arena, "gelu in place", x, count);
        kernels->gelu->forward(over, exact, over, count);
        over = isa_copy(arena, "gelu backward over dy", dy, count);
        kernels->gelu->backward(over, x, exact, over, count);
    }
    kernels->silu->forward(x, isa_out(arena, "silu", count), count);
    kernels->silu->backward(dy, x, isa_out(arena, "silu backward", count), count);
    over = isa_copy(arena, "silu backward over x", x, count);
    kernels->silu->backward(dy, over, over, count);
    free(dy);
    free(x);
}

/* What lies behind the columns of a row may be anything. */
static void clear_behind(float *s, size_t stride, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        memset(s + r * stride + columns, 0, (stride - columns) * sizeof *s);
    }
}

static void attention(struct isa_arena *arena, size_t rows, size_t first)
{
    const struct cddpi_attention_kernels *kernels = cddpi_transformer_kernels()->attention;
    size_t columns = first + rows;
    size_t stride = (columns + 15) / 16 * 16;
    float *scores = isa_numbers(rows * stride);
    float *delta = isa_numbers(rows);
    float *total = isa_out(arena, "attention's sums", rows);
    float *logs = isa_out(arena, "attention's logarithms", rows);
    float *s = isa_copy(arena, "attention", scores, rows * stride);
    float *p = isa_copy(arena, "attention's probabilities", scores, rows * stride);
    float *dp = isa_copy(arena, "attention backward", scores, rows * stride);

    kernels->softmax(s, stride, rows, columns, first, total, logs);
    clear_behind(s, stride, rows, columns);
    kernels->backward(p, dp, stride, rows, columns, first, logs, delta);
    clear_behind(p, stride, rows, columns);
    clear_behind(dp, stride, rows, columns);
    kernels->row_products(p, dp, stride, rows, columns, isa_out(arena, "row_products", rows));
    s = isa_copy(arena, "divide", s, rows * stride);
    kernels->divide(s, stride, rows, columns, total);
    clear_behind(s, stride, rows, columns);
    free(delta);
    free(scores);
}

static void lstm(struct isa_arena *arena, size_t rows, size_t stride, size_t units)
{
    const struct cddpi_lstm_kernels *kernels = cddpi_transformer_kernels()->lstm;
    size_t count = rows * stride * units;
    float *start = isa_numbers(4 * count);
    float *before = isa_numbers(count);
    float *gates = isa_copy(arena, "lstm's gates", start, 4 * count);
    float *cells = isa_out(arena, "lstm's cells", count);

    kernels->forward(gates, before, cells, isa_out(arena, "lstm", count), rows, stride, units);
    gates = isa_copy(arena, "lstm backward", gates, 4 * count);
    kernels->backward(start, before, isa_copy(arena, "lstm's carried", before, rows * units),
                      before, cells, gates, rows, stride, units);
    gates = isa_copy(arena, "lstm's first gates", start, 4 * count);
    cells = isa_out(arena, "lstm's first cells", count);
    kernels->forward(gates, NULL, cells, isa_out(arena, "lstm's first", count), rows, stride,
                     units);
    free(before);
    free(start);
}

static void batch_norm(struct isa_arena *arena, size_t full, size_t partial, bool relu)
{
    const struct cddpi_norm_kernels *kernels = cddpi_norm_kernels();
    const struct cddpi_norm_tile tile = {.samples = 3,
                                         .sample_stride = (full + partial) * 17 + 5,
                                         .offset = 2,
                                         .full = full,
                                         .partial = partial,
                                         .rest = 5,
                                         .stride = 17};
    size_t count = 3 * tile.sample_stride + 2 * CDDPI_NORM_LANES;
    float *x = isa_numbers(count);
    float *dy = isa_numbers(count);
    struct cddpi_norm_lanes lanes = {.relu = relu};
    double *sums = malloc(4 * CDDPI_NORM_LANES * sizeof *sums);
    float *over = isa_copy(arena, "normalize in place", x, count);

    for (int i = 0; i < CDDPI_NORM_LANES; i++) {
        lanes.mean[i] = isa_number();
        lanes.factor[i] = isa_number();
        lanes.shift[i] = isa_number();
        lanes.offset[i] = isa_number();
        lanes.slope[i] = isa_number();
    }
    memset(sums, 0, 4 * CDDPI_NORM_LANES * sizeof *sums);
    kernels->moments(x, &tile, lanes.mean, sums, sums + CDDPI_NORM_LANES);
    kernels->products(dy, x, &tile, &lanes, sums + 2 * CDDPI_NORM_LANES,
                      sums + 3 * CDDPI_NORM_LANES);
    memcpy(isa_take(arena, "sums of batch_norm", 4 * CDDPI_NORM_LANES * sizeof *sums), sums,
           4 * CDDPI_NORM_LANES * sizeof *sums);
    kernels->normalize(x, &tile, &lanes, isa_copy(arena, "normalize", x, count));
    kernels->normalize(over, &tile, &lanes, over);
    kernels->gradient(dy, x, &tile, &lanes, isa_copy(arena, "batch_norm backward", x, count));
    over = isa_copy(arena, "batch_norm backward over dy", dy, count);
    kernels->gradient(over, x, &tile, &lanes, over);
    over = isa_copy(arena, "batch_norm backward over x", x, count);
    kernels->gradient(dy, over, &tile, &lanes, over);
    free(sums);
    free(dy);
    free(x);
}

static void updates(struct isa_arena *arena, size_t count)
{
    const struct cddpi_optim_kernels *kernels = cddpi_optim_kernels();
    const struct cddpi_adamw_step adamw = {.999f, .1f, .999f, .001f, .01f, .5f, 1e-8f, .25f};
    float *p = isa_numbers(count);
    float *g = isa_numbers(count);
    struct cddpi_exact_sum sum = {{0}};

    kernels->add_squares(g, count, &sum);
    memcpy(isa_take(arena, "add_squares", sizeof sum), &sum, sizeof sum);
    for (int how = 0; how < 3; how++) {
        const struct cddpi_sgd_step sgd = {.1f, .9f, .01f, .5f, how == 2};

        kernels->sgd(isa_copy(arena, "sgd", p, count), g,
                     how > 0 ? isa_copy(arena, "sgd's momentum", g, count) : NULL, count, &sgd);
    }
    kernels->adamw(isa_copy(arena, "adamw", p, count), g, isa_copy(arena, "adamw's m", p, count),
                   isa_out(arena, "adamw's v", count), count, &adamw);
    free(g);
    free(p);
}

static void rows_by_token(struct isa_arena *arena, size_t rows, size_t columns)
{
    enum { VOCAB = 5 };
    float *x = isa_numbers(rows * columns);
    float *table = isa_numbers(VOCAB * columns);
    int32_t *tokens = malloc(rows * sizeof *tokens);
    uint32_t *order = malloc((rows + VOCAB + 1) * sizeof *order);

    for (size_t r = 0; r < rows; r++) {
        tokens[r] = (int32_t)(isa_draw() % VOCAB);
    }
    cddpi_nn_add_rows(x, tokens, rows, VOCAB, columns, order,
                      isa_copy(arena, "add_rows", table, VOCAB * columns));
    free(order);
    free(tokens);
    free(table);
    free(x);
}

static void compute(struct isa_arena *arena)
{
    for (size_t r = 0; r < sizeof some_rows / sizeof *some_rows; r++) {
        for (size_t c = 0; c < sizeof some_columns / sizeof *some_columns; c++) {
            rows_of_transformers(arena, some_rows[r], some_columns[c]);
            activations(arena, some_rows[r] * some_columns[c]);
            updates(arena, some_rows[r] * some_columns[c]);
            rows_by_token(arena, some_rows[r], some_columns[c]);
            lstm(arena, some_rows[r], 1 + r % 2, some_columns[c] % 100);
            attention(arena, some_rows[r], some_columns[c] % 100);
            batch_norm(arena, some_rows[r], some_columns[c] % 10, c % 2 == 0);
        }
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
