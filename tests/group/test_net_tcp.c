/* test_net_tcp.c - the tcp carrier between ranks that are each on their own host. */
#include "group/net/tcp/address.h"
#include "support/carrier.h"
#include "support/failure.h"
#include "support/test.h"

#define TOKEN SUPPORT_TOKEN
enum { WAIT_MS = SUPPORT_TIMEOUT_MS, MANY = 24 };

struct job {
    struct carrier_job *shared;
    const char *sockets;
    const char *encrypt;
    int rounds;
};

static int exchange_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_SOCKETS", job->sockets, 1);
    setenv("CDDP_ENCRYPT", job->encrypt, 1);
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self) == CDDP_OK);
    for (int round = 0; round < job->rounds; round++) {
        CHECK(carrier_exchange(&self, MANY / self.job->world_size, round) == 0);
    }
    CHECK(self.ops->check(self.carrier) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void run_exchange(int world_size, const int *host_of, const char *sockets,
                         const char *encrypt)
{
    struct job job = {carrier_job_create(world_size, host_of), sockets, encrypt, 3};

    assert_non_null(job.shared);
    assert_int_equal(run_ranks(world_size, exchange_rank, &job), 0);
    carrier_job_free(job.shared);
}

static void transfers_of_all_sizes_arrive_between_2_ranks(void **state)
{
    (void)state;
    run_exchange(2, NULL, "1", "0");
}

static void transfers_of_all_sizes_arrive_between_3_ranks_over_2_sockets(void **state)
{
    (void)state;
    run_exchange(3, NULL, "2", "0");
}

static void transfers_of_all_sizes_arrive_between_5_ranks_over_4_sockets(void **state)
{
    (void)state;
    run_exchange(5, NULL, "4", "0");
}

static void transfers_of_all_sizes_arrive_between_16_ranks(void **state)
{
    (void)state;
    run_exchange(16, NULL, "1", "0");
}

static void encrypted_transfers_arrive(void **state)
{
    (void)state;
    run_exchange(3, NULL, "1", "1");
    run_exchange(2, NULL, "3", "1");
}

/* Ranks 0 and 1 on one host, 2 to 4 on another: only 0 and 2 are connected from the beginning. */
static void ranks_that_are_no_leaders_connect_with_their_first_transfer(void **state)
{
    static const int host_of[] = {0, 0, 1, 1, 1};

    (void)state;
    run_exchange(5, host_of, "2", "0");
}

static cddp_status open_two(struct job *job, int rank, struct carrier_rank *out)
{
    setenv("CDDP_SOCKETS", job->sockets, 1);
    return carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, out);
}

static cddp_status run_one(struct carrier_rank *self, struct cddpi_transfer *transfer)
{
    cddp_status status = self->ops->start(self->carrier, transfer);

    return status == CDDP_OK ? carrier_wait(self, transfer, 1, WAIT_MS) : status;
}

static int backpressure_rank(int rank, int world_size, void *argument)
{
    enum { BYTES = 32 << 20 };
    struct carrier_rank self;
    uint8_t *data = malloc(BYTES);
    uint8_t small[2] = {7, 0};
    struct cddpi_transfer large = carrier_transfer(1 - rank, rank == 0, CDDPI_NET_MESSAGES, 5, data,
                                                   BYTES);
    struct cddpi_transfer note = carrier_transfer(1 - rank, rank == 0, CDDPI_NET_COLLECTIVES, 5,
                                                  small + rank, 1);

    (void)world_size;
    CHECK(open_two(argument, rank, &self) == CDDP_OK);
    if (rank == 0) {
        carrier_fill(0, 1, 5, data, BYTES);
        CHECK(self.ops->start(self.carrier, &large) == CDDP_OK);
    }
    /* the large message is not taken yet, and the channel beside it works */
    CHECK(run_one(&self, &note) == CDDP_OK);
    CHECK(rank == 0 || small[1] == 7);
    CHECK(rank == 1 || !large.is_done);
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        CHECK(self.ops->start(self.carrier, &large) == CDDP_OK);
    }
    CHECK(carrier_wait(&self, &large, 1, WAIT_MS) == CDDP_OK);
    CHECK(rank == 0 || carrier_count_wrong(0, 1, 5, data, BYTES) == 0);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    free(data);
    return 0;
}

static void a_message_that_nobody_takes_stops_no_other_channel(void **state)
{
    (void)state;
    for (int sockets = 1; sockets <= 3; sockets += 2) {
        char text[2] = {(char)('0' + sockets), '\0'};
        struct job job = {carrier_job_create(2, NULL), text, "0", 1};

        assert_int_equal(run_ranks(2, backpressure_rank, &job), 0);
        carrier_job_free(job.shared);
    }
}

/* Large and small messages with one tag, sent before any is received: over several connections the
 * later ones may come first. */
static int same_tag_rank(int rank, int world_size, void *argument)
{
    enum { COUNT = 40 };
    struct carrier_rank self;
    struct cddpi_transfer all[COUNT];
    uint8_t *data[COUNT];

    (void)world_size;
    CHECK(open_two(argument, rank, &self) == CDDP_OK);
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = i % 3 == 0 ? 1500000 : 3000;

        data[i] = malloc(bytes);
        memset(data[i], rank == 0 ? i : 255, bytes);
        all[i] = carrier_transfer(1 - rank, rank == 0, CDDPI_NET_MESSAGES, 9, data[i], bytes);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(run_one(&self, &all[i]) == CDDP_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(data[i][0] == i && data[i][all[i].bytes - 1] == i);
        free(data[i]);
    }
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void messages_of_one_tag_arrive_in_order(void **state)
{
    struct job job = {carrier_job_create(2, NULL), "4", "0", 1};

    (void)state;
    assert_int_equal(run_ranks(2, same_tag_rank, &job), 0);
    carrier_job_free(job.shared);
}

static int mismatch_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;
    uint8_t data[200] = {0};
    struct cddpi_transfer transfer = carrier_transfer(1 - rank, rank == 0, CDDPI_NET_COLLECTIVES, 1,
                                                      data, rank == 0 ? 200 : 120);

    (void)world_size;
    CHECK(open_two(argument, rank, &self) == CDDP_OK);
    if (rank == 0) {
        CHECK(run_one(&self, &transfer) == CDDP_OK);
    } else {
        CHECK(failure_is(run_one(&self, &transfer), CDDP_ERR_MISMATCH, -1, -1, ""));
        CHECK(last_error_has("rank 0"));
        CHECK(last_error_has("200 bytes"));
        CHECK(last_error_has("120 bytes"));
    }
    CHECK(carrier_meet(self.job));
    self.ops->forget(self.carrier);
    CHECK(self.ops->start(self.carrier, &transfer) != CDDP_OK);
    carrier_close(&self);
    return 0;
}

static void sizes_that_differ_are_an_error_with_both_numbers(void **state)
{
    struct job job = {carrier_job_create(2, NULL), "1", "0", 1};

    (void)state;
    assert_int_equal(run_ranks(2, mismatch_rank, &job), 0);
    carrier_job_free(job.shared);
}

static int other_settings_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_SOCKETS", rank == 0 ? "1" : "3", 1);
    CHECK(failure_is(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self),
                     CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has("CDDP_SOCKETS=3"));
    CHECK(self.carrier == NULL);
    carrier_close(&self);
    return 0;
}

static void settings_that_differ_are_an_error_on_all_ranks(void **state)
{
    struct job job = {carrier_job_create(2, NULL), "1", "0", 1};

    (void)state;
    assert_int_equal(run_ranks(2, other_settings_rank, &job), 0);
    carrier_job_free(job.shared);
}

static int no_secret_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_ENCRYPT", "1", 1);
    CHECK(failure_is(carrier_open(&cddpi_tcp_carrier, job->shared, rank, "", WAIT_MS, &self),
                     CDDP_ERR_ARGUMENT, 0, -1, ""));
    CHECK(last_error_has("CDDP_TOKEN"));
    carrier_close(&self);
    return 0;
}

static void encryption_without_a_secret_is_refused(void **state)
{
    struct job job = {carrier_job_create(2, NULL), "1", "0", 1};

    (void)state;
    assert_int_equal(run_ranks(2, no_secret_rank, &job), 0);
    carrier_job_free(job.shared);
}

static int no_interface_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    if (rank == 1) {
        setenv("CDDP_SOCKET_IFNAME", "nothing_has_this_name", 1);
    }
    CHECK(failure_is(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self),
                     CDDP_ERR_ARGUMENT, 1, -1, ""));
    CHECK(last_error_has("lo")); /* one that there is */
    carrier_close(&self);
    return 0;
}

static void interfaces_that_do_not_exist_are_an_error_that_lists_what_there_is(void **state)
{
    struct job job = {carrier_job_create(2, NULL), "1", "0", 1};

    (void)state;
    assert_int_equal(run_ranks(2, no_interface_rank, &job), 0);
    carrier_job_free(job.shared);
}

static struct tcp_address address_of(const char *text, uint8_t bits, uint32_t speed, bool loopback)
{
    struct tcp_address address = {
        .family = 4, .prefix_bits = bits, .speed = speed, .is_loopback = loopback};

    assert_int_equal(inet_pton(AF_INET, text, address.bytes), 1);
    return address;
}

static void addresses_are_tried_in_the_order_that_promises_most(void **state)
{
    struct tcp_offer own = {.network = "here", .count = 2};
    struct tcp_offer peer = {.network = "there", .count = 5};
    int order[TCP_MAX_ADDRESSES];

    (void)state;
    own.addresses[0] = address_of("10.1.0.1", 16, 1000, false);
    own.addresses[1] = address_of("172.17.0.1", 16, 10000, false); /* a bridge of containers */
    peer.addresses[0] = address_of("127.0.0.1", 8, 0, true);
    peer.addresses[1] = address_of("172.17.0.1", 16, 10000, false);
    peer.addresses[2] = address_of("192.168.0.2", 24, 400, false);
    peer.addresses[3] = address_of("192.168.1.2", 24, 800, false);
    peer.addresses[4] = address_of("10.1.0.2", 16, 100, false);
    assert_int_equal(cddpi_tcp_offer_order(&own, &peer, order), 3);
    assert_int_equal(order[0], 4);
    assert_int_equal(order[1], 3);
    assert_int_equal(order[2], 2);
    strcpy(peer.network, "here"); /* one network namespace: loopback leads there, too */
    assert_int_equal(cddpi_tcp_offer_order(&own, &peer, order), 5);
    assert_int_equal(order[4], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_2_ranks),
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_3_ranks_over_2_sockets),
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_5_ranks_over_4_sockets),
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_16_ranks),
        cmocka_unit_test(encrypted_transfers_arrive),
        cmocka_unit_test(ranks_that_are_no_leaders_connect_with_their_first_transfer),
        cmocka_unit_test(a_message_that_nobody_takes_stops_no_other_channel),
        cmocka_unit_test(messages_of_one_tag_arrive_in_order),
        cmocka_unit_test(sizes_that_differ_are_an_error_with_both_numbers),
        cmocka_unit_test(settings_that_differ_are_an_error_on_all_ranks),
        cmocka_unit_test(encryption_without_a_secret_is_refused),
        cmocka_unit_test(interfaces_that_do_not_exist_are_an_error_that_lists_what_there_is),
        cmocka_unit_test(addresses_are_tried_in_the_order_that_promises_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
