/* scratch.c - owns the scratch memory of kernels.
 *
 * A block that has become too small is kept until the device is closed, because captured graphs
 * contain its address. Sizes double, so all blocks together take less than twice the last one. */
#include "kernels/cuda/kernels_module.h"

#include "base/alloc.h"
#include "base/error.h"

enum { SMALLEST = 2 << 20, MOST_BLOCKS = 40 };

struct scratch {
    void *blocks[MOST_BLOCKS]; /* the last block is in use */
    int count;
    size_t bytes;
};

bool cddpi_cuda_capturing(struct cddpi_device *device)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(cddpi_cuda_compute_stream(device), &capture);

    return error == cudaSuccess && capture != cudaStreamCaptureStatusNone;
}

static void release(struct cddpi_device *device, void *state)
{
    struct scratch *scratch = state;

    while (scratch->count > 0) {
        cddpi_cuda_release(device, scratch->blocks[--scratch->count]);
    }
    cddpi_free(scratch);
}

static cddp_status get_scratch(struct cddpi_device *device, struct scratch **out)
{
    struct cddpi_cuda_cache *slot = cddpi_cuda_cache(device, CDDPI_CUDA_CACHE_SCRATCH);

    if (slot->state == NULL) {
        struct scratch *scratch = cddpi_zalloc(sizeof *scratch);

        if (scratch == NULL) {
            return cuda_fail(device, CDDP_ERR_NO_MEMORY, "scratch: no memory for %zu bytes",
                             sizeof *scratch);
        }
        *slot = (struct cddpi_cuda_cache){scratch, release};
    }
    *out = slot->state;
    return CDDP_OK;
}

size_t cddpi_cuda_scratch_first_use_bytes(struct cddpi_device *device)
{
    const struct scratch *scratch = cddpi_cuda_cache(device, CDDPI_CUDA_CACHE_SCRATCH)->state;

    return scratch == NULL || scratch->count == 0 ? SMALLEST : 0;
}

static cddp_status grow_scratch(struct cddpi_device *device, struct scratch *scratch, size_t bytes)
{
    size_t wanted = scratch->bytes > 0 ? 2 * scratch->bytes : SMALLEST;
    void *block;
    cddp_status status;

    while (wanted < bytes) {
        wanted *= 2;
    }
    if (scratch->count == MOST_BLOCKS || cddpi_cuda_capturing(device)) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "scratch: %zu bytes are wanted while work is captured, %zu are "
                         "there: run a step first",
                         bytes, scratch->bytes);
    }
    status = cddpi_cuda_alloc(device, wanted, "scratch", &block);
    if (status != CDDP_OK && wanted > bytes) { /* the exact size may still fit */
        wanted = bytes;
        status = cddpi_cuda_alloc(device, wanted, "scratch", &block);
    }
    if (status == CDDP_OK) {
        scratch->blocks[scratch->count++] = block;
        scratch->bytes = wanted;
    }
    return status;
}

cddp_status cddpi_cuda_scratch(struct cddpi_device *device, size_t bytes, void **out)
{
    struct scratch *scratch = NULL;

    CDDPI_TRY(get_scratch(device, &scratch));
    if (bytes > scratch->bytes || scratch->count == 0) {
        CDDPI_TRY(grow_scratch(device, scratch, bytes));
    }
    *out = scratch->blocks[scratch->count - 1];
    return CDDP_OK;
}
