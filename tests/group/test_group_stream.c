/* test_group_stream.c - the caller's stream as a group's compute stream. The streams are made by
 * the runtime inside the emulated module. */
#include "support/device.h"
#include "support/group.h"

#include "group/device/group_device.h"

#include <cddp/group.h>

#include <dlfcn.h>

enum { COUNT = 3000, BYTES = COUNT * 4 };

/* What a trainer calls; 0 is cudaSuccess. */
static struct {
    int (*set_device)(int device);
    int (*stream_create)(void **out);
    int (*stream_destroy)(void *stream);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **out);
} cuda;

static int find_calls(void)
{
    void *module = dlopen(getenv("CDDP_CUDA_MODULE"), RTLD_NOW | RTLD_LOCAL);

    CHECK(module != NULL);
    *(void **)&cuda.set_device = dlsym(module, "cudaSetDevice");
    *(void **)&cuda.stream_create = dlsym(module, "cudaStreamCreate");
    *(void **)&cuda.stream_destroy = dlsym(module, "cudaStreamDestroy");
    *(void **)&cuda.begin_capture = dlsym(module, "cudaStreamBeginCapture");
    *(void **)&cuda.end_capture = dlsym(module, "cudaStreamEndCapture");
    CHECK(cuda.set_device != NULL && cuda.stream_create != NULL && cuda.stream_destroy != NULL &&
          cuda.begin_capture != NULL && cuda.end_capture != NULL);
    return 0;
}

static cddp_status join(const char *device, void *stream, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.device = device;
    options.stream = stream;
    return cddp_group_create(&options, out);
}

static int give_streams(int rank, int n, void *argument)
{
    cddp_group *group;
    void *mine;
    void *wrong;

    (void)rank, (void)n, (void)argument;
    CHECK(find_calls() == 0);
    CHECK(cuda.set_device(0) == 0 && cuda.stream_create(&wrong) == 0);
    CHECK(cuda.set_device(1) == 0 && cuda.stream_create(&mine) == 0);
    CHECK_FAILS(join("cuda:1", wrong, &group), CDDP_ERR_ARGUMENT,
                "does not belong to this device: make it after cudaSetDevice(1)");
    CHECK(join("cuda:1", NULL, &group) == CDDP_OK);
    CHECK(group_info(group).device == 1);
    CHECK(group_info(group).stream != NULL && group_info(group).stream != mine);
    CHECK_FAILS(cddp_group_set_stream(group, NULL), CDDP_ERR_ARGUMENT, "cudaStreamLegacy");
    CHECK_FAILS(cddp_group_set_stream(group, wrong), CDDP_ERR_ARGUMENT, "cudaSetDevice(1)");
    CHECK(cddp_group_set_stream(group, mine) == CDDP_OK);
    CHECK(group_info(group).stream == mine);
    CHECK_FAILS(cddp_group_set_stream(group, wrong), CDDP_ERR_ARGUMENT, "cudaSetDevice(1)");
    CHECK(group_info(group).stream == mine);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    CHECK(join("cuda:1", mine, &group) == CDDP_OK);
    CHECK(group_info(group).stream == mine);
    cddp_group_destroy(group);
    CHECK(cuda.stream_destroy(mine) == 0 && cuda.stream_destroy(wrong) == 0);
    CHECK(join("cpu", NULL, &group) == CDDP_OK);
    CHECK(group_info(group).device == -1 && group_info(group).stream == NULL);
    CHECK_FAILS(cddp_group_set_stream(group, &group), CDDP_ERR_ARGUMENT, "on the CPU");
    cddp_group_destroy(group);
    return 0;
}

static void a_stream_is_taken_if_it_is_the_devices(void **state)
{
    (void)state;
    assert_int_equal(in_process(give_streams, NULL, WITH("CDDP_FAKE_CUDA_DEVICES=2")), 0);
}

/* Numbers come in one stream, are copied by a collective in the next, and leave in a third. */
static int change_streams(int rank, int n, void *argument)
{
    struct cddpi_device *device;
    cddp_group *group;
    cddp_group *part;
    void *streams[2];
    float *pinned = NULL;
    void *in;
    void *out;

    (void)rank, (void)n, (void)argument;
    CHECK(find_calls() == 0);
    CHECK(join("cuda", NULL, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, 0, 0, &part) == CDDP_OK);
    device = cddpi_group_on_device(group);
    CHECK(cuda.stream_create(&streams[0]) == 0 && cuda.stream_create(&streams[1]) == 0);
    CHECK(cddp_group_alloc(group, BYTES, 0, &in) == CDDP_OK);
    CHECK(cddp_group_alloc(group, BYTES, 0, &out) == CDDP_OK);
    CHECK(device->ops->pin(device, 2 * BYTES, (void **)&pinned) == CDDP_OK);
    for (int i = 0; i < COUNT; i++) {
        pinned[i] = (float)i;
        pinned[COUNT + i] = -1;
    }
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, in, pinned, BYTES) == CDDP_OK);
    CHECK(cddp_group_set_stream(group, streams[0]) == CDDP_OK);
    CHECK(group_info(part).stream == streams[0]);
    CHECK(cddp_all_reduce(part, in, out, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_group_set_stream(part, streams[1]) == CDDP_OK);
    CHECK(cuda.stream_destroy(streams[0]) == 0); /* what is in it is still done */
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, pinned + COUNT, out, BYTES) == CDDP_OK);
    CHECK(device->ops->finish(device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (int i = 0; i < COUNT; i++) {
        CHECK(pinned[COUNT + i] == (float)i);
    }
    device->ops->unpin(device, pinned);
    cddp_group_destroy(part);
    cddp_group_destroy(group);
    CHECK(cuda.stream_destroy(streams[1]) == 0);
    return 0;
}

static void what_comes_behind_a_change_of_streams_sees_what_came_before(void **state)
{
    (void)state;
    assert_int_equal(orders_that_fail(change_streams, 8), 0);
}

static int capture(int rank, int n, void *argument)
{
    cddp_group *group;
    void *stream;
    void *graph = NULL;
    void *memory;

    (void)rank, (void)n, (void)argument;
    CHECK(find_calls() == 0);
    CHECK(join("cuda", NULL, &group) == CDDP_OK);
    CHECK(cddp_group_alloc(group, BYTES, 0, &memory) == CDDP_OK);
    CHECK(cuda.stream_create(&stream) == 0);
    CHECK(cuda.begin_capture(stream, 1) == 0);
    CHECK_FAILS(cddp_group_set_stream(group, stream), CDDP_ERR_STATE, "is being captured");
    CHECK(cuda.end_capture(stream, &graph) == 0);
    CHECK(cddp_group_set_stream(group, stream) == CDDP_OK);
    CHECK(cuda.begin_capture(stream, 1) == 0);
    CHECK_FAILS(cddp_all_reduce(group, memory, memory, COUNT, CDDP_F32, CDDP_OP_SUM, NULL),
                CDDP_ERR_STATE, "is being captured by the caller");
    CHECK(cuda.end_capture(stream, &graph) == 0);
    cddp_group_destroy(group);
    CHECK(cuda.stream_destroy(stream) == 0);
    return 0;
}

static void a_callers_capture_is_refused_in_words(void **state)
{
    (void)state;
    assert_int_equal(in_process(capture, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_taken_if_it_is_the_devices),
        cmocka_unit_test(what_comes_behind_a_change_of_streams_sees_what_came_before),
        cmocka_unit_test(a_callers_capture_is_refused_in_words),
    };

    if (!device_is_emulated()) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
