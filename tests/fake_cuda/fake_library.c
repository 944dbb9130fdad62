/* fake_library.c - replaces kernels/cuda/library.c: NVIDIA's libraries are the fakes that are
 * linked into the emulated module. $CDDP_FAKE_CUDA_WITHOUT lists the missing ones: "cublasLt",
 * "cudnn", "nccl". */
#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cddp_status cuda_library_open(enum cuda_library library, void **out)
{
    static const char *const names[CUDA_LIBRARY_COUNT] = {"cublasLt", "cudnn", "nccl"};
    static const char *const symbols[CUDA_LIBRARY_COUNT] = {"cublasLtCreate", "cudnnCreate",
                                                            "ncclGetVersion"};
    const char *without = getenv("CDDP_FAKE_CUDA_WITHOUT");
    Dl_info self;
    void *handle = NULL;

    if (dladdr((const void *)names, &self) != 0) {
        handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    if (handle == NULL || dlsym(handle, symbols[library]) == NULL ||
        (without != NULL && strstr(without, names[library]) != NULL)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "lib%s.so cannot be opened: the emulated module has none",
                          names[library]);
    }
    *out = handle;
    return CDDP_OK;
}

void cuda_libraries_describe(char *out, size_t bytes)
{
    snprintf(out, bytes, "from the emulated module");
}

void *cuda_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
