/* gpu.c - tests on real GPUs: scripts/gpu-test sets CDDP_TEST_GPU to their number. */
#include "support/gpu.h"

bool gpu_is_real(void)
{
    return getenv("CDDP_TEST_GPU") != NULL;
}

int gpu_count(void)
{
    return gpu_is_real() ? atoi(getenv("CDDP_TEST_GPU")) : 0;
}

int gpu_runs(int runs)
{
    return gpu_is_real() && runs > 2 ? 2 : runs;
}

bool gpu_nccl_shares(void)
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

bool gpu_is_beyond(const char *transport, int ranks)
{
    return gpu_is_real() && (ranks > 4 || (strcmp(transport, "nccl") == 0 && ranks > gpu_count() &&
                                           !gpu_nccl_shares()));
}
