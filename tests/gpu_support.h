/* gpu_support.h - tests on a real GPU: scripts/gpu-test sets CDDP_TEST_GPU to their number. Then
 * tests that otherwise run on the emulated module take the real one where nothing in them asks the
 * fake runtime for something; those that need its faults, or its orders of streams, skip
 * themselves. */
#ifndef CDDP_TESTS_GPU_SUPPORT_H
#define CDDP_TESTS_GPU_SUPPORT_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool gpu_is_real(void)
{
    return getenv("CDDP_TEST_GPU") != NULL;
}

/* As scripts/gpu-test says: to ask CUDA takes a process of its own, each time as long as a test. */
static inline int gpu_count(void)
{
    return gpu_is_real() ? atoi(getenv("CDDP_TEST_GPU")) : 0;
}

/* A GPU has one order of streams: two runs are enough to see that the second finds all as the
 * first. */
static inline int gpu_runs(int runs)
{
    return gpu_is_real() && runs > 2 ? 2 : runs;
}

/* Whether NCCL lets ranks share a GPU, which it does from 2.30.3 on if it is told to: it is, then.
 */
static inline bool gpu_nccl_shares(void)
{
    static int version = -1;
    int (*get_version)(int *) = NULL;
    void *nccl;

    if (version < 0) {
        version = 0;
        nccl = gpu_is_real() ? dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) : NULL;
        if (nccl != NULL) {
            *(void **)&get_version = dlsym(nccl, "ncclGetVersion");
        }
        if (get_version != NULL && get_version(&version) != 0) {
            version = 0;
        }
    }
    if (version >= 23003) {
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    }
    return version >= 23003;
}

/* Ranks start slowly there, and NCCL before 2.30.3 wants a GPU for each. */
static inline bool gpu_is_beyond(const char *plane, int ranks)
{
    return gpu_is_real() &&
           (ranks > 4 || (strcmp(plane, "nccl") == 0 && ranks > gpu_count() && !gpu_nccl_shares()));
}

#endif
