/* tensors.cuh - how a table of tensors (struct cddpi_cuda_tensors) lies in device memory: entries,
 * what an update finds out for each, pieces, and a sum for each piece. */
#ifndef CDDPI_CUDA_TENSORS_CUH
#define CDDPI_CUDA_TENSORS_CUH

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

/* Elements of a piece, the work of one block: enough that finding them costs little, few enough
 * that 132 processors end at about the same time. */
static constexpr size_t CDDPI_PIECE = 16384;

struct tensor_entry {
    float *param;
    const float *grad;
    float *first, *second;
    void *copy;
    int64_t *steps;
    uint64_t count;
    uint32_t decays;
    uint32_t packed; /* all of these pointers are 16-byte aligned */
};

/* adamw's, of this step */
struct tensor_scalars {
    float step_size, correction2;
};

struct tensor_piece {
    uint32_t tensor;
    uint32_t index; /* in it */
};

struct tensor_table {
    tensor_entry *entries;
    tensor_scalars *scalars;
    tensor_piece *pieces;
    double *sums;
    size_t bytes;
};

inline tensor_table tensor_table_at(void *memory, size_t slots, size_t pieces)
{
    char *at = (char *)memory;
    tensor_table table;

    table.entries = (tensor_entry *)at;
    at += slots * sizeof(tensor_entry);
    table.scalars = (tensor_scalars *)at;
    at += slots * sizeof(tensor_scalars);
    table.pieces = (tensor_piece *)at;
    at += pieces * sizeof(tensor_piece);
    table.sums = (double *)at;
    at += pieces * sizeof(double);
    table.bytes = (size_t)(at - (char *)memory);
    return table;
}

#endif
