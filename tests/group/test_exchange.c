/* test_exchange.c - blocks of different lengths, objects, concurrent messages, a group's own store,
 * and the common decision whether to stop. */
#include "support/failure.h"
#include "support/group_cases.h"

#include <cddp/exchange.h>
#include <cddp/process.h>
#include <signal.h>

/* How many elements rank @p rank gives: none, few, more than a staging buffer. */
static size_t length_of(int rank, size_t scale)
{
    return (size_t)(rank % 3) * scale + (size_t)rank / 3;
}

static int gather_once(cddp_group *group, cddp_type type, size_t scale, bool registered,
                       bool in_place, bool with_handle)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    size_t element = cddp_type_bytes(type);
    size_t counts[8];
    size_t own = 0;
    size_t all = 0;
    unsigned char *in, *out;
    cddp_work *work = NULL;

    for (int r = 0; r < n; r++) {
        own = r == rank ? all : own;
        counts[r] = length_of(r, scale);
        all += counts[r];
    }
    in = buffer(group, false, counts[rank] * element);
    out = buffer(group, registered, all * element);
    CHECK(in != NULL && out != NULL);
    fill_rank(in, rank, 0, counts[rank], type);
    if (in_place) {
        memcpy(out + own * element, in, counts[rank] * element);
    }
    CHECK(cddp_all_gatherv(group, in_place ? out + own * element : in, out, counts, type,
                           with_handle ? &work : NULL) == CDDP_OK);
    if (with_handle) {
        CHECK(cddp_work_wait(work) == CDDP_OK);
        cddp_work_destroy(work);
    }
    for (int r = 0, at = 0; r < n; at += (int)counts[r++]) {
        unsigned char *expected = malloc(counts[r] * element + 1);

        fill_rank(expected, r, 0, counts[r], type);
        CHECK(memcmp(expected, out + (size_t)at * element, counts[r] * element) == 0);
        free(expected);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    free(in);
    give_back(group, registered, out);
    return 0;
}

static int gather_rank(int rank, int n, void *seed)
{
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int way = 0; way < 8; way++) {
        CHECK(gather_once(group, CDDP_F32, 0, way & 1, way & 2, way & 4) == 0);
        CHECK(gather_once(group, CDDP_F64, 7, way & 1, way & 2, way & 4) == 0);
        CHECK(gather_once(group, CDDP_U8, PIECE + 11, way & 1, way & 2, way & 4) == 0);
    }
    cddp_group_destroy(group);
    return 0;
}

static void blocks_of_different_lengths_arrive_in_rank_order(void **state)
{
    (void)state;
    at_every_size(gather_rank, "0");
    at_sizes_to(3, gather_rank, "1");
}

/* Rank 1 has another length of rank `at`'s block. */
struct disagreement {
    struct group_seed seed;
    int at;
};

static int disagree_rank(int rank, int n, void *argument)
{
    struct disagreement *disagreement = argument;
    int at = disagreement->at;
    char text[64];
    size_t counts[8] = {5, 5, 5};
    float in[6] = {0};
    float out[48];
    cddp_group *group;
    cddp_work *work = NULL;
    cddp_status status;

    CHECK(group_from_seed(&disagreement->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_all_gatherv(group, in, out, NULL, CDDP_F32, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_gatherv(group, NULL, out, counts, CDDP_F32, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_gatherv(group, in, NULL, counts, CDDP_F32, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_gatherv(group, in, out, counts, (cddp_type)99, NULL) == CDDP_ERR_ARGUMENT);
    counts[1] = SIZE_MAX;
    CHECK(cddp_all_gatherv(group, in, out, counts, CDDP_F32, NULL) == CDDP_ERR_ARGUMENT);
    counts[1] = 5;
    counts[at] = rank == 1 ? 6 : 5;
    if (rank == n - 1) { /* so that it knows of the difference before it has begun everything */
        support_sleep_ms(50);
    }
    status = cddp_all_gatherv(group, in, out, counts, CDDP_F32, &work);
    if (status == CDDP_OK) {
        status = cddp_work_wait(work);
        cddp_work_destroy(work);
    }
    CHECK(failure_is(status, CDDP_ERR_MISMATCH, -1, -1, "broadcast #1")); /* it is one call */
    snprintf(text, sizeof text, "broadcast f32 x 6 from %d", at);
    CHECK(last_error_has(text));
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_differ_in_the_lengths_get_an_error(void **state)
{
    struct disagreement disagreement;

    (void)state;
    for (int at = 0; at < 3; at++) {
        disagreement.at = at;
        assert_int_equal(group_seed_create(3, &disagreement.seed), CDDP_OK);
        assert_int_equal(run_ranks(3, disagree_rank, &disagreement), 0);
        close(disagreement.seed.fd);
    }
}

/* Rank 2 gives nothing. */
static size_t text_of(int rank, char text[64])
{
    int length = snprintf(text, 64, "%*s rank %d", rank * 3, "", rank);

    return rank == 2 ? 0 : (size_t)length;
}

static int objects_rank(int rank, int n, void *seed)
{
    size_t sizes[8];
    size_t at = 0;
    char text[64];
    size_t bytes = text_of(rank, text);
    cddp_group *group;
    void *all;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_all_gather_bytes(group, bytes > 0 ? text : NULL, bytes, &all, sizes) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(sizes[r] == text_of(r, text));
        CHECK(memcmp((char *)all + at, text, sizes[r]) == 0);
        at += sizes[r];
    }
    CHECK(((char *)all)[at] == '\0');
    cddp_free(all);
    for (int root = 0; root < n; root++) {
        bytes = text_of(root, text);
        CHECK(cddp_broadcast_bytes(group, rank == root ? text : NULL, rank == root ? bytes : 99,
                                   root, &all, &at) == CDDP_OK);
        CHECK(at == bytes && memcmp(all, text, bytes) == 0 && ((char *)all)[at] == '\0');
        cddp_free(all);
    }
    CHECK(cddp_broadcast_bytes(group, text, 1, n, &all, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_gather_bytes(group, NULL, 1, &all, sizes) == CDDP_ERR_ARGUMENT);
    cddp_group_destroy(group);
    return 0;
}

static void objects_of_any_length_reach_all(void **state)
{
    (void)state;
    at_every_size(objects_rank, "0");
    at_sizes_to(3, objects_rank, "1");
}

/* Everybody sends to everybody at once, more than any buffer between them holds, twice a pair. */
static int messages_rank(int rank, int n, void *seed)
{
    enum { COUNT = 200000 };
    cddp_message messages[32];
    cddp_work *works[32];
    size_t count = 0;
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int way = 0; way < 2; way++) {
        count = 0;
        for (int i = 0; i < 4 * n; i++) {
            bool receives = i / n % 2 == (rank & 1);
            int peer = i % n;
            int32_t *data = malloc(COUNT * sizeof *data);

            for (int k = 0; k < COUNT; k++) {
                data[k] = receives ? -1 : k * 7 + rank * 1000 + i / (2 * n);
            }
            messages[count] = (cddp_message){.receives = receives,
                                             .peer = peer,
                                             .in = receives ? NULL : data,
                                             .out = receives ? data : NULL,
                                             .count = COUNT,
                                             .type = CDDP_I32};
            if (peer == rank) {
                free(data);
            } else {
                count++;
            }
        }
        CHECK(cddp_messages_start(group, messages, count, way == 0 ? NULL : works) == CDDP_OK);
        for (size_t i = 0; i < count; i++) {
            int32_t *data = messages[i].out;

            if (way == 1) {
                CHECK(cddp_work_wait(works[i]) == CDDP_OK);
                cddp_work_destroy(works[i]);
            }
            for (int k = 0; k < COUNT && messages[i].receives; k++) {
                CHECK(data[k] == k * 7 + messages[i].peer * 1000 + (i >= count / 2));
            }
            free(messages[i].receives ? data : (void *)(uintptr_t)messages[i].in);
        }
    }
    CHECK(cddp_messages_start(group, NULL, 0, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void messages_at_once_never_lock_up(void **state)
{
    (void)state;
    at_every_size(messages_rank, "0");
    at_sizes_to(3, messages_rank, "1");
}

/* A bad argument in the last message: the first is not sent, and the group goes on. */
static int bad_message_rank(int rank, int n, void *seed)
{
    int32_t x = rank;
    int32_t y = -1;
    const cddp_message messages[2] = {
        {.peer = 1 - rank, .in = &x, .count = 1, .type = CDDP_I32},
        {.receives = true, .peer = 1 - rank, .out = &y, .count = 1, .type = CDDP_I32}};
    cddp_message bad[2] = {messages[0], messages[1]};
    cddp_group *group;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    x = 77;
    bad[1].peer = rank;
    CHECK(failure_is(cddp_messages_start(group, bad, 2, NULL), CDDP_ERR_ARGUMENT, rank, -1, ""));
    CHECK(last_error_has("message 1: rank"));
    bad[1] = messages[1];
    bad[1].out = NULL;
    CHECK(cddp_messages_start(group, bad, 2, NULL) == CDDP_ERR_ARGUMENT);
    bad[1] = messages[1];
    bad[1].type = (cddp_type)50;
    CHECK(cddp_messages_start(group, bad, 2, NULL) == CDDP_ERR_ARGUMENT);
    bad[1] = messages[1];
    bad[1].peer = 2;
    CHECK(cddp_messages_start(group, bad, 2, NULL) == CDDP_ERR_ARGUMENT);
    bad[1] = messages[1];
    bad[1].in = &x;
    CHECK(failure_is(cddp_messages_start(group, bad, 2, NULL), CDDP_ERR_ARGUMENT, rank, -1, ""));
    CHECK(last_error_has("message 1: it receives, so its in has to be NULL"));
    bad[1] = messages[1];
    bad[1].reserved[1] = 1;
    CHECK(failure_is(cddp_messages_start(group, bad, 2, NULL), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    CHECK(last_error_has("message 1: a reserved word "));
    x = rank;
    CHECK(cddp_messages_start(group, messages, 2, NULL) == CDDP_OK);
    CHECK(y == 1 - rank);
    cddp_group_destroy(group);
    return 0;
}

static void a_bad_message_starts_none(void **state)
{
    struct group_seed seed;

    (void)state;
    assert_int_equal(group_seed_create(2, &seed), CDDP_OK);
    assert_int_equal(run_ranks(2, bad_message_rank, &seed), 0);
    close(seed.fd);
}

static int store_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    cddp_store *store;
    cddp_store *again;
    int64_t sum = 0;
    char **keys;
    size_t count;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_store(group) == NULL);
    CHECK(cddp_group_store_create(group, &store) == CDDP_OK);
    CHECK(cddp_group_store(group) == store);
    CHECK(cddp_group_store_create(group, &again) == CDDP_OK && again == store);
    CHECK(cddp_store_list(store, "", &keys, &count) == CDDP_OK && count == 0);
    cddp_free(keys);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    CHECK(cddp_store_add(store, "tickets", 1, &sum) == CDDP_OK);
    CHECK(sum >= 1 && sum <= n);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    CHECK(cddp_store_add(store, "tickets", 0, &sum) == CDDP_OK && sum == n);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* rank 0 serves: it leaves last */
    cddp_group_destroy(group);
    return 0;
}

static void a_group_has_a_store_of_its_own(void **state)
{
    (void)state;
    at_every_size(store_rank, "0");
}

/* The halves of a group have stores of their own, besides the whole's. */
static int split_store_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    cddp_group *part;
    cddp_store *whole;
    cddp_store *own;
    int64_t sum = 0;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, rank % 2, 0, &part) == CDDP_OK);
    CHECK(cddp_group_store_create(group, &whole) == CDDP_OK);
    CHECK(cddp_group_store_create(part, &own) == CDDP_OK);
    CHECK(cddp_store_add(own, "key", 1, NULL) == CDDP_OK);
    CHECK(cddp_store_add(whole, "key", 10, NULL) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    CHECK(cddp_store_add(own, "key", 0, &sum) == CDDP_OK);
    CHECK(sum == cddp_group_world_size(part));
    CHECK(cddp_store_add(whole, "key", 0, &sum) == CDDP_OK && sum == 10 * n);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(part);
    cddp_group_destroy(group);
    return 0;
}

static void parts_of_a_group_have_stores_of_their_own(void **state)
{
    struct group_seed seed;

    (void)state;
    assert_int_equal(group_seed_create(5, &seed), CDDP_OK);
    assert_int_equal(run_ranks(5, split_store_rank, &seed), 0);
    close(seed.fd);
}

static int stop_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    bool stop = true;

    CHECK(cddp_stop_on_signals(NULL, 0) == CDDP_OK);
    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_should_stop(group, &stop) == CDDP_OK && !stop);
    CHECK(cddp_group_should_stop(group, NULL) == CDDP_ERR_ARGUMENT);
    if (rank == n - 1) {
        CHECK(raise(SIGTERM) == 0);
    }
    CHECK(cddp_stop_requested() == (rank == n - 1));
    CHECK(cddp_group_should_stop(group, &stop) == CDDP_OK && stop);
    cddp_group_destroy(group);
    return 0;
}

static void a_signal_to_one_rank_stops_all(void **state)
{
    (void)state;
    at_every_size(stop_rank, "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_different_lengths_arrive_in_rank_order),
        cmocka_unit_test(ranks_that_differ_in_the_lengths_get_an_error),
        cmocka_unit_test(objects_of_any_length_reach_all),
        cmocka_unit_test(messages_at_once_never_lock_up),
        cmocka_unit_test(a_bad_message_starts_none),
        cmocka_unit_test(a_group_has_a_store_of_its_own),
        cmocka_unit_test(parts_of_a_group_have_stores_of_their_own),
        cmocka_unit_test(a_signal_to_one_rank_stops_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
