/* attention.c - owns the walk over samples, heads and blocks of queries: which products attention
 * consists of. */
#include "nn/attention.h"

#include "kernels/cpu/nn_gpt.h"
#include "nn/model_state.h"

#include <math.h>
#include <string.h>

/* Small enough to leave out most of what is above the diagonal, and scores that stay in the second
 * level of cache; large enough for products at nearly full speed. */
enum { BLOCK = 64 };

/* A long context is read by so many blocks that copying a head's keys and values together pays:
 * their rows lie a page or more apart. */
enum { FEW_BLOCKS = 4 };

/* One head of one sample: its columns of all that comes in and goes out. */
struct head {
    const float *q, *out, *grad_out;
    float *grad_q;
    const float *k, *v; /* perhaps copies, and so are their gradients */
    float *grad_k, *grad_v;
    size_t packed;     /* elements from row to row of q */
    size_t key_stride; /* and of k and v */
    size_t plain;      /* and of out */
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

static bool copies(const struct cddpi_attention *shape)
{
    return block_count(shape) > FEW_BLOCKS;
}

size_t cddpi_attention_scratch(const struct cddpi_attention *shape)
{
    return (2 * stride_of(shape) + 1) * BLOCK +
           (copies(shape) ? 4 * shape->context * shape->width : 0);
}

size_t cddpi_attention_kept(const struct cddpi_attention *shape)
{
    return shape->samples * shape->heads * shape->context;
}

static void copy_rows(const float *from, size_t from_stride, float *to, size_t to_stride,
                      size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        memcpy(to + r * to_stride, from + r * from_stride, columns * sizeof *to);
    }
}

/* Head i of all samples' heads. */
static struct head head_at(const struct cddpi_attention *shape, size_t i, const float *qkv)
{
    size_t plain = shape->heads * shape->width;
    const float *q = qkv + i / shape->heads * shape->context * 3 * plain +
                     i % shape->heads * shape->width;

    return (struct head){.q = q,
                         .k = q + plain,
                         .v = q + 2 * plain,
                         .packed = 3 * plain,
                         .key_stride = 3 * plain,
                         .plain = plain,
                         .context = shape->context,
                         .width = shape->width,
                         .scale = (float)(1 / sqrt((double)shape->width))};
}

/* Let the head use copies, in what @p scratch has behind the scores. */
static void gather(struct head *head, float *scratch, size_t stride)
{
    size_t elements = head->context * head->width;
    float *k = scratch + (2 * stride + 1) * BLOCK;
    float *v = k + elements;

    copy_rows(head->k, head->packed, k, head->width, head->context, head->width);
    copy_rows(head->v, head->packed, v, head->width, head->context, head->width);
    head->k = k;
    head->v = v;
    head->grad_k = v + elements;
    head->grad_v = v + 2 * elements;
    head->key_stride = head->width;
}

static void scatter(const struct head *head, float *grad_k, float *grad_v)
{
    copy_rows(head->grad_k, head->key_stride, grad_k, head->packed, head->context, head->width);
    copy_rows(head->grad_v, head->key_stride, grad_v, head->packed, head->context, head->width);
}

/* Where head i of all samples' heads starts in the outputs. */
static size_t output_at(const struct cddpi_attention *shape, size_t i)
{
    return (i / shape->heads * shape->context * shape->heads + i % shape->heads) * shape->width;
}

static cddp_status make_scores(const struct head *head, const struct block *block, float *scores,
                               size_t stride)
{
    return cddpi_gemm_strided(false, true, block->rows, block->keys, head->width, head->scale,
                              head->q + block->first * head->packed, head->packed, head->k,
                              head->key_stride, 0, scores, stride);
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
                                stride, head->v, head->key_stride, 0, out, head->plain);
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
        struct head head = head_at(shape, i, qkv);
        float *head_out = out + output_at(shape, i);
        float *log_sum = kept != NULL ? kept + i * shape->context : NULL;

        if (copies(shape)) {
            gather(&head, scratch, stride_of(shape));
        }
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
                                    head->grad_out + at, head->plain, head->v, head->key_stride, 0,
                                    ds, stride);
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
                                    head->plain, beta, head->grad_v, head->key_stride);
    }
    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(true, false, block->keys, head->width, block->rows, head->scale,
                                    ds, stride, head->q + at, head->packed, beta, head->grad_k,
                                    head->key_stride);
    }
    if (status == CDDP_OK) {
        status = cddpi_gemm_strided(false, false, block->rows, head->width, block->keys,
                                    head->scale, ds, stride, head->k, head->key_stride, 0,
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
        struct head head = head_at(shape, i, qkv);
        float *grad_k, *grad_v;

        head.out = out + output_at(shape, i);
        head.grad_out = grad_out + output_at(shape, i);
        head.grad_q = grad_qkv + (head.q - qkv);
        head.grad_k = grad_k = head.grad_q + head.plain;
        head.grad_v = grad_v = head.grad_k + head.plain;
        if (copies(shape)) {
            gather(&head, scratch, stride_of(shape));
        }
        for (size_t b = block_count(shape); status == CDDP_OK && b-- > 0;) {
            struct block block = block_at(shape, b);

            status = backward_block(&head, &block, kept + i * shape->context, scratch,
                                    stride_of(shape));
        }
        if (copies(shape)) {
            scatter(&head, grad_k, grad_v);
        }
    }
    return status;
}
