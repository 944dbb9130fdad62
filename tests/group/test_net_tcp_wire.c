/* test_net_tcp_wire.c - what an attacker between two hosts can do to the tcp carrier. The rank
 * itself sends the injected bytes here, bypassing the carrier. */
#include "base/clock.h"
#include "group/net/tcp/tcp.h"
#include "store/store_wire.h"
#include "support/carrier.h"
#include "support/failure.h"
#include "support/test.h"

#define TOKEN SUPPORT_TOKEN
enum { WAIT_MS = SUPPORT_TIMEOUT_MS };

struct job {
    struct carrier_job *shared;
    const char *encrypt;
    const char *cipher; /* of rank 1; NULL: any */
};

static cddp_status open_rank(const struct job *job, int rank, struct carrier_rank *out)
{
    setenv("CDDP_ENCRYPT", job->encrypt, 1);
    if (job->cipher != NULL && rank == 1) {
        setenv("CDDP_CIPHER", job->cipher, 1);
    }
    return carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, out);
}

static void run_job(const char *encrypt, const char *cipher, rank_fn body)
{
    struct job job = {carrier_job_create(2, NULL), encrypt, cipher};

    assert_non_null(job.shared);
    assert_int_equal(run_ranks(2, body, &job), 0);
    carrier_job_free(job.shared);
}

static bool all_are_encrypted(const struct tcp_carrier *tcp)
{
    bool all = tcp->all_sockets != NULL;

    for (const struct tcp_socket *socket = tcp->all_sockets; socket != NULL;
         socket = socket->next) {
        all = all && socket->stream.cipher != NULL;
    }
    return all;
}

static int encrypted_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    CHECK(open_rank(job, rank, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 2, 0) == 0);
    CHECK(tcp_of(self.carrier)->pairs[1 - rank]->control->stream.cipher != NULL);
    CHECK(all_are_encrypted(tcp_of(self.carrier)) == (job->encrypt[0] == '1'));
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void control_connections_are_encrypted_always_and_data_by_choice(void **state)
{
    (void)state;
    run_job("0", NULL, encrypted_rank);
    run_job("1", NULL, encrypted_rank);
}

/* One rank whose processor has no instructions for AES. */
static void ranks_with_one_cipher_in_common_use_that(void **state)
{
    (void)state;
    run_job("0", "chacha20", encrypted_rank);
    run_job("1", "chacha20", encrypted_rank);
}

static int other_cipher_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_CIPHER", rank == 1 ? "chacha20" : "aes256gcm", 1);
    CHECK(failure_is(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self),
                     CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has("CDDP_CIPHER must be the same on all ranks"));
    CHECK(last_error_has("rank 1"));
    carrier_close(&self);
    return 0;
}

/* At once, not when they have tried to connect for long. */
static void ranks_without_a_cipher_in_common_are_told(void **state)
{
    struct job job = {carrier_job_create(3, NULL), "0", NULL};
    uint32_t ciphers = 0;

    (void)state;
    assert_int_equal(cddpi_ciphers(&ciphers), CDDP_OK);
    if ((ciphers & CDDPI_CIPHER_AES256GCM) != 0) {
        assert_int_equal(run_ranks(3, other_cipher_rank, &job), 0);
    }
    carrier_job_free(job.shared);
}

/* Rank 1 puts @p bytes into its control connection, or its first data connection. */
static int put_in(const struct carrier_rank *self, bool is_control, const void *data, size_t bytes)
{
    int fd = is_control ? tcp_of(self->carrier)->pairs[0]->control->stream.fd
                        : tcp_of(self->carrier)->all_sockets->stream.fd;

    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : 1;
}

/* Nothing but that the connection is of no use any more. */
static int notices(struct carrier_rank *self)
{
    struct cddpi_failure failure;

    CHECK(failure_is(carrier_wait_failure(self, WAIT_MS), CDDP_ERR_PEER, -1, 1, ""));
    CHECK(last_error_has("was changed on the way"));
    CHECK(!self->ops->aborted(self->carrier, &failure));
    CHECK(!atomic_load(&tcp_of(self->carrier)->pairs[1]->left));
    return 0;
}

static int abort_rank(int rank, int world_size, void *argument)
{
    uint8_t message[TCP_CONTROL_MAX_BYTES];
    struct carrier_rank self;

    (void)world_size;
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        struct cddpi_failure failure = {
            .status = CDDP_ERR_DEVICE, .rank = 1, .culprit = 1, .text = "the GPU is on fire"};

        CHECK(put_in(&self, true, message, cddpi_tcp_abort_put(&failure, message)) == 0);
    } else {
        CHECK(notices(&self) == 0);
    }
    CHECK(carrier_meet(self.job));
    self.ops->forget(self.carrier);
    carrier_close(&self);
    return 0;
}

static void an_abort_that_is_put_in_is_not_taken(void **state)
{
    (void)state;
    run_job("0", NULL, abort_rank);
    run_job("1", NULL, abort_rank);
}

static int goodbye_rank(int rank, int world_size, void *argument)
{
    const struct tcp_frame goodbye = {.kind = TCP_FRAME_GOODBYE};
    struct tcp_signature of_another = {.count = 0};
    uint8_t frame[TCP_FRAME_BYTES];
    struct carrier_rank self;
    uint8_t data[10];
    struct cddpi_transfer transfer = carrier_transfer(1 - rank, false, CDDPI_NET_COLLECTIVES, 1,
                                                      data, sizeof data);

    (void)world_size;
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 2, 0) == 0);
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        cddpi_tcp_frame_put(&goodbye, &of_another, frame);
        CHECK(put_in(&self, false, frame, sizeof frame) == 0);
    } else {
        CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
        CHECK(notices(&self) == 0);
    }
    CHECK(carrier_meet(self.job));
    self.ops->forget(self.carrier);
    carrier_close(&self);
    return 0;
}

static void a_goodbye_between_plain_data_is_not_taken(void **state)
{
    (void)state;
    run_job("0", NULL, goodbye_rank);
}

/* A message that was sent and seen once, played again: its head has the number of another. */
static int replay_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;
    uint8_t data[10] = "message";
    uint8_t record[TCP_FRAME_BYTES + sizeof data];
    struct cddpi_transfer first = carrier_transfer(1 - rank, rank == 1, CDDPI_NET_COLLECTIVES, 1,
                                                   data, sizeof data);
    struct cddpi_transfer second = first;

    (void)world_size;
    setenv("CDDP_SOCKETS", "1", 1);
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 2, 0) == 0);
    CHECK(carrier_meet(self.job));
    if (rank == 1) { /* as it goes over the wire */
        struct tcp_frame frame = {
            .kind = TCP_FRAME_PIECE, .tag = 1, .total = sizeof data, .bytes = sizeof data};
        struct tcp_socket *socket = tcp_of(self.carrier)->all_sockets;
        struct tcp_signature copy;

        while (socket->link->channel != CDDPI_NET_COLLECTIVES) {
            socket = socket->next;
        }
        copy = socket->signed_out;
        frame.number = socket->link->sent;
        cddpi_tcp_frame_put(&frame, &copy, record);
        memcpy(record + TCP_FRAME_BYTES, data, sizeof data);
        CHECK(self.ops->start(self.carrier, &first) == CDDP_OK);
        CHECK(carrier_wait(&self, &first, 1, WAIT_MS) == CDDP_OK);
        cddpi_put_u32(record + 4, frame.number + 1);
        CHECK(send(socket->stream.fd, record, sizeof record, MSG_NOSIGNAL) ==
              (ssize_t)sizeof record);
    } else {
        CHECK(self.ops->start(self.carrier, &first) == CDDP_OK);
        CHECK(carrier_wait(&self, &first, 1, WAIT_MS) == CDDP_OK);
        CHECK(self.ops->start(self.carrier, &second) == CDDP_OK);
        CHECK(notices(&self) == 0);
    }
    CHECK(carrier_meet(self.job));
    self.ops->forget(self.carrier);
    carrier_close(&self);
    return 0;
}

static void a_message_that_is_played_again_is_not_taken(void **state)
{
    (void)state;
    run_job("0", NULL, replay_rank);
}

/* Who refuses a rank may be anybody: the rank tries on, and keeps the reason. */
static int refused_rank(int rank, int world_size, void *argument)
{
    enum { MS = 4500 };
    const struct job *job = argument;
    struct carrier_rank self;
    int64_t begin_ns = cddpi_now_ns();

    (void)world_size;
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank,
                       rank == 1 ? "another secret than of this test" : TOKEN, MS,
                       &self) == CDDP_ERR_AUTH);
    CHECK(cddpi_now_ns() - begin_ns >= (MS - 500) * INT64_C(1000000));
    carrier_close(&self);
    return 0;
}

static void a_refusal_that_proves_nothing_is_not_final(void **state)
{
    (void)state;
    setenv("CDDP_LOG", "off", 1);
    run_job("0", NULL, refused_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_connections_are_encrypted_always_and_data_by_choice),
        cmocka_unit_test(ranks_with_one_cipher_in_common_use_that),
        cmocka_unit_test(ranks_without_a_cipher_in_common_are_told),
        cmocka_unit_test(an_abort_that_is_put_in_is_not_taken),
        cmocka_unit_test(a_goodbye_between_plain_data_is_not_taken),
        cmocka_unit_test(a_message_that_is_played_again_is_not_taken),
        cmocka_unit_test(a_refusal_that_proves_nothing_is_not_final),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
