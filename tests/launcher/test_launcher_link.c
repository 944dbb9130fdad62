/* test_launcher_link.c - links of nodes with a real store, in one process. */
#include "launcher/nodes/job_rendezvous.h"
#include "launcher/nodes/node_link_own.h"
#include "store/server.h"
#include "support/test.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

static struct cddpi_store_server *server;

static void serve(void)
{
    const struct cddpi_store_server_options options = {.host = "127.0.0.1", .token = SUPPORT_TOKEN};

    assert_int_equal(cddpi_store_server_create(&options, &server), CDDP_OK);
}

static struct cddpi_node_link *open_link_at(int self, uint16_t port)
{
    char url[64];
    const struct cddpi_node_link_options options = {
        .store = url, .token = SUPPORT_TOKEN, .job = "job", .self = self, .count = 1};
    struct cddpi_node_link *link = NULL;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    assert_int_equal(cddpi_node_link_open(&options, &link), CDDP_OK);
    return link;
}

static struct cddpi_node_link *open_link(int self)
{
    return open_link_at(self, cddpi_store_server_port(server));
}

/* The next event. */
static struct cddpi_node_event await(struct cddpi_node_link *link)
{
    struct pollfd entry = {.fd = cddpi_node_link_fd(link), .events = POLLIN};
    struct cddpi_node_event event;

    assert_int_equal(poll(&entry, 1, SUPPORT_TIMEOUT_MS), 1);
    assert_true(cddpi_node_link_next(link, &event));
    return event;
}

static void a_node_that_comes_late_hears_all_and_is_missed(void **state)
{
    struct cddpi_node_link *first;
    struct cddpi_node_link *late;

    (void)state;
    serve();
    first = open_link(0);
    for (int i = 0; i < 100; i++) {
        CDDPI_PUBLISH(first, .kind = CDDPI_EVENT_SAVING, .node = 0, .number = i);
    }
    late = open_link(CDDPI_MAX_JOINS);
    CDDPI_PUBLISH(late, .kind = CDDPI_EVENT_JOIN, .node = CDDPI_MAX_JOINS, .number = 1);
    for (int i = 0, joins = 0; i < 101; i++) { /* JOIN may have come before the last of them */
        struct cddpi_node_event heard[] = {await(first), await(late)};

        assert_int_equal(heard[0].kind, heard[1].kind);
        assert_int_equal(heard[0].number, heard[1].number);
        if (heard[0].kind == CDDPI_EVENT_JOIN) {
            joins++;
        } else {
            assert_int_equal(heard[0].number, i - joins);
        }
    }
    cddpi_node_link_close(late); /* without BYE */
    assert_int_equal(await(first).kind, CDDPI_EVENT_LOST);
    cddpi_node_link_close(first);
    cddpi_store_server_destroy(server);
}

enum { MOST_PAIRS = 16 };

/* Something between a node and the store, that can cut all connections. */
struct between {
    int listener;
    int orders[2]; /* a byte: cut; end of file: end */
    int ends[2 * MOST_PAIRS];
    int count; /* of ends; each two belong together */
    pthread_t thread;
};

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

static void cut_all(struct between *between)
{
    for (int i = 0; i < between->count; i++) {
        if (between->ends[i] >= 0) {
            close(between->ends[i]);
        }
    }
    between->count = 0;
}

/* Pass on what has come to end @p i. */
static void pass_on(struct between *between, int i)
{
    char bytes[4096];
    ssize_t got = read(between->ends[i], bytes, sizeof bytes);

    if (got <= 0 || write(between->ends[i ^ 1], bytes, (size_t)got) != got) {
        for (int k = 0; k < 2; k++) {
            close(between->ends[i ^ k]);
            between->ends[i ^ k] = -1;
        }
    }
}

static void *stand_between(void *argument)
{
    struct between *between = argument;

    for (;;) {
        struct pollfd polls[2 + 2 * MOST_PAIRS] = {{.fd = between->orders[0], .events = POLLIN},
                                                   {.fd = between->listener, .events = POLLIN}};
        int count = between->count;
        char order;

        for (int i = 0; i < count; i++) {
            polls[2 + i] = (struct pollfd){.fd = between->ends[i], .events = POLLIN};
        }
        (void)poll(polls, (nfds_t)(2 + count), -1);
        if (polls[0].revents != 0) {
            ssize_t got = read(between->orders[0], &order, 1);

            cut_all(between);
            if (got != 1) {
                return NULL;
            }
            continue;
        }
        for (int i = 0; i < count; i++) {
            if (polls[2 + i].revents != 0 && between->ends[i] >= 0) {
                pass_on(between, i);
            }
        }
        if (polls[1].revents != 0 && count < 2 * MOST_PAIRS) {
            between->ends[between->count++] = accept(between->listener, NULL, NULL);
            between->ends[between->count++] = connect_to(cddpi_store_server_port(server));
        }
    }
}

static uint16_t begin_between(struct between *between)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;

    *between = (struct between){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(between->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(between->listener, MOST_PAIRS), 0);
    assert_int_equal(getsockname(between->listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(pipe2(between->orders, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&between->thread, NULL, stand_between, between), 0);
    return ntohs(address.sin_port);
}

static void end_between(struct between *between)
{
    close(between->orders[1]);
    pthread_join(between->thread, NULL);
    close(between->orders[0]);
    close(between->listener);
}

static void a_node_whose_connections_are_cut_goes_on(void **state)
{
    struct between between;
    struct cddpi_node_link *first;
    struct cddpi_node_link *other;

    (void)state;
    serve();
    first = open_link(0);
    other = open_link_at(1, begin_between(&between));
    for (int i = 0; i < 4; i++) {
        CDDPI_PUBLISH(other, .kind = CDDPI_EVENT_JOIN, .node = 1, .number = 1 + i);
        assert_int_equal(await(first).number, 1 + i);
        CDDPI_PUBLISH(first, .kind = CDDPI_EVENT_SAVING, .node = 0, .number = 10 + i);
        assert_int_equal(await(other).number, 1 + i);
        assert_int_equal(await(other).number, 10 + i);
        assert_int_equal(await(first).number, 10 + i);
        assert_int_equal(write(between.orders[1], "", 1), 1);
    }
    CDDPI_PUBLISH(other, .kind = CDDPI_EVENT_BYE, .node = 1);
    assert_int_equal(await(first).kind, CDDPI_EVENT_BYE);
    cddpi_node_link_close(other);
    end_between(&between);
    cddpi_node_link_close(first);
    cddpi_store_server_destroy(server);
}

/* More events than a pipe has room for. */
static void a_link_whose_owner_does_not_listen_can_be_closed(void **state)
{
    const struct cddpi_node_event event = {.kind = CDDPI_EVENT_SAVING, .rank = -1};
    struct cddpi_wire_buffer value = {NULL, 0, 0};
    struct cddpi_node_link *link;
    int room;
    int used = 0;

    (void)state;
    serve();
    link = open_link(1);
    room = fcntl(cddpi_node_link_fd(link), F_GETPIPE_SZ);
    assert_int_equal(cddpi_message_encode(&cddpi_node_event_form, &event, &value), CDDP_OK);
    for (int i = 0; i < room / (int)sizeof(void *) + 2; i++) {
        char key[32];

        snprintf(key, sizeof key, "job/event/%d", i);
        assert_int_equal(cddpi_store_server_set(server, key, value.data, value.bytes), CDDP_OK);
    }
    cddpi_buffer_fini(&value);
    while (used < room) {
        support_sleep_ms(1);
        assert_int_equal(ioctl(cddpi_node_link_fd(link), FIONREAD, &used), 0);
    }
    cddpi_node_link_close(link);
    cddpi_store_server_destroy(server);
}

static void without_memory_for_an_event_a_link_is_cut(void **state)
{
    static const struct cddpi_node_event event = {.kind = CDDPI_EVENT_DONE, .rank = -1};
    struct cddpi_node_link *link;
    struct cddpi_node_event heard;

    (void)state;
    serve();
    link = open_link(0);
    for (int i = 0; i < 2; i++) { /* said once */
        cddpi_alloc_fail_nth(1);
        cddpi_node_link_deliver(link, &event);
        cddpi_alloc_fail_nth(0);
    }
    heard = await(link);
    assert_int_equal(heard.kind, CDDPI_EVENT_CUT);
    assert_string_equal(heard.text, "no memory for what another node tells");
    assert_false(cddpi_node_link_next(link, &heard));
    cddpi_node_link_close(link);
    cddpi_store_server_destroy(server);
}

/* All keys of the job, as one text. */
static void list_all(const struct cddpi_job_rendezvous *rendezvous, char *out, size_t bytes)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    char **keys = NULL;
    size_t count = 0;
    size_t used = 0;

    options.url = rendezvous->store;
    options.token = rendezvous->token;
    options.prefix = rendezvous->job;
    assert_int_equal(cddp_store_open(&options, &store), CDDP_OK);
    assert_int_equal(cddp_store_list(store, "", &keys, &count), CDDP_OK);
    out[0] = '\0';
    for (size_t i = 0; i < count && used < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s ", keys[i]);
    }
    cddp_free(keys);
    cddp_store_close(store);
}

static void old_generations_leave_nothing_in_the_store(void **state)
{
    struct cddpi_job_rendezvous rendezvous;
    char keys[256];

    (void)state;
    assert_int_equal(cddpi_rendezvous_init(2, &rendezvous), CDDP_OK);
    for (int generation = 0; generation < 13; generation++) {
        cddpi_rendezvous_forget(&rendezvous, generation);
        cddpi_rendezvous_tell(&rendezvous, generation, "why");
    }
    list_all(&rendezvous, keys, sizeof keys);
    assert_string_equal(keys, "/0/failure /11/failure /12/failure ");
    cddpi_rendezvous_fini(&rendezvous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_comes_late_hears_all_and_is_missed),
        cmocka_unit_test(a_node_whose_connections_are_cut_goes_on),
        cmocka_unit_test(a_link_whose_owner_does_not_listen_can_be_closed),
        cmocka_unit_test(without_memory_for_an_event_a_link_is_cut),
        cmocka_unit_test(old_generations_leave_nothing_in_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
