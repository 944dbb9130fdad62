/* test_group_device_p2p.c - send and recv of device memory: everything sent arrives, in any order
 * of calls and streams, together with collectives; failures name the peer. */
#include "support/device_stage.h"
#include "support/failure.h"
#include "support/group_reference.h"

enum { COUNT = 1000, LARGE = 150000 /* f32: more than a lane's stream holds at once */ };

static void fill(unsigned char *data, int rank, size_t count, cddp_type type)
{
    for (size_t i = 0; i < count; i++) {
        reference_fill(data + i * cddp_type_bytes(type), rank, i % 8209, type);
    }
}

/* What rank @p rank sends, on the device; it comes late. */
static void *sent_by(cddp_group *group, int rank, size_t count, cddp_type type)
{
    size_t bytes = count * cddp_type_bytes(type);
    unsigned char *data = malloc(bytes + 1);
    void *there = on_device(group, bytes);

    fill(data, rank, count, type);
    if (put_there(group, there, data, bytes) != 0) {
        there = NULL;
    }
    free(data);
    return there;
}

/* What comes from rank @p rank is all there once the compute stream is here. */
static int arrived(cddp_group *group, int rank, const void *there, size_t count, cddp_type type)
{
    size_t bytes = count * cddp_type_bytes(type);
    unsigned char *expected = malloc(bytes + 1);
    unsigned char *got = malloc(bytes + 1);
    int differ;

    fill(expected, rank, count, type);
    CHECK(fetch(group, got, there, bytes) == 0);
    differ = memcmp(got, expected, bytes);
    free(expected);
    free(got);
    if (differ != 0) {
        fprintf(stderr, "rank %d: %s x %zu from rank %d is something else\n",
                cddp_group_rank(group), cddp_type_name(type), count, rank);
    }
    return differ != 0;
}

/* Both sides call in matching order, each waits in its stream alone. */
static int to_and_fro_rank(int rank, int n, void *argument)
{
    static const cddp_type types[] = {CDDP_U8, CDDP_BF16, CDDP_F16, CDDP_I64, CDDP_F32};
    static const size_t counts[] = {1, 37, 1023, 4099, LARGE};
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    for (int i = 0; i < 5; i++) {
        for (int turn = 0; turn < 2; turn++) {
            int from = turn * (n - 1);
            int to = (1 - turn) * (n - 1);
            void *there;

            if (rank == from) {
                there = sent_by(group, from, counts[i], types[i]);
                CHECK(cddp_send(group, there, counts[i], types[i], to, NULL) == CDDP_OK);
                CHECK(put_there(group, there, "over", 1) == 0); /* it has been sent by then */
            } else if (rank == to) {
                there = on_device(group, counts[i] * cddp_type_bytes(types[i]));
                CHECK(cddp_recv(group, there, counts[i], types[i], from, NULL) == CDDP_OK);
                CHECK(arrived(group, from, there, counts[i], types[i]) == 0);
            }
        }
    }
    CHECK(cddpi_group_verify(group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

/* Everyone sends to all others first, and only then receives. */
static int exchange_rank(int rank, int n, void *argument)
{
    const size_t counts[] = {1, COUNT, LARGE};
    cddp_work *sent[4];
    cddp_work *received[4];
    void *in[4];
    cddp_group *group;
    bool done;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    for (int i = 0; i < 3; i++) {
        void *out = sent_by(group, rank, counts[i], CDDP_F32);

        for (int r = 0; r < n; r++) {
            CHECK(r == rank || cddp_send(group, out, counts[i], CDDP_F32, r, &sent[r]) == CDDP_OK);
        }
        for (int r = 0; r < n; r++) {
            in[r] = on_device(group, counts[i] * sizeof(float));
            CHECK(r == rank ||
                  cddp_recv(group, in[r], counts[i], CDDP_F32, r, &received[r]) == CDDP_OK);
        }
        for (int r = n; r-- > 0;) {
            if (r != rank) {
                CHECK(cddp_work_wait(received[r]) == CDDP_OK);
                CHECK(arrived(group, r, in[r], counts[i], CDDP_F32) == 0);
                CHECK(cddp_work_wait_host(sent[r], SUPPORT_TIMEOUT_MS, &done) == CDDP_OK && done);
                cddp_work_destroy(received[r]);
                cddp_work_destroy(sent[r]);
            }
        }
    }
    cddp_group_destroy(group);
    return 0;
}

/* A ring with collectives in the middle of it, which each rank calls at another moment. */
static int ring_rank(int rank, int n, void *argument)
{
    enum { TURNS = 20 };
    int next = (rank + 1) % n;
    int previous = (rank + n - 1) % n;
    float *sum;
    float got;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    sum = on_device(group, sizeof(float));
    for (int i = 0; i < TURNS; i++) {
        size_t count = (size_t)(i % 7) * 500 + 1;
        void *out = sent_by(group, rank + i, count, CDDP_BF16);
        void *in = on_device(group, count * 2);
        float one = 1;
        cddp_work *works[2];
        bool done = false;

        CHECK(put_there(group, sum, &one, sizeof one) == 0);
        if ((i + rank) % 2 == 0) {
            CHECK(cddp_all_reduce(group, sum, sum, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
        }
        CHECK(cddp_send(group, out, count, CDDP_BF16, next, &works[0]) == CDDP_OK);
        CHECK(cddp_recv(group, in, count, CDDP_BF16, previous, &works[1]) == CDDP_OK);
        if ((i + rank) % 2 != 0) {
            CHECK(cddp_all_reduce(group, sum, sum, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
        }
        CHECK(fetch(group, &got, sum, sizeof got) == 0);
        CHECK(got == (float)n);
        CHECK(cddp_work_wait(works[1]) == CDDP_OK);
        CHECK(arrived(group, previous + i, in, count, CDDP_BF16) == 0);
        while (!done) {
            CHECK(cddp_work_test(works[0], &done) == CDDP_OK);
        }
        cddp_work_destroy(works[0]);
        cddp_work_destroy(works[1]);
    }
    cddp_group_destroy(group);
    return 0;
}

static int small_things_rank(int rank, int n, void *argument)
{
    struct cddpi_device *device;
    struct cddpi_group_capture captured;
    int other = (rank + 1) % n;
    float *there;
    void *block;
    cddp_work *work;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    device = cddpi_group_on_device(group);
    there = on_device(group, COUNT * sizeof(float));
    CHECK(cddp_send(group, there, 1, CDDP_F32, rank, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(last_error_has("send: rank"));
    CHECK(last_error_has("is this one"));
    if (n > 1) { /* no elements are nowhere: they go another way, and arrive */
        CHECK(cddp_send(group, there, 0, CDDP_F32, other, &work) == CDDP_OK);
        CHECK(cddp_recv(group, NULL, 0, CDDP_F32, (rank + n - 1) % n, NULL) == CDDP_OK);
        CHECK(cddp_work_wait(work) == CDDP_OK);
        cddp_work_destroy(work);
    }
    if (n > 1 && cddpi_group_can_capture(group) == CDDP_OK) {
        CHECK(cddpi_group_capture_begin(group) == CDDP_OK);
        CHECK(cddp_send(group, there, 1, CDDP_F32, other, NULL) == CDDP_ERR_UNAVAILABLE);
        CHECK(last_error_has("send of the device's memory cannot be part of a "
                             "capture"));
        status = cddpi_group_capture_end(group, &captured);
        CHECK(status == CDDP_OK);
        device->ops->graph_destroy(device, captured.work);
        CHECK(cddpi_group_healthy(group) == CDDP_OK);
    }
    if (n > 1) { /* memory of the group; freed while its message is on its way */
        CHECK(cddp_group_alloc(group, COUNT * sizeof(float), 0, &block) == CDDP_OK);
        if (rank == 0) {
            void *out = sent_by(group, 0, COUNT, CDDP_F32);

            CHECK(cddp_send(group, out, COUNT, CDDP_F32, 1, NULL) == CDDP_OK);
        } else if (rank == 1) {
            CHECK(cddp_recv(group, block, COUNT, CDDP_F32, 0, NULL) == CDDP_OK);
            CHECK(arrived(group, 0, block, COUNT, CDDP_F32) == 0);
        }
        cddp_group_free(group, block);
    }
    cddp_group_destroy(group);
    return 0;
}

/* The sender is gone before anything is received. */
static int leaving_rank(int rank, int n, void *argument)
{
    void *there;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    if (rank == 0) {
        there = sent_by(group, rank, COUNT, CDDP_F32);
        CHECK(cddp_send(group, there, COUNT, CDDP_F32, 1, NULL) == CDDP_OK);
    } else if (rank == 1) {
        support_sleep_ms(50);
        there = on_device(group, COUNT * sizeof(float));
        CHECK(cddp_recv(group, there, COUNT, CDDP_F32, 0, NULL) == CDDP_OK);
        CHECK(arrived(group, 0, there, COUNT, CDDP_F32) == 0);
        CHECK(cddpi_group_verify(group) == CDDP_OK);
    }
    cddp_group_destroy(group);
    return 0;
}

/* Far more messages than a receiver may be behind, by one that comes late. */
static int many_rank(int rank, int n, void *argument)
{
    enum { MANY = CDDPI_P2P_CALLS + 50 };
    cddp_work *works[MANY];
    float *there;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, MANY * sizeof(float));
    for (int i = 0; i < MANY && rank < 2; i++) {
        float value = (float)i;

        if (rank == 0) {
            CHECK(put_there(group, there + i, &value, sizeof value) == 0);
            CHECK(cddp_send(group, there + i, 1, CDDP_F32, 1, &works[i]) == CDDP_OK);
        } else {
            CHECK(cddp_recv(group, there + i, 1, CDDP_F32, 0, &works[i]) == CDDP_OK);
        }
    }
    for (int i = MANY; i-- > 0 && rank < 2;) {
        float value;

        CHECK(cddp_work_wait(works[i]) == CDDP_OK);
        cddp_work_destroy(works[i]);
        if (i % 50 == 0) {
            CHECK(fetch(group, &value, there + i, sizeof value) == 0);
            CHECK(value == (float)i);
        }
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void on_all_transports(rank_fn body, int least, int seeds)
{
    need_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        assert_int_equal(stage_run(body, on_module(transport), least, seeds, -1), 0);
    }
}

static void what_is_sent_arrives_in_both_directions(void **state)
{
    (void)state;
    on_all_transports(to_and_fro_rank, 2, 3);
}

static void ranks_that_all_send_first_do_not_wait_for_each_other(void **state)
{
    (void)state;
    on_all_transports(exchange_rank, 2, 3);
}

static void messages_and_collectives_may_be_called_in_any_order(void **state)
{
    (void)state;
    on_all_transports(ring_rank, 2, 3);
}

static void nothing_oneself_and_recordings_are_told_apart(void **state)
{
    (void)state;
    on_all_transports(small_things_rank, 1, 1);
}

static void a_sender_that_leaves_has_sent(void **state)
{
    (void)state;
    on_all_transports(leaving_rank, 2, 3);
}

static void a_receiver_may_be_far_behind(void **state)
{
    (void)state;
    on_all_transports(many_rank, 2, 1);
}

/* --- failures --- */

static int refused_rank(int rank, int n, void *argument)
{
    float *there;
    cddp_group *group;

    setenv("CDDP_FAKE_CUDA_WAIT_VALUE", "0", 1);
    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    CHECK(cddp_send(group, there, 1, CDDP_F32, (rank + 1) % n, NULL) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("messages on the device: rank 0: "));
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &(float){0}, there, sizeof(float)) == 0);
    CHECK(cddpi_group_verify(group) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void where_streams_cannot_wait_messages_are_refused_and_the_rest_goes_on(void **state)
{
    struct stage stage = on_module(2);

    (void)state;
    need_emulated_module();
    assert_string_equal(stage.module_transport, "nccl");
    assert_int_equal(stage_run(refused_rank, stage, 2, 1, -1), 0);
}

static int mismatch_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, 2 * COUNT * sizeof(float));
    if (rank == 0) {
        status = cddp_send(group, there, COUNT, CDDP_F32, 1, NULL);
    } else if (rank == 1) {
        status = stage->which == 0   ? cddp_recv(group, there, COUNT - 1, CDDP_F32, 0, NULL)
                 : stage->which == 1 ? cddp_recv(group, there, 2 * COUNT, CDDP_F32, 0, NULL)
                                     : cddp_recv(group, there, COUNT, CDDP_I32, 0, NULL);
    } else {
        status = CDDP_OK;
    }
    status = status == CDDP_OK ? await_failure(group) : status;
    CHECK(status == CDDP_ERR_MISMATCH);
    CHECK(last_error_has("message #1 on the devices from rank 0 to rank 1: rank 0 sends "
                         "f32 x 1000, rank 1 receives"));
    CHECK(last_error_has(stage->which == 0   ? "receives f32 x 999"
                         : stage->which == 1 ? "receives f32 x 2000"
                                             : "receives i32 x 1000"));
    CHECK(cddp_recv(group, there, 1, CDDP_F32, (rank + 1) % n, NULL) == CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void sizes_and_types_that_differ_are_told_to_all(void **state)
{
    (void)state;
    need_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        struct stage stage = on_module(transport);

        for (stage.which = 0; stage.which < 3; stage.which++) {
            assert_int_equal(stage_run(mismatch_rank, stage, 2, 1, -1), 0);
        }
    }
}

/* Rank 1 dies (0) or leaves (1) instead of receiving; or in the middle of a large message (2). */
static int gone_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_work *work = NULL;
    cddp_group *group;
    cddp_status status;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, LARGE * sizeof(float));
    if (rank == 1) {
        if (stage->which == 2) {
            CHECK(cddp_recv(group, there, LARGE, CDDP_F32, 0, &work) == CDDP_OK);
        }
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
        if (stage->which == 1) {
            cddp_group_destroy(group);
            return 0;
        }
        raise(SIGKILL);
    }
    if (rank == 0) {
        cddpi_group_label(group, "stage 2");
        if (stage->which == 2) { /* never comes to its end: it is received from, too */
            CHECK(cddp_recv(group, there, COUNT, CDDP_F32, 1, &work) == CDDP_OK);
        } else {
            CHECK(cddp_send(group, there, COUNT, CDDP_F32, 1, &work) == CDDP_OK);
        }
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 0) {
        CHECK(await_failure(group) == CDDP_ERR_PEER);
        status = cddp_work_wait(work);
        CHECK(status == CDDP_ERR_PEER || status == CDDP_ERR_BROKEN);
        CHECK(failure_is(status, status, 0, 1,
                         stage->which == 2 ? "recv f32 x 1000 from rank 1, message #1"
                                           : "send f32 x 1000 to rank 1, message #1"));
        CHECK(last_error_has("on the device, stage 2: rank 1 "));
        cddp_work_destroy(work);
    }
    cddp_group_destroy(group);
    return 0;
}

/* Rank 1 dies while it is sent more than a stream holds: then the call itself waits, and fails. */
static int gone_midway_rank(int rank, int n, void *argument)
{
    float *there;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, LARGE * sizeof(float));
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 1) {
        support_sleep_ms(50);
        raise(SIGKILL);
    }
    if (rank == 0) {
        CHECK(failure_is(cddp_send(group, there, LARGE, CDDP_F32, 1, NULL), CDDP_ERR_PEER, 0, 1,
                         "send f32 x 150000 to rank 1, message #1"));
        CHECK(cddp_send(group, there, 1, CDDP_F32, 1, NULL) == CDDP_ERR_BROKEN);
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_peer_that_died_or_left_is_named_with_the_message(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        struct stage stage = on_module(transport);

        for (stage.which = 0; stage.which < 3; stage.which++) {
            assert_int_equal(stage_run(gone_rank, stage, 2, 1, 1), 0);
        }
        assert_int_equal(stage_run(gone_midway_rank, stage, 2, 1, 1), 0);
    }
}

/* Rank 1 does not receive (0), or both wait for their sends before they receive (1). */
static int late_rank(int rank, int n, void *argument)
{
    const struct stage *stage = argument;
    float *there;
    cddp_group *group;
    cddp_status status = CDDP_OK;

    CHECK(stage_enter(stage, rank, n, &group) == CDDP_OK);
    there = on_device(group, COUNT * sizeof(float));
    if (rank == 0 || (rank == 1 && stage->which == 1)) {
        CHECK(cddp_send(group, there, COUNT, CDDP_F32, 1 - rank, NULL) == CDDP_OK);
        if (stage->which == 1) {
            CHECK(cddp_recv(group, there, COUNT, CDDP_F32, 1 - rank, NULL) == CDDP_OK);
        }
    }
    status = await_failure(group);
    CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER);
    CHECK(failure_is(status, status, ANY_RANK, ANY_RANK, "send f32 x 1000 to rank "));
    if (stage->which == 0) {
        CHECK(last_error_has("ms for rank 1 (pid "));
        CHECK(last_error_has("), which has not called its recv"));
    } else {
        CHECK(last_error_has("), which has called its recv, behind work that does not "
                             "end"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void who_does_not_receive_is_named_when_the_deadline_passes(void **state)
{
    (void)state;
    need_emulated_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        struct stage stage = on_module(transport);

        stage.timeout_ms = 5000; /* of joining, too */
        for (stage.which = 0; stage.which < (transport == 0 ? 2 : 1); stage.which++) {
            assert_int_equal(stage_run(late_rank, stage, 3, 1, -1), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_arrives_in_both_directions),
        cmocka_unit_test(ranks_that_all_send_first_do_not_wait_for_each_other),
        cmocka_unit_test(messages_and_collectives_may_be_called_in_any_order),
        cmocka_unit_test(nothing_oneself_and_recordings_are_told_apart),
        cmocka_unit_test(a_sender_that_leaves_has_sent),
        cmocka_unit_test(a_receiver_may_be_far_behind),
        cmocka_unit_test(where_streams_cannot_wait_messages_are_refused_and_the_rest_goes_on),
        cmocka_unit_test(sizes_and_types_that_differ_are_told_to_all),
        cmocka_unit_test(a_peer_that_died_or_left_is_named_with_the_message),
        cmocka_unit_test(who_does_not_receive_is_named_when_the_deadline_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
