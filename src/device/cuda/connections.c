/* connections.c - owns CUDA_DEVICE_MAX_CONNECTIONS: how many hardware queues the process's streams
 * are spread over. The driver reads it once, when it is initialised. Each peer that a rank sends to
 * or receives from has a stream that waits for that peer; two streams in one queue would wait for
 * each other, and CUDA's default of 8 queues is fewer than 4 ranks may have streams. */
#include "device/cuda/internal.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define WANTED "32" /* the most that CUDA knows */

enum origin { UNDECIDED, SET_HERE, FROM_ENVIRONMENT, TOO_LATE };

static _Atomic int decided = UNDECIDED;

/* Whether someone in this process, such as a trainer of its own, has initialised the driver. It is
 * asked without opening it: a driver that is not loaded is not initialised. */
static bool driver_is_initialised(void)
{
    CUresult (*count_devices)(int *);
    int count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    bool initialised = false;

    if (driver != NULL) {
        *(void **)&count_devices = dlsym(driver, "cuDeviceGetCount");
        initialised = count_devices != NULL && count_devices(&count) != CUDA_ERROR_NOT_INITIALIZED;
        (void)dlclose(driver);
    }
    return initialised;
}

void cuda_connections_prepare(void)
{
    const char *value = getenv(VARIABLE);

    if (atomic_load(&decided) != UNDECIDED) {
        return;
    }
    if (value != NULL && value[0] != '\0') {
        atomic_store(&decided, FROM_ENVIRONMENT);
    } else if (driver_is_initialised()) {
        atomic_store(&decided, TOO_LATE);
    } else {
        (void)setenv(VARIABLE, WANTED, 1);
        atomic_store(&decided, SET_HERE);
    }
}

void cuda_connections_describe(char *out, size_t bytes)
{
    const char *value = getenv(VARIABLE);

    switch (atomic_load(&decided)) {
    case SET_HERE:
        snprintf(out, bytes, "%s: cddp sets " VARIABLE " when it opens a device", value);
        break;
    case FROM_ENVIRONMENT:
        snprintf(out, bytes, "%s: " VARIABLE " was set by the environment", value);
        break;
    case TOO_LATE:
        snprintf(out, bytes,
                 "CUDA's default: CUDA was used before cddp, so " VARIABLE
                 " could not be set any more");
        break;
    default:
        snprintf(out, bytes, "not decided yet");
        break;
    }
}
