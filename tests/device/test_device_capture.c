/* test_device_capture.c - captured graphs of a CUDA device's work, on the emulated module. */
#include "support/device.h"

#include <pthread.h>

enum { COUNT = 1000, BYTES = COUNT * 4, LIMIT_MS = SUPPORT_TIMEOUT_MS };

struct stage {
    struct cddpi_device *device;
    const struct cddpi_device_ops *ops;
    float *from, *to; /* pinned */
    float *a, *b;
    struct cddpi_event *there, *back, *batch, *begin, *end;
};

static int stage_open(struct stage *stage)
{
    struct cddpi_device *device = open_cuda();

    CHECK(device != NULL);
    stage->device = device;
    stage->ops = device->ops;
    CHECK(device->ops->pin(device, BYTES, (void **)&stage->from) == CDDP_OK);
    CHECK(device->ops->pin(device, BYTES, (void **)&stage->to) == CDDP_OK);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&stage->a) == CDDP_OK);
    CHECK(device->ops->alloc(device, BYTES, "b", (void **)&stage->b) == CDDP_OK);
    CHECK(device->ops->event_create(device, false, &stage->there) == CDDP_OK);
    CHECK(device->ops->event_create(device, false, &stage->back) == CDDP_OK);
    CHECK(device->ops->event_create(device, false, &stage->batch) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &stage->begin) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &stage->end) == CDDP_OK);
    return 0;
}

static int stage_close(struct stage *stage)
{
    struct cddpi_device *device = stage->device;

    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    device->ops->event_destroy(device, stage->there);
    device->ops->event_destroy(device, stage->back);
    device->ops->event_destroy(device, stage->batch);
    device->ops->event_destroy(device, stage->begin);
    device->ops->event_destroy(device, stage->end);
    device->ops->release(device, stage->a);
    device->ops->release(device, stage->b);
    device->ops->unpin(device, stage->from);
    device->ops->unpin(device, stage->to);
    cddpi_device_close(device);
    return 0;
}

static void fill(float *memory, float value)
{
    for (int i = 0; i < COUNT; i++) {
        memory[i] = value;
    }
}

/* A step: the batch from the copy stream, a kernel, "collectives" in the communication stream. */
static int put_step(struct stage *stage)
{
    struct cddpi_device *device = stage->device;

    CHECK(stage->ops->order(device, CDDPI_STREAM_COMPUTE, stage->batch) == CDDP_OK);
    CHECK(stage->ops->record(device, stage->begin, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(device->kernels->add(device, CDDP_F32, stage->a, stage->a, false, COUNT, stage->b) ==
          CDDP_OK);
    CHECK(stage->ops->record(device, stage->there, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage->ops->order(device, CDDPI_STREAM_COMM, stage->there) == CDDP_OK);
    CHECK(stage->ops->copy(device, CDDPI_STREAM_COMM, stage->a, stage->b, BYTES) == CDDP_OK);
    CHECK(stage->ops->record(device, stage->back, CDDPI_STREAM_COMM) == CDDP_OK);
    CHECK(stage->ops->order(device, CDDPI_STREAM_COMPUTE, stage->back) == CDDP_OK);
    CHECK(device->kernels->add(device, CDDP_F32, stage->a, stage->b, false, COUNT, stage->a) ==
          CDDP_OK);
    CHECK(stage->ops->copy(device, CDDPI_STREAM_COMPUTE, stage->to, stage->a, BYTES) == CDDP_OK);
    CHECK(stage->ops->record(device, stage->end, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    return 0;
}

/* The next batch, which the step must not overtake. */
static int put_batch(struct stage *stage, float value)
{
    struct cddpi_device *device = stage->device;

    fill(stage->from, value);
    CHECK(stage->ops->copy(device, CDDPI_STREAM_COPY, stage->a, stage->from, BYTES) == CDDP_OK);
    CHECK(stage->ops->record(device, stage->batch, CDDPI_STREAM_COPY) == CDDP_OK);
    return 0;
}

static int replay_steps(int rank, int world_size, void *argument)
{
    struct stage stage;
    struct cddpi_captured_graph *captured = NULL;
    float ms = -1;

    (void)rank, (void)world_size, (void)argument;
    CHECK(stage_open(&stage) == 0);
    /* memory that the copy stream uses is there in the order of the compute stream */
    CHECK(stage.ops->record(stage.device, stage.back, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage.ops->order(stage.device, CDDPI_STREAM_COPY, stage.back) == CDDP_OK);
    CHECK(put_batch(&stage, 0) == 0);
    CHECK(stage.ops->capture_begin(stage.device) == CDDP_OK);
    CHECK(put_step(&stage) == 0);
    CHECK(stage.ops->capture_end(stage.device, &captured) == CDDP_OK);
    CHECK(stage.ops->finish(stage.device, LIMIT_MS) == CDDP_OK);
    for (int step = 1; step < 5; step++) {
        fill(stage.to, -1);
        CHECK(put_batch(&stage, (float)step) == 0);
        CHECK(stage.ops->replay(stage.device, captured) == CDDP_OK);
        CHECK(stage.ops->wait(stage.device, stage.end, LIMIT_MS) == CDDP_OK);
        for (int i = 0; i < COUNT; i++) {
            CHECK(stage.to[i] == (float)(4 * step));
        }
        CHECK(stage.ops->elapsed(stage.device, stage.begin, stage.end, &ms) == CDDP_OK);
        CHECK(ms >= 0);
    }
    stage.ops->graph_destroy(stage.device, captured);
    stage.ops->graph_destroy(stage.device, NULL);
    return stage_close(&stage);
}

static void a_recorded_step_is_done_at_each_replay(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(orders_that_fail(replay_steps, 20), 0);
}

static int record_what_cannot_be(int rank, int world_size, void *argument)
{
    struct stage stage;
    struct cddpi_device *device;
    struct cddpi_captured_graph *captured = NULL;
    float pageable[COUNT];
    void *memory;

    (void)rank, (void)world_size, (void)argument;
    CHECK(stage_open(&stage) == 0);
    device = stage.device;
    fill(stage.from, 5);
    CHECK(stage.ops->copy(device, CDDPI_STREAM_COMPUTE, stage.b, stage.from, BYTES) == CDDP_OK);

    /* copies of memory that may be gone when they are replayed: CUDA would take them */
    CHECK(stage.ops->capture_begin(device) == CDDP_OK);
    CHECK(stage.ops->clear(device, CDDPI_STREAM_COMPUTE, stage.b, BYTES) == CDDP_OK);
    CHECK_FAILS(stage.ops->copy(device, CDDPI_STREAM_COMPUTE, pageable, stage.b, BYTES),
                CDDP_ERR_UNAVAILABLE, "pageable memory cannot be captured");
    CHECK_FAILS(stage.ops->copy(device, CDDPI_STREAM_COMPUTE, stage.b, pageable, BYTES),
                CDDP_ERR_UNAVAILABLE, "pageable memory cannot be captured");
    CHECK_FAILS(stage.ops->capture_end(device, &captured), CDDP_ERR_UNAVAILABLE,
                "a part of it was refused");
    /* new memory */
    CHECK(stage.ops->capture_begin(device) == CDDP_OK);
    CHECK_FAILS(stage.ops->alloc(device, 100, "late", &memory), CDDP_ERR_UNAVAILABLE,
                "late: 100 bytes cannot be allocated while work is captured");
    CHECK_FAILS(stage.ops->capture_begin(device), CDDP_ERR_STATE, "being made already");
    CHECK(stage.ops->capture_end(device, &captured) == CDDP_OK);
    stage.ops->graph_destroy(device, captured);
    CHECK_FAILS(stage.ops->capture_end(device, &captured), CDDP_ERR_STATE, "no capture");
    /* a stream that does not come back */
    CHECK(stage.ops->capture_begin(device) == CDDP_OK);
    CHECK(stage.ops->record(device, stage.there, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage.ops->order(device, CDDPI_STREAM_COMM, stage.there) == CDDP_OK);
    CHECK(stage.ops->clear(device, CDDPI_STREAM_COMM, stage.b, BYTES) == CDDP_OK);
    CHECK_FAILS(stage.ops->capture_end(device, &captured), CDDP_ERR_UNAVAILABLE,
                "was not ordered before its end again");
    /* what was captured, an event of it too, is not known outside */
    CHECK_FAILS(stage.ops->order(device, CDDPI_STREAM_COPY, stage.there), CDDP_ERR_STATE,
                "part of a capture");

    /* nothing of all that was done, and the device is as before */
    CHECK(stage.ops->copy(device, CDDPI_STREAM_COMPUTE, stage.to, stage.b, BYTES) == CDDP_OK);
    CHECK(stage.ops->finish(device, LIMIT_MS) == CDDP_OK);
    CHECK(stage.to[0] == 5 && stage.to[COUNT - 1] == 5);
    return stage_close(&stage);
}

static void work_that_cannot_be_recorded_is_not_done(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(in_process(record_what_cannot_be, NULL, NULL), 0);
}

/* The next batch comes while a step is captured: nothing has ordered its stream after compute. */
static int record_beside_a_copy(int rank, int world_size, void *argument)
{
    struct stage stage;
    struct cddpi_device *device;
    struct cddpi_captured_graph *captured = NULL;
    bool done = false;

    (void)rank, (void)world_size, (void)argument;
    CHECK(stage_open(&stage) == 0);
    device = stage.device;
    fill(stage.from, 3);
    CHECK(stage.ops->record(device, stage.back, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage.ops->capture_begin(device) == CDDP_OK);
    CHECK(stage.ops->clear(device, CDDPI_STREAM_COMPUTE, stage.b, BYTES) == CDDP_OK);
    CHECK(stage.ops->order(device, CDDPI_STREAM_COPY, stage.back) == CDDP_OK);
    CHECK(stage.ops->record(device, stage.begin, CDDPI_STREAM_COPY) == CDDP_OK);
    CHECK(put_batch(&stage, 3) == 0);
    CHECK(stage.ops->record(device, stage.end, CDDPI_STREAM_COPY) == CDDP_OK);
    CHECK(stage.ops->capture_end(device, &captured) == CDDP_OK);
    /* it has come, whether the capture is replayed or not */
    CHECK(stage.ops->wait(device, stage.end, LIMIT_MS) == CDDP_OK);
    CHECK(stage.ops->query(device, stage.batch, &done) == CDDP_OK && done);
    CHECK(stage.ops->order(device, CDDPI_STREAM_COMPUTE, stage.batch) == CDDP_OK);
    CHECK(stage.ops->copy(device, CDDPI_STREAM_COMPUTE, stage.to, stage.a, BYTES) == CDDP_OK);
    CHECK(stage.ops->finish(device, LIMIT_MS) == CDDP_OK);
    CHECK(stage.to[0] == 3 && stage.to[COUNT - 1] == 3);
    stage.ops->graph_destroy(device, captured);
    return stage_close(&stage);
}

static void streams_beside_a_recording_go_on(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(orders_that_fail(record_beside_a_copy, 10), 0);
}

struct other_thread {
    struct stage *stage;
    struct cddpi_event *event;
    struct cddpi_captured_graph *captured;
    cddp_status elapsed;
    float ms;
};

static void *tidy_up(void *argument)
{
    struct other_thread *other = argument;
    struct cddpi_device *device = other->stage->device;

    other->elapsed = device->ops->elapsed(device, other->stage->begin, other->stage->end,
                                          &other->ms);
    device->ops->event_destroy(device, other->event);
    device->ops->graph_destroy(device, other->captured);
    return NULL;
}

/* On a device that is not the first: a call that forgot to choose it would go there. */
static int tidy_up_in_a_thread(int rank, int world_size, void *argument)
{
    struct stage stage;
    struct other_thread other = {.stage = &stage, .ms = -1};
    pthread_t thread;

    (void)rank, (void)world_size, (void)argument;
    CHECK(stage_open(&stage) == 0);
    CHECK(stage.ops->event_create(stage.device, true, &other.event) == CDDP_OK);
    CHECK(stage.ops->record(stage.device, stage.begin, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage.ops->record(stage.device, stage.end, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(stage.ops->wait(stage.device, stage.end, LIMIT_MS) == CDDP_OK);
    CHECK(stage.ops->capture_begin(stage.device) == CDDP_OK);
    CHECK(stage.ops->clear(stage.device, CDDPI_STREAM_COMPUTE, stage.b, BYTES) == CDDP_OK);
    CHECK(stage.ops->capture_end(stage.device, &other.captured) == CDDP_OK);
    CHECK(pthread_create(&thread, NULL, tidy_up, &other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(other.elapsed == CDDP_OK && other.ms >= 0);
    return stage_close(&stage);
}

static void a_new_thread_may_tidy_up(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(tidy_up_in_a_thread, NULL, NULL), 0);
}

static int close_while_recording(int rank, int world_size, void *argument)
{
    struct stage stage;

    (void)rank, (void)world_size, (void)argument;
    CHECK(stage_open(&stage) == 0);
    CHECK(stage.ops->capture_begin(stage.device) == CDDP_OK);
    CHECK(stage.ops->clear(stage.device, CDDPI_STREAM_COMPUTE, stage.b, BYTES) == CDDP_OK);
    cddpi_device_close(stage.device);
    return 0;
}

static void a_device_can_be_closed_in_the_middle_of_a_recording(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(in_process(close_while_recording, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_step_is_done_at_each_replay),
        cmocka_unit_test(work_that_cannot_be_recorded_is_not_done),
        cmocka_unit_test(streams_beside_a_recording_go_on),
        cmocka_unit_test(a_new_thread_may_tidy_up),
        cmocka_unit_test(a_device_can_be_closed_in_the_middle_of_a_recording),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
