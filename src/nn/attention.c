/* attention.c - owns the walk over samples, heads and blocks of queries: which products attention
 * consists of. */
#include "nn/attention.h"

#include "kernels/cpu/nn_gpt.h"
#include "nn/model_state.h"

#include <math.h>

/* Small enough to leave out most of what is above the diagonal, and scores that stay in the second
 * level of cache; large enough for products at nearly full speed. */
enum { BLOCK = 64 };

/* One head of one sample: its columns of all that comes in and goes out. */
struct head {
    const float *q, *k, *v, *out, *grad_out;
    float *grad_q, *grad_k, *grad_v;
    size_t packed; /* elements from row to row of q, k, v */
    size_t plain;  /* and of out */
    size_t context, width;
    float scale;
};

/* Queries first ... first + rows - 1; no query looks further than keys. */
struct block {
    size_t first, rows, keys;
};

static size_t stride_of(const struct cddpi_attention *shape)
{
    return (shape->context + 15) / 16 * 16;
}

static size_t block_count(const struct cddpi_attention *shape)
{
    return (shape->context + BLOCK - 1) / BLOCK;
}

static struct block block_at(const struct cddpi_attention *shape, size_t i)
{
    size_t first = i * BLOCK;
    size_t left = shape->context - first;
    size_t rows = left < BLOCK ? left : BLOCK;

    return (struct block){first, rows, first + rows};
}

size_t cddpi_attention_scratch(const struct cddpi_attention *shape)
{
    return (2 * stride_of(shape) + 1) * BLOCK;
}

size_t cddpi_attention_kept(const struct cddpi_attention *shape)
{
    return shape->samples * shape->heads * shape->context;
}

static struct head head_at(const struct cddpi_attention *shape, size_t sample, size_t h,
                           const float *qkv)
{
    size_t plain = shape->heads * shape->width;
    const float *q = qkv + sample * shape->context * 3 * plain + h * shape->width;

    return (struct head){.q = q,
                         .k = q + plain,
                         .v = q + 2 * plain,
                         .packed = 3 * plain,
                         .plain = plain,
                         .context = shape->context,
                         .width = shape->width,
                         .scale = (float)(1 / sqrt((double)shape->width))};
}

static cddp_status make_scores(const struct head *head, const struct block *block, float *scores,
                               size_t stride)
{
    return cddpi_gemm_strided(false, true, block->rows, block->keys, head->width, head->scale,
                              head->q + block->first * head->packed, head->packed, head->k,
                              head->packed, 0, scores, stride);
}

static cddp_status forward_block(const struct head *head, const struct block *block, float *out,
                                 float *log_sum, float *scores, size_t stride)
{
    const struct cddpi_attention_kernels *kernels = cddpi_gpt_kernels()->attention;
    float *total = scores + 2 * stride * BLOCK;
    cddp_status status = make_scores(head, block, scores, stride);

    if (status != CDDP_OK) {
        return status;
    }
    out += block->first * head->plain;
    kernels->softmax(scores, stride, block->rows, block->keys, block->first, total,
                     log_sum != NULL ? log_sum + block->first : NULL);
    status = cddpi_gemm_strided(false, false, block->rows, head->width, block->keys, 1, scores,
                                stride, head->v, head->packed, 0, out, head->plain);
    if (status == CDDP_OK) {
        kernels->divide(out, head->plain, block->rows, head->width, total);
    }
    return status;
}

cddp_status cddpi_attention_forward(const struct cddpi_attention *shape, const float *qkv,
                                    float *out, float *kept, float *scratch)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        size_t sample = i / shape->heads;
        size_t h = i % shape->heads;
        struct head head = head_at(shape, sample, h, qkv);
        float *head_out = out + sample * shape->context * head.plain + h * shape->width;
        float *log_sum = kept != NULL ? kept + i * shape->context : NULL;

        for (size_t b = 0; status == CDDP_OK && b < block_count(shape); b++) {
            struct block block = block_at(shape, b);

            status = forward_block(&head, &block, head_out, log_sum, scratch, stride_of(shape));
        }
    }
    return status;
}

/* Probabilities in @p p and the gradient of the scores in @p ds. */
static cddp_status remake(const struct head *head, const struct block *block, const float *log_sum,
                          float *p, float *ds, float *delta, size_t stride)
{
    const struct cddpi_attention_kernels *kernels = cddpi_gpt_kernels()->attention;
    size_t at = block->first * head->plain;
    cddp_status status = make_scores(head, block, p, stride);

    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(false, true, block->rows, block->keys, head->width, 1,
                                    head->grad_out + at, head->plain, head->v, head->packed, 0, ds,
                                    stride);
    }
    if (status == CDDP_OK) {
        kernels->row_products(head->grad_out + at, head->out + at, head->plain, block->rows,
                              head->width, delta);
        kernels->backward(p, ds, stride, block->rows, block->keys, block->first,
                          log_sum + block->first, delta);
    }
    return status;
}

/* The last block comes first: it alone reaches every key, so it sets what the others add to. */
static cddp_status backward_block(const struct head *head, const struct block *block,
                                  const float *log_sum, float *scratch, size_t stride)
{
    float *p = scratch;
    float *ds = scratch + stride * BLOCK;
    size_t at = block->first * head->packed;
    float beta = block->keys == head->context ? 0 : 1;
    cddp_status status = remake(head, block, log_sum, p, ds, scratch + 2 * stride * BLOCK, stride);

    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(true, false, block->keys, head->width, block->rows, 1, p,
                                    stride, head->grad_out + block->first * head->plain,
                                    head->plain, beta, head->grad_v, head->packed);
    }
    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(true, false, block->keys, head->width, block->rows, head->scale,
                                    ds, stride, head->q + at, head->packed, beta, head->grad_k,
                                    head->packed);
    }
    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(false, false, block->rows, head->width, block->keys,
                                    head->scale, ds, stride, head->k, head->packed, 0,
                                    head->grad_q + at, head->packed);
    }
    return status;
}

cddp_status cddpi_attention_backward(const struct cddpi_attention *shape, const float *qkv,
                                     const float *out, const float *grad_out, const float *kept,
                                     float *grad_qkv, float *scratch)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        size_t sample = i / shape->heads;
        struct head head = head_at(shape, sample, i % shape->heads, qkv);
        size_t at = sample * shape->context * head.plain + i % shape->heads * shape->width;

        head.out = out + at;
        head.grad_out = grad_out + at;
        head.grad_q = grad_qkv + (head.q - qkv);
        head.grad_k = grad_qkv + (head.k - qkv);
        head.grad_v = grad_qkv + (head.v - qkv);
        for (size_t b = block_count(shape); status == CDDP_OK && b-- > 0;) {
            struct block block = block_at(shape, b);

            status = backward_block(&head, &block, kept + i * shape->context, scratch,
                                    stride_of(shape));
        }
    }
    return status;
}
