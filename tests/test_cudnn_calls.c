/* test_cudnn_calls.c - what cuDNN is given: which memory for which tensor, how work is cut, how
 * plans are kept. The library is a fake in this program that takes every graph and notes what it is
 * asked to execute. */
#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_conv.h"
#include "kernels/cuda/im2col.h"
#include "kernels/cuda/stopwatch.h"
#include "support.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

/* --- the fake library --- */

enum { MOST_CALLS = 32 };

static struct {
    struct cddpi_cudnn_pointers calls[MOST_CALLS];
    void *workspaces[MOST_CALLS];
    int call_count, plans, descriptors;
    size_t version;
    int64_t workspace_bytes;
    cudnnStatus_t plan_code; /* what making a plan gives */
    bool changes;            /* its engines are not reproducible */
    int cores;               /* so many of the first that it offers use tensor cores */
    int asked;               /* how many it was asked about */
    cudaStream_t compute;    /* the device's */
    cudaStream_t stream;     /* the handle's */
    int configs;             /* what each of its heuristics offers */
    float ms[MOST_CALLS];    /* what the n-th plan takes to execute; below 0: it fails */
    float clock;
    int last;        /* which plan was executed last */
    int last_engine; /* and the engine of it, as they were asked about, from 1 on */
} fake;

struct descriptor {
    cudnnBackendDescriptorType_t type;
    struct cddpi_cudnn_pointers pack;
    void *workspace;
    int number; /* of a plan, from 1 on */
    int engine; /* of a configuration, an engine or a plan, likewise */
};

EXPORT size_t cudnnGetVersion(void)
{
    return fake.version;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "another";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t max_size)
{
    snprintf(message, max_size, "the fake does not want to\nmore");
}

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = (cudnnHandle_t)(void *)&fake;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    assert_ptr_equal(handle, &fake);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    assert_ptr_equal(handle, &fake);
    fake.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t *out)
{
    struct descriptor *made = calloc(1, sizeof *made);

    made->type = type;
    fake.descriptors++;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    fake.descriptors--;
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values)
{
    struct descriptor *descriptor = to;

    (void)type;
    assert_non_null(descriptor);
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
        memcpy(descriptor->pack.ids, values, (size_t)count * sizeof(int64_t));
        descriptor->pack.count = (int)count;
    } else if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
        memcpy(descriptor->pack.pointers, values, (size_t)count * sizeof(void *));
    } else if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE) {
        memcpy(&descriptor->workspace, values, sizeof(void *));
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
        descriptor->engine = (*(struct descriptor *const *)values)->engine;
    }
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const from,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t wanted,
                                              int64_t *count, void *out)
{
    struct descriptor *descriptor = from;
    cudnnBackendNumericalNote_t *notes = out;

    (void)type;
    (void)wanted;
    *count = name == CUDNN_ATTR_ENGINEHEUR_RESULTS ? fake.configs : 1;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        memcpy(out, &fake.workspace_bytes, sizeof fake.workspace_bytes);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        descriptor->engine = ++fake.asked;
        (*(struct descriptor **)out)->engine = descriptor->engine;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *count = 0;
        if (fake.changes) {
            notes[(*count)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        }
        if (descriptor->engine <= fake.cores) {
            notes[(*count)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    if (((struct descriptor *)descriptor)->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        ((struct descriptor *)descriptor)->number = ++fake.plans;
        return fake.plan_code;
    }
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack)
{
    const struct descriptor *given = pack;

    assert_ptr_equal(handle, &fake);
    assert_int_equal(((struct descriptor *)plan)->type, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    assert_true(fake.call_count < MOST_CALLS);
    fake.last = ((struct descriptor *)plan)->number;
    fake.last_engine = ((struct descriptor *)plan)->engine;
    if (fake.ms[fake.last] < 0) {
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    fake.clock += fake.ms[fake.last];
    fake.calls[fake.call_count] = given->pack;
    fake.workspaces[fake.call_count++] = given->workspace;
    return CUDNN_STATUS_SUCCESS;
}

/* --- the module around it --- */

static struct cddpi_cuda_kept kept[CDDPI_CUDA_PARTS];
static bool recording;
static bool installed;
static struct {
    const void *from;
    size_t count;
    bool add;
    float *to;
    int calls;
} added;

static bool tf32;

static cddp_status alloc(struct cddpi_device *device, size_t bytes, const char *what, void **out)
{
    (void)device;
    (void)what;
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CDDP_OK;
}

static void release(struct cddpi_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static const struct cddpi_device_ops ops = {.name = "cuda", .alloc = alloc, .release = release};
static struct cuda_device machine = {.base = {.ops = &ops}};
static struct cddpi_device *const device = &machine.base;

cddp_status cddpi_cuda_fail(struct cddpi_device *of, cddp_status status, const char *format, ...)
{
    char text[2048];
    va_list arguments;

    (void)of;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(status, "%s", text);
}

bool cddpi_cuda_tf32(void)
{
    return tf32;
}

cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *of)
{
    (void)of;
    return fake.compute;
}

void *cddpi_cuda_host_alloc(struct cddpi_device *of, size_t bytes)
{
    (void)of;
    return calloc(1, bytes);
}

void cddpi_cuda_host_free(struct cddpi_device *of, void *memory)
{
    (void)of;
    free(memory);
}

struct cddpi_cuda_kept *cddpi_cuda_kept(struct cddpi_device *of, enum cddpi_cuda_part part)
{
    (void)of;
    return &kept[part];
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    (void)stream;
    *out = recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Events show the fake's clock. */
cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = calloc(1, sizeof fake.clock);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    memcpy(event, &fake.clock, sizeof fake.clock);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    assert_non_null(event);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = *(const float *)(const void *)end - *(const float *)(const void *)begin;
    return cudaSuccess;
}

cddp_status cddpi_cuda_status(struct cddpi_device *of, cudaError_t error, const char *call,
                              const char *file, int line)
{
    (void)of;
    (void)file;
    return error == cudaSuccess ? CDDP_OK : cddpi_fail(CDDP_ERR_DEVICE, "%s: line %d", call, line);
}

cddp_status cuda_library_open(const struct cddpi_module_host *host, enum cuda_library library,
                              void **out)
{
    (void)host;
    assert_int_equal(library, CUDA_LIBRARY_CUDNN);
    *out = dlopen(NULL, RTLD_NOW); /* this program */
    return installed ? CDDP_OK : cddpi_fail(CDDP_ERR_UNAVAILABLE, "no cuDNN in this test");
}

int cddpi_cuda_conv_extent(int input, const struct cddpi_cuda_conv *shape)
{
    return (input + 2 * shape->padding - shape->kernel) / shape->stride + 1;
}

cddp_status cddpi_cuda_add_float(struct cddpi_device *of, cddp_type type, const void *from,
                                 size_t count, bool add, float *to)
{
    (void)of;
    (void)type;
    added.from = from;
    added.count = count;
    added.add = add;
    added.to = to;
    added.calls++;
    return CDDP_OK;
}

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&added, 0, sizeof added);
    fake.version = 91900;
    fake.workspace_bytes = 1000;
    fake.configs = 1;
    recording = false;
    installed = true;
    tf32 = false;
    return 0;
}

/* The device is closed: everything goes. */
static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < CDDPI_CUDA_PARTS; i++) {
        if (kept[i].release != NULL) {
            kept[i].release(device, kept[i].state);
        }
        kept[i] = (struct cddpi_cuda_kept){NULL, NULL};
    }
    assert_int_equal(fake.descriptors, 0);
    return 0;
}

/* Where tensor @p id of the fake's call @p call lies. */
static const char *place_of(int call, int64_t id)
{
    const struct cddpi_cudnn_pointers *pack = &fake.calls[call];

    assert_true(call < fake.call_count);
    for (int i = 0; i < pack->count; i++) {
        if (pack->ids[i] == id) {
            return pack->pointers[i];
        }
    }
    fail_msg("call %d has no tensor %d", call, (int)id);
    return NULL;
}

/* Addresses only: nobody reads there. */
static char *const qkv = (char *)(uintptr_t)0x10000000000;
static char *const out = (char *)(uintptr_t)0x20000000000;
static char *const dout = (char *)(uintptr_t)0x30000000000;
static char *const dqkv = (char *)(uintptr_t)0x40000000000;
static float *const stats = (float *)(uintptr_t)0x50000000000;

static const struct cddpi_cuda_attention gpt2 = {
    .type = CDDP_BF16, .batch = 64, .heads = 12, .length = 1024, .head = 64};

static void attention_gets_the_parts_of_packed_rows(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, stats, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.call_count, 1);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_Q), qkv);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_K), qkv + 768 * 2);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_V), qkv + 2 * 768 * 2);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_OUT), out);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_STATS), stats);
}

static void evaluation_keeps_statistics_to_itself(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, NULL, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal((const char *)fake.workspaces[0] - place_of(0, CDDPI_ATTENTION_STATS),
                     64 * 12 * 1024 * 4);
}

/* All scores of 64 sequences would be 1.5 GiB. */
static void the_gradient_of_attention_is_done_a_few_sequences_at_a_time(void **state)
{
    const size_t rows = 32 * 1024; /* of one call */
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention_grad(device, &gpt2, qkv, out, stats, dout, dqkv, &done),
                     CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.call_count, 2);
    assert_int_equal(fake.plans, 1);
    for (int i = 0; i < 2; i++) {
        size_t at = (size_t)i * rows * 768 * 2;

        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_Q), qkv + 3 * at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_K), qkv + 3 * at + 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_V), qkv + 3 * at + 2 * 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_OUT), out + at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DOUT), dout + at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_STATS),
                         (char *)stats + (size_t)i * rows * 12 * 4);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DQ), dqkv + 3 * at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DK), dqkv + 3 * at + 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DV), dqkv + 3 * at + 2 * 768 * 2);
        assert_int_equal((const char *)fake.workspaces[i] - place_of(i, CDDPI_ATTENTION_DOTS),
                         rows * 12 * 4);
    }
}

static void a_gradient_in_any_order_is_done_at_once_with_sums_of_its_own(void **state)
{
    struct cddpi_cuda_attention shape = gpt2;
    bool done = false;

    (void)state;
    shape.any_order = true;
    assert_int_equal(cddpi_cudnn_attention_grad(device, &shape, qkv, out, stats, dout, dqkv, &done),
                     CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(place_of(0, CDDPI_ATTENTION_DQ_SUMS) - place_of(0, CDDPI_ATTENTION_DOTS),
                     64 * 12 * 1024 * 4);
    assert_int_equal((const char *)fake.workspaces[0] - place_of(0, CDDPI_ATTENTION_DQ_SUMS),
                     64 * 12 * 1024 * 64 * 4);
}

static const struct cddpi_cuda_conv conv = {CDDP_BF16, 2, 8, 6, 6, 16, 3, 1, 1, false};

static void a_plan_is_made_once_a_shape_and_pass(void **state)
{
    struct cddpi_cuda_conv other = conv;
    bool done = false;

    (void)state;
    other.stride = 2;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
        assert_int_equal(cddpi_cudnn_conv_input(device, &conv, dout, out, qkv, &done), CDDP_OK);
        assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    }
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.call_count, 9);
    assert_ptr_equal(place_of(1, CDDPI_CONV_X), qkv);
    assert_ptr_equal(place_of(1, CDDPI_CONV_W), out);
    assert_ptr_equal(place_of(1, CDDPI_CONV_Y), dout);
}

static void another_compute_stream_is_cudnns_too(void **state)
{
    bool done = false;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fake.compute = (cudaStream_t)(void *)(qkv + i);
        assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
        assert_ptr_equal(fake.stream, fake.compute);
    }
    assert_int_equal(fake.plans, 1);
}

static void gradients_of_filters_become_float32_behind_cudnn(void **state)
{
    struct cddpi_cuda_conv single = conv;
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &conv, dout, qkv, true, stats, &done),
                     CDDP_OK);
    assert_int_equal(added.calls, 1);
    assert_ptr_equal(added.from, place_of(0, CDDPI_CONV_W));
    assert_ptr_equal(added.to, stats);
    assert_int_equal(added.count, 16 * 3 * 3 * 8);
    assert_true(added.add);
    single.type = CDDP_F32;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &single, dout, qkv, false, stats, &done),
                     CDDP_OK);
    assert_int_equal(added.calls, 1);
    assert_ptr_equal(place_of(1, CDDPI_CONV_W), stats);
}

static void what_cudnn_cannot_do_is_asked_once_and_left_to_others(void **state)
{
    bool done = false;

    (void)state;
    fake.plan_code = CUDNN_STATUS_NOT_SUPPORTED;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_non_null(strstr(cddp_last_error(), "convolution: none of "));
    assert_non_null(strstr(cddp_last_error(), "(the fake does not want to)"));
    assert_true(fake.plans > 0);
    fake.plans = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_int_equal(fake.plans, 0);
    assert_int_equal(fake.call_count, 0);
}

static void an_engine_that_is_not_reproducible_is_better_than_none(void **state)
{
    bool done = false;

    (void)state;
    fake.changes = true;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
}

static void tensor_cores_are_for_float32_only_if_tf32_is_allowed(void **state)
{
    struct cddpi_cuda_conv single = conv;
    bool done = false;

    (void)state;
    fake.configs = 3;
    fake.cores = 2;
    single.type = CDDP_F32;
    assert_int_equal(cddpi_cudnn_conv(device, &single, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 3);
    fake.asked = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 1);
    fake.asked = 0;
    tf32 = true;
    single.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &single, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 1);
}

/* Three plans are made, all run, and two go. */
static void in_any_order_the_fastest_engine_is_kept(void **state)
{
    struct cddpi_cuda_conv any = conv;
    bool done = false;
    int descriptors;

    (void)state;
    any.any_order = true;
    fake.configs = 3;
    fake.ms[1] = 3;
    fake.ms[2] = 1;
    fake.ms[3] = 2;
    assert_int_equal(cddpi_cudnn_conv(device, &any, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.last, 2);
    descriptors = fake.descriptors;
    fake.call_count = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &any, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(fake.last, 2);
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.descriptors, descriptors);
}

static void with_an_order_nothing_is_measured(void **state)
{
    bool done = false;

    (void)state;
    fake.configs = 3;
    fake.ms[1] = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(fake.last, 1);
    assert_int_equal(fake.plans, 1);
}

static void an_engine_that_does_not_run_is_not_kept(void **state)
{
    struct cddpi_cuda_conv any = conv;
    bool done = false;

    (void)state;
    any.any_order = true;
    fake.configs = 3;
    fake.ms[1] = -1;
    fake.ms[2] = 5;
    fake.ms[3] = -1;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &any, qkv, out, false, (float *)stats, &done),
                     CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.last, 2);
}

static void a_plan_that_does_not_run_is_given_up_at_its_first_call(void **state)
{
    bool done = false;

    (void)state;
    fake.ms[1] = -1;
    fake.ms[2] = -1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cddpi_cudnn_conv_weight(device, &conv, dout, qkv, true, stats, &done),
                         CDDP_OK);
        assert_false(done);
        assert_int_equal(added.calls, 0); /* of what was never written */
        assert_int_equal(
            cddpi_cudnn_attention_grad(device, &gpt2, qkv, out, stats, dout, dqkv, &done), CDDP_OK);
        assert_false(done);
        assert_int_equal(fake.last, 2 - i * 2); /* neither is tried again */
        fake.last = 0;
    }
    assert_int_equal(fake.plans, 2);
    assert_int_equal(fake.call_count, 0);
    assert_non_null(strstr(cddp_last_error(), "gradient of attention: another"));
}

static void a_plan_that_has_run_may_not_fail(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
    fake.ms[1] = -1;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_ERR_DEVICE);
    assert_false(done);
}

static void without_cudnn_everything_is_left_to_others(void **state)
{
    bool done = false;

    (void)state;
    installed = false;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, stats, &done), CDDP_OK);
    assert_false(done);
}

static void a_version_that_is_too_old_is_not_used(void **state)
{
    bool done = false;

    (void)state;
    fake.version = 91001;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_non_null(strstr(cddp_last_error(), "cuDNN 9.10.1 is too old: 9.10.2"));
}

static void a_new_shape_cannot_be_recorded(void **state)
{
    struct cddpi_cuda_conv other = conv;
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    recording = true;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 2);
    other.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_ERR_UNAVAILABLE);
    assert_non_null(strstr(cddp_last_error(), "cannot be recorded"));
}

/* Takes the next of some times, ended by one below 0: from there on it cannot run. */
static bool take_time(void *argument)
{
    const float **next = argument;

    if (**next < 0) {
        return false;
    }
    fake.clock += *(*next)++;
    return true;
}

static void the_shortest_of_three_runs_counts(void **state)
{
    static const float times[][4] = {{5, 2, 9, 1}, {2, 5, 9, 1}, {9, 5, 2, 1}};
    static const float broken[][2] = {{-1}, {3, -1}};
    struct cddpi_stopwatch watch;
    float best = 0;

    (void)state;
    assert_int_equal(cddpi_stopwatch_open(device, &watch), cudaSuccess);
    for (int i = 0; i < 3; i++) {
        const float *next = times[i];

        assert_int_equal(cddpi_stopwatch_best(&watch, take_time, &next, &best), cudaSuccess);
        assert_float_equal(best, 2, 0);
        assert_ptr_equal(next, &times[i][3]);
    }
    for (int i = 0; i < 2; i++) {
        const float *next = broken[i];

        assert_int_equal(cddpi_stopwatch_best(&watch, take_time, &next, &best), cudaSuccess);
        assert_true(best > 1e30F); /* no error, but slower than anything */
    }
    cddpi_stopwatch_close(&watch);
}

static void scratch_grows_and_keeps_what_recordings_know(void **state)
{
    bool done = false;
    struct cddpi_cuda_conv other = conv;
    const void *first;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    first = fake.workspaces[0];
    fake.workspace_bytes = 5 << 20;
    other.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    assert_ptr_not_equal(fake.workspaces[1], first);
    memset(fake.workspaces[1], 1, 5 << 20);
    memset((void *)(uintptr_t)first, 1, 1000); /* still there: a sanitizer would tell */
    recording = true;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    assert_ptr_equal(fake.workspaces[2], fake.workspaces[1]);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(attention_gets_the_parts_of_packed_rows),
        CASE(evaluation_keeps_statistics_to_itself),
        CASE(the_gradient_of_attention_is_done_a_few_sequences_at_a_time),
        CASE(a_gradient_in_any_order_is_done_at_once_with_sums_of_its_own),
        CASE(a_plan_is_made_once_a_shape_and_pass),
        CASE(another_compute_stream_is_cudnns_too),
        CASE(gradients_of_filters_become_float32_behind_cudnn),
        CASE(what_cudnn_cannot_do_is_asked_once_and_left_to_others),
        CASE(an_engine_that_is_not_reproducible_is_better_than_none),
        CASE(tensor_cores_are_for_float32_only_if_tf32_is_allowed),
        CASE(in_any_order_the_fastest_engine_is_kept),
        CASE(with_an_order_nothing_is_measured),
        CASE(an_engine_that_does_not_run_is_not_kept),
        CASE(a_plan_that_does_not_run_is_given_up_at_its_first_call),
        CASE(a_plan_that_has_run_may_not_fail),
        CASE(without_cudnn_everything_is_left_to_others),
        CASE(a_version_that_is_too_old_is_not_used),
        CASE(a_new_shape_cannot_be_recorded),
        CASE(the_shortest_of_three_runs_counts),
        CASE(scratch_grows_and_keeps_what_recordings_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
