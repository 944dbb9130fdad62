/* device.h - CUDA devices in tests: each test in a process of its own, because the fake
 * runtime reads its settings once, and because CUDA does not survive a fork. */
#ifndef CDDP_TESTS_SUPPORT_DEVICE_H
#define CDDP_TESTS_SUPPORT_DEVICE_H

#include "base/clock.h"
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/gpu.h"
#include "support/test.h"

#include <math.h>

/* The emulated module is there: then its faults can be asked for. */
int device_is_emulated(void);

#define NEEDS_EMULATED_MODULE()                                                                    \
    do {                                                                                           \
        if (!device_is_emulated()) {                                                               \
            print_message("skipped: there is no emulated module (no CUDA headers)\n");             \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* What does not depend on the fake runtime runs on a GPU, too. */
#define NEEDS_DEVICE()                                                                             \
    do {                                                                                           \
        if (gpu_count() == 0) {                                                                    \
            NEEDS_EMULATED_MODULE();                                                               \
        }                                                                                          \
    } while (0)

/* In a rank: what is said with status @p want. */
#define CHECK_FAILS(call, want, text)                                                              \
    do {                                                                                           \
        cddp_status got_status = (call);                                                           \
        if (got_status != (want) || strstr(cddp_last_error(), (text)) == NULL) {                   \
            fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, got_status,        \
                    cddp_last_error());                                                            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Run @p body in a process with settings "NAME=VALUE" of the fake runtime; 0: all was well. */
int in_process(rank_fn body, void *argument, const char *const *settings);

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* How many of @p seeds orders of the streams @p body did not like. */
int orders_that_fail(rank_fn body, int seeds);

/* In a rank: a device, or its text and NULL. */
struct cddpi_device *open_cuda(void);

#endif
