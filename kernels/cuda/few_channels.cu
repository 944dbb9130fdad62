/* few_channels.cu - pads images to whole vectors of channels, and copies gradients back.
 *
 * 16-bit numbers are moved without conversion. A thread handles ROWS pixels, one block apart, and
 * requests their channels at once; it writes each pixel with one store. For 256 images of 224 x 224
 * x 3 that is 0.08 GB read and 0.21 GB written. */
#include "kernels/cuda/own_kernels.h"
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256, ROWS = 4, MOST_BLOCKS = 65535, WHOLE = CDDPI_WHOLE_CHANNELS };

__global__ void __launch_bounds__(BLOCK) pad_channels(const uint16_t *__restrict__ x, size_t rows,
                                                      int channels, uint16_t *__restrict__ out)
{
    size_t first = (size_t)blockIdx.x * BLOCK * ROWS + threadIdx.x;
    unsigned element[ROWS][WHOLE];

    CDDPI_UNROLL
    for (int i = 0; i < ROWS; i++) {
        size_t row = first + (size_t)(i * BLOCK);
        const uint16_t *from = x + row * (size_t)channels;

        CDDPI_UNROLL
        for (int c = 0; c < WHOLE; c++) {
            element[i][c] = row < rows && c < channels ? from[c] : 0;
        }
    }
    CDDPI_UNROLL
    for (int i = 0; i < ROWS; i++) {
        size_t row = first + (size_t)(i * BLOCK);
        const unsigned(&e)[WHOLE] = element[i];

        if (row < rows) {
            store_words(out + row * WHOLE, make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16,
                                                      e[4] | e[5] << 16, e[6] | e[7] << 16));
        }
    }
}

/* Filters are small: one element for each thread. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    add_channels(const T *__restrict__ x, size_t count, unsigned channels, bool add,
                 float *__restrict__ out)
{
    size_t step = (size_t)gridDim.x * BLOCK;

    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < count; i += step) {
        out[i] = (add ? out[i] : 0) + to_float(x[i / channels * WHOLE + i % channels]);
    }
}

size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

template <class T>
cddp_status add_channels_as(cddpi_device *device, const void *x, size_t rows, int channels,
                            bool add, float *out)
{
    size_t count = rows * (size_t)channels;
    size_t blocks = smaller(cddpi_ceil(count, BLOCK), MOST_BLOCKS);
    cudaError_t error = count == 0 ? cudaSuccess
                                   : CDDPI_LAUNCH(add_channels<T>, (unsigned)blocks, BLOCK, 0,
                                                  cddpi_cuda_compute_stream(device),
                                                  static_cast<const T *>(x), count,
                                                  (unsigned)channels, add, out);

    return CDDPI_STARTED(device, "add_channels", error);
}

/* Check that the grid covers all rows, and that the type has 16 bits. */
cddp_status check(cddpi_device *device, cddp_type type, size_t rows, int channels)
{
    if (cddp_type_bytes(type) != sizeof(uint16_t) || channels < 1 || channels > WHOLE) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
                         "pad_channels: %d channels of type %d are not 1 to %d of 16 bits",
                         channels, (int)type, (int)WHOLE);
    }
    if (rows > (size_t)INT32_MAX * BLOCK * ROWS) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "pad_channels: %zu rows are too many at once",
                         rows);
    }
    return CDDP_OK;
}
} // namespace

cddp_status cddpi_cuda_pad_channels(cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, void *out)
{
    cddp_status status = check(device, type, rows, channels);

    if (status != CDDP_OK || rows == 0) {
        return status;
    }
    return CDDPI_STARTED(device, "pad_channels",
                         CDDPI_LAUNCH(pad_channels, (unsigned)cddpi_ceil(rows, BLOCK * ROWS), BLOCK,
                                      0, cddpi_cuda_compute_stream(device),
                                      static_cast<const uint16_t *>(x), rows, channels,
                                      static_cast<uint16_t *>(out)));
}

cddp_status cddpi_cuda_add_channels(cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, bool add, float *out)
{
    cddp_status status = check(device, type, rows, channels);

    return status != CDDP_OK
               ? status
               : CDDPI_BY_TYPE(type, add_channels_as, device, x, rows, channels, add, out);
}

void cddpi_cuda_fill_few_channels(struct cddpi_cuda_kernels *out)
{
    out->pad_channels = cddpi_cuda_pad_channels;
    out->add_channels = cddpi_cuda_add_channels;
}
