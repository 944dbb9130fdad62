/* fake_library.c - replaces kernels/cuda/library.c: NVIDIA's libraries are the fakes that are
 * linked into the emulated module. $CDDP_FAKE_CUDA_WITHOUT lists the missing ones: "cublasLt",
 * "cudnn", "nccl", "nvml". */
#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* @p symbol: a function of the library @p name. */
static cddp_status open_fake(const char *name, const char *symbol, void **out)
{
    static const char own = 0;
    const char *without = getenv("CDDP_FAKE_CUDA_WITHOUT");
    Dl_info self;
    void *handle = NULL;

    if (dladdr(&own, &self) != 0) {
        handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    if (handle == NULL || dlsym(handle, symbol) == NULL ||
        (without != NULL && strstr(without, name) != NULL)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "lib%s.so cannot be opened: the emulated module has none", name);
    }
    *out = handle;
    return CDDP_OK;
}

cddp_status cuda_library_open(enum cuda_library library, void **out)
{
    static const char *const names[CUDA_LIBRARY_COUNT] = {"cublasLt", "cudnn", "nccl"};
    static const char *const symbols[CUDA_LIBRARY_COUNT] = {"cublasLtCreate", "cudnnCreate",
                                                            "ncclGetVersion"};

    return open_fake(names[library], symbols[library], out);
}

cddp_status cuda_nvml_open(void **out)
{
    return open_fake("nvml", "nvmlInit_v2", out);
}

void cuda_libraries_describe(char *out, size_t bytes)
{
    snprintf(out, bytes, "from the emulated module");
}

void *cuda_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
