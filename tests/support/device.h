/* device.h - CUDA devices in tests. Each test runs in its own process, because the fake runtime
 * reads its settings once, and because CUDA does not survive a fork. */
#ifndef CDDP_TESTS_SUPPORT_DEVICE_H
#define CDDP_TESTS_SUPPORT_DEVICE_H

#include "base/clock.h"
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/gpu.h"
#include "support/test.h"

#include <math.h>

/* Whether the emulated module is in use, so that its faults can be requested. */
int device_is_emulated(void);

#define NEEDS_EMULATED_MODULE()                                                                    \
    do {                                                                                           \
        if (!device_is_emulated()) {                                                               \
            print_message("skipped: there is no emulated module (no CUDA headers)\n");             \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* For tests that do not depend on the fake runtime, and so also run on a GPU. */
#define NEEDS_DEVICE()                                                                             \
    do {                                                                                           \
        if (gpu_count() == 0) {                                                                    \
            NEEDS_EMULATED_MODULE();                                                               \
        }                                                                                          \
    } while (0)

/* In a rank: check that @p call fails with status @p want and a message that contains @p text. */
#define CHECK_FAILS(call, want, text)                                                              \
    do {                                                                                           \
        cddp_status got_status = (call);                                                           \
        if (got_status != (want) || strstr(cddp_last_error(), (text)) == NULL) {                   \
            fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, got_status,        \
                    cddp_last_error());                                                            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Run @p body in a process with settings "NAME=VALUE" of the fake runtime. Returns 0 if it
 * succeeded. */
int in_process(rank_fn body, void *argument, const char *const *settings);

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Run @p body with @p seeds different orders of the streams. Returns how many failed. */
int orders_that_fail(rank_fn body, int seeds);

/* In a rank: open a device. On failure, print why and return NULL. */
struct cddpi_device *open_cuda(void);

#endif
