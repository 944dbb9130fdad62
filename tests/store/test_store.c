/* test_store.c - what both kinds of store do: the same cases on a server and on a file. */
#include "base/alloc.h"
#include "store/store.h"
#include "support/failure.h"
#include "support/store.h"

#include <sys/prctl.h>

static void a_value_is_read_back_byte_by_byte(void **state)
{
    static const char binary[] = {'a', 0, '\n', (char)0xff, 0};
    struct place *place = *state;
    void *value;
    size_t bytes;

    assert_int_equal(cddp_store_set(place->store, "k", binary, sizeof binary), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, "k", 0, &value, &bytes), CDDP_OK);
    assert_int_equal(bytes, sizeof binary);
    assert_memory_equal(value, binary, sizeof binary);
    assert_int_equal(((char *)value)[bytes], 0);
    cddp_free(value);
    assert_int_equal(cddp_store_set(place->store, "k", "new", 3), CDDP_OK);
    assert_int_equal(cddp_store_try_get(place->store, "k", &value, &bytes), CDDP_OK);
    assert_string_equal(value, "new");
    cddp_free(value);
    assert_int_equal(cddp_store_set(place->store, "empty", NULL, 0), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, "empty", 0, &value, &bytes), CDDP_OK);
    assert_int_equal(bytes, 0);
    assert_string_equal(value, "");
    cddp_free(value);
}

static void a_value_may_have_16_mebibytes_and_no_more(void **state)
{
    struct place *place = *state;
    size_t most = CDDP_STORE_VALUE_BYTES;
    uint8_t *large = malloc(most + 1);
    cddp_store *other = open_place(place);
    void *value;
    size_t bytes;
    bool swapped = false;

    for (size_t i = 0; i <= most; i++) {
        large[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    assert_int_equal(cddp_store_set(place->store, "k", large, most), CDDP_OK);
    assert_int_equal(cddp_store_get(other, "k", 0, &value, &bytes), CDDP_OK);
    assert_int_equal(bytes, most);
    assert_memory_equal(value, large, most);
    cddp_free(value);
    assert_int_equal(
        cddp_store_compare_set(other, "k", large, most, large + 1, most, &swapped, NULL, NULL),
        CDDP_OK);
    assert_true(swapped);
    assert_int_equal(cddp_store_try_get(place->store, "k", &value, &bytes), CDDP_OK);
    assert_memory_equal(value, large + 1, most);
    cddp_free(value);
    assert_int_equal(cddp_store_set(place->store, "k", large, most + 1), CDDP_ERR_ARGUMENT);
    cddp_store_close(other);
    free(large);
}

static void a_key_has_1_to_512_bytes(void **state)
{
    struct place *place = *state;
    char key[CDDP_STORE_KEY_BYTES + 2];
    void *value;

    memset(key, 'k', sizeof key);
    key[CDDP_STORE_KEY_BYTES + 1] = '\0';
    assert_true(
        failure_is(cddp_store_set(place->store, key, "v", 1), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("a key of 513 bytes"));
    assert_int_equal(cddp_store_set(place->store, "", "v", 1), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_store_set(place->store, NULL, "v", 1), CDDP_ERR_ARGUMENT);
    key[CDDP_STORE_KEY_BYTES] = '\0';
    assert_int_equal(cddp_store_set(place->store, key, "v", 1), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, key, 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, "v");
    cddp_free(value);
}

static void try_get_does_not_wait(void **state)
{
    struct place *place = *state;
    void *value = place;

    assert_true(failure_is(cddp_store_try_get(place->store, "none", &value, NULL),
                           CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(last_error_has("try_get \"none\": no such key"));
    assert_ptr_equal(value, place);
}

static void get_that_times_out_names_the_key_and_leaves_the_handle_usable(void **state)
{
    struct place *place = *state;
    int64_t start_ns = 0;
    void *value = place;

    for (int tries = 0; tries < 100; tries++) { /* a slow server does not say which key */
        start_ns = cddpi_now_ns();
        assert_int_equal(cddp_store_get(place->store, "rank/3", 60, &value, NULL),
                         CDDP_ERR_TIMEOUT);
        if (strstr(cddp_last_error(), "the server did not answer") == NULL) {
            break;
        }
    }
    assert_true(cddpi_now_ns() - start_ns >= 60 * 1000000);
    assert_true(last_error_has("get \"rank/3\": the key did not appear within 60 ms"));
    assert_ptr_equal(value, place);
    assert_int_equal(cddp_store_set(place->store, "rank/3", "here", 4), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, "rank/3", 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, "here");
    cddp_free(value);
}

static void wait_that_times_out_names_what_is_missing(void **state)
{
    const char *const keys[] = {"a", "b", "c", "d"};
    struct place *place = *state;

    assert_int_equal(cddp_store_set(place->store, "a", "", 0), CDDP_OK);
    assert_int_equal(cddp_store_set(place->store, "c", "", 0), CDDP_OK);
    assert_true(waits_in_vain(place->store, keys, 4, 30,
                              "wait: 2 of 4 keys did not appear within 30 ms: \"b\", \"d\""));
    assert_int_equal(cddp_store_set(place->store, "b", "", 0), CDDP_OK);
    assert_int_equal(cddp_store_set(place->store, "d", "", 0), CDDP_OK);
    assert_int_equal(cddp_store_wait(place->store, keys, 4, 0), CDDP_OK);
    assert_int_equal(cddp_store_wait(place->store, keys, 0, 0), CDDP_OK);
}

static void wait_names_only_the_first_of_many(void **state)
{
    struct place *place = *state;
    char texts[500][16];
    const char *keys[500];

    for (int i = 0; i < 500; i++) {
        snprintf(texts[i], sizeof texts[i], "r%d", i);
        keys[i] = texts[i];
    }
    assert_true(waits_in_vain(place->store, keys, 500, 1, "500 of 500 keys "));
    assert_true(last_error_has("\"r7\", ..."));
}

static void add_counts_from_zero_and_in_both_directions(void **state)
{
    struct place *place = *state;
    int64_t sum = 0;
    void *value;

    assert_int_equal(cddp_store_add(place->store, "n", 5, &sum), CDDP_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(cddp_store_add(place->store, "n", -7, NULL), CDDP_OK);
    assert_int_equal(cddp_store_add(place->store, "n", 0, &sum), CDDP_OK);
    assert_int_equal(sum, -2);
    assert_int_equal(cddp_store_get(place->store, "n", 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, "-2");
    cddp_free(value);
    assert_int_equal(cddp_store_set(place->store, "n", "40", 2), CDDP_OK);
    assert_int_equal(cddp_store_add(place->store, "n", 2, &sum), CDDP_OK);
    assert_int_equal(sum, 42);
}

static void add_refuses_what_is_no_number_or_too_large(void **state)
{
    static const char *const texts[] = {"", "x", "1 ", "12345678901234567890123456789"};
    struct place *place = *state;
    int64_t sum = 77;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(cddp_store_set(place->store, "t", texts[i], strlen(texts[i])), CDDP_OK);
        assert_int_equal(cddp_store_add(place->store, "t", 1, &sum), CDDP_ERR_FORMAT);
    }
    assert_int_equal(cddp_store_set(place->store, "t", "1\0", 2), CDDP_OK);
    assert_int_equal(cddp_store_add(place->store, "t", 1, &sum), CDDP_ERR_FORMAT);
    assert_int_equal(cddp_store_add(place->store, "big", INT64_MAX, NULL), CDDP_OK);
    assert_int_equal(cddp_store_add(place->store, "big", 1, &sum), CDDP_ERR_ARGUMENT);
    assert_int_equal(sum, 77);
    assert_int_equal(cddp_store_add(place->store, "big", 0, &sum), CDDP_OK);
    assert_true(sum == INT64_MAX);
}

static void compare_set_changes_only_what_matches(void **state)
{
    struct place *place = *state;
    bool swapped = true;
    void *value;
    size_t bytes;

    assert_int_equal(
        cddp_store_compare_set(place->store, "k", "x", 1, "y", 1, &swapped, &value, &bytes),
        CDDP_OK);
    assert_false(swapped);
    assert_int_equal(bytes, 0);
    cddp_free(value);
    assert_int_equal(cddp_store_try_get(place->store, "k", &value, NULL), CDDP_ERR_NOT_FOUND);
    assert_int_equal(
        cddp_store_compare_set(place->store, "k", NULL, 0, "y", 1, &swapped, &value, &bytes),
        CDDP_OK);
    assert_true(swapped);
    assert_string_equal(value, "y");
    cddp_free(value);
    assert_int_equal(
        cddp_store_compare_set(place->store, "k", NULL, 0, "z", 1, &swapped, &value, &bytes),
        CDDP_OK);
    assert_false(swapped);
    assert_string_equal(value, "y");
    cddp_free(value);
    assert_int_equal(
        cddp_store_compare_set(place->store, "k", "y", 1, NULL, 0, &swapped, NULL, NULL), CDDP_OK);
    assert_true(swapped);
}

static void delete_forgets_a_key(void **state)
{
    struct place *place = *state;
    bool existed = true;
    void *value;

    assert_int_equal(cddp_store_delete(place->store, "k", &existed), CDDP_OK);
    assert_false(existed);
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
    assert_int_equal(cddp_store_delete(place->store, "k", &existed), CDDP_OK);
    assert_true(existed);
    assert_int_equal(cddp_store_try_get(place->store, "k", &value, NULL), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddp_store_delete(place->store, "k", NULL), CDDP_OK);
}

static void list_is_sorted_and_without_the_prefix(void **state)
{
    struct place *place = *state;
    char key[16];
    char **keys = (char **)state;
    size_t count = 9;

    assert_int_equal(cddp_store_list(place->store, "n/", &keys, &count), CDDP_OK);
    assert_null(keys);
    assert_int_equal(count, 0);
    for (int i = 299; i >= 0; i--) {
        snprintf(key, sizeof key, "n/%03d", i);
        assert_int_equal(cddp_store_set(place->store, key, "", 0), CDDP_OK);
    }
    assert_int_equal(cddp_store_set(place->store, "m", "", 0), CDDP_OK);
    assert_int_equal(cddp_store_list(place->store, "n/", &keys, &count), CDDP_OK);
    assert_int_equal(count, 300);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "n/%03d", i);
        assert_string_equal(keys[i], key);
    }
    cddp_free(keys);
    assert_int_equal(cddp_store_list(place->store, "", &keys, &count), CDDP_OK);
    assert_int_equal(count, 301);
    assert_string_equal(keys[0], "m");
    cddp_free(keys);
}

static void list_gives_the_values_too(void **state)
{
    struct place *place = *state;
    struct cddpi_store_pair *pairs = (struct cddpi_store_pair *)state;
    char key[16];
    char value[16];
    size_t count = 9;

    assert_int_equal(cddpi_store_list_values(place->store, "n/", &pairs, &count), CDDP_OK);
    assert_null(pairs);
    assert_int_equal(count, 0);
    for (int i = 199; i >= 0; i--) { /* values of 0 to 9 bytes, with any byte */
        snprintf(key, sizeof key, "n/%03d", i);
        memset(value, i, sizeof value);
        assert_int_equal(cddp_store_set(place->store, key, value, (size_t)i % 10), CDDP_OK);
    }
    assert_int_equal(cddp_store_set(place->store, "m", "one", 3), CDDP_OK);
    assert_int_equal(cddpi_store_list_values(place->store, "n/", &pairs, &count), CDDP_OK);
    assert_int_equal(count, 200);
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "n/%03d", i);
        memset(value, i, sizeof value);
        assert_string_equal(pairs[i].key, key);
        assert_int_equal(pairs[i].bytes, i % 10);
        assert_memory_equal(pairs[i].value, value, pairs[i].bytes);
        assert_int_equal(pairs[i].value[pairs[i].bytes], '\0');
    }
    cddpi_free(pairs);
    assert_int_equal(cddpi_store_list_values(place->store, "", &pairs, &count), CDDP_OK);
    assert_int_equal(count, 201);
    assert_string_equal(pairs[0].key, "m");
    assert_string_equal(pairs[0].value, "one");
    cddpi_free(pairs);
}

static void handles_see_only_what_is_below_their_prefix(void **state)
{
    struct place *place = *state;
    cddp_store *next = NULL;
    cddp_store *bare = NULL;
    void *value;
    char **keys;
    size_t count;

    assert_int_equal(open_store(place->url, TOKEN, "job/1/", 5000, &next), CDDP_OK);
    assert_int_equal(open_store(place->url, TOKEN, NULL, 5000, &bare), CDDP_OK);
    assert_int_equal(cddp_store_set(place->store, "k", "old", 3), CDDP_OK);
    assert_int_equal(cddp_store_try_get(next, "k", &value, NULL), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddp_store_list(next, "", &keys, &count), CDDP_OK);
    assert_int_equal(count, 0);
    assert_int_equal(cddp_store_set(next, "k", "new", 3), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, "k", 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, "old");
    cddp_free(value);
    assert_int_equal(cddp_store_get(bare, "job/1/k", 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, "new");
    cddp_free(value);
    cddp_store_close(next);
    cddp_store_close(bare);
}

static void a_wrong_token_is_refused(void **state)
{
    struct place *place = *state;
    cddp_store *store = NULL;

    assert_true(is_refused(place->url, "guess", CDDP_ERR_AUTH, "token"));
    assert_true(last_error_has(place->url));
    setenv("CDDP_TOKEN", "another guess", 1);
    assert_true(is_refused(place->url, NULL, CDDP_ERR_AUTH, "token"));
    setenv("CDDP_TOKEN", TOKEN, 1);
    assert_int_equal(open_store(place->url, NULL, "job/0/", 5000, &store), CDDP_OK);
    unsetenv("CDDP_TOKEN");
    cddp_store_close(store);
    assert_true(is_refused(place->url, "", CDDP_ERR_AUTH, "token"));
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
}

/* "true", a slip of the pen: who meant 1 must not go in clear. */
static void anything_but_0_and_1_for_encryption_is_an_error(void **state)
{
    static const char *const texts[] = {"true", "yes", "2", "01", " 1", "1 ", "on", "-1"};
    struct cddpi_store_server_options options = {.token = TOKEN};
    struct cddpi_store_server *server = NULL;
    struct place *place = *state;
    cddp_store *store = NULL;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv("CDDP_ENCRYPT", texts[i], 1);
        assert_true(failure_is(open_store(place->url, TOKEN, NULL, 5000, &store), CDDP_ERR_ARGUMENT,
                               -1, -1, ""));
        assert_true(last_error_has("CDDP_ENCRYPT="));
        assert_true(last_error_has(texts[i]));
        assert_true(failure_is(cddpi_store_server_create(&options, &server), CDDP_ERR_ARGUMENT, -1,
                               -1, ""));
        assert_true(last_error_has("CDDP_ENCRYPT="));
    }
    for (int on = 0; on < 2; on++) {
        setenv("CDDP_ENCRYPT", on ? "1" : "0", 1);
        assert_int_equal(open_store(place->url, TOKEN, NULL, 5000, &store), CDDP_OK);
        cddp_store_close(store);
    }
    unsetenv("CDDP_ENCRYPT");
}

/* Longer than a record, and longer than what a socket takes at once. */
static void long_values_arrive(void **state)
{
    enum { BYTES = CDDP_STORE_VALUE_BYTES };
    struct place *place = *state;
    uint8_t *sent = malloc(BYTES);
    void *got = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < BYTES; i++) {
        sent[i] = (uint8_t)(i * 31 + (i >> 9));
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cddp_store_set(place->store, "k", sent, BYTES - (size_t)i * 70001),
                         CDDP_OK);
        assert_int_equal(cddp_store_get(place->store, "k", 5000, &got, &bytes), CDDP_OK);
        assert_int_equal(bytes, BYTES - (size_t)i * 70001);
        assert_memory_equal(sent, got, bytes);
        cddp_free(got);
    }
    free(sent);
}

static void nonsense_options_are_refused(void **state)
{
    static const char *const urls[] = {
        "",          "http://localhost:1", "tcp://127.0.0.1", "tcp://:5",       "tcp://h:0",
        "tcp://h:x", "tcp://h:65536",      "tcp://::1:5",     "file://relative"};
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    char prefix[CDDP_STORE_KEY_BYTES + 2];
    cddp_store *store = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        assert_int_equal(open_store(urls[i], TOKEN, NULL, 100, &store), CDDP_ERR_ARGUMENT);
    }
    memset(prefix, 'p', sizeof prefix);
    prefix[sizeof prefix - 1] = '\0';
    assert_int_equal(open_store("tcp://h:1", TOKEN, prefix, 100, &store), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_store_open(&options, &store), CDDP_ERR_ARGUMENT);
    options.struct_size = 0;
    assert_int_equal(cddp_store_open(&options, &store), CDDP_ERR_ARGUMENT);
    assert_null(store);
    cddp_store_close(NULL);
    cddp_free(NULL);
}

static void want_of_memory_is_an_error_and_no_more(void **state)
{
    struct place *place = *state;
    const char *key = "k";
    void *value;

    for (unsigned nth = 1; nth <= 12; nth++) {
        cddp_store *store = NULL;
        cddp_status status;

        cddpi_alloc_fail_nth(nth);
        status = open_store(place->url, TOKEN, "job/0/", 5000, &store);
        if (status == CDDP_OK) {
            status = cddp_store_set(store, "k", "v", 1);
        }
        if (status == CDDP_OK) {
            status = cddp_store_wait(store, &key, 1, 1000);
        }
        if (status == CDDP_OK) {
            status = cddp_store_get(store, "k", 1000, &value, NULL);
        }
        if (status == CDDP_OK) {
            cddp_free(value);
        }
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        if (store != NULL) {
            assert_int_equal(cddp_store_set(store, "k", "w", 1), CDDP_OK);
            assert_int_equal(cddp_store_get(store, "k", 0, &value, NULL), CDDP_OK);
            assert_string_equal(value, "w");
            cddp_free(value);
        }
        cddp_store_close(store);
    }
}

static int forked_rank(int rank, int world_size, void *argument)
{
    struct place *place = argument;

    (void)rank;
    (void)world_size;
    CHECK(failure_is(cddp_store_set(place->store, "k", "v", 1), CDDP_ERR_STATE, -1, -1, ""));
    CHECK(last_error_has("is a fork of it"));
    cddp_store_close(place->store);
    return 0;
}

static void a_forked_process_cannot_disturb_its_parents_handle(void **state)
{
    struct place *place = *state;

    assert_int_equal(run_ranks(1, forked_rank, place), 0);
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
}

static int exchange_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    char key[32];
    void *value;

    CHECK(store != NULL);
    for (int round = 0; round < 3; round++) {
        snprintf(key, sizeof key, "%d/rank/%d", round, rank);
        CHECK(cddp_store_set(store, key, key, strlen(key)) == CDDP_OK);
        for (int peer = 0; peer < world_size; peer++) {
            snprintf(key, sizeof key, "%d/rank/%d", round, peer);
            CHECK(cddp_store_get(store, key, 0, &value, NULL) == CDDP_OK);
            CHECK(strcmp(value, key) == 0);
            cddp_free(value);
        }
    }
    cddp_store_close(store);
    return 0;
}

static void ranks_exchange_values(void **state)
{
    assert_int_equal(run_ranks(3, exchange_rank, *state), 0);
}

static void seven_ranks_exchange_values(void **state)
{
    assert_int_equal(run_ranks(7, exchange_rank, *state), 0);
}

static int add_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    int64_t last = 0;
    bool swapped;

    (void)world_size;
    CHECK(store != NULL);
    for (int i = 0; i < 60; i++) {
        int64_t sum;

        CHECK(cddp_store_add(store, "sum", 1 + rank, &sum) == CDDP_OK);
        CHECK(sum > last);
        last = sum;
    }
    CHECK(cddp_store_compare_set(store, "first", NULL, 0, "me", 2, &swapped, NULL, NULL) ==
          CDDP_OK);
    CHECK(!swapped || cddp_store_add(store, "winners", 1, NULL) == CDDP_OK);
    cddp_store_close(store);
    return 0;
}

static void sums_of_several_processes_are_exact(void **state)
{
    struct place *place = *state;
    int64_t sum;

    assert_int_equal(run_ranks(7, add_rank, place), 0);
    assert_int_equal(cddp_store_add(place->store, "sum", 0, &sum), CDDP_OK);
    assert_int_equal(sum, 60 * 28);
    assert_int_equal(cddp_store_add(place->store, "winners", 0, &sum), CDDP_OK);
    assert_int_equal(sum, 1);
}

/* Rank 0 sets the keys in an order that makes the others' wait pass each of them; the last but one
 * disappears again in between. */
static int wait_rank(int rank, int world_size, void *argument)
{
    const char *const keys[] = {"a", "b", "c"};
    cddp_store *store = open_place(argument);
    void *value;

    (void)world_size;
    CHECK(store != NULL);
    if (rank > 0) {
        CHECK(cddp_store_add(store, "waiting", 1, NULL) == CDDP_OK);
        CHECK(cddp_store_wait(store, keys, 3, 0) == CDDP_OK);
        CHECK(cddp_store_try_get(store, "a", &value, NULL) == CDDP_OK);
        CHECK(strcmp(value, "again") == 0);
        cddp_free(value);
    } else {
        support_sleep_ms(60);
        CHECK(cddp_store_set(store, "a", "", 0) == CDDP_OK);
        support_sleep_ms(30);
        CHECK(cddp_store_delete(store, "a", NULL) == CDDP_OK);
        CHECK(cddp_store_set(store, "c", "", 0) == CDDP_OK);
        CHECK(cddp_store_set(store, "b", "", 0) == CDDP_OK);
        support_sleep_ms(60);
        CHECK(cddp_store_set(store, "a", "again", 5) == CDDP_OK);
    }
    cddp_store_close(store);
    return 0;
}

static void wait_ends_when_all_keys_exist_at_once(void **state)
{
    assert_int_equal(run_ranks(4, wait_rank, *state), 0);
}

/* Odd ranks are killed in the middle: while they write without end, or wait for what never comes.
 */
static int killed_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    static char large[200000];
    void *value;

    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddp_store_add(store, "started", 1, NULL) == CDDP_OK);
    if (rank % 4 == 1) {
        for (;;) {
            CHECK(cddp_store_set(store, "written", large, sizeof large) == CDDP_OK);
        }
    }
    if (rank % 4 == 3) {
        return cddp_store_get(store, "never", 0, &value, NULL);
    }
    for (int i = 0; i < 40; i++) {
        CHECK(cddp_store_add(store, "sum", 1, NULL) == CDDP_OK);
        support_sleep_ms(1);
    }
    cddp_store_close(store);
    return 0;
}

static int killing_rank(int rank, int world_size, void *argument)
{
    struct place *place = argument;
    cddp_store *store;
    int64_t started = 0;
    pid_t pid;

    if (rank % 2 == 0) {
        return killed_rank(rank, world_size, place);
    }
    store = open_place(place);
    CHECK(store != NULL);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
        _exit(killed_rank(rank, world_size, place));
    }
    while (started < world_size) {
        CHECK(cddp_store_add(store, "started", 0, &started) == CDDP_OK);
        support_sleep_ms(2);
    }
    support_sleep_ms(10 + rank);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cddp_store_close(store);
    return 0;
}

static void processes_killed_in_the_middle_do_not_disturb_others(void **state)
{
    struct place *place = *state;
    int64_t sum;

    assert_int_equal(run_ranks(7, killing_rank, place), 0);
    assert_int_equal(cddp_store_add(place->store, "sum", 0, &sum), CDDP_OK);
    assert_int_equal(sum, 4 * 40);
}

#define BOTH(test) PLACE_TEST("tcp", test), PLACE_TEST("file", test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_value_is_read_back_byte_by_byte),
        BOTH(a_value_may_have_16_mebibytes_and_no_more),
        BOTH(a_key_has_1_to_512_bytes),
        BOTH(try_get_does_not_wait),
        BOTH(get_that_times_out_names_the_key_and_leaves_the_handle_usable),
        BOTH(wait_that_times_out_names_what_is_missing),
        BOTH(wait_names_only_the_first_of_many),
        BOTH(add_counts_from_zero_and_in_both_directions),
        BOTH(add_refuses_what_is_no_number_or_too_large),
        BOTH(compare_set_changes_only_what_matches),
        BOTH(delete_forgets_a_key),
        BOTH(list_is_sorted_and_without_the_prefix),
        BOTH(list_gives_the_values_too),
        BOTH(handles_see_only_what_is_below_their_prefix),
        BOTH(a_wrong_token_is_refused),
        BOTH(want_of_memory_is_an_error_and_no_more),
        BOTH(long_values_arrive),
        BOTH(anything_but_0_and_1_for_encryption_is_an_error),
        BOTH(a_forked_process_cannot_disturb_its_parents_handle),
        BOTH(ranks_exchange_values),
        BOTH(seven_ranks_exchange_values),
        BOTH(sums_of_several_processes_are_exact),
        BOTH(wait_ends_when_all_keys_exist_at_once),
        BOTH(processes_killed_in_the_middle_do_not_disturb_others),
        cmocka_unit_test(nonsense_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
