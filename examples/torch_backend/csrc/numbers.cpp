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
    case c10d::ReduceOp::BAND:
        return CDDP_OP_AND;
    case c10d::ReduceOp::BOR:
        return CDDP_OP_OR;
    case c10d::ReduceOp::BXOR:
        return CDDP_OP_XOR;
    case c10d::ReduceOp::PREMUL_SUM: /* reduction_of() multiplies */
        return CDDP_OP_SUM;
    default:
        TORCH_CHECK(false, "cddp does not have reduction ", static_cast<int>(op.op_));
    }
}

/* Multiplied by what PREMUL_SUM brings with it. */
static at::Tensor multiplied(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    const auto *by = dynamic_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());

    TORCH_CHECK(by != nullptr && tensor.is_floating_point(),
                "cddp: PREMUL_SUM needs its factor, and floating-point numbers");
    return by->tensor_factor.defined()
               ? tensor.mul(by->tensor_factor.to(tensor.scalar_type())).contiguous()
               : tensor.mul(by->double_factor).contiguous();
}

Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    Reduction out = {tensor.contiguous(), CDDP_F32, op_of(op), false};

    TORCH_CHECK(out.op < CDDP_OP_AND || at::isIntegralType(tensor.scalar_type(), true),
                "cddp: only integers and logical values are reduced bit by bit");
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM) {
        out.numbers = multiplied(tensor, op);
    }
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
        out.type = CDDP_I8;
        break;
    case at::kShort:
        out.numbers = tensor.to(at::kInt).contiguous();
        out.type = CDDP_I32;
        break;
    case at::kBool: /* sums are "any", products "all" */
        TORCH_CHECK(out.op != CDDP_OP_MEAN, "cddp: logical values have no mean");
        out.type = CDDP_BOOL;
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

} // namespace cddp_torch
