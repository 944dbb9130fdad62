/* test_net_tcp.c - the tcp carrier between ranks that each have a host of their own. */
#include "base/clock.h"
#include "support/carrier.h"
#include "support/test.h"

#define TOKEN "a secret of this test"
enum { WAIT_MS = SUPPORT_TIMEOUT_MS, MANY = 24, LARGE = 8 << 20 };

static uint8_t pattern(int from, int to, uint32_t tag, size_t at)
{
    return (uint8_t)((size_t)from * 131 + (size_t)to * 31 + tag * 17 + at * 7 + (at >> 12));
}

static uint64_t random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Sizes that both sides of a pair know, from nothing to LARGE. */
static size_t size_of(int from, int to, uint32_t tag, int round)
{
    static const size_t odd[] = {0, 1, 31, 32, 4064, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1};
    uint64_t state = (uint64_t)(from * 100 + to) * 1000 + tag * 10 + (uint64_t)round;

    (void)random_of(&state);
    if (random_of(&state) % 2 == 0) {
        return odd[random_of(&state) % (sizeof odd / sizeof odd[0])];
    }
    if (random_of(&state) % 8 == 0) {
        return random_of(&state) % LARGE;
    }
    return random_of(&state) % 20000;
}

static void fill(int from, int to, uint32_t tag, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(from, to, tag, i);
    }
}

static int count_wrong(int from, int to, uint32_t tag, const uint8_t *data, size_t bytes)
{
    int wrong = 0;

    for (size_t i = 0; i < bytes; i++) {
        wrong += data[i] != pattern(from, to, tag, i);
    }
    return wrong;
}

/* One transfer each way with every peer, in both channels, with several tags at once. */
static int exchange(struct carrier_rank *self, int tags, int round)
{
    int world_size = self->job->world_size;
    int count = 0;
    struct cddpi_transfer *all = calloc((size_t)(world_size * tags * CDDPI_NET_CHANNELS * 2),
                                        sizeof *all);

    CHECK(all != NULL);
    for (int step = 1; step < world_size; step++) {
        int peer = (self->rank + step) % world_size;

        for (int i = 0; i < tags * CDDPI_NET_CHANNELS * 2; i++) {
            bool is_send = i % 2 == 0;
            enum cddpi_net_channel channel = (enum cddpi_net_channel)(i / 2 % CDDPI_NET_CHANNELS);
            uint32_t tag = (uint32_t)(i / 2 / CDDPI_NET_CHANNELS);
            int from = is_send ? self->rank : peer;
            int to = is_send ? peer : self->rank;
            size_t bytes = size_of(from, to, tag, round);
            uint8_t *data = malloc(bytes + 1);

            if (is_send) {
                fill(from, to, tag, data, bytes);
            }
            data[bytes] = 0xa5;
            all[count] = carrier_transfer(peer, is_send, channel, tag, data, bytes);
            CHECK(self->ops->start(self->carrier, &all[count]) == CDDP_OK);
            count++;
        }
    }
    CHECK(carrier_wait(self, all, count, WAIT_MS) == CDDP_OK);
    for (int i = 0; i < count; i++) {
        uint8_t *data = all[i].data;

        CHECK(data[all[i].bytes] == 0xa5);
        CHECK(all[i].is_send ||
              count_wrong(all[i].peer, self->rank, all[i].tag, data, all[i].bytes) == 0);
        free(data);
    }
    free(all);
    return 0;
}

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
        CHECK(exchange(&self, MANY / self.job->world_size, round) == 0);
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

static void encrypted_transfers_arrive(void **state)
{
    (void)state;
    run_exchange(3, NULL, "1", "1");
    run_exchange(2, NULL, "3", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_2_ranks),
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_3_ranks_over_2_sockets),
        cmocka_unit_test(transfers_of_all_sizes_arrive_between_5_ranks_over_4_sockets),
        cmocka_unit_test(encrypted_transfers_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
