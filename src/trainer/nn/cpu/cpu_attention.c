/* cpu_attention.c - owns attention's matrix products, and the loop over samples, heads and blocks
 * of queries. */
#include "nn/cpu/cpu_attention.h"

#include "base/error.h"
#include "kernels/cpu/transformer.h"
#include "nn/cpu/matmul.h"
#include "nn/model_state.h"

#include <math.h>
#include <string.h>

/* Queries of a block: few enough that most of the products above the diagonal are skipped and
 * scores stay in the L2 cache; many enough that products run at nearly full speed, which takes more
 * of them on AMX. */
enum { BLOCK = 64, AMX_BLOCK = 128 };

/* With more blocks than this, it pays to copy a head's keys and values together first: their rows
 * are a page or more apart, and every block reads them. */
enum { FEW_BLOCKS = 4 };

/* One head of one sample: its columns in all inputs and outputs. */
struct cpu_attention_head {
    const float *q, *out, *grad_out;
    float *grad_q;
    const float *k, *v; /* these, and their gradients, may be copies */
    float *grad_k, *grad_v;
    size_t packed;     /* elements between rows of q */
    size_t key_stride; /* elements between rows of k and v */
    size_t plain;      /* elements between rows of out */
    size_t context, width;
    float scale;
    /* scratch memory */
    float *scores, *grad_scores, *sums;
    size_t stride;     /* between rows of scores and of their gradients */
    float *copies;     /* copies of k, v and their gradients; NULL: no copies */
    void *amx_scratch; /* for products on AMX; NULL: sgemm */
};

/* Queries [first, first + rows); none of them attends to key `keys` or later ones. */
struct cpu_attention_block {
    size_t first, rows, keys;
};

static size_t stride_of(const struct cddpi_attention *shape)
{
    return (shape->context + 15) / 16 * 16;
}

static size_t block_rows(const struct cddpi_attention *shape)
{
    return shape->amx ? AMX_BLOCK : BLOCK;
}

static size_t block_count(const struct cddpi_attention *shape)
{
    return (shape->context + block_rows(shape) - 1) / block_rows(shape);
}

static struct cpu_attention_block block_at(const struct cddpi_attention *shape, size_t i)
{
    size_t most = block_rows(shape);
    size_t first = i * most;
    size_t left = shape->context - first;
    size_t rows = left < most ? left : most;

    return (struct cpu_attention_block){first, rows, first + rows};
}

static bool copies(const struct cddpi_attention *shape)
{
    return block_count(shape) > FEW_BLOCKS;
}

/* Memory for scores, their gradients and the rows' sums. */
static size_t scores_scratch(const struct cddpi_attention *shape)
{
    return (2 * stride_of(shape) + 1) * block_rows(shape);
}

static size_t plain_scratch(const struct cddpi_attention *shape)
{
    return scores_scratch(shape) + (copies(shape) ? 4 * shape->context * shape->width : 0);
}

/* AMX scratch memory for the products of a block of queries; scores have as many columns as there
 * are keys. */
static size_t amx_scratch(const struct cddpi_attention *shape)
{
    size_t most = shape->context > shape->width ? shape->context : shape->width;

    return (cddpi_amx_gemm_scratch(most, most) + sizeof(float) - 1) / sizeof(float);
}

bool cddpi_attention_gains_by_amx(const struct cddpi_attention *shape)
{
    return shape->context >= AMX_BLOCK && cddpi_matmul_fits_amx(AMX_BLOCK, AMX_BLOCK, shape->width);
}

size_t cddpi_attention_scratch(const struct cddpi_attention *shape)
{
    return plain_scratch(shape) + (shape->amx ? amx_scratch(shape) : 0);
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

/* Copy the head's keys and values together. */
static void gather(struct cpu_attention_head *head)
{
    size_t elements = head->context * head->width;
    float *k = head->copies;
    float *v = k + elements;

    copy_rows(head->k, head->packed, k, head->width, head->context, head->width);
    copy_rows(head->v, head->packed, v, head->width, head->context, head->width);
    head->k = k;
    head->v = v;
    head->grad_k = v + elements;
    head->grad_v = v + 2 * elements;
    head->key_stride = head->width;
}

static void divide_scratch(struct cpu_attention_head *head, const struct cddpi_attention *shape,
                           float *scratch)
{
    size_t scores = stride_of(shape) * block_rows(shape);

    head->stride = stride_of(shape);
    head->scores = scratch;
    head->grad_scores = scratch + scores;
    head->sums = scratch + 2 * scores;
    head->copies = copies(shape) ? scratch + scores_scratch(shape) : NULL;
    head->amx_scratch = shape->amx ? scratch + plain_scratch(shape) : NULL;
}

/* Head i, where heads of all samples are counted. */
static struct cpu_attention_head head_at(const struct cddpi_attention *shape, size_t i,
                                         const float *qkv, float *scratch)
{
    size_t plain = shape->heads * shape->width;
    const float *q = qkv + i / shape->heads * shape->context * 3 * plain +
                     i % shape->heads * shape->width;
    struct cpu_attention_head head = {.q = q,
                                      .k = q + plain,
                                      .v = q + 2 * plain,
                                      .packed = 3 * plain,
                                      .key_stride = 3 * plain,
                                      .plain = plain,
                                      .context = shape->context,
                                      .width = shape->width,
                                      .scale = (float)(1 / sqrt((double)shape->width))};

    divide_scratch(&head, shape, scratch);
    return head;
}

static void scatter(const struct cpu_attention_head *head, float *grad_k, float *grad_v)
{
    copy_rows(head->grad_k, head->key_stride, grad_k, head->packed, head->context, head->width);
    copy_rows(head->grad_v, head->key_stride, grad_v, head->packed, head->context, head->width);
}

/* The offset of head i in the outputs, where heads of all samples are counted. */
static size_t output_at(const struct cddpi_attention *shape, size_t i)
{
    return (i / shape->heads * shape->context * shape->heads + i % shape->heads) * shape->width;
}

/* C = alpha op(A) op(B) [+ C], on AMX if there is scratch memory for it and it is faster. */
static cddp_status multiply(const struct cpu_attention_head *head,
                            const struct cddpi_nn_matmul *matmul)
{
    bool fits = cddpi_matmul_fits_amx(matmul->m, matmul->n, matmul->k);

    return cddpi_matmul(matmul, fits ? head->amx_scratch : NULL);
}

static cddp_status make_scores(const struct cpu_attention_head *head,
                               const struct cpu_attention_block *block)
{
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        block->rows, block->keys, head->width, head->q + block->first * head->packed, head->packed,
        head->k, head->key_stride, head->scores, head->stride);

    product.transpose_b = true;
    product.alpha = head->scale;
    return multiply(head, &product);
}

static cddp_status forward_block(const struct cpu_attention_head *head,
                                 const struct cpu_attention_block *block, float *out,
                                 float *log_sum)
{
    const struct cddpi_attention_kernels *kernels = cddpi_transformer_kernels()->attention;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        block->rows, head->width, block->keys, head->scores, head->stride, head->v,
        head->key_stride, out + block->first * head->plain, head->plain);

    CDDPI_TRY(make_scores(head, block));
    kernels->softmax(head->scores, head->stride, block->rows, block->keys, block->first, head->sums,
                     log_sum != NULL ? log_sum + block->first : NULL);
    CDDPI_TRY(multiply(head, &product));
    kernels->divide(product.c, head->plain, block->rows, head->width, head->sums);
    return CDDP_OK;
}

cddp_status cddpi_attention_forward(const struct cddpi_attention *shape, const float *qkv,
                                    float *out, float *kept, float *scratch)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        struct cpu_attention_head head = head_at(shape, i, qkv, scratch);
        float *head_out = out + output_at(shape, i);
        float *log_sum = kept != NULL ? kept + i * shape->context : NULL;

        if (head.copies != NULL) {
            gather(&head);
        }
        for (size_t b = 0; status == CDDP_OK && b < block_count(shape); b++) {
            struct cpu_attention_block block = block_at(shape, b);

            status = forward_block(&head, &block, head_out, log_sum);
        }
    }
    return status;
}

/* Replace the scores by probabilities, and compute the gradient of the scores. */
static cddp_status recompute(const struct cpu_attention_head *head,
                             const struct cpu_attention_block *block, const float *log_sum)
{
    const struct cddpi_attention_kernels *kernels = cddpi_transformer_kernels()->attention;
    size_t at = block->first * head->plain;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        block->rows, block->keys, head->width, head->grad_out + at, head->plain, head->v,
        head->key_stride, head->grad_scores, head->stride);

    CDDPI_TRY(make_scores(head, block));
    product.transpose_b = true;
    CDDPI_TRY(multiply(head, &product));
    kernels->row_products(head->grad_out + at, head->out + at, head->plain, block->rows,
                          head->width, head->sums);
    kernels->backward(head->scores, head->grad_scores, head->stride, block->rows, block->keys,
                      block->first, log_sum + block->first, head->sums);
    return CDDP_OK;
}

/* out (keys x width) = scale a' b [+ out], for the gradients of keys and of values. */
static cddp_status key_gradient(const struct cpu_attention_head *head,
                                const struct cpu_attention_block *block, float scale,
                                const float *a, const float *b, size_t b_stride, float *out)
{
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        block->keys, head->width, block->rows, a, head->stride, b, b_stride, out, head->key_stride);

    product.transpose_a = true;
    product.alpha = scale;
    product.adds = block->keys < head->context;
    return multiply(head, &product);
}

/* Start with the last block: only this one reaches every key, so it overwrites the sums to which
 * the others add. */
static cddp_status backward_block(const struct cpu_attention_head *head,
                                  const struct cpu_attention_block *block, const float *log_sum)
{
    size_t at = block->first * head->packed;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        block->rows, head->width, block->keys, head->grad_scores, head->stride, head->k,
        head->key_stride, head->grad_q + at, head->packed);

    CDDPI_TRY(recompute(head, block, log_sum));
    CDDPI_TRY(key_gradient(head, block, 1, head->scores,
                           head->grad_out + block->first * head->plain, head->plain, head->grad_v));
    CDDPI_TRY(key_gradient(head, block, head->scale, head->grad_scores, head->q + at, head->packed,
                           head->grad_k));
    product.alpha = head->scale;
    return multiply(head, &product);
}

cddp_status cddpi_attention_backward(const struct cddpi_attention *shape, const float *qkv,
                                     const float *out, const float *grad_out, const float *kept,
                                     float *grad_qkv, float *scratch)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        struct cpu_attention_head head = head_at(shape, i, qkv, scratch);
        float *grad_k, *grad_v;

        head.out = out + output_at(shape, i);
        head.grad_out = grad_out + output_at(shape, i);
        head.grad_q = grad_qkv + (head.q - qkv);
        head.grad_k = grad_k = head.grad_q + head.plain;
        head.grad_v = grad_v = head.grad_k + head.plain;
        if (head.copies != NULL) {
            gather(&head);
        }
        for (size_t b = block_count(shape); status == CDDP_OK && b-- > 0;) {
            struct cpu_attention_block block = block_at(shape, b);

            status = backward_block(&head, &block, kept + i * shape->context);
        }
        if (head.copies != NULL) {
            scatter(&head, grad_k, grad_v);
        }
    }
    return status;
}
