/* device.c - CUDA devices in tests. */
#include "support/device.h"

int device_is_emulated(void)
{
    const char *module = getenv("CDDP_CUDA_MODULE");

    return module != NULL && strstr(module, "emulated") != NULL;
}

int in_process(rank_fn body, void *argument, const char *const *settings)
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

int orders_that_fail(rank_fn body, int seeds)
{
    int failed = 0;

    for (int seed = 1; seed <= gpu_runs(seeds); seed++) {
        support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
        failed += run_ranks(1, body, NULL);
    }
    unsetenv("CDDP_FAKE_CUDA_SEED");
    return failed;
}

struct cddpi_device *open_cuda(void)
{
    struct cddpi_device *device = NULL;

    if (cddpi_device_open("cuda", 0, 1, 0, 1, false, &device) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    return device;
}
