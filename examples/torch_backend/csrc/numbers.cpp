/* numbers.cpp - PyTorch's element types and reductions as cddp's: see numbers.hpp. */
#include "numbers.hpp"

namespace cddp_torch
{

static cddp_op op_of(const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return CDDP_OP_SUM;
    case c10d::ReduceOp::AVG:
        return CDDP_OP_MEAN;
    case c10d::ReduceOp::PRODUCT:
        return CDDP_OP_PROD;
    case c10d::ReduceOp::MIN:
        return CDDP_OP_MIN;
    case c10d::ReduceOp::MAX:
        return CDDP_OP_MAX;
    default:
        TORCH_CHECK(false, "cddp does not have reduction ", static_cast<int>(op.op_));
    }
}

Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    Reduction out = {tensor.contiguous(), CDDP_F32, op_of(op), false};

    switch (tensor.scalar_type()) {
    case at::kFloat:
        break;
    case at::kDouble:
        out.type = CDDP_F64;
        break;
    case at::kHalf:
        out.type = CDDP_F16;
        break;
    case at::kBFloat16:
        out.type = CDDP_BF16;
        break;
    case at::kInt:
        out.type = CDDP_I32;
        break;
    case at::kLong:
        out.type = CDDP_I64;
        break;
    case at::kByte:
        out.type = CDDP_U8;
        break;
    case at::kChar:
    case at::kShort:
        out.numbers = tensor.to(at::kInt).contiguous();
        out.type = CDDP_I32;
        break;
    case at::kBool: /* sums are "any", products "all" */
        TORCH_CHECK(out.op != CDDP_OP_MEAN, "cddp: logical values have no mean");
        out.op = out.op == CDDP_OP_SUM    ? CDDP_OP_MAX
                 : out.op == CDDP_OP_PROD ? CDDP_OP_MIN
                                          : out.op;
        out.type = CDDP_U8;
        break;
    case at::kComplexFloat:
    case at::kComplexDouble:
        TORCH_CHECK(out.op == CDDP_OP_SUM || out.op == CDDP_OP_MEAN,
                    "cddp: complex numbers have only sums and means");
        out.numbers = at::view_as_real(out.numbers);
        out.type = tensor.scalar_type() == at::kComplexFloat ? CDDP_F32 : CDDP_F64;
        break;
    default:
        TORCH_CHECK(false, "cddp does not reduce tensors of type ", tensor.scalar_type());
    }
    out.is_copy = out.numbers.data_ptr() != tensor.data_ptr();
    return out;
}

void copy_back(at::Tensor tensor, const at::Tensor &reduced)
{
    at::NoGradGuard no_grad;

    if (tensor.is_complex() && !reduced.is_complex()) {
        at::view_as_real(tensor).copy_(reduced);
    } else {
        tensor.copy_(reduced);
    }
}

bool is_bitwise(const c10d::ReduceOp &op)
{
    return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR ||
           op.op_ == c10d::ReduceOp::BXOR;
}

at::Tensor reduce_bits(const at::Tensor &all, const c10d::ReduceOp &op)
{
    at::Tensor out = all[0].clone();

    for (std::int64_t rank = 1; rank < all.size(0); rank++) {
        out = op.op_ == c10d::ReduceOp::BAND  ? at::bitwise_and(out, all[rank])
              : op.op_ == c10d::ReduceOp::BOR ? at::bitwise_or(out, all[rank])
                                              : at::bitwise_xor(out, all[rank]);
    }
    return out;
}

} // namespace cddp_torch
