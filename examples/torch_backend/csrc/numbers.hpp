/* numbers.hpp - PyTorch's element types and reductions as cddp's. */
#pragma once

#include <ATen/ATen.h>
#include <cddp/cddp.hpp>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace cddp_torch
{

/* How a tensor is reduced. */
struct Reduction {
    at::Tensor numbers; /* contiguous: the tensor's own memory, or a converted copy */
    cddp_type type;
    cddp_op op;
    bool is_copy;
};

/* For @p op of @p tensor; throws where there is no way. Integers that cddp does not have are
 * widened, logical values reduced as bytes, complex sums taken of their parts. */
Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* The numbers of @p reduced in the type of @p tensor, written to it. */
void copy_back(at::Tensor tensor, const at::Tensor &reduced);

/* Whether it is one that cddp has no operation for: AND, OR, XOR of bits. */
bool is_bitwise(const c10d::ReduceOp &op);

/* Reduce @p all, whose first dimension is the ranks. */
at::Tensor reduce_bits(const at::Tensor &all, const c10d::ReduceOp &op);

} // namespace cddp_torch
