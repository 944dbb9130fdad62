/* test_group.c - collectives of the host backend: every one against a scalar reference. */
#include "group_reference.h"
#include "group_support.h"
#include "support.h"

#include <stdbool.h>

/* Data repeat after a prime number of elements: quick to make, and no piece looks like another. */
enum { SECONDS = 200, PIECE = HOST_CHUNK_BYTES, PERIOD = 8209 };

static const int sizes[] = {1, 2, 3, 4, 7, 8};
static const cddp_type types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16,
                                  CDDP_I32, CDDP_I64, CDDP_U8};

/* Run @body at every rank count up to @most, with or without the comm thread. */
static void at_sizes_to(int most, rank_fn body, const char *threads)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        struct group_seed seed;

        setenv("CDDP_COMM_THREAD", threads, 1);
        assert_int_equal(group_seed_create(sizes[i], &seed), CDDP_OK);
        assert_int_equal(run_ranks(sizes[i], SECONDS, body, &seed), 0);
        close(seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
}

static void at_every_size(rank_fn body, const char *threads)
{
    at_sizes_to(8, body, threads);
}

static void *buffer(cddp_group *group, bool registered, size_t bytes)
{
    void *memory = NULL;

    if (!registered) {
        return malloc(bytes > 0 ? bytes : 1);
    }
    return cddp_group_alloc(group, bytes, &memory) == CDDP_OK ? memory : NULL;
}

static void give_back(cddp_group *group, bool registered, void *memory)
{
    if (registered) {
        cddp_group_free(group, memory);
    } else {
        free(memory);
    }
}

/* Continue @data, @bytes long, whose first @period bytes are there. */
static void repeat(void *data, size_t period, size_t bytes)
{
    for (size_t filled = period; filled < bytes;) {
        size_t n = bytes - filled < filled ? bytes - filled : filled;

        memcpy((char *)data + filled, data, n);
        filled += n;
    }
}

static void fill_rank(void *data, int rank, size_t from, size_t count, cddp_type type)
{
    size_t element = cddp_type_bytes(type);

    for (size_t i = 0; i < count && i < PERIOD; i++) {
        reference_fill((char *)data + i * element, rank, (from + i) % PERIOD, type);
    }
    repeat(data, PERIOD * element, count * element);
}

/* Elements @from... of all ranks' reduction against @got; some of them when there are many. */
static int compare_reduced(const void *got, size_t from, size_t count, int n, cddp_type type,
                           cddp_op op, const double *weights)
{
    size_t element = cddp_type_bytes(type);
    size_t step = count > 2000 ? 61 : 1;

    for (size_t i = 0; i < count; i += step) {
        uint64_t inputs[REFERENCE_RANKS];
        const void *values[REFERENCE_RANKS];
        uint64_t expected = 0;

        for (int r = 0; r < n; r++) {
            reference_fill(&inputs[r], r, (from + i) % PERIOD, type);
            values[r] = &inputs[r];
        }
        reference_reduce(&expected, values, n, type, op, weights);
        if (memcmp(&expected, (const char *)got + i * element, element) != 0) {
            fprintf(stderr, "%s %s x %zu at %d ranks: element %zu differs\n", cddp_op_name(op),
                    cddp_type_name(type), count, n, i);
            return 1;
        }
    }
    return 0;
}

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

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
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

/* More than two pieces through the staging buffers, with an odd end. */
static int big_reduce_rank(int rank, int n, void *seed)
{
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
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

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    CHECK(cddp_group_alloc(group, count * 4, &shared) == CDDP_OK);
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

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
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

/* Byte @i, below PERIOD, of the block that @from has for @to. */
static unsigned char pattern(int from, int to, size_t i)
{
    return (unsigned char)(i * 7 + (i >> 8) + (size_t)from * 31 + (size_t)to * 101 + 3);
}

static void draw(unsigned char *data, int from, int to, size_t bytes)
{
    for (size_t i = 0; i < bytes && i < PERIOD; i++) {
        data[i] = pattern(from, to, i);
    }
    repeat(data, PERIOD, bytes);
}

static bool shows(const unsigned char *data, int from, int to, size_t bytes)
{
    for (size_t i = 0; i < bytes && i < PERIOD; i++) {
        if (data[i] != pattern(from, to, i)) {
            return false;
        }
    }
    return bytes <= PERIOD || memcmp(data, data + PERIOD, bytes - PERIOD) == 0;
}

static int move_once(cddp_group *group, cddp_type type, size_t count, bool registered)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    int root = (int)(count % (size_t)n);
    size_t bytes = count * cddp_type_bytes(type);
    unsigned char *in = buffer(group, registered, bytes * (size_t)n);
    unsigned char *out = buffer(group, registered, bytes * (size_t)n);

    CHECK(in != NULL && out != NULL);
    draw(in, rank, 0, bytes);
    CHECK(cddp_broadcast(group, in, count, type, root, NULL) == CDDP_OK);
    CHECK(shows(in, root, 0, bytes));

    draw(in, rank, 0, bytes);
    CHECK(cddp_all_gather(group, in, out, count, type, NULL) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(shows(out + (size_t)r * bytes, r, 0, bytes));
    }
    memset(out, 0, bytes * (size_t)n);
    draw(out + (size_t)rank * bytes, rank, 5, bytes);
    CHECK(cddp_all_gather(group, out + (size_t)rank * bytes, out, count, type, NULL) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(shows(out + (size_t)r * bytes, r, 5, bytes));
    }
    memset(out, 0, bytes * (size_t)n);
    CHECK(cddp_gather(group, in, rank == root ? out : NULL, count, type, root, NULL) == CDDP_OK);
    for (int r = 0; r < n && rank == root; r++) {
        CHECK(shows(out + (size_t)r * bytes, r, 0, bytes));
    }
    for (int r = 0; r < n; r++) {
        draw(in + (size_t)r * bytes, rank, r, bytes);
    }
    CHECK(cddp_scatter(group, rank == root ? in : NULL, out, count, type, root, NULL) == CDDP_OK);
    CHECK(shows(out, root, rank, bytes));
    CHECK(cddp_all_to_all(group, in, out, count, type, NULL) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(shows(out + (size_t)r * bytes, r, rank, bytes));
    }
    if (!registered) { /* in place */
        CHECK(cddp_all_to_all(group, in, in, count, type, NULL) == CDDP_OK);
        CHECK(memcmp(in, out, bytes * (size_t)n) == 0);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    give_back(group, registered, in);
    give_back(group, registered, out);
    return 0;
}

static int move_rank(int rank, int n, void *seed)
{
    static const size_t counts[] = {0, 1, 77, 5000, PIECE / 4 * 2 + 9};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int registered = 0; registered < 2; registered++) {
            CHECK(move_once(group, CDDP_F32, counts[c], registered) == 0);
            CHECK(move_once(group, CDDP_U8, counts[c], registered) == 0);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

static void data_arrives_where_it_should(void **state)
{
    (void)state;
    at_every_size(move_rank, "0");
    at_sizes_to(4, move_rank, "1");
}

/* Several operations in flight, of all kinds, waited for in another order. */
static int async_rank(int rank, int n, void *seed)
{
    enum { FLIGHTS = 24, COUNT = 30000 };
    cddp_group *group;
    cddp_work *works[FLIGHTS];
    float *data[FLIGHTS];

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    for (int f = 0; f < FLIGHTS; f++) {
        data[f] = buffer(group, f % 3 == 0, COUNT * 4);
        CHECK(data[f] != NULL);
    }
    for (int again = 0; again < 3; again++) {
        for (int f = 0; f < FLIGHTS; f++) {
            fill_rank(data[f], rank, (size_t)f, COUNT, CDDP_F32);
            CHECK(cddp_all_reduce(group, data[f], data[f], f % 2 == 0 ? COUNT : 50, CDDP_F32,
                                  CDDP_OP_MEAN, &works[f]) == CDDP_OK);
            cddpi_group_poll(group);
        }
        for (int f = FLIGHTS - 1; f >= 0; f--) {
            bool done = false;

            if (f % 5 == 0) {
                for (long tries = 0; !done; tries++) {
                    CHECK(cddp_work_test(works[f], &done) == CDDP_OK);
                }
            }
            CHECK(cddp_work_wait(works[f], f % 4 == 0 ? 15000 : 0) == CDDP_OK);
            CHECK(compare_reduced(data[f], (size_t)f, f % 2 == 0 ? COUNT : 50, n, CDDP_F32,
                                  CDDP_OP_MEAN, NULL) == 0);
        }
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
        for (int f = 0; f < FLIGHTS; f++) {
            cddp_work_destroy(works[f]);
        }
    }
    for (int f = 0; f < FLIGHTS; f++) {
        give_back(group, f % 3 == 0, data[f]);
    }
    cddp_group_destroy(group);
    return 0;
}

static void many_operations_may_be_in_flight(void **state)
{
    (void)state;
    at_every_size(async_rank, "0");
    at_every_size(async_rank, "1");
}

/* Everyone sends to everyone at once, more than a ring holds, before anyone receives. */
static int message_rank(int rank, int n, void *seed)
{
    enum { BIG = 3 * HOST_RING_BYTES + 13 };
    cddp_group *group;
    cddp_work *sends[16];
    cddp_work *recvs[16];
    unsigned char *out[16];
    unsigned char *in[16];

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    CHECK(cddp_send(group, &rank, 1, CDDP_I32, rank, NULL) == CDDP_ERR_ARGUMENT);
    for (int r = 0; r < n; r++) {
        out[r] = malloc(BIG);
        in[r] = malloc(BIG);
        draw(out[r], rank, r, BIG);
    }
    for (int r = 0; r < n; r++) {
        if (r != rank) {
            CHECK(cddp_send(group, out[r], BIG, CDDP_U8, r, &sends[r]) == CDDP_OK);
        }
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* collectives are not disturbed */
    for (int r = 0; r < n; r++) {
        if (r != rank) {
            CHECK(cddp_recv(group, in[r], BIG, CDDP_U8, r, &recvs[r]) == CDDP_OK);
        }
    }
    for (int r = 0; r < n; r++) {
        if (r != rank) {
            CHECK(cddp_work_wait(recvs[r], 0) == CDDP_OK);
            CHECK(shows(in[r], r, rank, BIG));
            cddp_work_destroy(recvs[r]);
            cddp_work_destroy(sends[r]);
        }
    }
    for (int i = 0; i < 50; i++) { /* a ring of small ones: a send is done before its receive */
        int64_t token = rank * 1000 + i;
        int64_t got = -1;
        int from = (rank + n - 1) % n;

        if (n > 1) {
            CHECK(cddp_send(group, &token, 1, CDDP_I64, (rank + 1) % n, NULL) == CDDP_OK);
            CHECK(cddp_recv(group, &got, 1, CDDP_I64, from, NULL) == CDDP_OK);
            CHECK(got == from * 1000 + i);
            CHECK(cddp_send(group, NULL, 0, CDDP_I64, (rank + 1) % n, NULL) == CDDP_OK);
            CHECK(cddp_recv(group, NULL, 0, CDDP_I64, from, NULL) == CDDP_OK);
        }
    }
    for (int r = 0; r < n; r++) {
        free(in[r]);
        free(out[r]);
    }
    cddp_group_destroy(group);
    return 0;
}

static void messages_cross_without_locking_up(void **state)
{
    (void)state;
    at_every_size(message_rank, "0");
    at_every_size(message_rank, "1");
}

static int split_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    cddp_group *half;
    cddp_group *again;
    int color = rank == n - 1 && n > 2 ? -5 : rank % 2;
    int members = 0;
    int32_t sum = 0;
    int32_t expected = 0;

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, color, -rank, &half) == CDDP_OK); /* in reverse order */
    CHECK((color < 0) == (half == NULL));
    for (int r = 0; r < n && color >= 0; r++) {
        if ((r != n - 1 || n <= 2) && r % 2 == color) {
            members++;
            expected += r;
        }
    }
    if (half != NULL) {
        CHECK(cddp_group_world_size(half) == members);
        CHECK(cddp_group_rank(half) == members - 1 - rank / 2);
        CHECK(strcmp(cddp_group_backend(half), "host") == 0);
        CHECK(cddp_all_reduce(half, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
        CHECK(sum == expected);
        CHECK(cddp_group_split(half, 0, 0, &again) == CDDP_OK);
        CHECK(cddp_group_rank(again) == cddp_group_rank(half));
        CHECK(cddp_barrier(again, NULL) == CDDP_OK);
        cddp_group_destroy(again);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(half);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void a_group_splits_by_color_and_key(void **state)
{
    (void)state;
    at_every_size(split_rank, "0");
    at_every_size(split_rank, "1");
}

static int orphan_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    cddp_work *work = NULL;
    float data[4] = {1, 2, 3, 4};

    CHECK(group_from_seed(seed, rank, n, 100000, &group) == CDDP_OK);
    if (rank == 0) {
        CHECK(cddp_recv(group, data, 4, CDDP_F32, 1, &work) == CDDP_OK);
        CHECK(cddp_work_wait(work, 20) == CDDP_ERR_TIMEOUT); /* breaks nothing */
        CHECK(cddp_work_wait(work, 20) == CDDP_ERR_TIMEOUT);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    if (rank == 0) {
        cddp_status status = cddp_work_wait(work, 0);

        /* rank 1 may have left before this rank did, and then that is what ended the work */
        CHECK(status == CDDP_ERR_CLOSED || status == CDDP_ERR_PEER);
        cddp_work_destroy(work);
    }
    return 0;
}

static void work_outlives_its_group(void **state)
{
    struct group_seed seed;

    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        setenv("CDDP_COMM_THREAD", threads ? "1" : "0", 1);
        assert_int_equal(group_seed_create(3, &seed), CDDP_OK);
        assert_int_equal(run_ranks(3, SECONDS, orphan_rank, &seed), 0);
        close(seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reduction_is_the_tree_of_the_reference),
        cmocka_unit_test(big_reductions_are_too),
        cmocka_unit_test(shared_and_own_memory_may_be_mixed),
        cmocka_unit_test(a_rank_of_weight_zero_contributes_nothing_not_even_nan),
        cmocka_unit_test(data_arrives_where_it_should),
        cmocka_unit_test(many_operations_may_be_in_flight),
        cmocka_unit_test(messages_cross_without_locking_up),
        cmocka_unit_test(a_group_splits_by_color_and_key),
        cmocka_unit_test(work_outlives_its_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
