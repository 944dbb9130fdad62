/* test_group.c - what the host backend transfers, orders and splits. */
#include "support/group_cases.h"

/* Byte @p i, below PERIOD, of the block that @p from has for @p to. */
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
    CHECK(cddp_all_to_all(group, in, in, count, type, NULL) == CDDP_OK); /* in place */
    CHECK(memcmp(in, out, bytes * (size_t)n) == 0);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    give_back(group, registered, in);
    give_back(group, registered, out);
    return 0;
}

static int move_rank(int rank, int n, void *seed)
{
    static const size_t counts[] = {0, 1, 77, 5000, PIECE / 4 * 2 + 9};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
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

/* Several operations in pending operation, of all kinds, waited for in another order. */
static int async_rank(int rank, int n, void *seed)
{
    enum { PENDING = 24, COUNT = 30000 };
    cddp_group *group;
    cddp_work *works[PENDING];
    float *data[PENDING];

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int f = 0; f < PENDING; f++) {
        data[f] = buffer(group, f % 3 == 0, COUNT * 4);
        CHECK(data[f] != NULL);
    }
    for (int again = 0; again < 3; again++) {
        for (int f = 0; f < PENDING; f++) {
            fill_rank(data[f], rank, (size_t)f, COUNT, CDDP_F32);
            CHECK(cddp_all_reduce(group, data[f], data[f], f % 2 == 0 ? COUNT : 50, CDDP_F32,
                                  CDDP_OP_MEAN, &works[f]) == CDDP_OK);
            cddpi_group_poll(group);
        }
        for (int f = PENDING - 1; f >= 0; f--) {
            bool done = false;

            if (f % 5 == 0) {
                for (long tries = 0; !done; tries++) {
                    CHECK(cddp_work_test(works[f], &done) == CDDP_OK);
                }
            }
            CHECK(cddp_work_wait_host(works[f], f % 4 == 0 ? 15000 : CDDP_TIMEOUT_DEFAULT, &done) ==
                  CDDP_OK);
            CHECK(done && cddp_work_wait(works[f]) == CDDP_OK);
            CHECK(compare_reduced(data[f], (size_t)f, f % 2 == 0 ? COUNT : 50, n, CDDP_F32,
                                  CDDP_OP_MEAN, NULL) == 0);
        }
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
        for (int f = 0; f < PENDING; f++) {
            cddp_work_destroy(works[f]);
        }
    }
    for (int f = 0; f < PENDING; f++) {
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
    enum { BIG = 3 * SHM_RING_BYTES + 13 };
    cddp_group *group;
    cddp_work *sends[16];
    cddp_work *recvs[16];
    unsigned char *out[16];
    unsigned char *in[16];

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
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
            CHECK(cddp_work_wait(recvs[r]) == CDDP_OK);
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

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
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
        CHECK(strcmp(group_info(half).backend, group_info(group).backend) == 0);
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
    bool done;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == 0) {
        CHECK(cddp_recv(group, data, 4, CDDP_F32, 1, &work) == CDDP_OK);
        CHECK(cddp_work_wait_host(work, 20, NULL) == CDDP_ERR_ARGUMENT);
        for (int i = 0; i < 2; i++) { /* it breaks nothing, and may be waited for again */
            done = true;
            CHECK(cddp_work_wait_host(work, 20, &done) == CDDP_OK && !done);
        }
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    if (rank == 0) {
        cddp_status status = cddp_work_wait(work);

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
        assert_int_equal(run_ranks(3, orphan_rank, &seed), 0);
        close(seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_arrives_where_it_should),
        cmocka_unit_test(many_operations_may_be_in_flight),
        cmocka_unit_test(messages_cross_without_locking_up),
        cmocka_unit_test(a_group_splits_by_color_and_key),
        cmocka_unit_test(work_outlives_its_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
