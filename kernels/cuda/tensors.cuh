/* tensors.cuh - the layout of a table of tensors (struct cddpi_cuda_tensors) in device memory:
 * entries, scalars that an update computes for each tensor, pieces, and a sum of squares. */
#ifndef CDDPI_CUDA_TENSORS_CUH
#define CDDPI_CUDA_TENSORS_CUH

#include "base/exact_sum.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

/* Elements of a piece, which is the work of one block: enough that finding the piece costs little,
 * few enough that 132 multiprocessors finish at about the same time. */
static constexpr size_t CDDPI_PIECE = 16384;

struct tensor_entry {
    float *param;
    const float *grad;
    float *first, *second;
    void *copy;
    int64_t *steps;
    uint64_t count;
    uint32_t decays;
    uint32_t packed; /* all pointers above are 16-byte aligned */
};

/* adamw: for the current step */
struct tensor_scalars {
    float step_size, correction2;
};

struct tensor_piece {
    uint32_t tensor;
    uint32_t index; /* of the piece in its tensor */
};

struct tensor_table {
    tensor_entry *entries;
    tensor_scalars *scalars;
    tensor_piece *pieces;
    struct cddpi_exact_sum *squares; /* zero, but within the kernel `squares` */
    size_t bytes;
};

/* @p memory nullptr: to compute `bytes`. */
inline tensor_table tensor_table_at(void *memory, size_t slots, size_t pieces)
{
    uintptr_t begin = (uintptr_t)memory;
    uintptr_t scalars = begin + slots * sizeof(tensor_entry);
    uintptr_t work = scalars + slots * sizeof(tensor_scalars);
    uintptr_t squares = work + pieces * sizeof(tensor_piece);
    uintptr_t end = squares + (pieces > 0 ? sizeof(struct cddpi_exact_sum) : 0);

    return {(tensor_entry *)begin, (tensor_scalars *)scalars, (tensor_piece *)work,
            (struct cddpi_exact_sum *)squares, end - begin};
}

#endif
