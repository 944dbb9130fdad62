/* test_group_reduce.c - reductions of the host backend: each against a scalar reference. */
#include "support/failure.h"
#include "support/group_cases.h"

/* all_reduce, reduce and reduce_scatter of one shape. */
static int reduce_once(cddp_group *group, cddp_type type, cddp_op op, size_t count, bool registered,
                       bool in_place)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    size_t bytes = count * cddp_type_bytes(type);
    int root = (int)(count % (size_t)n);
    char *in = buffer(group, registered, bytes * (size_t)n);
    char *out = in_place ? in : buffer(group, registered, bytes);

    CHECK(in != NULL && out != NULL);
    fill_rank(in, rank, 0, count, type);
    CHECK(cddp_all_reduce(group, in, out, count, type, op, NULL) == CDDP_OK);
    CHECK(compare_reduced(out, 0, count, n, type, op, NULL) == 0);

    fill_rank(in, rank, 0, count, type);
    CHECK(cddp_reduce(group, in, rank == root ? out : NULL, count, type, op, root, NULL) ==
          CDDP_OK);
    CHECK(rank != root || compare_reduced(out, 0, count, n, type, op, NULL) == 0);

    fill_rank(in, rank, 0, count * (size_t)n, type);
    out = in_place ? in + (size_t)rank * bytes : out;
    CHECK(cddp_reduce_scatter(group, in, out, count, type, op, NULL) == CDDP_OK);
    CHECK(compare_reduced(out, (size_t)rank * count, count, n, type, op, NULL) == 0);
    if (!in_place) {
        give_back(group, registered, out);
    }
    give_back(group, registered, in);
    return 0;
}

static int reduce_rank(int rank, int n, void *seed)
{
    static const size_t counts[] = {0, 1, 33, 1000, 4099};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int op = CDDP_OP_SUM; op <= CDDP_OP_PROD; op++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                bool registered = (c + (size_t)op) % 2 == 1;

                CHECK(reduce_once(group, types[t], (cddp_op)op, counts[c], registered,
                                  (t + c) % 2 == 0) == 0);
                CHECK(reduce_once(group, types[t], (cddp_op)op, counts[c], !registered,
                                  (t + c) % 2 == 1) == 0);
            }
        }
    }
    cddp_group_destroy(group);
    return 0;
}

/* Small whole numbers, and bits of all whole numbers. */
static int bits_rank(int rank, int n, void *seed)
{
    static const cddp_type whole[] = {CDDP_I8, CDDP_BOOL, CDDP_U8, CDDP_I32, CDDP_I64};
    static const size_t counts[] = {1, 4099};
    int32_t x[2] = {0};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (size_t t = 0; t < sizeof whole / sizeof *whole; t++) {
        for (int op = t < 2 ? CDDP_OP_SUM : CDDP_OP_AND; op <= CDDP_OP_XOR; op++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                if (whole[t] != CDDP_BOOL || op != CDDP_OP_MEAN) {
                    CHECK(reduce_once(group, whole[t], (cddp_op)op, counts[c],
                                      (c + (size_t)op) % 2 == 1, (t + c) % 2 == 0) == 0);
                }
            }
        }
    }
    CHECK(reduce_once(group, CDDP_I8, CDDP_OP_MEAN, PIECE + 3, false, true) == 0);
    CHECK(reduce_once(group, CDDP_I32, CDDP_OP_XOR, PIECE / 4 + 1, true, false) == 0);
    CHECK(cddp_all_reduce(group, x, x, 2, CDDP_BOOL, CDDP_OP_MEAN, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(failure_is(cddp_all_reduce(group, x, x, 2, CDDP_F32, CDDP_OP_XOR, NULL),
                     CDDP_ERR_ARGUMENT, rank, -1, ""));
    CHECK(last_error_has("there is no xor of f32"));
    CHECK(cddp_all_reduce(group, x, x, 1, CDDP_I32, (cddp_op)8, NULL) == CDDP_ERR_ARGUMENT);
    cddp_group_destroy(group);
    return 0;
}

static void small_numbers_and_bits_match_the_reference(void **state)
{
    (void)state;
    at_every_size(bits_rank, "0");
    at_sizes_to(3, bits_rank, "1");
}

/* More than two pieces through the staging buffers, with an odd end. */
static int big_reduce_rank(int rank, int n, void *seed)
{
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int registered = 0; registered < 2; registered++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            CHECK(reduce_once(group, CDDP_F32, CDDP_OP_SUM, PIECE * 3 / 4 + 77, registered,
                              in_place) == 0);
            CHECK(reduce_once(group, CDDP_BF16, CDDP_OP_MEAN, PIECE + 5, registered, in_place) ==
                  0);
            CHECK(reduce_once(group, CDDP_I64, CDDP_OP_MAX, PIECE / 8 + 1, registered, in_place) ==
                  0);
            CHECK(reduce_once(group, CDDP_U8, CDDP_OP_SUM, 2 * PIECE + 3, registered, in_place) ==
                  0);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_reduction_is_the_tree_of_the_reference(void **state)
{
    (void)state;
    at_every_size(reduce_rank, "0");
}

static void big_reductions_are_too(void **state)
{
    (void)state;
    at_sizes_to(7, big_reduce_rank, "0"); /* the work grows with the square */
    at_sizes_to(4, big_reduce_rank, "1");
}

/* Rank 0's memory is shared, the others' is not: then all go through the staging buffers. */
static int mixed_rank(int rank, int n, void *seed)
{
    size_t count = PIECE + 11;
    size_t few = 2000; /* small, but large enough to be looked at */
    cddp_group *group;
    void *shared;
    float *own = malloc(count * 4);
    float *data;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_alloc(group, count * 4, 0, &shared) == CDDP_OK);
    CHECK((uintptr_t)shared % 64 == 0 && *(char *)shared == 0);
    data = rank == 0 ? shared : own;
    for (int again = 0; again < 3; again++) {
        fill_rank(data, rank, 0, count, CDDP_F32);
        CHECK(cddp_all_reduce(group, data, data, count, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
        CHECK(compare_reduced(data, 0, count, n, CDDP_F32, CDDP_OP_SUM, NULL) == 0);
        fill_rank(data, rank, 0, few, CDDP_F32);
        CHECK(cddp_all_reduce(group, data, data, few, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
        CHECK(compare_reduced(data, 0, few, n, CDDP_F32, CDDP_OP_SUM, NULL) == 0);
        fill_rank(data, rank, 0, count, CDDP_F32);
        CHECK(cddp_broadcast(group, data, count, CDDP_F32, n - 1, NULL) == CDDP_OK);
        fill_rank(own, n - 1, 0, count, CDDP_F32);
        CHECK(memcmp(own, data, count * 4) == 0);
    }
    cddp_group_free(group, shared);
    cddp_group_destroy(group);
    free(own);
    return 0;
}

static void shared_and_own_memory_may_be_mixed(void **state)
{
    (void)state;
    at_every_size(mixed_rank, "0");
}

static int weighted_once(cddp_group *group, cddp_type type, size_t count, const double *weights,
                         bool registered)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    void *data = buffer(group, registered, count * cddp_type_bytes(type));

    CHECK(data != NULL);
    fill_rank(data, rank, 0, count, type);
    if (weights[rank] == 0) {
        memset(data, 0xff, count * cddp_type_bytes(type)); /* NaN in every floating type */
    }
    CHECK(cddp_all_reduce_weighted(group, data, data, count, type, weights[rank], NULL) == CDDP_OK);
    CHECK(compare_reduced(data, 0, count, n, type, CDDP_OP_SUM, weights) == 0);
    give_back(group, registered, data);
    return 0;
}

/* The same, of which each rank gets its part. */
static int scattered_once(cddp_group *group, cddp_type type, size_t count, const double *weights,
                          bool registered)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    size_t bytes = count * cddp_type_bytes(type);
    char *data = buffer(group, registered, bytes * (size_t)n);
    char *own;

    CHECK(data != NULL);
    own = data + (size_t)rank * bytes;
    fill_rank(data, rank, 0, count * (size_t)n, type);
    if (weights[rank] == 0) {
        memset(data, 0xff, bytes * (size_t)n);
    }
    CHECK(cddp_reduce_scatter_weighted(group, data, own, count, type, weights[rank], NULL) ==
          CDDP_OK);
    CHECK(compare_reduced(own, (size_t)rank * count, count, n, type, CDDP_OP_SUM, weights) == 0);
    give_back(group, registered, data);
    return 0;
}

static int weighted_rank(int rank, int n, void *seed)
{
    static const double uneven[] = {3, 1, 0, 7.5, 2, 0.25, 0, 5};
    static const double even[] = {4, 4, 4, 4, 4, 4, 4, 4};
    static const double none[] = {0, 0, 0, 0, 0, 0, 0, 0};
    static const double *const all[] = {uneven, even, none};
    static const size_t counts[] = {1, 333, 5000};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (size_t t = 0; t < 4; t++) {
        for (size_t w = 0; w < 3; w++) {
            for (size_t c = 0; c < 3; c++) {
                CHECK(weighted_once(group, types[t], counts[c], all[w], false) == 0);
                CHECK(weighted_once(group, types[t], counts[c], all[w], true) == 0);
                CHECK(scattered_once(group, types[t], counts[c], all[w], false) == 0);
                CHECK(scattered_once(group, types[t], counts[c], all[w], true) == 0);
            }
        }
    }
    CHECK(cddp_all_reduce_weighted(group, &rank, &rank, 1, CDDP_F32, -1, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce_weighted(group, &rank, &rank, 1, CDDP_I32, 1, NULL) == CDDP_ERR_ARGUMENT);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_of_weight_zero_contributes_nothing_not_even_nan(void **state)
{
    (void)state;
    at_every_size(weighted_rank, "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_numbers_and_bits_match_the_reference),
        cmocka_unit_test(a_reduction_is_the_tree_of_the_reference),
        cmocka_unit_test(big_reductions_are_too),
        cmocka_unit_test(shared_and_own_memory_may_be_mixed),
        cmocka_unit_test(a_rank_of_weight_zero_contributes_nothing_not_even_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
