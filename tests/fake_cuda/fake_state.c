/* fake_state.c - owns the fake runtime's settings, its errors, and the properties of its
 * devices. */
#include "fake_cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fake_state fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};
_Thread_local int fake_device = -1;
static _Thread_local cudaError_t last_error;

int64_t fake_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void *fake_zalloc(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);

    if (memory == NULL) {
        fprintf(stderr, "fake_cuda: no memory for %zu bytes\n", bytes);
        abort();
    }
    return memory;
}

/* SplitMix64 */
uint64_t fake_random(void)
{
    uint64_t z = fake.random += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static long long setting(const char *name, long long otherwise)
{
    char full[64];
    const char *text;

    snprintf(full, sizeof full, "CDDP_FAKE_CUDA_%s", name);
    text = getenv(full);
    return text != NULL && text[0] != '\0' ? atoll(text) : otherwise;
}

/* The card that the entry @p text of CUDA_VISIBLE_DEVICES means, by its number or its unique name;
 * -1: none. */
static int card_of(const char *text, char **end)
{
    static const char name[] = "GPU-cacacaca-caca-caca-caca-cacacacaca";
    bool is_name = strncmp(text, name, sizeof name - 1) == 0;
    const char *number = is_name ? text + sizeof name - 1 : text;
    long card = strtol(number, end, is_name ? 16 : 10);

    return *end == number || card < 0 || card >= FAKE_MAX_DEVICES ? -1 : (int)card;
}

/* Read CUDA_VISIBLE_DEVICES: entries up to the first invalid one. */
static void choose_visible(struct fake_config *config)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int all = config->devices;

    for (int i = 0; i < all; i++) {
        config->visible[i] = i;
    }
    if (text == NULL) {
        return;
    }
    config->devices = 0;
    while (*text != '\0' && config->devices < all) {
        char *end;
        int card = card_of(text, &end);

        if (card < 0 || card >= all) {
            return;
        }
        config->visible[config->devices++] = card;
        text = *end == ',' ? end + 1 : end;
    }
}

/* As with a driver that waits for a card without an end. */
static void hang_for(int card)
{
    for (int i = 0; i < fake.config.devices; i++) {
        while (fake.config.visible[i] == card) {
            pause();
        }
    }
}

static void begin(void)
{
    struct fake_config *config = &fake.config;
    const char *name = getenv("CDDP_FAKE_CUDA_NAME");

    fake.owner = getpid();
    config->devices = (int)setting("DEVICES", 2);
    config->driver = (int)setting("DRIVER", 13000);
    config->memory = (size_t)setting("MEMORY", 4ll << 30);
    config->multiprocessors = (int)setting("MULTIPROCESSORS", 132);
    config->fail_alloc = (long)setting("FAIL_ALLOC", 0);
    config->fail_launch = (long)setting("FAIL_LAUNCH", 0);
    config->fail_card = (int)setting("FAIL_CARD", -1);
    config->launch_error = (int)setting("LAUNCH_ERROR", cudaErrorIllegalAddress);
    config->refuse_launch = (long)setting("REFUSE_LAUNCH", 0);
    config->fail_pin = (long)setting("FAIL_PIN", 0);
    config->refuse_capture = (long)setting("REFUSE_CAPTURE", 0);
    config->fail_graph = (long)setting("FAIL_GRAPH", 0);
    config->ipc = setting("IPC", 1) != 0;
    config->peers = setting("PEERS", 1) != 0;
    config->pools = setting("POOLS", 1) != 0;
    config->wait_value = setting("WAIT_VALUE", 1) != 0;
    config->parts = setting("PARTS", 0) != 0;
    config->idle_ns = setting("IDLE_US", 2000) * 1000;
    config->seed = (uint64_t)setting("SEED", 1);
    snprintf(config->name, sizeof config->name, "%s", name != NULL ? name : "");
    choose_visible(config);
    hang_for((int)setting("HANG_CARD", -1));
    fake.random = config->seed * 7919;
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) {
        fake.null_streams[i].device = i;
    }
}

/* The error that the driver returns before anything else. */
static cudaError_t driver_error(void)
{
    if (fake.owner != getpid()) {
        return cudaErrorInitializationError; /* a forked child of a process that used the runtime */
    }
    if (fake.config.driver < CUDART_VERSION / 1000 * 1000) {
        return cudaErrorInsufficientDriver;
    }
    return fake.config.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

/* cudaErrorNotReady is kept, too: if it is not cleared, the next check after a launch finds it. */
cudaError_t fake_keep(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

cudaError_t fake_enter(void)
{
    cudaError_t error;

    if (fake.owner != 0 && fake.owner != getpid()) {
        return fake_keep(cudaErrorInitializationError); /* the parent's lock may be held for ever */
    }
    pthread_mutex_lock(&fake.lock);
    if (fake.owner == 0) {
        begin();
    }
    error = driver_error();
    if (error == cudaSuccess) {
        error = fake.sticky;
    }
    return error == cudaSuccess ? error : fake_leave(error);
}

cudaError_t fake_enter_context(void)
{
    cudaError_t error = fake_enter();

    /* a call that waits for room may hold a driver lock that all other calls need */
    while (error == cudaSuccess && fake.full > 0) {
        pthread_cond_wait(&fake.changed, &fake.lock);
    }
    if (error == cudaSuccess && fake_device < 0) {
        fprintf(stderr, "fake_cuda: a thread that has chosen no device calls for a context\n");
        abort(); /* the caller may ignore errors */
    }
    return error;
}

cudaError_t fake_leave(cudaError_t error)
{
    pthread_mutex_unlock(&fake.lock);
    return fake_keep(error);
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t sticky = __atomic_load_n(&fake.sticky, __ATOMIC_RELAXED);

    return sticky != cudaSuccess ? sticky : last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();

    last_error = cudaSuccess;
    return error;
}

/* name, the real runtime's message (or a similar one) */
#define ERROR_MAP(X)                                                                               \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution")    \
    X(cudaErrorHardwareStackError, "hardware stack error")                                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                         \
    X(cudaErrorHostMemoryAlreadyRegistered,                                                        \
      "part or all of the requested memory range is already mapped")                               \
    X(cudaErrorHostMemoryNotRegistered,                                                            \
      "pointer does not correspond to a registered memory region")                                 \
    X(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed")                           \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                           \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")       \
    X(cudaErrorStreamCaptureInvalidated,                                                           \
      "operation failed due to a previous error during capture")                                   \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                        \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")  \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing "  \
                              "stream")                                                            \
    X(cudaErrorIllegalState, "the operation cannot be performed in the present state")

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define NAME_CASE(name, text)                                                                      \
    case name:                                                                                     \
        return #name;
        ERROR_MAP(NAME_CASE)
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define TEXT_CASE(name, text)                                                                      \
    case name:                                                                                     \
        return text;
        ERROR_MAP(TEXT_CASE)
    default:
        return "unknown error";
    }
}

cudaError_t cudaDriverGetVersion(int *version)
{
    pthread_mutex_lock(&fake.lock);
    if (fake.owner == 0) {
        begin();
    }
    *version = fake.config.driver;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = fake_enter();

    *count = 0;
    if (error == cudaSuccess) {
        *count = fake.config.devices;
        return fake_leave(cudaSuccess);
    }
    return error;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    if (device < 0 || device >= fake.config.devices) {
        return fake_leave(cudaErrorInvalidDevice);
    }
    fake_device = device;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    *device = fake_device;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = fake_enter();
    int card;

    if (error != cudaSuccess) {
        return error;
    }
    if (device < 0 || device >= fake.config.devices) {
        return fake_leave(cudaErrorInvalidDevice);
    }
    card = fake.config.visible[device];
    memset(properties, 0, sizeof *properties);
    if (fake.config.name[0] != '\0') {
        snprintf(properties->name, sizeof properties->name, "%s", fake.config.name);
    } else {
        snprintf(properties->name, sizeof properties->name, "Fake GPU %d", card);
    }
    memset(properties->uuid.bytes, 0xca, sizeof properties->uuid.bytes);
    properties->uuid.bytes[15] = (char)card;
    properties->totalGlobalMem = fake.config.memory;
    properties->major = 9;
    properties->multiProcessorCount = fake.config.multiprocessors;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->l2CacheSize = 50 << 20;
    properties->unifiedAddressing = 1;
    properties->pciBusID = card + 1;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    if (device < 0 || device >= fake.config.devices) {
        return fake_leave(cudaErrorInvalidDevice);
    }
    snprintf(out, (size_t)bytes, "0000:%02x:00.0",
             fake.config.parts ? 1 : fake.config.visible[device] + 1);
    return fake_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    if (device < 0 || device >= fake.config.devices) {
        return fake_leave(cudaErrorInvalidDevice);
    }
    switch (attribute) {
    case cudaDevAttrMemoryPoolsSupported:
        *value = fake.config.pools;
        break;
    case cudaDevAttrIpcEventSupport:
        *value = fake.config.ipc;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = fake.config.multiprocessors;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 227 << 10;
        break;
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrUnifiedAddressing:
        *value = 1;
        break;
    default:
        fprintf(stderr, "fake_cuda: nobody has asked for attribute %d before\n", (int)attribute);
        return fake_leave(cudaErrorInvalidValue);
    }
    return fake_leave(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    *can = fake.config.peers && device != peer;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess) {
        return error;
    }
    if (peer == fake_device || peer < 0 || peer >= fake.config.devices || flags != 0) {
        return fake_leave(cudaErrorInvalidDevice);
    }
    return fake_leave(fake.config.peers ? cudaSuccess : cudaErrorNotSupported);
}
