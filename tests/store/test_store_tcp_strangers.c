/* test_store_tcp_strangers.c - how a TCP store handles strangers: garbage, silence, more clients
 * than it has room for. */
#include "support/store_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

/* A connection to the server at @p port that has not proved anything. */
static int caller(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int stranger(const struct place *place)
{
    return caller(cddpi_store_server_port(place->server));
}

static void come_and_go(const struct place *place)
{
    struct cddpi_store_stream stream = friend(place);

    friend_leaves(&stream);
}

/* Whether the server closes @p fd, whatever it says before; much sooner than for want of a proof.
 */
static bool is_dropped(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char bytes[4096];

    while (poll(&entry, 1, SUPPORT_TIMEOUT_MS) == 1) {
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
            close(fd);
            return true;
        }
    }
    close(fd);
    return false;
}

static void garbage_drops_only_who_sends_it(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct place *place = *state;
    uint8_t answer[CDDPI_WIRE_ANSWER_BYTES] = {0};
    uint8_t random[1000];
    int fd = stranger(place);

    say(fd, http, sizeof http - 1);
    assert_true(is_dropped(fd));
    works(place);
    for (int i = 0; i < 50; i++) {
        fd = stranger(place);
        cddpi_random_bytes(random, sizeof random);
        say(fd, random, sizeof random);
        assert_true(is_dropped(fd));
    }
    works(place);
    fd = stranger(place); /* the right form, and a proof of nothing */
    cddpi_put_u64(answer, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(answer + 8, CDDPI_WIRE_VERSION);
    say(fd, answer, sizeof answer);
    assert_true(is_dropped(fd));
    works(place);
}

static void malformed_requests_drop_only_who_sends_them(void **state)
{
    static const uint8_t requests[][20] = {
        {0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, CDDPI_STORE_SET}, /* 4 GiB */
        {0, 0, 0, 0, 1, 0, 0, 0, 77},                          /* no such op */
        {0, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_SET},             /* no key */
        {4, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_GET, 0, 0, 0, 9, 0, 'k', 'k'},
        {2, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_GET, 0, 0, 0, 0, 0}, /* an empty key */
        {4, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_ADD, 0, 0, 0, 1, 0, 'k', 1},
        {7, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_COMPARE_SET, 0, 0, 0, 1, 0, 'k', 9, 9, 9, 9},
        {0, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_WAIT},
        {5, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_WAIT, 0, 0, 0, 1, 0, 'k', 1, 0},
        {1, 0, 0, 0, 1, 0, 0, 0, CDDPI_STORE_CANCEL, 0, 0, 0, 0},
    };
    struct place *place = *state;

    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct cddpi_store_stream stream = friend(place);

        say_secretly(&stream, requests[i], sizeof requests[i]);
        cddpi_cipher_destroy(stream.cipher);
        assert_true(is_dropped(stream.fd));
        works(place);
    }
}

/* Random bodies below well-formed heads, so that they get past the first check. */
static void random_requests_drop_only_who_sends_them(void **state)
{
    struct place *place = *state;

    for (int i = 0; i < 300; i++) {
        uint8_t message[CDDPI_WIRE_HEAD_BYTES + 256];
        struct cddpi_wire_head head;
        struct cddpi_store_stream stream = friend(place);
        int count = 1 + i % 4;

        for (int k = 0; k < count; k++) {
            cddpi_random_bytes(message, sizeof message);
            head.body_bytes = message[0];
            head.id = (uint32_t)k;
            head.code = 1 + message[1] % 10;
            head.flags = message[2];
            message[CDDPI_WIRE_HEAD_BYTES] %= 64; /* a key that may fit */
            message[CDDPI_WIRE_HEAD_BYTES + 1] = 0;
            cddpi_wire_put_head(message, &head);
            say_secretly(&stream, message, CDDPI_WIRE_HEAD_BYTES + head.body_bytes);
        }
        friend_leaves(&stream);
    }
    works(place);
}

static void who_proves_nothing_is_dropped_in_time(void **state)
{
    struct cddpi_store_server_options options = {.token = TOKEN, .auth_timeout_ms = 50};
    struct place place = {0};
    int fds[3];

    (void)state;
    assert_int_equal(cddpi_store_server_create(&options, &place.server), CDDP_OK);
    for (int i = 0; i < 3; i++) {
        fds[i] = stranger(&place);
    }
    say(fds[1], "cdp", 3);
    for (int i = 0; i < 3; i++) {
        assert_true(is_dropped(fds[i]));
    }
    cddpi_store_server_destroy(place.server);
}

static void who_finds_no_room_is_told_and_comes_in_later(void **state)
{
    enum { MOST = 40 };
    cddp_store *stores[MOST] = {NULL};
    cddp_store *late = NULL;
    uint16_t port;
    pid_t pid = fork_server(24, &port);
    char url[64];
    int count = 0;
    bool told = false;

    (void)state;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    /* on a busy machine an attempt may be cut short, and then it has another text */
    for (uint32_t ms = 500; ms < SUPPORT_TIMEOUT_MS && count < MOST && !told; ms *= 2) {
        while (count < MOST && open_store(url, TOKEN, NULL, ms, &stores[count]) == CDDP_OK) {
            count++;
        }
        told = strstr(cddp_last_error(), "limit of open files") != NULL;
    }
    assert_true(told);
    assert_in_range(count, 1, 24);
    assert_int_equal(cddp_store_set(stores[0], "k", "v", 1), CDDP_OK);
    cddp_store_close(stores[--count]);
    assert_int_equal(open_store(url, TOKEN, NULL, SUPPORT_TIMEOUT_MS, &late), CDDP_OK);
    cddp_store_close(late);
    while (count > 0) {
        cddp_store_close(stores[--count]);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* At least @p count descriptors, or the test is skipped. */
static void need_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < count && limit.rlim_max >= count) {
        limit.rlim_cur = count;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < count) {
        print_message("skipped: fewer than %d descriptors\n", (int)count);
        skip();
    }
}

static void silent_strangers_push_out_the_oldest_of_them_only(void **state)
{
    enum { COUNT = 600 };
    struct place *place = *state;
    int fds[COUNT];
    char byte;

    need_descriptors(2048);
    for (int i = 0; i < COUNT; i++) {
        fds[i] = stranger(place);
    }
    assert_true(is_dropped(fds[0])); /* the proof is waited for twice as long as this */
    assert_true(is_dropped(fds[1]));
    works(place);
    come_and_go(place);
    assert_true(recv(fds[COUNT - 1], &byte, 1, MSG_DONTWAIT) != 0);
    for (int i = 2; i < COUNT; i++) {
        close(fds[i]);
    }
}

/* A server in a process of @p limit descriptors that says its port, waits for a byte, and says how
 * many descriptors it can still open. */
static pid_t fork_counting_server(rlim_t limit, int reserved, int *out_fd)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid = fork();
    if (pid == 0) {
        struct cddpi_store_server_options options = {
            .token = TOKEN, .reserved = reserved, .auth_timeout_ms = 2 * SUPPORT_TIMEOUT_MS};
        struct rlimit limits = {limit, limit};
        struct cddpi_store_server *server;
        uint16_t port;
        int count = 0;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("CDDP_LOG", "off", 1);
        if (setrlimit(RLIMIT_NOFILE, &limits) != 0 ||
            cddpi_store_server_create(&options, &server) != CDDP_OK) {
            _exit(1);
        }
        port = cddpi_store_server_port(server);
        (void)!write(ends[1], &port, sizeof port);
        if (read(ends[1], &port, 1) != 1) {
            _exit(1);
        }
        while (dup(ends[1]) >= 0) {
            count++;
        }
        (void)!write(ends[1], &count, sizeof count);
        pause();
        _exit(0);
    }
    close(ends[1]);
    *out_fd = ends[0];
    return pid;
}

static void strangers_leave_the_program_its_descriptors(void **state)
{
    enum { COUNT = 300, RESERVED = 60 };
    struct place place = {0};
    int fds[COUNT];
    uint16_t port = 0;
    int count = 0;
    int talk;
    pid_t pid;

    (void)state;
    need_descriptors(512);
    pid = fork_counting_server(200, RESERVED, &talk);
    assert_int_equal(read(talk, &port, sizeof port), sizeof port);
    snprintf(place.url, sizeof place.url, "tcp://127.0.0.1:%u", port);
    for (int i = 0; i < COUNT; i++) {
        fds[i] = caller(port);
    }
    come_and_go(&place); /* who has the token comes in, and behind all others */
    assert_int_equal(write(talk, "?", 1), 1);
    assert_int_equal(read(talk, &count, sizeof count), sizeof count);
    assert_in_range(count, RESERVED, 200);
    for (int i = 0; i < COUNT; i++) {
        close(fds[i]);
    }
    close(talk);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void nothing_stays_open(void **state)
{
    int before = support_descriptors();
    void *place = "tcp";

    (void)state;
    for (int i = 0; i < 3; i++) {
        int fd;

        place = "tcp";
        assert_int_equal(place_set_up(&place), 0);
        fd = stranger(place);
        come_and_go(place);
        works(place);
        place_tear_down(&place);
        close(fd);
    }
    assert_int_equal(support_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(garbage_drops_only_who_sends_it),
        WITH_SERVER(malformed_requests_drop_only_who_sends_them),
        WITH_SERVER(random_requests_drop_only_who_sends_them),
        cmocka_unit_test(who_proves_nothing_is_dropped_in_time),
        cmocka_unit_test(who_finds_no_room_is_told_and_comes_in_later),
        WITH_SERVER(silent_strangers_push_out_the_oldest_of_them_only),
        cmocka_unit_test(strangers_leave_the_program_its_descriptors),
        cmocka_unit_test(nothing_stays_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
