/* fake_loaded.cpp - knows which kernels a device of this process has loaded. The module promises
 * never to launch one that is not loaded (kernels/cuda/kernels_module.h). */
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <mutex>
#include <set>

static std::mutex lock;
static std::set<const void *> loaded;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    const std::lock_guard<std::mutex> guard(lock);

    if (getenv("CDDP_FAKE_CUDA_NO_CODE") != nullptr) {
        return cudaErrorNoKernelImageForDevice;
    }
    *attributes = cudaFuncAttributes{};
    loaded.insert(kernel);
    return cudaSuccess;
}

extern "C" bool fake_cuda_has_loaded(const void *kernel)
{
    const std::lock_guard<std::mutex> guard(lock);

    return loaded.count(kernel) != 0;
}
