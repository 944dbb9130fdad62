/* test_sampler.c - the order of samples: the guarantees of the native order, and that the torch
 * order equals PyTorch's, index by index. */
#include "samplers/permutation.h"
#include "samplers/randperm.h"
#include "support/failure.h"
#include "support/test.h"

#include <cddp/sampler.h>
#include <sodium.h>

static cddp_sampler *make(cddp_order order, uint64_t count, uint64_t seed, uint64_t epoch)
{
    cddp_sampler *sampler = NULL;

    assert_int_equal(cddp_sampler_create(order, count, seed, &sampler), CDDP_OK);
    assert_int_equal(cddp_sampler_set_epoch(sampler, epoch), CDDP_OK);
    return sampler;
}

/* How many of [0, count) the sampler gives exactly once, over all positions. */
static uint64_t count_given_once(const cddp_sampler *sampler)
{
    uint64_t count = cddp_sampler_count(sampler);
    unsigned char *seen = calloc(count, 1);
    uint64_t once = 0;

    assert_non_null(seen);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = cddp_sampler_at(sampler, i);

        assert_true(index < count);
        seen[index] += seen[index] < 2;
    }
    for (uint64_t i = 0; i < count; i++) {
        once += seen[i] == 1;
    }
    free(seen);
    return once;
}

static void every_order_gives_every_sample_once(void **state)
{
    const uint64_t counts[] = {1,  2,   3,   4,   5,    6,    7,    10,   63,    64,
                               65, 255, 256, 257, 1000, 4095, 4096, 4097, 60000, 100003};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int order = CDDP_ORDER_SEQUENTIAL; order <= CDDP_ORDER_TORCH; order++) {
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                cddp_sampler *sampler = make((cddp_order)order, counts[i], 11, epoch);

                assert_int_equal(cddp_sampler_count(sampler), counts[i]);
                assert_int_equal(count_given_once(sampler), counts[i]);
                cddp_sampler_destroy(sampler);
            }
        }
    }
}

static void the_sequential_order_counts_up(void **state)
{
    cddp_sampler *sampler = make(CDDP_ORDER_SEQUENTIAL, 100, 5, 3);

    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(cddp_sampler_at(sampler, i), i);
    }
    assert_int_equal(cddp_sampler_at(sampler, 100), UINT64_MAX); /* 0 is a sample */
    assert_true(last_error_has("position 100 of 100"));
    cddp_sampler_destroy(sampler);
}

/* Runs must be repeatable with the next version too: changing these numbers breaks every resume. */
static void the_random_order_never_changes(void **state)
{
    const uint64_t first[] = {21737, 51352, 58367, 49000, 23733, 42349, 59454, 13216};
    const uint64_t small[] = {4, 7, 8, 3, 9, 1, 5, 6, 0, 2};
    cddp_sampler *sampler = make(CDDP_ORDER_RANDOM, 60000, 1, 0);

    (void)state;
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(cddp_sampler_at(sampler, i), first[i]);
    }
    cddp_sampler_destroy(sampler);
    sampler = make(CDDP_ORDER_RANDOM, 10, UINT64_MAX, UINT64_C(1) << 40);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(cddp_sampler_at(sampler, i), small[i]);
    }
    cddp_sampler_destroy(sampler);
}

static unsigned positions_in_common(const cddp_sampler *a, const cddp_sampler *b)
{
    unsigned same = 0;

    for (uint64_t i = 0; i < cddp_sampler_count(a); i++) {
        same += cddp_sampler_at(a, i) == cddp_sampler_at(b, i);
    }
    return same;
}

/* Two random orders agree in one position on average; 15 or more have a chance of 10^-12. */
static void epochs_and_seeds_give_unrelated_orders(void **state)
{
    const struct {
        uint64_t seed, epoch;
    } others[] = {{8, 0}, {7, 1}, {7, 2}, {7, UINT64_C(1) << 32}, {7 + (UINT64_C(1) << 32), 0}};
    cddp_sampler *sampler = make(CDDP_ORDER_RANDOM, 5000, 7, 0);

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cddp_sampler *other = make(CDDP_ORDER_RANDOM, 5000, others[i].seed, others[i].epoch);

        assert_true(positions_in_common(sampler, other) < 15);
        cddp_sampler_destroy(other);
    }
    cddp_sampler_destroy(sampler);
}

static void going_back_to_an_epoch_gives_its_order_again(void **state)
{
    (void)state;
    for (int order = CDDP_ORDER_RANDOM; order <= CDDP_ORDER_TORCH; order++) {
        cddp_sampler *there = make((cddp_order)order, 1000, 3, 4);
        cddp_sampler *back = make((cddp_order)order, 1000, 3, 9);

        assert_true(positions_in_common(there, back) < 15);
        assert_int_equal(cddp_sampler_set_epoch(back, 4), CDDP_OK);
        assert_int_equal(positions_in_common(there, back), 1000);
        cddp_sampler_destroy(there);
        cddp_sampler_destroy(back);
    }
}

/* Chi-square of which tenths of the data two positions @p distance apart fall into, over epochs.
 * For truly random orders it is about 99 +- 14. */
static double chi_square_of_pairs(uint64_t count, uint64_t distance)
{
    double seen[10][10] = {{0}};
    double total = 0;
    double chi_square = 0;

    for (uint64_t epoch = 0; total < 200000; epoch++) {
        struct cddpi_permutation order;

        cddpi_permutation_init(&order, count, 3, epoch);
        for (uint64_t i = 0; i + distance < count; i++) {
            uint64_t a = cddpi_permutation_at(&order, i) * 10 / count;
            uint64_t b = cddpi_permutation_at(&order, i + distance) * 10 / count;

            seen[a][b] += 1;
            total += 1;
        }
    }
    for (int a = 0; a < 10; a++) {
        for (int b = 0; b < 10; b++) {
            /* a tenth holds count / 10 samples, and two positions never have the same one */
            double tenth = (double)count / 10;
            double expected = total * tenth * (tenth - (a == b)) /
                              ((double)count * ((double)count - 1));
            double off = seen[a][b] - expected;

            chi_square += expected > 0 ? off * off / expected : 0;
        }
    }
    return chi_square;
}

static void neighbours_in_the_random_order_are_unrelated(void **state)
{
    const uint64_t counts[] = {20, 100, 1000, 60000};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        /* also the width of the network's table, where weak rounds would show */
        uint64_t root = 1;

        while (root * root < counts[i]) {
            root++;
        }
        assert_true(chi_square_of_pairs(counts[i], 1) < 180);
        assert_true(chi_square_of_pairs(counts[i], root - 1) < 180);
        assert_true(chi_square_of_pairs(counts[i], root) < 180);
        assert_true(chi_square_of_pairs(counts[i], counts[i] / 2) < 180);
    }
}

/* All 24 orders of 4 samples, 1000 times each on average: chi-square 23 +- 7. */
static void small_data_sets_have_all_orders_equally_often(void **state)
{
    double seen[256] = {0};
    double chi_square = 0;
    int orders = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < 24000; epoch++) {
        struct cddpi_permutation order;
        uint64_t code = 0;

        cddpi_permutation_init(&order, 4, 7, epoch);
        for (uint64_t i = 0; i < 4; i++) {
            code = code * 4 + cddpi_permutation_at(&order, i);
        }
        seen[code] += 1;
    }
    for (int code = 0; code < 256; code++) {
        orders += seen[code] > 0;
        chi_square += seen[code] > 0 ? (seen[code] - 1000) * (seen[code] - 1000) / 1000 : 0;
    }
    assert_int_equal(orders, 24);
    assert_true(chi_square < 60);
}

static void the_largest_data_sets_stay_in_range(void **state)
{
    const uint64_t counts[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63,
                               (UINT64_C(1) << 32) - 1, (UINT64_C(1) << 32) + 1};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        cddp_sampler *sampler = make(CDDP_ORDER_RANDOM, counts[i], 1, 0);

        for (uint64_t k = 0; k < 100; k++) {
            assert_true(cddp_sampler_at(sampler, k) < counts[i]);
            assert_true(cddp_sampler_at(sampler, counts[i] - 1 - k) < counts[i]);
        }
        cddp_sampler_destroy(sampler);
    }
}

static void shares_of_all_ranks_are_the_batch_once(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 70; count++) {
        for (int world_size = 1; world_size <= 17; world_size++) {
            uint64_t next = 1000;

            for (int rank = 0; rank < world_size; rank++) {
                cddp_share share = cddp_share_of(1000, count, rank, world_size);

                assert_int_equal(share.first, next);
                assert_true(share.count == count / (uint64_t)world_size ||
                            share.count == count / (uint64_t)world_size + 1);
                next += share.count;
            }
            assert_int_equal(next, 1000 + count);
        }
    }
}

static void wrong_arguments_are_refused_with_a_text(void **state)
{
    cddp_sampler *sampler = NULL;
    uint64_t out;

    (void)state;
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, 0, 1, &sampler), CDDP_ERR_ARGUMENT);
    assert_true(failure_is(cddp_sampler_create((cddp_order)9, 1, 1, &sampler), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(), "sampler: there is no order number 9");
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_TORCH, UINT64_MAX / 4, 1, &sampler),
                     CDDP_ERR_NO_MEMORY);
    assert_null(sampler);
    sampler = make(CDDP_ORDER_RANDOM, 1, 1, 0);
    assert_int_equal(cddp_torch_shard(sampler, 3, 3, false, &out), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_torch_shard(sampler, -1, 3, false, &out), CDDP_ERR_ARGUMENT);
    cddp_sampler_destroy(sampler);
    cddp_sampler_destroy(NULL);
}

/* One line of tests/vectors/sampler_vectors.txt, see scripts/make_sampler_vectors.py. */
struct vector {
    char kind[16];
    uint64_t numbers[7]; /* negative seeds modulo 2^64, as PyTorch has them */
    char *values;
};

static bool read_vector(char *line, struct vector *vector)
{
    char *at = line;
    int used = 0;

    if (sscanf(at, "%15s%n", vector->kind, &used) != 1 || vector->kind[0] == '#') {
        return false;
    }
    at += used;
    for (int i = 0; i < 7 && strncmp(at, " :", 2) != 0; i++) {
        at++;
        vector->numbers[i] = *at == '-' ? (uint64_t)strtoll(at, &at, 10) : strtoull(at, &at, 10);
    }
    assert_memory_equal(at, " :", 2);
    vector->values = at + 2;
    return true;
}

static void values_are(const char *text, const uint64_t *expected, uint64_t count)
{
    char *end = (char *)text;

    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(strtoull(end, &end, 10), expected[i]);
    }
    assert_string_equal(end, "\n");
}

static void hash_is(const uint64_t *indices, uint64_t count, const char *hex)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[2 * sizeof hash + 1];

    crypto_hash_sha256(hash, (const unsigned char *)indices, count * sizeof *indices);
    sodium_bin2hex(text, sizeof text, hash, sizeof hash);
    assert_memory_equal(text, hex, 2 * sizeof hash);
}

static void check_perm(const struct vector *vector, bool hashed)
{
    uint64_t count = vector->numbers[0];
    cddp_sampler *sampler = make(CDDP_ORDER_TORCH, count, vector->numbers[1], 0);
    uint64_t *indices = calloc(count, sizeof *indices);

    assert_int_equal(cddp_torch_shard(sampler, 0, 1, false, indices), CDDP_OK);
    if (hashed) {
        hash_is(indices, count, vector->values + 1);
    } else {
        values_are(vector->values, indices, count);
    }
    free(indices);
    cddp_sampler_destroy(sampler);
}

static void check_wide(const struct vector *vector)
{
    uint64_t count = vector->numbers[0];
    uint64_t *indices = calloc(count, sizeof *indices);

    cddpi_torch_randperm(vector->numbers[1], count, 0, indices);
    values_are(vector->values, indices, count);
    free(indices);
}

static void check_shard(const struct vector *vector)
{
    const uint64_t *n = vector->numbers;
    cddp_sampler *sampler = make(n[5] ? CDDP_ORDER_TORCH : CDDP_ORDER_SEQUENTIAL, n[0], n[3], n[4]);
    uint64_t indices[128];
    uint64_t count = cddp_torch_shard_count(n[0], (int)n[1], n[6] != 0);

    assert_true(count <= 128);
    assert_int_equal(cddp_torch_shard(sampler, (int)n[2], (int)n[1], n[6] != 0, indices), CDDP_OK);
    values_are(vector->values, indices, count);
    cddp_sampler_destroy(sampler);
}

static void the_torch_order_is_that_of_a_real_pytorch(void **state)
{
    char path[4096];
    char *line = NULL;
    size_t capacity = 0;
    int checked[4] = {0};
    FILE *file;

    (void)state;
    snprintf(path, sizeof path, "%s/tests/vectors/sampler_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &capacity, file) > 0) {
        struct vector vector = {0};

        if (!read_vector(line, &vector)) {
            continue;
        }
        if (strcmp(vector.kind, "perm") == 0) {
            check_perm(&vector, false);
            checked[0]++;
        } else if (strcmp(vector.kind, "hash") == 0) {
            check_perm(&vector, true);
            checked[1]++;
        } else if (strcmp(vector.kind, "wide") == 0) {
            check_wide(&vector);
            checked[2]++;
        } else if (strcmp(vector.kind, "shard") == 0) {
            check_shard(&vector);
            checked[3]++;
        } else {
            fail_msg("unknown line: %s", line);
        }
    }
    assert_true(checked[0] > 100 && checked[1] > 10 && checked[2] > 20 && checked[3] > 400);
    free(line);
    fclose(file);
}

/* Values measured with PyTorch by someone else, so that the generator's script is checked as well.
 */
static void the_torch_order_has_the_golden_values_of_the_reference(void **state)
{
    static const struct {
        uint64_t count, seed, first[5];
        const char *sha256;
    } rows[] = {
        {5, 0, {4, 0, 1, 3, 2}, NULL},
        {10, 0, {4, 1, 7, 5, 3}, NULL},
        {10, 1, {5, 6, 1, 2, 0}, NULL},
        {10, 2, {8, 7, 1, 5, 6}, NULL},
        {16, 42, {6, 3, 0, 7, 10}, NULL},
        {23, 7, {10, 15, 1, 9, 11}, NULL},
        {10, (uint64_t)-1, {1, 4, 6, 2, 0}, NULL},
        {1000,
         0,
         {44, 37, 675, 775, 947},
         "cee4a88ef6120e8eb96614e255d8cb01ee9ab77da8adaa01ea0b3d477537cd49"},
        {100000,
         0,
         {36044, 73702, 76369, 2549, 52523},
         "27df463fc2ed34f1872ba6e45cebe8746252c008e368e9eed203473cc8646f09"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t *indices = calloc(rows[i].count, sizeof *indices);

        cddpi_torch_randperm(rows[i].seed, rows[i].count, CDDPI_RANDPERM_WIDE_FROM, indices);
        assert_memory_equal(indices, rows[i].first, sizeof rows[i].first);
        if (rows[i].sha256 != NULL) {
            hash_is(indices, rows[i].count, rows[i].sha256);
        }
        free(indices);
    }
}

static void torch_shards_pad_from_the_head_and_repeat_it(void **state)
{
    cddp_sampler *ten = make(CDDP_ORDER_TORCH, 10, 0, 1);
    cddp_sampler *two = make(CDDP_ORDER_TORCH, 2, 0, 0);
    const uint64_t last[] = {1, 8, 7, 6};
    uint64_t out[4];

    (void)state;
    assert_int_equal(cddp_torch_shard(ten, 2, 3, false, out), CDDP_OK);
    assert_memory_equal(out, last, sizeof last);
    for (int rank = 0; rank < 5; rank++) {
        assert_int_equal(cddp_torch_shard_count(2, 5, false), 1);
        assert_int_equal(cddp_torch_shard_count(2, 5, true), 0);
        assert_int_equal(cddp_torch_shard(two, rank, 5, false, out), CDDP_OK);
        assert_int_equal(out[0], rank % 2);
    }
    cddp_sampler_destroy(ten);
    cddp_sampler_destroy(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_gives_every_sample_once),
        cmocka_unit_test(the_sequential_order_counts_up),
        cmocka_unit_test(the_random_order_never_changes),
        cmocka_unit_test(epochs_and_seeds_give_unrelated_orders),
        cmocka_unit_test(going_back_to_an_epoch_gives_its_order_again),
        cmocka_unit_test(neighbours_in_the_random_order_are_unrelated),
        cmocka_unit_test(small_data_sets_have_all_orders_equally_often),
        cmocka_unit_test(the_largest_data_sets_stay_in_range),
        cmocka_unit_test(shares_of_all_ranks_are_the_batch_once),
        cmocka_unit_test(wrong_arguments_are_refused_with_a_text),
        cmocka_unit_test(the_torch_order_is_that_of_a_real_pytorch),
        cmocka_unit_test(the_torch_order_has_the_golden_values_of_the_reference),
        cmocka_unit_test(torch_shards_pad_from_the_head_and_repeat_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
