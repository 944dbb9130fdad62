/* driver.c - looks up driver functions through the runtime. The module does not link libcuda, so
 * that it can be opened without a driver and say what is missing. */
#include "device/cuda/cuda_device.h"

void *cuda_driver_symbol(const char *name)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
#if CUDART_VERSION >= 12050
    /* 12000: the functions' form in CUDA 12.0, the oldest driver that this module supports */
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault,
                                                         &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return found == cudaDriverEntryPointSuccess ? function : NULL;
}
