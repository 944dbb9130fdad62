/* fake_loaded.cpp - which kernels each device has loaded. A launch of one that it has not is what the
 * module promises never to do (kernels/cuda/loaded.h). */
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

static std::mutex lock;
static std::set<std::pair<int, const void *>> loaded;

static int this_device()
{
    int device = 0;

    (void)cudaGetDevice(&device);
    return device;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    const std::lock_guard<std::mutex> guard(lock);

    if (getenv("CDDP_FAKE_CUDA_NO_CODE") != nullptr) {
        return cudaErrorNoKernelImageForDevice;
    }
    *attributes = cudaFuncAttributes{};
    loaded.insert({this_device(), kernel});
    return cudaSuccess;
}

extern "C" bool fake_cuda_has_loaded(const void *kernel)
{
    const std::lock_guard<std::mutex> guard(lock);

    return loaded.count({this_device(), kernel}) != 0;
}
