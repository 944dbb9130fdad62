/* fake_matmul.h - one matrix product of the fake cuBLASLt. */
#ifndef CDDP_TESTS_FAKE_CUDA_FAKE_MATMUL_H
#define CDDP_TESTS_FAKE_CUDA_FAKE_MATMUL_H

#include "fake_cuda/fake_cublaslt.h"

#include <cublasLt.h>
#include <stdbool.h>

struct fake_desc {
    cublasComputeType_t compute;
    int32_t scale;
    int32_t op_a, op_b;
    uint32_t epilogue;
    void *bias;
    void *aux;
    int64_t aux_ld;
};

struct fake_layout {
    int32_t type;
    uint64_t rows, cols;
    int64_t ld;
};

/* One product. Everything is copied, since descriptors may change before it runs. */
struct fake_matmul {
    struct fake_desc desc;
    struct fake_layout a_layout, b_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    uint64_t m, n, k;
    float alpha, beta;
    enum fake_cublaslt_algorithm algorithm;
    bool unstable, slow;
    uint64_t number;
};

static inline size_t fake_type_bytes(int32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static inline bool fake_has_aux(uint32_t epilogue)
{
    return (epilogue & 128) != 0;
}

/** Count a call of the heuristics. */
void fake_cublaslt_count(const struct fake_matmul *job, int wanted);

/** Compute the product. @p closure is a struct fake_matmul. */
void fake_matmul_run(void *closure);

#endif
