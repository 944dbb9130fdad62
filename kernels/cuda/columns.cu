/* columns.cu - copies some columns of a matrix out of it or back: the channels of one group of a
 * convolution. Each element is read and written once, in units of 16 bytes if alignment allows it.
 */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { THREADS = 256, MOST_BLOCKS = 16 * 132 };

/* Unit: 16 bytes, or one element; all counts are in units. */
template <class Unit>
__global__ void copy_columns(const Unit *from, size_t from_stride, size_t rows, size_t columns,
                             Unit *to, size_t to_stride)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += step) {
        to[i / columns * to_stride + i % columns] = from[i / columns * from_stride + i % columns];
    }
}

template <class Unit>
cudaError_t start(cddpi_device *device, const void *from, size_t from_stride, size_t rows,
                  size_t columns, void *to, size_t to_stride)
{
    size_t blocks = cddpi_ceil(rows * columns, THREADS);

    return CDDPI_LAUNCH(copy_columns<Unit>,
                        blocks < MOST_BLOCKS ? (unsigned)blocks : (unsigned)MOST_BLOCKS, THREADS, 0,
                        cddpi_cuda_compute_stream(device), static_cast<const Unit *>(from),
                        from_stride, rows, columns, static_cast<Unit *>(to), to_stride);
}

/* Addresses are aligned if all numbers are multiples of a vector's length. */
template <class T>
cddp_status copy_as(cddpi_device *device, const char *from, size_t from_stride, size_t rows,
                    size_t columns, char *to, size_t to_stride, bool aligned)
{
    constexpr size_t N = packed<T>::N;
    cudaError_t error = rows * columns == 0 ? cudaSuccess
                        : aligned
                            ? start<uint4>(device, from, from_stride / N, rows, columns / N, to,
                                           to_stride / N)
                            : start<T>(device, from, from_stride, rows, columns, to, to_stride);

    return CDDPI_STARTED(device, "copy of columns", error);
}

bool is_aligned(cddp_type type, size_t all, size_t first, size_t columns)
{
    size_t vector = 16 / cddp_type_bytes(type);

    return all % vector == 0 && first % vector == 0 && columns % vector == 0;
}

cddp_status take_columns(cddpi_device *device, cddp_type type, const void *x, size_t rows,
                         size_t all, size_t first, size_t columns, void *out)
{
    return CDDPI_BY_TYPE(
        type, copy_as, device, static_cast<const char *>(x) + first * cddp_type_bytes(type), all,
        rows, columns, static_cast<char *>(out), columns, is_aligned(type, all, first, columns));
}

cddp_status put_columns(cddpi_device *device, cddp_type type, const void *x, size_t rows,
                        size_t all, size_t first, size_t columns, void *out)
{
    return CDDPI_BY_TYPE(type, copy_as, device, static_cast<const char *>(x), columns, rows,
                         columns, static_cast<char *>(out) + first * cddp_type_bytes(type), all,
                         is_aligned(type, all, first, columns));
}
} // namespace

void cddpi_cuda_fill_columns(struct cddpi_cuda_kernels *out)
{
    out->take_columns = take_columns;
    out->put_columns = put_columns;
}
