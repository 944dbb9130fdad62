/* test_launcher_link.c - links of nodes with a real store, in one process. */
#include "launcher/nodes/job_rendezvous.h"
#include "launcher/nodes/node_link.h"
#include "store/server.h"
#include "support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

static struct cddpi_store_server *server;

static void serve(void)
{
    const struct cddpi_store_server_options options = {.host = "127.0.0.1", .token = SUPPORT_TOKEN};

    assert_int_equal(cddpi_store_server_create(&options, &server), CDDP_OK);
}

static struct cddpi_node_link *open_link(int self)
{
    char url[64];
    const struct cddpi_node_link_options options = {
        .store = url, .token = SUPPORT_TOKEN, .job = "job", .self = self, .count = 1};
    struct cddpi_node_link *link = NULL;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", cddpi_store_server_port(server));
    assert_int_equal(cddpi_node_link_open(&options, &link), CDDP_OK);
    return link;
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
        cmocka_unit_test(a_link_whose_owner_does_not_listen_can_be_closed),
        cmocka_unit_test(old_generations_leave_nothing_in_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
