/* matmul_linear.c - owns the matrix products of linear layers, on cuBLASLt.
 *
 * Matrices here are row-major and cuBLASLt's are column-major, so it computes the transposed
 * products of the same memory:
 *
 *     y  = x W^T    as  y^T  = W x^T       m outputs  n rows     k inputs
 *     dx = dy W     as  dx^T = W^T dy^T    m inputs   n rows     k outputs
 *     dW = dy^T x   as  dW^T = x^T dy      m inputs   n outputs  k rows
 *
 * Products are limited by arithmetic: 2 m n k operations each, 6 x 124 million a row for a step of
 * GPT-2 124M; the card's dense rate in bf16 is 989 TFLOP/s. Operations between products are limited
 * by memory: with 65536 rows, a separate GELU moves 0.8 GB, which takes a sixth of a millisecond,
 * beside a product of half a millisecond. So bias and activation are the product's epilogue. If
 * cuBLASLt has no such epilogue for a shape (a GELU that saves its input needs rows of a multiple
 * of 8), we use the part that it has, and kernels of our own do the rest; they round to the 16-bit
 * type in between. */
#include "base/error.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/own_kernels.h"

#include <limits.h>

static int32_t library_type(cddp_type type)
{
    return type == CDDP_F32 ? CUDA_R_32F : type == CDDP_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Of a pointer, in bytes. No algorithm needs more than 16. Gradients are in buckets at multiples of
 * 64. They move when buckets are planned anew; that must not lead to a new choice. */
static int32_t alignment(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer & 63;

    return pointer == NULL ? 0 : at == 0 ? 64 : (int32_t)(at & (~at + 1));
}

/* What the three kinds of call share. */
struct matmul_linear_call {
    struct cddpi_device *device;
    struct cddpi_cuda_matmuls *matmuls;
    const struct cddpi_cuda_linear *linear;
    cudaStream_t stream;
};

static cddp_status begin(struct cddpi_device *device, const struct cddpi_cuda_linear *linear,
                         struct matmul_linear_call *out)
{
    cddp_type type = linear->type;

    if (type != CDDP_F32 && type != CDDP_BF16 && type != CDDP_F16) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "linear: no products of type %d", (int)type);
    }
    if (linear->rows > INT32_MAX || linear->inputs > INT32_MAX || linear->outputs > INT32_MAX ||
        linear->inputs == 0 || linear->outputs == 0) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
                         "linear: no products of %zu rows, %zu inputs and %zu outputs",
                         linear->rows, linear->inputs, linear->outputs);
    }
    *out = (struct matmul_linear_call){device, NULL, linear, cddpi_cuda_compute_stream(device)};
    return linear->rows == 0 ? CDDP_OK : cddpi_cuda_matmuls_get(device, &out->matmuls);
}

static cddp_status run(const struct matmul_linear_call *call, struct cddpi_cuda_matmul_shape shape,
                       const struct cddpi_cuda_matmul_operands *operands, bool *out_missing)
{
    enum cddpi_cuda_matmul_choice choice = call->matmuls->choice;

    if (choice == CDDPI_CUDA_MATMUL_UNSET) {
        choice = call->linear->any_order ? CDDPI_CUDA_MATMUL_FAST : CDDPI_CUDA_MATMUL_SAME;
    }
    shape.choice = (int32_t)choice;
    shape.type = library_type(call->linear->type);
    shape.align_a = alignment(operands->a);
    shape.align_b = alignment(operands->b);
    shape.align_d = alignment(operands->d);
    shape.align_bias = alignment(operands->bias);
    shape.align_aux = alignment(operands->aux);
    return cddpi_cuda_matmul_run(call->device, call->matmuls, &shape, operands, out_missing);
}

/* Unlike an epilogue, a plain product must exist. */
static cddp_status check_missing(const struct matmul_linear_call *call, bool missing)
{
    const struct cddpi_cuda_linear *l = call->linear;

    if (missing) {
        return cuda_fail(call->device, CDDP_ERR_UNAVAILABLE,
                         "cuBLASLt has no product of %zu rows, %zu inputs and %zu outputs", l->rows,
                         l->inputs, l->outputs);
    }
    return CDDP_OK;
}

static cddp_status check_launch(const struct matmul_linear_call *call, cudaError_t error, int line)
{
    return cddpi_cuda_status(call->device, error, "linear", __FILE__, line);
}

/* --- y = epilogue(x W^T + b) --- */

static int32_t forward_epilogue(enum cddpi_cuda_epilogue epilogue, bool bias, bool aux)
{
    switch (epilogue) {
    case CDDPI_EPILOGUE_RELU:
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case CDDPI_EPILOGUE_GELU:
        if (aux) {
            return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        }
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case CDDPI_EPILOGUE_NONE:
        break;
    }
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cddp_status forward_with(const struct matmul_linear_call *call, const void *x,
                                const void *weight, const void *bias, void *y, void *aux,
                                int32_t epilogue, bool *out_missing)
{
    const struct cddpi_cuda_linear *l = call->linear;
    struct cddpi_cuda_matmul_shape shape = {.m = (int32_t)l->outputs,
                                            .n = (int32_t)l->rows,
                                            .k = (int32_t)l->inputs,
                                            .transpose_a = 1,
                                            .result = library_type(l->type),
                                            .epilogue = epilogue};
    struct cddpi_cuda_matmul_operands operands = {weight, x, y, bias, aux, false};

    return run(call, shape, &operands, out_missing);
}

/* If the library lacks the epilogue: @p sum receives x W^T + b, and y the activation of that. */
static cddp_status forward_apart(const struct matmul_linear_call *call, const void *x,
                                 const void *weight, const void *bias, void *y, void *sum)
{
    const struct cddpi_cuda_linear *l = call->linear;
    bool relu = l->epilogue == CDDPI_EPILOGUE_RELU;
    bool missing = true;

    if (bias != NULL) {
        CDDPI_TRY(forward_with(call, x, weight, bias, sum, NULL, CUBLASLT_EPILOGUE_BIAS, &missing));
        bias = missing ? bias : NULL;
    }
    if (missing) {
        CDDPI_TRY(
            forward_with(call, x, weight, NULL, sum, NULL, CUBLASLT_EPILOGUE_DEFAULT, &missing));
        CDDPI_TRY(check_missing(call, missing));
    }
    if (bias != NULL || relu) {
        CDDPI_TRY(check_launch(
            call, cddpi_cuda_add_bias(call->stream, l->type, bias, relu, l->rows, l->outputs, sum),
            __LINE__));
    }
    return l->epilogue == CDDPI_EPILOGUE_GELU
               ? cddpi_cuda_rows(call->device)
                     ->pointwise(call->device, l->type, CDDPI_POINTWISE_GELU, 0, sum,
                                 l->rows * l->outputs, y)
               : CDDP_OK;
}

static cddp_status linear(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                          const void *x, const void *weight, const void *bias, void *y, void *aux)
{
    struct matmul_linear_call call;
    bool keeps = aux != NULL && shape->epilogue == CDDPI_EPILOGUE_GELU;
    bool missing = keeps && shape->outputs % 8 != 0; /* aux needs rows of a multiple of 8 */

    CDDPI_TRY(begin(device, shape, &call));
    if (shape->rows == 0) {
        return CDDP_OK;
    }
    if (!missing) {
        CDDPI_TRY(forward_with(&call, x, weight, bias, y, keeps ? aux : NULL,
                               forward_epilogue(shape->epilogue, bias != NULL, keeps), &missing));
    }
    return missing ? forward_apart(&call, x, weight, bias, y, keeps ? aux : y) : CDDP_OK;
}

/* --- dx = dy W --- */

static cddp_status input_with(const struct matmul_linear_call *call, const void *dy,
                              const void *weight, const void *aux, void *dx, bool *out_missing)
{
    const struct cddpi_cuda_linear *l = call->linear;
    struct cddpi_cuda_matmul_shape shape = {.m = (int32_t)l->inputs,
                                            .n = (int32_t)l->rows,
                                            .k = (int32_t)l->outputs,
                                            .result = library_type(l->type),
                                            .epilogue = aux != NULL ? CUBLASLT_EPILOGUE_DGELU
                                                                    : CUBLASLT_EPILOGUE_DEFAULT};
    struct cddpi_cuda_matmul_operands operands = {weight, dy, dx, NULL, (void *)(uintptr_t)aux,
                                                  false};

    return run(call, shape, &operands, out_missing);
}

static cddp_status linear_input(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                const void *dy, const void *weight, const void *aux, void *dx)
{
    struct matmul_linear_call call;
    bool missing = aux != NULL && shape->inputs % 8 != 0;

    CDDPI_TRY(begin(device, shape, &call));
    if (shape->rows == 0) {
        return CDDP_OK;
    }
    if (!missing) {
        CDDPI_TRY(input_with(&call, dy, weight, aux, dx, &missing));
    }
    if (!missing || aux == NULL) {
        return check_missing(&call, missing);
    }
    CDDPI_TRY(input_with(&call, dy, weight, NULL, dx, &missing));
    CDDPI_TRY(check_missing(&call, missing));
    return cddpi_cuda_rows(device)->pointwise_grad(device, shape->type, CDDPI_POINTWISE_GELU, 0, dx,
                                                   aux, shape->rows * shape->inputs, dx);
}

/* --- dW = or += dy^T x; dbias = or += column sums of dy --- */

static cddp_status weight_with(const struct matmul_linear_call *call, const void *dy, const void *x,
                               bool add, float *dweight, bool *out_missing)
{
    const struct cddpi_cuda_linear *l = call->linear;
    struct cddpi_cuda_matmul_shape shape = {.m = (int32_t)l->inputs,
                                            .n = (int32_t)l->outputs,
                                            .k = (int32_t)l->rows,
                                            .transpose_b = 1,
                                            .result = CUDA_R_32F,
                                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    struct cddpi_cuda_matmul_operands operands = {x, dy, dweight, NULL, NULL, add};

    return run(call, shape, &operands, out_missing);
}

/* This does not use the product's epilogue (CUBLASLT_EPILOGUE_BGRADB). For bf16, cuBLASLt 13.0 to
 * 13.2 have it only in kernels for Ampere (sm80, mma.sync), which reach half the speed of Hopper's.
 * Reading dy once more takes a fiftieth of a step of GPT-2; computing a weight's gradient at half
 * speed would take a tenth. */
static cddp_status sum_bias(const struct matmul_linear_call *call, const void *dy, bool add,
                            float *dbias)
{
    const struct cddpi_cuda_linear *l = call->linear;
    const struct cddpi_cuda_kernels *kernels = cddpi_cuda_rows(call->device);
    void *scratch = NULL;

    CDDPI_TRY(cddpi_cuda_scratch(
        call->device, kernels->sums_scratch(call->device, l->rows, l->outputs), &scratch));
    return kernels->column_sums(call->device, l->type, dy, l->rows, l->outputs, add, dbias,
                                scratch);
}

/* Sums over zero rows are zeros. */
static cddp_status clear(const struct matmul_linear_call *call, float *dweight, float *dbias)
{
    const struct cddpi_cuda_linear *l = call->linear;
    cudaError_t error = cudaMemsetAsync(dweight, 0, l->inputs * l->outputs * sizeof *dweight,
                                        call->stream);

    if (error == cudaSuccess && dbias != NULL) {
        error = cudaMemsetAsync(dbias, 0, l->outputs * sizeof *dbias, call->stream);
    }
    return check_launch(call, error, __LINE__);
}

static cddp_status linear_weight(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                 const void *dy, const void *x, bool add, float *dweight,
                                 float *dbias)
{
    struct matmul_linear_call call;
    bool missing = true;

    CDDPI_TRY(begin(device, shape, &call));
    if (shape->rows == 0) {
        return add ? CDDP_OK : clear(&call, dweight, dbias);
    }
    CDDPI_TRY(weight_with(&call, dy, x, add, dweight, &missing));
    CDDPI_TRY(check_missing(&call, missing));
    return dbias != NULL ? sum_bias(&call, dy, add, dbias) : CDDP_OK;
}

static size_t first_use_bytes(struct cddpi_device *device, bool any_order)
{
    return cddpi_cuda_matmuls_first_use_bytes(device, any_order) +
           cddpi_cuda_scratch_first_use_bytes(device);
}

void cddpi_cuda_fill_matmul(struct cddpi_cuda_kernels *out)
{
    out->linear = linear;
    out->linear_input = linear_input;
    out->linear_weight = linear_weight;
    out->first_use_bytes = first_use_bytes;
}
