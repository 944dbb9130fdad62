/* empty_driver.c - a libcuda.so.1 without a device, for libraries that need a driver to load
 * compiled code: cuDNN's plans for a GPU that is only described. Loading succeeds and returns empty
 * handles. All other calls return the error of NVIDIA's stub library. */
#include <stddef.h>

enum { SUCCESS = 0, STUB = 34 }; /* CUDA_ERROR_STUB_LIBRARY */

#define EXPORT __attribute__((visibility("default")))

/* Calls that return a handle through their first argument. */
#define GIVES(name)                                                                                \
    EXPORT int name(void **out);                                                                   \
    int name(void **out)                                                                           \
    {                                                                                              \
        static char nothing;                                                                       \
        *out = &nothing;                                                                           \
        return SUCCESS;                                                                            \
    }
#define ANSWERS(name, code)                                                                        \
    EXPORT int name(void);                                                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return code;                                                                               \
    }

GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuKernelGetFunction)
ANSWERS(cuLibraryUnload, SUCCESS)
ANSWERS(cuLibraryLoadFromFile, SUCCESS)
ANSWERS(cuKernelSetAttribute, SUCCESS)
ANSWERS(cuKernelGetAttribute, SUCCESS)
ANSWERS(cuModuleLoadData, SUCCESS)
ANSWERS(cuModuleLoadDataEx, SUCCESS)
ANSWERS(cuModuleLoadFatBinary, SUCCESS)
ANSWERS(cuModuleUnload, SUCCESS)
ANSWERS(cuModuleGetFunction, SUCCESS)
ANSWERS(cuModuleGetGlobal_v2, SUCCESS)
ANSWERS(cuFuncSetAttribute, SUCCESS)
ANSWERS(cuFuncGetAttribute, SUCCESS)
ANSWERS(cuOccupancyMaxActiveBlocksPerMultiprocessor, SUCCESS)
ANSWERS(cuOccupancyMaxPotentialClusterSize, SUCCESS)
ANSWERS(cuInit, STUB)
ANSWERS(cuDriverGetVersion, STUB)
ANSWERS(cuDeviceGet, STUB)
ANSWERS(cuDeviceGetCount, STUB)
ANSWERS(cuDeviceGetAttribute, STUB)
ANSWERS(cuDevicePrimaryCtxRetain, STUB)
ANSWERS(cuDevicePrimaryCtxRelease, STUB)
ANSWERS(cuDevicePrimaryCtxReset, STUB)
ANSWERS(cuCtxGetCurrent, STUB)
ANSWERS(cuCtxGetDevice, STUB)
ANSWERS(cuCtxGetLimit, STUB)
ANSWERS(cuCtxPushCurrent, STUB)
ANSWERS(cuCtxPopCurrent, STUB)
ANSWERS(cuStreamGetCtx, STUB)
ANSWERS(cuStreamSynchronize, STUB)
ANSWERS(cuGetErrorName, STUB)
ANSWERS(cuGetErrorString, STUB)
ANSWERS(cuGetProcAddress, STUB)
ANSWERS(cuGetProcAddress_v2, STUB)
ANSWERS(cuLaunchKernel, STUB)
ANSWERS(cuLaunchKernelEx, STUB)
ANSWERS(cuLaunchCooperativeKernel, STUB)
ANSWERS(cuLinkCreate, STUB)
ANSWERS(cuLinkCreate_v2, STUB)
ANSWERS(cuLinkAddData, STUB)
ANSWERS(cuLinkAddData_v2, STUB)
ANSWERS(cuLinkAddFile_v2, STUB)
ANSWERS(cuLinkComplete, STUB)
ANSWERS(cuLinkDestroy, STUB)
ANSWERS(cuMemcpyDtoH_v2, STUB)
ANSWERS(cuTensorMapEncodeIm2col, STUB)
ANSWERS(cuTensorMapEncodeTiled, STUB)
