/* connections.c - owns CUDA_DEVICE_MAX_CONNECTIONS, the number of hardware queues for the process's
 * streams. The driver reads the variable once, when it is initialised. A rank has a stream for each
 * peer that it sends to or receives from, and the stream waits for that peer. Two such streams in
 * one queue would wait for each other. CUDA's default of 8 queues is too few: even 4 ranks may have
 * more streams.
 *
 * A rank alone waits for nobody, so it does not pay for more queues: on an H100 (driver 580) a
 * context takes 0.18 s to create and 0.10 s to destroy with 8 queues, and 0.63 s and 0.38 s with
 * 32. */
#include "device/cuda/cuda_internal.h"

#include "base/log.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define WANTED "32" /* the maximum in CUDA */

enum origin { UNDECIDED, LEFT_ALONE, SET_HERE, FROM_ENVIRONMENT, TOO_LATE };

static _Atomic int decided = UNDECIDED;

/* Whether other code in this process, such as the embedding trainer, has initialised the driver.
 * RTLD_NOLOAD does not load the driver: one that is not loaded is not initialised. */
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

static bool environment_decides(void)
{
    const char *value = getenv(VARIABLE);

    return value != NULL && value[0] != '\0';
}

void cuda_connections_prepare(bool has_peers)
{
    int before = atomic_load(&decided);

    if (before != UNDECIDED && (before != LEFT_ALONE || !has_peers)) {
        return;
    }
    if (before == UNDECIDED && environment_decides()) {
        atomic_store(&decided, FROM_ENVIRONMENT);
    } else if (!has_peers) {
        atomic_store(&decided, LEFT_ALONE); /* the caller initialises CUDA next */
    } else if (before == LEFT_ALONE || driver_is_initialised()) {
        atomic_store(&decided, TOO_LATE);
        cddpi_log(CDDPI_LOG_WARN,
                  "CUDA was in use in this process before the devices of several ranks were "
                  "opened, with its default of 8 hardware queues. Streams that wait for peers may "
                  "need more, else they can wait for each other: set " VARIABLE "=" WANTED
                  " before CUDA is first used");
    } else {
        (void)setenv(VARIABLE, WANTED, 1);
        atomic_store(&decided, SET_HERE);
    }
}

void cuda_connections_describe(char *out, size_t bytes)
{
    int origin = atomic_load(&decided);

    if (origin == UNDECIDED && environment_decides()) {
        origin = FROM_ENVIRONMENT;
    } else if (origin == UNDECIDED && driver_is_initialised()) {
        origin = TOO_LATE;
    }
    switch (origin) {
    case LEFT_ALONE:
        snprintf(out, bytes, "CUDA's default: this process opened a device for one rank alone");
        break;
    case SET_HERE:
        snprintf(out, bytes, WANTED ": cddp has set " VARIABLE " for several ranks");
        break;
    case FROM_ENVIRONMENT:
        snprintf(out, bytes, "%s: " VARIABLE " was set by the environment", getenv(VARIABLE));
        break;
    case TOO_LATE:
        snprintf(out, bytes,
                 "CUDA's default: CUDA was in use before the devices of several ranks were opened, "
                 "so " VARIABLE " could not be set any more");
        break;
    default:
        snprintf(out, bytes,
                 WANTED " where there are several ranks: cddp sets " VARIABLE
                        " when it opens a device; CUDA's default for a rank alone");
        break;
    }
}
