/* driver.c - functions of the driver, found through the runtime: the module links no libcuda, so it
 * can be opened, and say what is missing, where there is no driver. */
#include "device/cuda/cuda_device.h"

void *cuda_driver_symbol(const char *name)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
#if CUDART_VERSION >= 12050
    /* the form that functions had in 12.0, the oldest driver that can be here */
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
