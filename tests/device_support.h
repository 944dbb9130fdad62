/* device_support.h - CUDA devices in tests: each test in a process of its own, because the fake
 * runtime reads its settings once, and because CUDA does not survive a fork. */
#ifndef CDDP_TESTS_DEVICE_SUPPORT_H
#define CDDP_TESTS_DEVICE_SUPPORT_H

#include "base/clock.h"
#include "device/device.h"
#include "gpu_support.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support.h"

#include <math.h>

/* The emulated module is there: then its faults can be asked for. */
static inline int device_is_emulated(void)
{
    const char *module = getenv("CDDP_CUDA_MODULE");

    return module != NULL && strstr(module, "emulated") != NULL;
}

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

/* In a rank: what is said with status @want. */
#define CHECK_FAILS(call, want, text)                                                              \
    do {                                                                                           \
        cddp_status got_status = (call);                                                           \
        if (got_status != (want) || strstr(cddp_last_error(), (text)) == NULL) {                   \
            fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, got_status,        \
                    cddp_last_error());                                                            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Run @body in a process with settings "NAME=VALUE" of the fake runtime; 0: all was well. */
static inline int in_process(rank_fn body, void *argument, const char *const *settings)
{
    char *kept[8] = {NULL};
    char names[8][64];
    int count = 0;
    int failed;

    for (; settings != NULL && settings[count] != NULL; count++) {
        const char *value = strchr(settings[count], '=');

        snprintf(names[count], sizeof names[count], "%.*s", (int)(value - settings[count]),
                 settings[count]);
        kept[count] = getenv(names[count]) != NULL ? strdup(getenv(names[count])) : NULL;
        setenv(names[count], value + 1, 1);
    }
    failed = run_ranks(1, body, argument);
    for (int i = 0; i < count; i++) {
        if (kept[i] != NULL) {
            setenv(names[i], kept[i], 1);
        } else {
            unsetenv(names[i]);
        }
        free(kept[i]);
    }
    return failed;
}

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* How many of @seeds orders of the streams @body did not like. */
static inline int orders_that_fail(rank_fn body, int seeds)
{
    int failed = 0;

    for (int seed = 1; seed <= gpu_runs(seeds); seed++) {
        support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
        failed += run_ranks(1, body, NULL);
    }
    unsetenv("CDDP_FAKE_CUDA_SEED");
    return failed;
}

/* In a rank: a device, or its text and NULL. */
static inline struct cddpi_device *open_cuda(void)
{
    struct cddpi_device *device = NULL;

    if (cddpi_device_open("cuda", 0, 0, 1, false, &device) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    return device;
}

#endif
