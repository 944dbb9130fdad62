/* test_device.c - devices: the CPU, and CUDA on the emulated module. */
#include "support/device.h"
#include "support/failure.h"

#include "base/alloc.h"

enum { COUNT = 5000, BYTES = COUNT * 4, LIMIT_MS = SUPPORT_TIMEOUT_MS };

static void the_processor_is_a_device(void **state)
{
    struct cddpi_device *cpu = NULL;
    struct cddpi_event *from;
    struct cddpi_event *to;
    struct cddpi_device_memory memory;
    char *bytes;
    void *pinned;
    bool done = false;
    float ms = -1;

    (void)state;
    assert_int_equal(cddpi_device_open("cpu", 0, 1, 0, 1, false, &cpu), CDDP_OK);
    assert_ptr_equal(cpu, cddpi_device_cpu());
    assert_int_equal(cpu->ops->alloc(cpu, 100, "bytes", (void **)&bytes), CDDP_OK);
    assert_int_equal(cpu->ops->pin(cpu, 100, &pinned), CDDP_OK);
    assert_int_equal(cpu->ops->clear(cpu, CDDPI_STREAM_COMPUTE, bytes, 100), CDDP_OK);
    assert_int_equal(cpu->ops->copy(cpu, CDDPI_STREAM_COPY, bytes + 1, "abc", 3), CDDP_OK);
    assert_memory_equal(bytes, "\0abc\0", 5);
    assert_false(cpu->ops->owns(cpu, bytes));
    assert_int_equal(cpu->ops->memory(cpu, &memory), CDDP_OK);
    assert_true(memory.total_bytes >= memory.free_bytes && memory.free_bytes > 0);

    assert_int_equal(cpu->ops->event_create(cpu, true, &from), CDDP_OK);
    assert_int_equal(cpu->ops->event_create(cpu, true, &to), CDDP_OK);
    assert_int_equal(cpu->ops->record(cpu, from, CDDPI_STREAM_COMPUTE), CDDP_OK);
    assert_int_equal(cpu->ops->order(cpu, CDDPI_STREAM_COMM, from), CDDP_OK);
    assert_int_equal(cpu->ops->record(cpu, to, CDDPI_STREAM_COMM), CDDP_OK);
    assert_int_equal(cpu->ops->query(cpu, to, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(cpu->ops->wait(cpu, to, 0), CDDP_OK);
    assert_int_equal(cpu->ops->elapsed(cpu, from, to, &ms), CDDP_OK);
    assert_true(ms >= 0);
    assert_int_equal(cpu->ops->finish(cpu, 0), CDDP_OK);
    cpu->ops->event_destroy(cpu, from);
    cpu->ops->event_destroy(cpu, to);
    cpu->ops->event_destroy(cpu, NULL);
    cpu->ops->release(cpu, bytes);
    cpu->ops->release(cpu, NULL);
    cpu->ops->unpin(cpu, pinned);
    cddpi_device_close(cpu);
    cddpi_device_close(NULL);
}

/* So that nobody need ask whether an operation is there. */
static void the_processor_has_every_operation(void **state)
{
    const struct cddpi_device_ops *ops = cddpi_device_cpu()->ops;
    const unsigned char *operation = (const unsigned char *)&ops->close;
    static const unsigned char none[sizeof ops->close];

    (void)state;
    assert_string_equal(ops->name, "cpu");
    assert_int_equal(ops->kind, CDDPI_DEVICE_CPU);
    for (; operation < (const unsigned char *)(ops + 1); operation += sizeof none) {
        assert_memory_not_equal(operation, none, sizeof none);
    }
    assert_false(cddpi_device_is_async(cddpi_device_cpu()));
    assert_ptr_equal(cddpi_device_or_cpu(NULL), cddpi_device_cpu());
}

static void the_processor_refuses_to_record_and_has_no_streams(void **state)
{
    struct cddpi_device *cpu = cddpi_device_cpu();
    struct cddpi_captured_graph *captured = NULL;

    (void)state;
    assert_int_equal(cpu->ops->capture_begin(cpu), CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("the CPU cannot record work"));
    assert_int_equal(cpu->ops->capture_end(cpu, &captured), CDDP_ERR_UNAVAILABLE);
    assert_null(captured);
    assert_int_equal(cpu->ops->replay(cpu, captured), CDDP_ERR_UNAVAILABLE);
    cpu->ops->graph_destroy(cpu, captured);
    cpu->ops->range_push(cpu, "forward");
    cpu->ops->range_pop(cpu);
    assert_int_equal(cpu->ops->adopt(cpu, cpu), CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("has no streams"));
    assert_null(cpu->ops->compute_stream(cpu));
    /* nothing to copy or to clear may lie nowhere */
    assert_int_equal(cpu->ops->copy(cpu, CDDPI_STREAM_COMPUTE, NULL, NULL, 0), CDDP_OK);
    assert_int_equal(cpu->ops->clear(cpu, CDDPI_STREAM_COMPUTE, NULL, 0), CDDP_OK);
    cpu->ops->close(cpu); /* it stays open */
}

static void a_processor_without_memory_says_what_it_was_for(void **state)
{
    struct cddpi_device *cpu = cddpi_device_cpu();
    void *memory;

    (void)state;
    cddpi_alloc_fail_nth(1);
    assert_int_equal(cpu->ops->alloc(cpu, 4096, "gradients", &memory), CDDP_ERR_NO_MEMORY);
    cddpi_alloc_fail_nth(0);
    assert_string_equal(cddp_last_error(), "no memory for 4096 bytes of gradients");
}

static int open_badly_named(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = NULL;

    (void)rank, (void)world_size;
    CHECK_FAILS(cddpi_device_open(argument, -1, 1, 0, 1, false, &device), CDDP_ERR_ARGUMENT,
                "it must be cpu, cuda or cuda:N");
    return 0;
}

static void names_that_are_no_device_are_refused(void **state)
{
    char *names[] = {"gpu", "cuda1", "", "cpu:0", "cuda:x", "cuda:", "cuda:-1"};

    (void)state;
    /* without CUDA, that is said first */
    for (int i = 0; i < (device_is_emulated() || gpu_count() > 0 ? 7 : 4); i++) {
        assert_int_equal(in_process(open_badly_named, names[i], NULL), 0);
    }
}

/* --- what a CUDA device does --- */

/* Pinned memory of numbers that depend on @p salt. */
static float *numbers(struct cddpi_device *device, int salt)
{
    float *host = NULL;

    if (device->ops->pin(device, BYTES, (void **)&host) == CDDP_OK) {
        for (int i = 0; i < COUNT; i++) {
            host[i] = (float)(i * 7 + salt);
        }
    }
    return host;
}

static int differ(const float *host, int salt)
{
    for (int i = 0; i < COUNT; i++) {
        if (!(host[i] == (float)(i * 7 + salt))) {
            return 1;
        }
    }
    return 0;
}

/* From the copy stream through compute to communication and back to the host; without events if
 * @p argument says so. */
static int relay(struct cddpi_device *device, bool ordered)
{
    const struct cddpi_device_ops *ops = device->ops;
    float *from = numbers(device, 3);
    float *to = numbers(device, 9);
    struct cddpi_event *events[4];
    float *a;
    float *b;
    int wrong;

    CHECK(from != NULL && to != NULL);
    CHECK(ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(ops->alloc(device, BYTES, "b", (void **)&b) == CDDP_OK);
    for (int i = 0; i < 4; i++) {
        CHECK(ops->event_create(device, false, &events[i]) == CDDP_OK);
    }
    CHECK(ops->record(device, events[0], CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(!ordered || ops->order(device, CDDPI_STREAM_COPY, events[0]) == CDDP_OK);
    CHECK(ops->copy(device, CDDPI_STREAM_COPY, a, from, BYTES) == CDDP_OK);
    CHECK(ops->record(device, events[1], CDDPI_STREAM_COPY) == CDDP_OK);
    CHECK(!ordered || ops->order(device, CDDPI_STREAM_COMPUTE, events[1]) == CDDP_OK);
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, b) ==
          CDDP_OK);
    CHECK(ops->record(device, events[2], CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(!ordered || ops->order(device, CDDPI_STREAM_COMM, events[2]) == CDDP_OK);
    CHECK(ops->copy(device, CDDPI_STREAM_COMM, to, b, BYTES) == CDDP_OK);
    CHECK(ops->record(device, events[3], CDDPI_STREAM_COMM) == CDDP_OK);
    CHECK(ops->wait(device, events[3], LIMIT_MS) == CDDP_OK);
    wrong = differ(to, 3);
    CHECK(ops->finish(device, LIMIT_MS) == CDDP_OK);
    for (int i = 0; i < 4; i++) {
        ops->event_destroy(device, events[i]);
    }
    ops->release(device, a);
    ops->release(device, b);
    ops->unpin(device, from);
    ops->unpin(device, to);
    cddpi_device_close(device);
    return wrong;
}

static int relay_with_events(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();

    (void)rank, (void)world_size, (void)argument;
    return device == NULL || relay(device, true);
}

static int relay_without_events(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();

    (void)rank, (void)world_size, (void)argument;
    return device == NULL || relay(device, false);
}

static void events_order_streams(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(orders_that_fail(relay_with_events, 20), 0);
}

static void without_events_numbers_are_wrong(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_true(orders_that_fail(relay_without_events, 20) > 0);
}

/* What is done to a buffer after a copy from it was asked for. */
static int change_source(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    bool pinned = argument != NULL;
    float *from;
    float *to;
    float *a;

    (void)rank, (void)world_size;
    CHECK(device != NULL);
    from = pinned ? numbers(device, 3) : malloc(BYTES);
    to = numbers(device, 0);
    for (int i = 0; i < COUNT; i++) {
        from[i] = (float)(i * 7 + 3);
    }
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, a, from, BYTES) == CDDP_OK);
    memset(from, 0, BYTES);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, a, BYTES) == CDDP_OK);
    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    return differ(to, 3); /* left open: a process may end like that */
}

static void pinned_memory_is_read_when_the_copy_runs_and_other_memory_at_once(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(in_process(change_source, NULL, NULL), 0);
    if (!gpu_is_real()) { /* which may be as fast */
        assert_int_equal(in_process(change_source, "pinned", NULL), 1);
    }
}

/* One stream writes what another still reads; and new memory holds no zeros. */
static int write_too_early(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    struct cddpi_event *there;
    float *from;
    float *to;
    float *a;
    int wrong;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    from = numbers(device, 3);
    to = numbers(device, 0);
    CHECK(device->ops->event_create(device, false, &there) == CDDP_OK);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, a, BYTES) == CDDP_OK);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, a, from, BYTES) == CDDP_OK);
    CHECK(device->ops->record(device, there, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(device->ops->wait(device, there, LIMIT_MS) == CDDP_OK);
    CHECK(isnan(to[0]) && isnan(to[COUNT - 1]));
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMM, to, a, BYTES) == CDDP_OK);
    CHECK(device->ops->clear(device, CDDPI_STREAM_COMPUTE, a, BYTES) == CDDP_OK);
    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    wrong = differ(to, 3);
    device->ops->release(device, a);
    device->ops->unpin(device, from);
    device->ops->unpin(device, to);
    device->ops->event_destroy(device, there);
    cddpi_device_close(device);
    return wrong;
}

static void memory_that_is_written_while_it_is_read_shows(void **state)
{
    int failed;

    (void)state;
    NEEDS_EMULATED_MODULE();
    failed = orders_that_fail(write_too_early, 20);
    assert_in_range(failed, 1, 19); /* an accident of the order, as it is with CUDA */
}

static int look_at_events(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    struct cddpi_event *never;
    struct cddpi_event *from;
    struct cddpi_event *to;
    float *host;
    float *a;
    bool done = false;
    float ms = -1;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    host = numbers(device, 1);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->ops->event_create(device, false, &never) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &from) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &to) == CDDP_OK);
    CHECK(device->ops->query(device, never, &done) == CDDP_OK && done);
    CHECK(device->ops->wait(device, never, 0) == CDDP_OK);
    CHECK(device->ops->order(device, CDDPI_STREAM_COMM, never) == CDDP_OK);

    CHECK(device->ops->record(device, from, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, a, host, BYTES) == CDDP_OK);
    CHECK(device->ops->record(device, to, CDDPI_STREAM_COMPUTE) == CDDP_OK);
    CHECK_FAILS(device->ops->wait(device, to, 0), CDDP_ERR_TIMEOUT,
                "rank 0: cuda:0: an event was not reached within 0 ms");
    CHECK_FAILS(device->ops->finish(device, 0), CDDP_ERR_TIMEOUT,
                "the compute stream's work was not done within 0 ms");
    for (done = false; !done;) {
        CHECK(device->ops->query(device, to, &done) == CDDP_OK);
    }
    CHECK(device->ops->elapsed(device, from, to, &ms) == CDDP_OK && ms >= 0);
    CHECK_FAILS(device->ops->elapsed(device, from, never, &ms), CDDP_ERR_ARGUMENT, "not timed");
    device->ops->event_destroy(device, from);
    device->ops->event_destroy(device, to);
    device->ops->event_destroy(device, never);
    device->ops->event_destroy(device, NULL);
    device->ops->release(device, a);
    device->ops->unpin(device, host);
    cddpi_device_close(device);
    return 0;
}

/* While work that was put behind it has not been done. */
static int time_what_was_waited_for(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    struct cddpi_event *from = NULL;
    struct cddpi_event *to = NULL;
    void *a;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, BYTES, "a", &a) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &from) == CDDP_OK);
    CHECK(device->ops->event_create(device, true, &to) == CDDP_OK);
    for (int round = 0; round < 20; round++) {
        float ms = -1;

        CHECK(device->ops->record(device, from, CDDPI_STREAM_COMPUTE) == CDDP_OK);
        CHECK(device->ops->clear(device, CDDPI_STREAM_COMPUTE, a, BYTES) == CDDP_OK);
        CHECK(device->ops->record(device, to, CDDPI_STREAM_COMPUTE) == CDDP_OK);
        CHECK(device->ops->clear(device, CDDPI_STREAM_COMPUTE, a, BYTES) == CDDP_OK);
        CHECK(device->ops->wait(device, to, SUPPORT_TIMEOUT_MS) == CDDP_OK);
        CHECK(device->ops->elapsed(device, from, to, &ms) == CDDP_OK && ms >= 0);
    }
    device->ops->event_destroy(device, from);
    device->ops->event_destroy(device, to);
    device->ops->release(device, a);
    cddpi_device_close(device);
    return 0;
}

static void an_event_that_is_done_has_its_time(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(time_what_was_waited_for, 8), 0);
}

static void events_can_be_asked_waited_for_and_timed(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(look_at_events, NULL, NULL), 0);
}

static int look_at_memory(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    struct cddpi_device_memory before;
    struct cddpi_device_memory after;
    float *host;
    char *a;
    char on_stack;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->memory(device, &before) == CDDP_OK);
    host = numbers(device, 1);
    CHECK(device->ops->alloc(device, 1 << 20, "a", (void **)&a) == CDDP_OK);
    CHECK((uintptr_t)a % 256 == 0);
    CHECK(device->ops->owns(device, a) && device->ops->owns(device, a + (1 << 20) - 1));
    CHECK(!device->ops->owns(device, host) && !device->ops->owns(device, &on_stack));
    CHECK(!device->ops->owns(device, NULL));
    device->ops->release(device, a);
    device->ops->release(device, NULL);
    device->ops->unpin(device, host);
    device->ops->unpin(device, NULL);
    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    CHECK(device->ops->memory(device, &after) == CDDP_OK);
    CHECK(after.total_bytes == before.total_bytes);
    CHECK(after.free_bytes == before.free_bytes || gpu_is_real()); /* which others use, too */
    /* nothing is nothing */
    CHECK(device->ops->alloc(device, 0, "nothing", (void **)&a) == CDDP_OK && a != NULL);
    CHECK(device->ops->copy(device, CDDPI_STREAM_COPY, NULL, NULL, 0) == CDDP_OK);
    CHECK(device->ops->clear(device, CDDPI_STREAM_COPY, NULL, 0) == CDDP_OK);
    device->ops->release(device, a);
    cddpi_device_close(device);
    return 0;
}

static void memory_is_the_devices_or_not(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    assert_int_equal(in_process(look_at_memory, NULL, NULL), 0);
    /* and where there are no pools to take it from */
    assert_int_equal(in_process(look_at_memory, NULL, WITH("CDDP_FAKE_CUDA_POOLS=0")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_is_a_device),
        cmocka_unit_test(the_processor_has_every_operation),
        cmocka_unit_test(the_processor_refuses_to_record_and_has_no_streams),
        cmocka_unit_test(a_processor_without_memory_says_what_it_was_for),
        cmocka_unit_test(names_that_are_no_device_are_refused),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(without_events_numbers_are_wrong),
        cmocka_unit_test(pinned_memory_is_read_when_the_copy_runs_and_other_memory_at_once),
        cmocka_unit_test(memory_that_is_written_while_it_is_read_shows),
        cmocka_unit_test(events_can_be_asked_waited_for_and_timed),
        cmocka_unit_test(an_event_that_is_done_has_its_time),
        cmocka_unit_test(memory_is_the_devices_or_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
