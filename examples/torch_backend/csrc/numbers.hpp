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

/* For @p op of @p tensor; throws where there is no way. 16-bit integers are widened, complex sums
 * taken of their parts. */
Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* The numbers of @p reduced in the type of @p tensor, written to it. */
void copy_back(at::Tensor tensor, const at::Tensor &reduced);

} // namespace cddp_torch
