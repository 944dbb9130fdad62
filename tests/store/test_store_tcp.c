/* test_store_tcp.c - what only the TCP store does: addresses, requests in pieces and pipelined, and
 * a server that comes late, stops or goes away. */
#include "base/clock.h"
#include "store/store.h"
#include "support/failure.h"
#include "support/store_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

static void a_message_in_single_bytes_is_understood(void **state)
{
    static const uint8_t request[] = {4, 0, 0, 0, 9, 0,   0,  0, CDDPI_STORE_SET,
                                      0, 0, 0, 1, 0, 'k', 'v'};
    struct place *place = *state;
    struct cddpi_store_stream stream = friend(place);
    uint8_t reply[CDDPI_WIRE_HEAD_BYTES];

    for (size_t i = 0; i < sizeof request; i++) {
        say_secretly(&stream, request + i, 1);
        support_sleep_ms(1);
    }
    hear(&stream, reply, sizeof reply);
    assert_int_equal(cddpi_get_u32(reply + 4), 9);
    assert_int_equal(reply[8], 0);
    friend_leaves(&stream);
}

/* Requests that are sent without waiting for replies come one after the other, also when the
 * replies are larger than what the socket holds. */
static void requests_sent_ahead_are_answered_in_order(void **state)
{
    enum { COUNT = 20, BYTES = 1 << 20 };
    struct place *place = *state;
    struct cddpi_store_request request = {.op = CDDPI_STORE_GET};
    struct cddpi_wire_buffer out = {0};
    uint8_t *value = calloc(1, BYTES);
    struct cddpi_store_stream stream = friend(place);

    assert_int_equal(cddp_store_set(place->store, "k", value, BYTES), CDDP_OK);
    request.key.data = (const uint8_t *)"job/0/k";
    request.key.bytes = 7;
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(cddpi_wire_encode(&request, i, &out));
    }
    say_secretly(&stream, out.data, out.bytes);
    cddpi_buffer_fini(&out);
    works(place);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t head[CDDPI_WIRE_HEAD_BYTES];

        hear(&stream, head, sizeof head);
        hear(&stream, value, BYTES);
        assert_int_equal(cddpi_get_u32(head), BYTES);
        assert_int_equal(cddpi_get_u32(head + 4), i);
    }
    friend_leaves(&stream);
    free(value);
}

static int waiting_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    const char *const keys[] = {"never", "ever"};
    void *value;

    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddp_store_add(store, "waiting", 1, NULL) == CDDP_OK);
    if (rank % 2 == 0) {
        CHECK(cddp_store_get(store, "never", 0, &value, NULL) == CDDP_ERR_IO);
    } else {
        CHECK(cddp_store_wait(store, keys, 2, 0) == CDDP_ERR_IO);
    }
    /* the latter if this rank was so slow that it had not begun to wait */
    CHECK(last_error_has("the server closed the connection") ||
          last_error_has("connection to the server"));
    CHECK(cddp_store_set(store, "k", "v", 1) == CDDP_ERR_IO);
    cddp_store_close(store);
    return 0;
}

static void a_server_that_goes_away_fails_those_who_wait(void **state)
{
    struct place *place = *state;
    pid_t pid = fork();
    int status;
    int64_t waiting = 0;

    if (pid == 0) {
        /* ranks 1 to 3: they wait when rank 0, this test's parent, takes the server away */
        _exit(run_ranks(3, waiting_rank, place));
    }
    while (waiting < 3) {
        assert_int_equal(cddp_store_add(place->store, "waiting", 0, &waiting), CDDP_OK);
        support_sleep_ms(2);
    }
    support_sleep_ms(200); /* from their word to their wait */
    cddpi_store_server_destroy(place->server);
    place->server = NULL;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_ERR_IO);
}

static int hearing_rank(int rank, int world_size, void *argument)
{
    struct place *place = argument;
    cddp_store *store = open_place(place);
    const char *const keys[] = {"first", "said"};
    void *value = NULL;
    size_t bytes = 0;

    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddp_store_add(store, "waiting", 1, NULL) == CDDP_OK);
    if (rank % 2 == 0) {
        CHECK(cddp_store_get(store, "said", 0, &value, &bytes) == CDDP_OK);
    } else {
        CHECK(cddp_store_wait(store, keys, 2, 0) == CDDP_OK);
        CHECK(cddp_store_try_get(store, "said", &value, &bytes) == CDDP_OK);
    }
    CHECK(bytes == 5 && memcmp(value, "words", 5) == 0);
    cddp_free(value);
    cddp_store_close(store);
    CHECK(failure_is(cddpi_store_server_set(place->server, "job/0/said", "x", 1), CDDP_ERR_STATE,
                     -1, -1, ""));
    CHECK(last_error_has("it is process "));
    return 0;
}

/* However slow the machine: nothing here has a deadline but the ranks that wait. */
static void who_owns_the_server_sets_keys_without_a_connection(void **state)
{
    struct place *place = *state;
    pid_t pid = fork();
    int status;
    int64_t waiting = 0;
    void *value;
    size_t bytes;

    if (pid == 0) {
        _exit(run_ranks(4, hearing_rank, place));
    }
    while (waiting < 4) {
        assert_int_equal(cddp_store_add(place->store, "waiting", 0, &waiting), CDDP_OK);
        support_sleep_ms(2);
    }
    assert_int_equal(cddpi_store_server_set(place->server, "job/0/first", "", 0), CDDP_OK);
    assert_int_equal(cddpi_store_server_set(place->server, "job/0/said", "words", 5), CDDP_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(cddpi_store_server_set(place->server, "job/0/said", NULL, 0), CDDP_OK);
    assert_int_equal(cddp_store_get(place->store, "said", 0, &value, &bytes), CDDP_OK);
    assert_int_equal(bytes, 0);
    cddp_free(value);
}

static void keys_that_begin_alike_are_forgotten_together(void **state)
{
    struct place *place = *state;
    char key[64];
    char **keys;
    size_t count;
    int64_t number;

    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "job/0/%s/%d", i % 2 == 0 ? "old" : "older", i);
        assert_int_equal(cddpi_store_server_set(place->server, key, "v", 1), CDDP_OK);
    }
    cddpi_store_server_forget(place->server, "job/0/old/");
    cddpi_store_server_forget(place->server, "job/0/older/1111");
    assert_int_equal(cddp_store_list(place->store, "old/", &keys, &count), CDDP_OK);
    assert_int_equal(count, 0);
    assert_int_equal(cddp_store_list(place->store, "older/", &keys, &count), CDDP_OK);
    assert_int_equal(count, 500);
    cddp_free(keys);
    assert_int_equal(cddp_store_add(place->store, "old/0", 7, &number), CDDP_OK);
    assert_int_equal(number, 7);
}

static void it_is_known_whether_a_server_is_gone(void **state)
{
    struct place *place = *state;
    char url[64];

    assert_false(cddpi_store_is_refused(place->store->url, cddpi_deadline_ns(60000)));
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", support_free_port());
    assert_true(cddpi_store_is_refused(url, cddpi_deadline_ns(60000)));
    assert_false(cddpi_store_is_refused("file:///", cddpi_deadline_ns(60000)));
}

static void *set_many(void *argument)
{
    struct place *place = argument;

    for (int i = 0; i < 500; i++) {
        char key[32];

        snprintf(key, sizeof key, "job/0/many/%d", i);
        if (cddpi_store_server_set(place->server, key, key, strlen(key)) != CDDP_OK) {
            return place;
        }
    }
    return NULL;
}

static void keys_are_set_by_several_threads_while_clients_are_served(void **state)
{
    struct place *place = *state;
    pthread_t threads[2];
    void *failed;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, set_many, place), 0);
    }
    for (int i = 0; i < 500; i++) {
        char key[32];
        void *value;
        size_t bytes;

        snprintf(key, sizeof key, "many/%d", i);
        assert_int_equal(cddp_store_get(place->store, key, 0, &value, &bytes), CDDP_OK);
        assert_int_equal(bytes, strlen("job/0/") + strlen(key));
        cddp_free(value);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

static void the_server_takes_no_key_that_a_client_could_not_send(void **state)
{
    struct place *place = *state;
    char key[CDDPI_STORE_FULL_KEY_BYTES + 2];

    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    assert_true(failure_is(cddpi_store_server_set(place->server, key, "v", 1), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_true(last_error_has("a key of 1025 bytes"));
    assert_int_equal(cddpi_store_server_set(place->server, "", "v", 1), CDDP_ERR_ARGUMENT);
    assert_int_equal(
        cddpi_store_server_set(place->server, "k", "v", (size_t)CDDP_STORE_VALUE_BYTES + 1),
        CDDP_ERR_ARGUMENT);
    key[sizeof key - 2] = '\0';
    assert_int_equal(cddpi_store_server_set(place->server, key, "v", 1), CDDP_OK);
}

static int early_rank(int rank, int world_size, void *argument)
{
    (void)rank;
    (void)world_size;
    cddp_store *store = open_place(argument);

    CHECK(store != NULL);
    CHECK(cddp_store_add(store, "came", 1, NULL) == CDDP_OK);
    cddp_store_close(store);
    return 0;
}

static void a_client_may_come_before_its_server(void **state)
{
    struct place place = {0};
    uint16_t port = support_free_port();
    pid_t pid;
    int status;

    (void)state;
    snprintf(place.url, sizeof place.url, "tcp://127.0.0.1:%u", port);
    pid = fork();
    if (pid == 0) {
        _exit(run_ranks(3, early_rank, &place));
    }
    support_sleep_ms(80);
    assert_int_equal(start_server(port, TOKEN, &place.server), CDDP_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    cddpi_store_server_destroy(place.server);
}

static void where_nobody_listens_opening_ends_at_the_deadline(void **state)
{
    char url[64];

    (void)state;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", support_free_port());
    assert_true(opens_in_vain(url, "Connection refused"));
    assert_true(last_error_has(url));
}

/* Another service's port: one that greets, and one that is silent. */
static void what_is_no_store_is_told_from_one(void **state)
{
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2 and what else such a server says at first.....";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char url[64];
    pid_t pid;

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    assert_true(opens_in_vain(url, "no cddp store answers"));
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int fd = accept(listener, NULL, NULL);

            say(fd, ssh, sizeof ssh);
            close(fd);
        }
    }
    assert_true(is_refused(url, TOKEN, CDDP_ERR_IO, ""));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(listener);
}

/* Every user of the machine reaches loopback, and a greeting that was seen tells a short token. */
static void without_a_token_nothing_is_bound_and_beyond_loopback_no_weak_one_will_do(void **state)
{
    static const struct {
        const char *host;
        const char *token;
        bool is_bound;
    } trials[] = {
        {"127.0.0.1", NULL, false},
        {"127.0.0.1", "", false},
        {"::1", "", false},
        {"localhost", "", false},
        {"0.0.0.0", "", false},
        {"::", NULL, false},
        {"localhost", "short", true},
        {"0.0.0.0", "short", false},
        {"0.0.0.0", "REPLACE-ME", false},
        {"0.0.0.0", "123456789012345678901", false},
        {"0.0.0.0", "0000000000000000000000", false},
        {"0.0.0.0", "ababababababababababababababab", false},
        {"::", "short", false},
        {"0.0.0.0", "qV7cXhQ1n0J0zq9o2Yw3bA", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        struct cddpi_store_server_options options = {.host = trials[i].host,
                                                     .token = trials[i].token};
        struct cddpi_store_server *server = NULL;
        cddp_status status = cddpi_store_server_create(&options, &server);

        assert_int_equal(status, trials[i].is_bound ? CDDP_OK : CDDP_ERR_ARGUMENT);
        assert_true(status == CDDP_OK || last_error_has("token"));
        cddpi_store_server_destroy(server);
    }
}

static void addresses_of_both_families_work(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    static const char *const forms[] = {"tcp://127.0.0.1:%u", "tcp://[::1]:%u",
                                        "tcp://localhost:%u"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cddpi_store_server_options options = {.host = hosts[i], .token = TOKEN};
        struct cddpi_store_server *server;
        cddp_store *store;
        char url[64];

        if (cddpi_store_server_create(&options, &server) != CDDP_OK && i == 1) {
            print_message("no IPv6 here: %s\n", cddp_last_error());
            continue;
        }
        /* the forms hold one %u each, whatever the compiler can see of them */
        snprintf(url, sizeof url, "%.*s%u", (int)(strlen(forms[i]) - 2), forms[i],
                 cddpi_store_server_port(server));
        assert_int_equal(open_store(url, TOKEN, NULL, SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
        assert_int_equal(cddp_store_set(store, "k", "v", 1), CDDP_OK);
        cddp_store_close(store);
        cddpi_store_server_destroy(server);
    }
}

static void a_taken_port_is_an_error(void **state)
{
    struct place *place = *state;
    struct cddpi_store_server *second = NULL;
    struct cddpi_store_server_options options = {.host = "no.such.host.invalid", .token = TOKEN};

    assert_true(failure_is(start_server(cddpi_store_server_port(place->server), TOKEN, &second),
                           CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("127.0.0.1"));
    assert_int_equal(cddpi_store_server_create(&options, &second), CDDP_ERR_IO);
    assert_null(second);
}

static void a_stopped_server_costs_a_request_its_deadline_and_no_more(void **state)
{
    const char *const keys[] = {"k", "never"};
    cddp_store *store = NULL;
    uint16_t port;
    pid_t pid = fork_server(0, &port);
    uint8_t *large = calloc(1, CDDP_STORE_VALUE_BYTES);
    char url[64];
    void *value;
    size_t bytes;
    int ended;

    (void)state;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    for (int tries = 0; store == NULL && tries < 100; tries++) { /* the deadline is short for it */
        (void)!open_store(url, TOKEN, NULL, 700, &store);
    }
    assert_non_null(store);
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &ended, WUNTRACED), pid); /* it may still run for a moment */
    assert_true(failure_is(cddp_store_set(store, "k", large, CDDP_STORE_VALUE_BYTES),
                           CDDP_ERR_TIMEOUT, -1, -1, ""));
    assert_true(last_error_has("set \"k\": the server did not answer"));
    assert_int_equal(cddp_store_try_get(store, "k", &value, &bytes), CDDP_ERR_TIMEOUT);
    assert_int_equal(cddp_store_wait(store, keys, 2, 20), CDDP_ERR_TIMEOUT);
    kill(pid, SIGCONT);
    assert_int_equal(cddp_store_get(store, "k", SUPPORT_TIMEOUT_MS, &value, &bytes), CDDP_OK);
    assert_int_equal(bytes, CDDP_STORE_VALUE_BYTES);
    cddp_free(value);
    assert_true(waits_in_vain(store, keys, 2, 20, "1 of 2 keys"));
    assert_true(last_error_has("\"never\""));
    cddp_store_close(store);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(large);
}

/* Whether a server for clients on other hosts, too, listens on all interfaces at @p host. */
static bool is_everywhere(const char *host)
{
    struct cddpi_store_server_options options = {.host = host, .token = TOKEN, .other_hosts = true};
    struct cddpi_store_server *server;
    bool everywhere;

    assert_int_equal(cddpi_store_server_create(&options, &server), CDDP_OK);
    everywhere = cddpi_store_server_is_everywhere(server);
    cddpi_store_server_destroy(server);
    return everywhere;
}

static void a_name_that_means_loopback_does_not_keep_other_hosts_out(void **state)
{
    struct cddpi_store_server_options options = {.host = "localhost", .other_hosts = true};
    struct cddpi_store_server *server = NULL;

    (void)state;
    setenv("CDDP_LOG", "off", 1);
    assert_true(is_everywhere("localhost"));
    assert_false(is_everywhere("127.0.0.1")); /* what was asked for */
    assert_true(
        failure_is(cddpi_store_server_create(&options, &server), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_null(server);
    unsetenv("CDDP_LOG");
}

static int dying_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);

    (void)rank;
    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddpi_store_last_word(store, "word", "not this", 8) == CDDP_OK);
    CHECK(cddpi_store_last_word(store, "word", "gone", 4) == CDDP_OK);
    CHECK(cddp_store_set(store, "word", "here", 4) == CDDP_OK);
    raise(SIGKILL);
    return 1;
}

static void expect_word(struct place *place, const char *wanted)
{
    void *value = NULL;

    for (int i = 0; i < SUPPORT_TIMEOUT_MS / 10; i++) {
        assert_int_equal(cddp_store_get(place->store, "word", 0, &value, NULL), CDDP_OK);
        if (strcmp(value, wanted) == 0) {
            break;
        }
        cddp_free(value);
        value = NULL;
        support_sleep_ms(10);
    }
    assert_non_null(value);
    cddp_free(value);
}

static void the_last_word_of_a_connection_is_set_when_it_ends(void **state)
{
    struct place *place = *state;
    cddp_store *store = open_place(place);
    char large[CDDPI_STORE_LAST_WORD_BYTES + 1] = "";

    assert_int_not_equal(run_ranks(1, dying_rank, place), 0);
    expect_word(place, "gone");
    assert_non_null(store);
    assert_int_equal(cddpi_store_last_word(store, "word", large, sizeof large), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddpi_store_last_word(store, "word", "closed", 6), CDDP_OK);
    expect_word(place, "gone");
    cddp_store_close(store);
    expect_word(place, "closed");
    works(place);
}

static void tokens_are_random_text(void **state)
{
    char a[33];
    char b[33];

    (void)state;
    cddpi_store_token(a);
    cddpi_store_token(b);
    assert_int_equal(strlen(a), 32);
    assert_int_equal(strspn(a, "0123456789abcdef"), 32);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_message_in_single_bytes_is_understood),
        WITH_SERVER(requests_sent_ahead_are_answered_in_order),
        WITH_SERVER(a_server_that_goes_away_fails_those_who_wait),
        WITH_SERVER(who_owns_the_server_sets_keys_without_a_connection),
        WITH_SERVER(keys_that_begin_alike_are_forgotten_together),
        WITH_SERVER(it_is_known_whether_a_server_is_gone),
        WITH_SERVER(keys_are_set_by_several_threads_while_clients_are_served),
        WITH_SERVER(the_server_takes_no_key_that_a_client_could_not_send),
        WITH_SERVER(a_taken_port_is_an_error),
        WITH_SERVER(the_last_word_of_a_connection_is_set_when_it_ends),
        cmocka_unit_test(a_client_may_come_before_its_server),
        cmocka_unit_test(where_nobody_listens_opening_ends_at_the_deadline),
        cmocka_unit_test(what_is_no_store_is_told_from_one),
        cmocka_unit_test(without_a_token_nothing_is_bound_and_beyond_loopback_no_weak_one_will_do),
        cmocka_unit_test(addresses_of_both_families_work),
        cmocka_unit_test(a_stopped_server_costs_a_request_its_deadline_and_no_more),
        cmocka_unit_test(a_name_that_means_loopback_does_not_keep_other_hosts_out),
        cmocka_unit_test(tokens_are_random_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
