/* cudnn_support.h - a cuDNN inside the test: a library that accepts every graph and records what it
 * is asked to execute, and the module around it. Include it in one file of a program. */
#ifndef CDDP_TESTS_KERNELS_CUDNN_SUPPORT_H
#define CDDP_TESTS_KERNELS_CUDNN_SUPPORT_H

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/cuda/cudnn/cudnn_graphs.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/own_kernels.h"
#include "support/test.h"

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
    int heuristics;          /* how often it was asked for a list */
    int restored;            /* how many were made from numbers */
    int64_t knob;            /* refuses this value of a knob; 0: none */
    cudaStream_t compute;    /* the device's */
    cudaStream_t stream;     /* the handle's */
    int configs;             /* what each of its heuristics offers */
    float ms[MOST_CALLS];    /* what the n-th plan takes to execute; below 0: it fails */
    float clock;
    int64_t alignment[64]; /* by id, of the tensors of the graph that was made last */
    int last;              /* which plan was executed last */
    int last_engine;       /* and the engine of it, as they were asked about, from 1 on */
} fake;

struct descriptor {
    cudnnBackendDescriptorType_t type;
    struct cddpi_cudnn_pointers pack;
    void *workspace;
    int64_t id, alignment; /* of a tensor */
    int number;            /* of a plan, from 1 on */
    int engine;            /* of a configuration, an engine or a plan, likewise */
    int64_t value;         /* of a knob, or of a configuration's only knob */
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
        descriptor->value = (*(struct descriptor *const *)values)->value;
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        descriptor->engine = (*(struct descriptor *const *)values)->engine;
        fake.restored++;
    } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
        assert_int_equal(count, 1);
        descriptor->value = (*(struct descriptor *const *)values)->value;
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        descriptor->engine = (int)*(const int64_t *)values;
    } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) {
        assert_int_equal(*(const cudnnBackendKnobType_t *)values, CUDNN_KNOB_TYPE_STAGES);
    } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) {
        descriptor->value = *(const int64_t *)values;
    } else if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID) {
        memcpy(&descriptor->id, values, sizeof descriptor->id);
    } else if (name == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) {
        memcpy(&descriptor->alignment, values, sizeof descriptor->alignment);
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
    fake.heuristics += name == CUDNN_ATTR_ENGINEHEUR_RESULTS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        memcpy(out, &fake.workspace_bytes, sizeof fake.workspace_bytes);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        if (descriptor->engine == 0) {
            descriptor->engine = ++fake.asked;
            descriptor->value = 10 * descriptor->engine;
        }
        (*(struct descriptor **)out)->engine = descriptor->engine;
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        *(int64_t *)out = descriptor->engine;
    } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
        (*(struct descriptor **)out)->value = descriptor->value;
    } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) {
        *(cudnnBackendKnobType_t *)out = CUDNN_KNOB_TYPE_STAGES;
    } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) {
        *(int64_t *)out = descriptor->value;
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
    const struct descriptor *made = descriptor;

    if (made->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && made->id < 64) {
        fake.alignment[made->id] = made->alignment;
    }
    if (made->type == CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR && made->value == fake.knob) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (made->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        assert_int_equal(made->value, 10 * made->engine);
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

static struct cddpi_cuda_cache caches[CDDPI_CUDA_CACHE_KINDS];
static bool captured;
static bool installed, mixed;
static struct {
    const void *from;
    size_t count;
    bool add;
    float *to;
    int calls;
} added;

/* Rows that were brought to whole vectors of channels, and filters' gradients back. */
static struct {
    const void *from;
    void *to;
    size_t rows;
    int channels;
} padded, dropped;
static int pads;

static bool tf32;

cddp_status cddpi_cuda_alloc(struct cddpi_device *of, size_t bytes, const char *what, void **out)
{
    (void)of;
    (void)what;
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CDDP_OK;
}

void cddpi_cuda_release(struct cddpi_device *of, void *memory)
{
    (void)of;
    free(memory);
}

static struct cuda_device machine;
static struct cddpi_device *const device = &machine.base;

cddp_status cuda_fail(const struct cddpi_device *of, cddp_status status, const char *format, ...)
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

struct cddpi_tuning *cddpi_cuda_tuning(struct cddpi_device *of, const char *subject,
                                       const char *library)
{
    (void)of;
    return cddpi_tuning_open(subject, library);
}

struct cddpi_cuda_cache *cddpi_cuda_cache(struct cddpi_device *of, enum cddpi_cuda_cache_kind kind)
{
    (void)of;
    return &caches[kind];
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    (void)stream;
    *out = captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
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

cddp_status cddpi_cuda_status(const struct cddpi_device *of, cudaError_t error, const char *call,
                              const char *file, int line)
{
    (void)of;
    (void)file;
    return error == cudaSuccess ? CDDP_OK : cddpi_fail(CDDP_ERR_DEVICE, "%s: line %d", call, line);
}

cddp_status cuda_library_open(enum cuda_library library, void **out)
{
    assert_int_equal(library, CUDA_LIBRARY_CUDNN);
    *out = dlopen(NULL, RTLD_NOW); /* this program */
    if (mixed) {
        return cddpi_fail(CDDP_ERR_CONFIG, "a mix in this test");
    }
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

cddp_status cddpi_cuda_pad_channels(struct cddpi_device *of, cddp_type type, const void *x,
                                    size_t rows, int channels, void *out)
{
    (void)of;
    (void)type;
    padded.from = x;
    padded.to = out;
    padded.rows = rows;
    padded.channels = channels;
    pads++;
    return CDDP_OK;
}

cddp_status cddpi_cuda_add_channels(struct cddpi_device *of, cddp_type type, const void *x,
                                    size_t rows, int channels, bool add, float *out)
{
    (void)of;
    (void)type;
    dropped.from = x;
    dropped.to = out;
    dropped.rows = rows;
    dropped.channels = channels;
    added.add = add;
    return CDDP_OK;
}

static inline int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&added, 0, sizeof added);
    memset(&dropped, 0, sizeof dropped);
    pads = 0;
    fake.version = 91900;
    fake.workspace_bytes = 1000;
    fake.configs = 1;
    captured = false;
    installed = true;
    mixed = false;
    tf32 = false;
    return 0;
}

/* The device is closed: everything goes. */
static inline void close_device(void)
{
    for (int i = 0; i < CDDPI_CUDA_CACHE_KINDS; i++) {
        if (caches[i].release != NULL) {
            caches[i].release(device, caches[i].state);
        }
        caches[i] = (struct cddpi_cuda_cache){NULL, NULL};
    }
    assert_int_equal(fake.descriptors, 0);
}

static inline int stop(void **state)
{
    (void)state;
    close_device();
    return 0;
}

/* Addresses only: nobody reads there. */
static char *const qkv = (char *)(uintptr_t)0x10000000000;
static char *const out = (char *)(uintptr_t)0x20000000000;
static char *const dout = (char *)(uintptr_t)0x30000000000;
static char *const dqkv = (char *)(uintptr_t)0x40000000000;
static float *const stats = (float *)(uintptr_t)0x50000000000;

static const struct cddpi_cuda_attention gpt2 = {
    .type = CDDP_BF16, .batch = 64, .heads = 12, .length = 1024, .head = 64};

static const struct cddpi_cuda_conv conv = {CDDP_BF16, 2, 8, 6, 6, 16, 3, 1, 1, false};

#define CASE(test) cmocka_unit_test_setup_teardown(test, start, stop)

#endif
