/* test_transport_teardown.c - closing the CUDA module's transports: in any thread, while captured
 * graphs still exist, and always in bounded time. */
#include "support/failure.h"
#include "support/transport.h"

#include <pthread.h>
#include <unistd.h>

enum { COUNT = 20000 };

struct job {
    struct transport_world *world;
    const char *transport;
    bool aborts;
};

static int run_job(int size, rank_fn body, struct job job)
{
    int failed;

    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    job.world = transport_world_create(size);
    failed = run_ranks(size, body, &job);
    transport_world_destroy(job.world);
    return failed;
}

/* NCCL lets no communicator go while there are captured graphs with its work: neither who leaves
 * nor who aborts may wait for that. */
static int recording_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    struct cddpi_captured_graph *captured = NULL;
    int64_t start_ns;

    (void)n;
    CHECK(transport_begin(job->world, rank, job->transport, false, false, COUNT, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(me.device->ops->capture_begin(me.device) == CDDP_OK);
    CHECK(transport_start(&me, &op) == CDDP_OK);
    CHECK(me.device->ops->capture_end(me.device, &captured) == CDDP_OK);
    CHECK(me.device->ops->replay(me.device, captured) == CDDP_OK);
    CHECK(me.device->ops->finish(me.device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    start_ns = cddpi_now_ns();
    if (job->aborts) {
        me.ops->abort(me.transport, "the test wants it so");
    }
    me.ops->close(me.transport);
    me.transport = NULL;
    CHECK(cddpi_now_ns() - start_ns < (int64_t)20 * 1000000000);
    me.device->ops->graph_destroy(me.device, captured);
    transport_rank_end(&me);
    return 0;
}

static void a_recording_that_outlives_its_transport_holds_nobody_up(void **state)
{
    (void)state;
    assert_int_equal(run_job(2, recording_rank, (struct job){.transport = "nccl"}), 0);
    assert_int_equal(run_job(2, recording_rank, (struct job){.transport = "nccl", .aborts = true}),
                     0);
}

/* A rank whose process ends after its last operation has done its part: the others' is no failure.
 */
static int ending_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;

    (void)n;
    CHECK(transport_begin(job->world, rank, job->transport, false, false, COUNT, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_barrier(&me)); /* all have it */
    if (rank == 1) {
        _exit(0);
    }
    for (int i = 0; i < 200; i++) {
        CHECK(me.ops->poll(me.transport) == CDDP_OK);
        support_sleep_ms(1);
    }
    CHECK(transport_start(&me, &op) == CDDP_OK);
    CHECK(transport_watch(&me, SUPPORT_TIMEOUT_MS) == CDDP_ERR_PEER);
    CHECK(last_error_has("rank 1 has died"));
    transport_rank_end(&me);
    return 0;
}

static void a_rank_that_has_done_its_part_may_end(void **state)
{
    (void)state;
    assert_int_equal(run_job(2, ending_rank, (struct job){.transport = "ipc"}), 0);
    assert_int_equal(run_job(2, ending_rank, (struct job){.transport = "staged"}), 0);
}

struct errand {
    struct transport_rank *me;
    cddp_status status;
};

/* A thread that has not used the device before; its device is not the first. */
static void *borrow_and_leave(void *argument)
{
    struct errand *errand = argument;
    struct transport_rank *me = errand->me;
    void *first = NULL;
    void *second = NULL;

    errand->status = me->ops->alloc(me->transport, 1000, &first);
    if (errand->status == CDDP_OK) {
        errand->status = me->ops->alloc(me->transport, 3 << 20, &second);
    }
    if (errand->status == CDDP_OK && !me->device->ops->owns(me->device, second)) {
        errand->status = cddpi_fail(CDDP_ERR_STATE, "memory of another device");
    }
    if (errand->status == CDDP_OK) {
        me->ops->free_memory(me->transport, first);
    }
    return NULL;
}

static void *leave(void *argument)
{
    struct transport_rank *me = argument;

    me->ops->close(me->transport);
    return NULL;
}

static int in_threads_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct errand errand = {.me = &me};
    struct cddpi_group_op op;
    pthread_t thread;

    (void)n;
    CHECK(transport_begin(job->world, rank, job->transport, false, false, COUNT, &me, &op) == 0);
    CHECK(pthread_create(&thread, NULL, borrow_and_leave, &errand) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(errand.status == CDDP_OK);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(pthread_create(&thread, NULL, leave, &me) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    me.transport = NULL;
    transport_rank_end(&me);
    return 0;
}

static void any_thread_may_allocate_and_close(void **state)
{
    static const char *const transports[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_job(3, in_threads_rank, (struct job){.transport = transports[i]}), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_that_outlives_its_transport_holds_nobody_up),
        cmocka_unit_test(a_rank_that_has_done_its_part_may_end),
        cmocka_unit_test(any_thread_may_allocate_and_close),
    };

    return !gpu_is_real() && transport_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
