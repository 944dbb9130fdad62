/* test_plane_teardown.c - how planes of the CUDA module go: in any thread, with recordings that are
 * still there, and always in bounded time. */
#include "plane_support.h"

#include <pthread.h>
#include <unistd.h>

enum { COUNT = 20000 };

struct job {
    struct plane_world *world;
    const char *plane;
    bool aborts;
};

static int run_job(int size, rank_fn body, struct job job)
{
    int failed;

    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    job.world = plane_world_create(size);
    failed = run_ranks(size, body, &job);
    plane_world_destroy(job.world);
    return failed;
}

/* NCCL lets no communicator go while there are recordings with its work: neither who leaves nor who
 * aborts may wait for that. */
static int recording_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    struct cddpi_recording *recording = NULL;
    int64_t start_ns;

    (void)n;
    CHECK(plane_begin(job->world, rank, job->plane, false, false, COUNT, &me, &op) == 0);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(me.device->ops->record_begin(me.device) == CDDP_OK);
    CHECK(plane_start(&me, &op) == CDDP_OK);
    CHECK(me.device->ops->record_end(me.device, &recording) == CDDP_OK);
    CHECK(me.device->ops->replay(me.device, recording) == CDDP_OK);
    CHECK(me.device->ops->finish(me.device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    start_ns = cddpi_now_ns();
    if (job->aborts) {
        me.ops->abort(me.plane, "the test wants it so");
    }
    me.ops->close(me.plane);
    me.plane = NULL;
    CHECK(cddpi_now_ns() - start_ns < (int64_t)20 * 1000000000);
    me.device->ops->recording_destroy(me.device, recording);
    plane_rank_end(&me);
    return 0;
}

static void a_recording_that_outlives_its_plane_holds_nobody_up(void **state)
{
    (void)state;
    assert_int_equal(run_job(2, recording_rank, (struct job){.plane = "nccl"}), 0);
    assert_int_equal(run_job(2, recording_rank, (struct job){.plane = "nccl", .aborts = true}), 0);
}

/* A rank whose process ends after its last operation has done its part: the others' is no failure.
 */
static int ending_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;

    (void)n;
    CHECK(plane_begin(job->world, rank, job->plane, false, false, COUNT, &me, &op) == 0);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_barrier(&me)); /* all have it */
    if (rank == 1) {
        _exit(0);
    }
    for (int i = 0; i < 200; i++) {
        CHECK(me.ops->poll(me.plane) == CDDP_OK);
        support_sleep_ms(1);
    }
    CHECK(plane_start(&me, &op) == CDDP_OK);
    CHECK(plane_watch(&me, SUPPORT_TIMEOUT_MS) == CDDP_ERR_PEER);
    CHECK(strstr(cddp_last_error(), "rank 1 has died") != NULL);
    plane_rank_end(&me);
    return 0;
}

static void a_rank_that_has_done_its_part_may_end(void **state)
{
    (void)state;
    assert_int_equal(run_job(2, ending_rank, (struct job){.plane = "ipc"}), 0);
    assert_int_equal(run_job(2, ending_rank, (struct job){.plane = "staged"}), 0);
}

struct errand {
    struct plane_rank *me;
    cddp_status status;
};

/* A thread that has not used the device before; its device is not the first. */
static void *borrow_and_leave(void *argument)
{
    struct errand *errand = argument;
    struct plane_rank *me = errand->me;
    void *first = NULL;
    void *second = NULL;

    errand->status = me->ops->alloc(me->plane, 1000, &first);
    if (errand->status == CDDP_OK) {
        errand->status = me->ops->alloc(me->plane, 3 << 20, &second);
    }
    if (errand->status == CDDP_OK && !me->device->ops->owns(me->device, second)) {
        errand->status = cddpi_fail(CDDP_ERR_STATE, "memory of another device");
    }
    if (errand->status == CDDP_OK) {
        me->ops->free_memory(me->plane, first);
    }
    return NULL;
}

static void *leave(void *argument)
{
    struct plane_rank *me = argument;

    me->ops->close(me->plane);
    return NULL;
}

static int in_threads_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct errand errand = {.me = &me};
    struct cddpi_group_op op;
    pthread_t thread;

    (void)n;
    CHECK(plane_begin(job->world, rank, job->plane, false, false, COUNT, &me, &op) == 0);
    CHECK(pthread_create(&thread, NULL, borrow_and_leave, &errand) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(errand.status == CDDP_OK);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(pthread_create(&thread, NULL, leave, &me) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    me.plane = NULL;
    plane_rank_end(&me);
    return 0;
}

static void any_thread_may_allocate_and_close(void **state)
{
    static const char *const planes[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_job(3, in_threads_rank, (struct job){.plane = planes[i]}), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_that_outlives_its_plane_holds_nobody_up),
        cmocka_unit_test(a_rank_that_has_done_its_part_may_end),
        cmocka_unit_test(any_thread_may_allocate_and_close),
    };

    return !gpu_is_real() && plane_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
