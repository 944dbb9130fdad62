/* test_cuda_embedding.c - lookups of tokens and positions on the device, and their gradients, which
 * are sums in the same order in every run. */
#include "support/cuda.h"

struct shape {
    size_t rows, length, columns, vocab;
    unsigned often; /* one row of so many has token 3, and no other row; 0: as it comes */
};

/* Few rows and many of a token and just as many as one warp adds up (32), chunks that are sorted
 * alone and runs that are merged. */
static const struct shape shapes[] = {
    {1, 1, 1, 5, 0},      {6, 3, 5, 7, 0},         {32, 8, 12, 1, 0},     {96, 48, 16, 5, 3},
    {99, 33, 16, 5, 3},   {64, 16, 768, 300, 0},   {40, 20, 64, 4, 2},    {600, 150, 24, 30, 3},
    {1024, 512, 8, 9, 0}, {3000, 600, 40, 100, 2}, {2049, 683, 13, 1, 0}, {5000, 1000, 8, 50257, 8},
};

static int32_t *tokens_of(const struct shape *shape)
{
    int32_t *tokens = malloc(shape->rows * sizeof *tokens);

    for (size_t r = 0; r < shape->rows; r++) {
        float random = test_number(9, r) * 0.5F + 0.5F;

        tokens[r] = (int32_t)(random * (float)shape->vocab);
        tokens[r] = (size_t)tokens[r] >= shape->vocab ? (int32_t)shape->vocab - 1 : tokens[r];
        if (shape->often > 0 && (r % shape->often == 0 || tokens[r] == 3)) {
            tokens[r] = r % shape->often == 0 ? 3 : 2;
        }
    }
    return tokens;
}

static void check_forward(cddp_type type, const struct shape *shape, bool with_positions)
{
    struct numbers table = random_numbers(type, 1, shape->vocab * shape->columns, 1, 0);
    struct numbers positions = random_numbers(type, 2, shape->length * shape->columns, 1, 0);
    struct numbers out = no_numbers(type, shape->rows * shape->columns);
    int32_t *tokens = tokens_of(shape);
    void *device_tokens = cuda_upload(tokens, shape->rows * sizeof *tokens);
    double *expected = malloc(out.count * sizeof *expected);

    for (size_t i = 0; i < out.count; i++) {
        size_t r = i / shape->columns;
        size_t c = i % shape->columns;
        float token = table.host[(size_t)tokens[r] * shape->columns + c];
        float position = positions.host[r % shape->length * shape->columns + c];

        expected[i] = (double)(with_positions ? token + position : token);
    }
    cuda_ok(cuda->kernels->embedding(cuda, type, device_tokens, table.device,
                                     with_positions ? positions.device : NULL, shape->rows,
                                     shape->length, shape->columns, out.device));
    numbers_near(&out, expected, 0, 0, "embedding");
    free(tokens);
    free(expected);
    cuda_release(device_tokens);
    numbers_free(&table);
    numbers_free(&positions);
    numbers_free(&out);
}

static void embedding_adds_the_rows_of_token_and_position(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * 7 * 2; i++) {
        check_forward(cuda_types[i / 2 % COUNT_OF(cuda_types)],
                      &shapes[i / 2 / COUNT_OF(cuda_types)], i % 2 == 0);
    }
}

struct gradients {
    struct numbers table, positions;
};

static struct gradients grad_once(const struct shape *shape, const struct numbers *dy,
                                  const int32_t *tokens, bool add, bool positions)
{
    void *device_tokens = cuda_upload(tokens, shape->rows * sizeof *tokens);
    void *scratch = cuda_alloc(cuda->kernels->embedding_scratch(shape->rows, shape->vocab));
    /* what is not added to has been cleared; positions are replaced */
    struct gradients g = {
        random_numbers(CDDP_F32, 1, shape->vocab * shape->columns, add ? 1 : 0, 0),
        random_numbers(CDDP_F32, 2, shape->length * shape->columns, 1, 0)};

    cuda_ok(cuda->kernels->embedding_grad(
        cuda, dy->type, device_tokens, dy->device, shape->rows, shape->length, shape->columns,
        shape->vocab, add, g.table.device, positions ? g.positions.device : NULL, scratch));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    cuda_release(device_tokens);
    cuda_release(scratch);
    return g;
}

static void gradients_free(struct gradients *g)
{
    numbers_free(&g->table);
    numbers_free(&g->positions);
}

static void check_grad(cddp_type type, const struct shape *shape, bool add, bool positions)
{
    struct numbers dy = random_numbers(type, 3, shape->rows * shape->columns, 1, 0.1F);
    int32_t *tokens = tokens_of(shape);
    struct gradients g = grad_once(shape, &dy, tokens, add, positions);
    struct gradients again = grad_once(shape, &dy, tokens, add, positions);
    double *of_table = malloc(g.table.count * sizeof *of_table);
    double *of_positions = malloc(g.positions.count * sizeof *of_positions);

    for (size_t i = 0; i < g.table.count; i++) {
        of_table[i] = (double)g.table.host[i];
    }
    for (size_t i = 0; i < g.positions.count; i++) {
        of_positions[i] = add || !positions ? (double)g.positions.host[i] : 0;
    }
    for (size_t i = 0; i < dy.count; i++) {
        size_t r = i / shape->columns;
        size_t c = i % shape->columns;

        of_table[(size_t)tokens[r] * shape->columns + c] += (double)dy.host[i];
        of_positions[r % shape->length * shape->columns + c] += positions ? (double)dy.host[i] : 0;
    }
    numbers_same(&g.table, &again.table);
    numbers_same(&g.positions, &again.positions);
    numbers_near(&g.table, of_table, 1e-6, 3e-8 * (double)shape->rows + 1e-6, "dtable");
    numbers_near(&g.positions, of_positions, 1e-6, 1e-6, "dpositions");
    free(tokens);
    free(of_table);
    free(of_positions);
    numbers_free(&dy);
    gradients_free(&g);
    gradients_free(&again);
}

static void gradients_of_embedding_are_those_of_float64_and_the_same_in_every_run(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            check_grad(cuda_types[t], &shapes[s], false, true);
        }
        check_grad(cuda_types[t], &shapes[1], true, true);
        check_grad(cuda_types[t], &shapes[3], true, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_adds_the_rows_of_token_and_position),
        cmocka_unit_test(gradients_of_embedding_are_those_of_float64_and_the_same_in_every_run),
    };

    return RUN_ON_CUDA(tests);
}
