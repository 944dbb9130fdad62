/* fake_matmul.c - the arithmetic of the fake cuBLASLt: one product and its epilogue, summed in
 * float32. */
#include "fake_cuda/fake_matmul.h"

#include "fake_cuda/fake_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static float load(const void *memory, int32_t type, size_t i)
{
    return type == CUDA_R_32F    ? ((const float *)memory)[i]
           : type == CUDA_R_16BF ? fake_bf16_to_float(((const uint16_t *)memory)[i])
                                 : fake_f16_to_float(((const uint16_t *)memory)[i]);
}

static void store(void *memory, int32_t type, size_t i, float value)
{
    if (type == CUDA_R_32F) {
        ((float *)memory)[i] = value;
    } else {
        ((uint16_t *)memory)[i] = type == CUDA_R_16BF ? fake_float_to_bf16(value)
                                                      : fake_float_to_f16(value);
    }
}

/* Round to TF32, which has ten bits of fraction. */
static float to_tf32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Gather lines of k numbers as float32: the columns of a matrix, or its rows. */
static float *gather(const struct fake_matmul *job, const struct fake_layout *layout,
                     const void *memory, bool lines_are_columns, uint64_t lines)
{
    bool tf32 = job->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    float *out = malloc(lines * job->k * sizeof *out);

    for (uint64_t line = 0; out != NULL && line < lines; line++) {
        for (uint64_t i = 0; i < job->k; i++) {
            uint64_t row = lines_are_columns ? i : line;
            uint64_t column = lines_are_columns ? line : i;
            float value = load(memory, layout->type, column * (uint64_t)layout->ld + row);

            out[line * job->k + i] = tf32 ? to_tf32(value) : value;
        }
    }
    return out;
}

enum { LANES = 8 };

static float dot(const float *a, const float *b, uint64_t begin, uint64_t end)
{
    float lanes[LANES] = {0};
    uint64_t i = begin;

    for (; i + LANES <= end; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            lanes[lane] += a[i + (uint64_t)lane] * b[i + (uint64_t)lane];
        }
    }
    for (; i < end; i++) {
        lanes[0] += a[i] * b[i];
    }
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

static float multiply(const struct fake_matmul *job, const float *a, const float *b)
{
    uint64_t half = job->k / 2;

    if (job->algorithm == FAKE_CUBLASLT_SPLIT) {
        return dot(a, b, 0, half) + dot(a, b, half, job->k);
    }
    return dot(a, b, 0, job->k);
}

static float gelu(float x)
{
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);

    return 0.5f * x * (1 + tanhf(inner));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x));

    return 0.5f * (1 + t) +
           0.5f * x * (1 - t * t) * 0.7978845608028654f * (1 + 3 * 0.044715f * x * x);
}

/* Apply the epilogue to the element at @p row and @p column. */
static float finish(const struct fake_matmul *job, float value, uint64_t row, uint64_t column)
{
    uint32_t epilogue = job->desc.epilogue;
    int32_t type = job->d_layout.type;
    uint64_t aux = column * (uint64_t)job->desc.aux_ld + row;

    if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
        value += load(job->desc.bias, type, row);
    }
    if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
        return value > 0 ? value : 0;
    }
    if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
        return value * gelu_slope(load(job->desc.aux, type, aux));
    }
    if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        if (fake_has_aux(epilogue)) {
            store(job->desc.aux, type, aux, value);
        }
        return gelu(value);
    }
    return value;
}

void fake_matmul_run(void *closure)
{
    struct fake_matmul *job = closure;
    float *a = gather(job, &job->a_layout, job->a, job->desc.op_a == CUBLAS_OP_T, job->m);
    float *b = gather(job, &job->b_layout, job->b, job->desc.op_b == CUBLAS_OP_N, job->n);

    if (a == NULL || b == NULL) {
        abort();
    }
    for (uint64_t column = 0; column < job->n; column++) {
        for (uint64_t row = 0; row < job->m; row++) {
            uint64_t at = column * (uint64_t)job->d_layout.ld + row;
            float value = job->alpha * multiply(job, a + row * job->k, b + column * job->k);

            if (job->beta != 0) {
                value += job->beta * load(job->c, job->d_layout.type, at);
            }
            if (job->unstable && job->algorithm == FAKE_CUBLASLT_WIDE && at == 0) {
                value += (float)(job->number % 7);
            }
            store(job->d, job->d_layout.type, at, finish(job, value, row, column));
        }
    }
    free(a);
    free(b);
    if (job->slow && job->algorithm <= FAKE_CUBLASLT_NARROW) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}
