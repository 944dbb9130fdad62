/* test_store_wire.c - what an attacker between a rank and the TCP store can do: read, change,
 * inject and replay; and what an impostor in the server's place can do. */
#include "store/store_wire.h"
#include "support/failure.h"
#include "support/relay.h"
#include "support/store.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define SECRET "what nobody else may read, and long enough to be found"

/* A store that is reached through a relay. */
struct way {
    struct relay *relay;
    char url[64];
};

static struct way make_way(const struct place *place)
{
    struct way way = {.relay = relay_create(cddpi_store_server_port(place->server))};

    snprintf(way.url, sizeof way.url, "tcp://127.0.0.1:%u", relay_port(way.relay));
    return way;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void nothing_that_is_stored_can_be_read_on_the_way(void **state)
{
    struct way way = make_way(*state);
    cddp_store *store = NULL;
    void *value = NULL;

    assert_int_equal(open_store(way.url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
    assert_int_equal(cddp_store_set(store, "name_of_a_key", SECRET, sizeof SECRET), CDDP_OK);
    assert_int_equal(cddp_store_get(store, "name_of_a_key", 0, &value, NULL), CDDP_OK);
    assert_string_equal(value, SECRET);
    cddp_free(value);
    assert_true(relay_passed(way.relay, RELAY_UP) > 2 * sizeof SECRET);
    assert_true(relay_passed(way.relay, RELAY_DOWN) > sizeof SECRET);
    assert_false(relay_saw(way.relay, SECRET, 12));
    assert_false(relay_saw(way.relay, "name_of_a_key", 13));
    assert_false(relay_saw(way.relay, TOKEN, strlen(TOKEN)));
    cddp_store_close(store);
    relay_free(way.relay);
}

/* A reply of the server, whichever byte of it is changed, fails the request or does not come. */
static void a_changed_reply_is_noticed(void **state)
{
    enum { GREETING = CDDPI_WIRE_HELLO_BYTES + CDDPI_WIRE_WELCOME_BYTES };
    struct place *place = *state;

    assert_int_equal(cddp_store_set(place->store, "k", "right", 6), CDDP_OK);
    for (size_t at = 0; at < 40; at += at < 6 ? 1 : 5) {
        struct way way = make_way(place);
        cddp_store *store = NULL;
        void *value = NULL;
        cddp_status status;

        assert_int_equal(open_store(way.url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
        relay_change(way.relay, RELAY_DOWN, GREETING + at);
        status = cddp_store_get(store, "k", 300, &value, NULL);
        if (relay_passed(way.relay, RELAY_DOWN) <= GREETING + at) {
            assert_int_equal(status, CDDP_OK); /* the reply was shorter */
            cddp_free(value);
        } else {
            assert_true(status == CDDP_ERR_IO || status == CDDP_ERR_TIMEOUT);
        }
        cddp_store_close(store);
        relay_free(way.relay);
    }
}

static void a_changed_request_is_not_done(void **state)
{
    enum { GREETING = CDDPI_WIRE_ANSWER_BYTES };
    struct place *place = *state;

    assert_int_equal(cddp_store_set(place->store, "k", "right", 6), CDDP_OK);
    for (size_t at = 4; at < 40; at += 5) {
        struct way way = make_way(place);
        cddp_store *store = NULL;
        void *value = NULL;

        assert_int_equal(open_store(way.url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
        relay_change(way.relay, RELAY_UP, GREETING + at);
        assert_int_not_equal(cddp_store_set(store, "k", "wrong", 6), CDDP_OK);
        assert_int_equal(cddp_store_get(place->store, "k", 0, &value, NULL), CDDP_OK);
        assert_string_equal(value, "right");
        cddp_free(value);
        cddp_store_close(store);
        relay_free(way.relay);
    }
}

/* A reply that is put in before the server's own: plain, as it looked before it was encrypted. */
static void a_reply_that_is_put_in_is_not_taken(void **state)
{
    struct cddpi_wire_head head = {.body_bytes = 6, .id = 2};
    uint8_t reply[CDDPI_WIRE_HEAD_BYTES + 6];
    struct way way = make_way(*state);
    cddp_store *store = NULL;
    void *value = NULL;

    cddpi_wire_put_head(reply, &head);
    memcpy(reply + CDDPI_WIRE_HEAD_BYTES, "wrong", 6);
    assert_int_equal(open_store(way.url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
    assert_int_equal(cddp_store_set(store, "k", "right", 6), CDDP_OK);
    relay_inject(way.relay, RELAY_DOWN, reply, sizeof reply);
    assert_int_not_equal(cddp_store_get(store, "k", 1000, &value, NULL), CDDP_OK);
    assert_null(value);
    cddp_store_close(store);
    relay_free(way.relay);
}

/* A connection that is recorded and played again, to a server that lives on, changes nothing. */
static void a_recording_is_not_taken_for_a_client(void **state)
{
    struct place *place = *state;
    struct way way = make_way(place);
    cddp_store *store = NULL;
    uint8_t recorded[4096];
    size_t bytes;
    int64_t sum = 0;
    int fd;

    assert_int_equal(open_store(way.url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
    assert_int_equal(cddp_store_add(store, "sum", 5, &sum), CDDP_OK);
    bytes = relay_copy(way.relay, RELAY_UP, 0, recorded, sizeof recorded);
    cddp_store_close(store);
    fd = connect_to(cddpi_store_server_port(place->server));
    assert_int_equal(send(fd, recorded, bytes, MSG_NOSIGNAL), bytes);
    while (recv(fd, recorded, sizeof recorded, 0) > 0) {
        continue; /* until the server has closed it */
    }
    close(fd);
    assert_int_equal(cddp_store_add(place->store, "sum", 0, &sum), CDDP_OK);
    assert_int_equal(sum, 5);
    relay_free(way.relay);
}

static int listen_at(uint16_t port, uint16_t *out_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *out_port = ntohs(address.sin_port);
    return fd;
}

enum false_server { REFUSES_THE_TOKEN, HAS_ANOTHER_VERSION, IS_NO_STORE, PROVES_NOTHING };

/* Say to two callers what is no more than a claim. */
static void serve_falsely(int listener, enum false_server kind)
{
    for (int i = 0; i < 2; i++) {
        uint8_t hello[CDDPI_WIRE_HELLO_BYTES] = {0};
        uint8_t answer[CDDPI_WIRE_ANSWER_BYTES];
        uint8_t welcome[CDDPI_WIRE_WELCOME_BYTES] = {0};
        int fd = accept(listener, NULL, NULL);

        cddpi_put_u64(hello, CDDPI_WIRE_MAGIC + (kind == IS_NO_STORE));
        cddpi_put_u32(hello + 8, CDDPI_WIRE_VERSION + (kind == HAS_ANOTHER_VERSION));
        cddpi_put_u32(welcome, kind == REFUSES_THE_TOKEN);
        (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
        if (recv(fd, answer, sizeof answer, MSG_WAITALL) == (ssize_t)sizeof answer) {
            (void)!send(fd, welcome, sizeof welcome, MSG_NOSIGNAL);
        }
        close(fd);
    }
}

/* Somebody has the port for a while: another job's server, or who wants to keep the rank out. */
static void a_refusal_that_proves_nothing_is_not_final(void **state)
{
    (void)state;
    for (int kind = REFUSES_THE_TOKEN; kind <= PROVES_NOTHING; kind++) {
        struct cddpi_store_server *server = NULL;
        cddp_store *store = NULL;
        uint16_t port;
        int listener = listen_at(0, &port);
        char url[64];
        pid_t pid = fork();

        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_falsely(listener, (enum false_server)kind);
            close(listener);
            if (start_server(port, TOKEN, &server) != CDDP_OK) {
                fprintf(stderr, "no server: %s\n", cddp_last_error());
                _exit(1);
            }
            for (;;) {
                pause();
            }
        }
        close(listener);
        snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
        assert_int_equal(open_store(url, TOKEN, NULL, SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
        cddp_store_close(store);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* The reason is still there at the deadline, also if nobody listens any more then. */
static void the_reason_of_a_refusal_is_kept_to_the_deadline(void **state)
{
    cddp_store *store = NULL;
    uint16_t port;
    int listener = listen_at(0, &port);
    char url[64];
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve_falsely(listener, REFUSES_THE_TOKEN);
        _exit(0);
    }
    close(listener);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    assert_true(failure_is(open_store(url, TOKEN, NULL, 3000, &store), CDDP_ERR_AUTH, -1, -1, ""));
    assert_true(last_error_has("the server refused the job's token"));
    assert_true(last_error_has("Connection refused"));
    waitpid(pid, NULL, 0);
}

static void the_server_remembers_whom_it_has_refused(void **state)
{
    struct place *place = *state;
    struct cddpi_store_refusal refusals[CDDPI_STORE_REFUSALS];
    uint8_t older[16] = {0};
    int fd;

    assert_int_equal(cddpi_store_server_refusals(place->server, refusals), 0);
    assert_true(is_refused(place->url, "guess", CDDP_ERR_AUTH, "token"));
    assert_int_equal(cddpi_store_server_refusals(place->server, refusals), 1);
    assert_string_equal(refusals[0].address, "127.0.0.1");
    assert_int_equal(refusals[0].why, CDDPI_REFUSED_TOKEN);
    assert_true(refusals[0].count >= 1 && refusals[0].last_ns <= cddpi_now_ns());
    assert_non_null(strstr(cddpi_refused_text(refusals[0].why), "token"));
    assert_true(is_refused(place->url, "another guess", CDDP_ERR_AUTH, "token"));
    assert_int_equal(cddpi_store_server_refusals(place->server, refusals), 1); /* one address */
    assert_true(refusals[0].count >= 2);
    fd = connect_to(cddpi_store_server_port(place->server));
    cddpi_put_u64(older, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(older + 8, CDDPI_WIRE_VERSION - 1);
    assert_int_equal(send(fd, older, sizeof older, MSG_NOSIGNAL), sizeof older);
    while (recv(fd, older, sizeof older, 0) > 0) {
        continue; /* until the server has closed it */
    }
    close(fd);
    assert_int_equal(cddpi_store_server_refusals(place->server, refusals), 2);
    assert_int_equal(refusals[0].why, CDDPI_REFUSED_VERSION); /* the newest first */
    assert_non_null(strstr(cddpi_refused_text(refusals[0].why), "another version"));
}

/* Both ciphers, and a server and a client that have none in common. */
static void the_two_sides_agree_on_a_cipher(void **state)
{
    struct place *place = *state; /* its server may use both, if the processor can */
    struct cddpi_store_server_options options = {.token = TOKEN};
    struct cddpi_store_server *server = NULL;
    cddp_store *store = NULL;
    uint32_t ciphers = 0;
    char url[64];

    assert_int_equal(cddpi_ciphers(&ciphers), CDDP_OK);
    setenv("CDDP_CIPHER", "chacha20", 1);
    assert_int_equal(open_store(place->url, TOKEN, NULL, SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
    assert_int_equal(cddp_store_set(store, "k", "v", 1), CDDP_OK);
    cddp_store_close(store);
    setenv("CDDP_CIPHER", "rot13", 1);
    assert_true(failure_is(open_store(place->url, TOKEN, NULL, 1000, &store), CDDP_ERR_ARGUMENT, -1,
                           -1, ""));
    assert_true(last_error_has("CDDP_CIPHER=rot13"));
    setenv("CDDP_CIPHER", "chacha20", 1);
    assert_int_equal(cddpi_store_server_create(&options, &server), CDDP_OK);
    if ((ciphers & CDDPI_CIPHER_AES256GCM) != 0) {
        setenv("CDDP_CIPHER", "aes256gcm", 1);
        assert_int_equal(open_store(place->url, TOKEN, NULL, SUPPORT_TIMEOUT_MS, &store), CDDP_OK);
        cddp_store_close(store);
        snprintf(url, sizeof url, "tcp://127.0.0.1:%u", cddpi_store_server_port(server));
        assert_true(is_refused(url, TOKEN, CDDP_ERR_CONFIG, "CDDP_CIPHER"));
    }
    unsetenv("CDDP_CIPHER");
    cddpi_store_server_destroy(server);
}

#define WITH_SERVER(test) PLACE_TEST("tcp", test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(nothing_that_is_stored_can_be_read_on_the_way),
        WITH_SERVER(a_changed_reply_is_noticed),
        WITH_SERVER(a_changed_request_is_not_done),
        WITH_SERVER(a_reply_that_is_put_in_is_not_taken),
        WITH_SERVER(a_recording_is_not_taken_for_a_client),
        cmocka_unit_test(a_refusal_that_proves_nothing_is_not_final),
        cmocka_unit_test(the_reason_of_a_refusal_is_kept_to_the_deadline),
        WITH_SERVER(the_server_remembers_whom_it_has_refused),
        WITH_SERVER(the_two_sides_agree_on_a_cipher),
    };

    setenv("CDDP_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
