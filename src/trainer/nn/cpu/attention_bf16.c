/* attention_bf16.c - owns attention's products with bf16 factors. The loops are those of
 * cpu_attention.c; each block of queries has its own primitives, because oneDNN fixes their shapes.
 *
 * A head's keys are packed once. The packed form of all keys begins with the packed form of the
 * first ones, as long as a head is not wider than a block of columns. */
#include "nn/cpu/cpu_attention.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/transformer.h"
#include "nn/cpu/dnnl.h"
#include "nn/model_state.h"

#include <math.h>

enum { BLOCK = 64 }; /* queries of a block; a multiple of CDDPI_BF16_ROWS */

/* Queries [first, first + rows) against keys [0, keys). All matrices are dense, because the fast
 * kernels accept no others. The number of keys is rounded up to a multiple of 16, with zeros from
 * the packed forms. */
struct attention_bf16_block {
    size_t first, rows, keys, columns;
    struct cddpi_primitive scores, values; /* for forward; backward also uses `scores` */
    struct cddpi_primitive grad_p, grad_v, grad_k, grad_q; /* for backward */
};

struct cddpi_attention_bf16 {
    struct cddpi_attention shape;
    struct attention_bf16_block *blocks;
    size_t block_count;
    int forward_memory, backward_memory; /* buffers */
};

/* The memory for one head's pass. */
struct attention_bf16_memory {
    float *head, *scores, *grad_scores, *rows, *result, *grad_k, *grad_v;
    uint16_t *q, *q_packed, *k_turned, *k_packed, *v_turned, *v_packed, *grad, *grad_packed;
    uint16_t *p, *p_turned, *ds_turned;
};

/* Reserve @p count elements at *@p at, aligned for vectors. Without @p memory, only add up bytes.
 */
static void *take_memory(char *memory, size_t *at, size_t count, size_t element_bytes)
{
    size_t here = *at;

    *at += (count * element_bytes + 63) / 64 * 64;
    return memory != NULL ? memory + here : NULL;
}

/* Place the memory of one head's pass. Returns its bytes. */
static size_t lay_out(const struct cddpi_attention *shape, bool backward, char *memory,
                      struct attention_bf16_memory *out)
{
    size_t context = shape->context;
    size_t plain = context * shape->width;
    size_t keys = (context + 15) / 16 * 16;
    size_t scores = BLOCK * keys;
    size_t turned = cddpi_bf16_packed_count(shape->width, context);
    size_t packed = cddpi_bf16_packed_count(context, shape->width);
    size_t at = 0;

    *out = (struct attention_bf16_memory){0};
    out->head = take_memory(memory, &at, plain, sizeof(float));
    out->scores = take_memory(memory, &at, scores, sizeof(float));
    out->rows = take_memory(memory, &at, BLOCK, sizeof(float));
    out->result = take_memory(memory, &at, BLOCK * shape->width, sizeof(float));
    out->q = take_memory(memory, &at, plain, sizeof(uint16_t));
    out->k_turned = take_memory(memory, &at, turned, sizeof(uint16_t));
    out->p = take_memory(memory, &at, scores, sizeof(uint16_t));
    if (!backward) {
        out->v_packed = take_memory(memory, &at, packed, sizeof(uint16_t));
        return at;
    }
    out->grad_scores = take_memory(memory, &at, scores, sizeof(float));
    out->grad_k = take_memory(memory, &at, keys * shape->width, sizeof(float));
    out->grad_v = take_memory(memory, &at, keys * shape->width, sizeof(float));
    out->grad = take_memory(memory, &at, plain, sizeof(uint16_t));
    out->v_turned = take_memory(memory, &at, turned, sizeof(uint16_t));
    out->q_packed = take_memory(memory, &at, packed, sizeof(uint16_t));
    out->k_packed = take_memory(memory, &at, packed, sizeof(uint16_t));
    out->grad_packed = take_memory(memory, &at, packed, sizeof(uint16_t));
    out->p_turned = take_memory(memory, &at, scores, sizeof(uint16_t));
    out->ds_turned = take_memory(memory, &at, scores, sizeof(uint16_t));
    return at;
}

static cddp_status plan_block(struct cddpi_plan *plan, int index, struct cddpi_dnnl *dnnl,
                              const struct cddpi_attention *shape,
                              struct attention_bf16_block *block)
{
    size_t rows = block->rows;
    size_t columns = block->columns;
    size_t width = shape->width;
    /* backward starts with the last block */
    unsigned add = block->keys == shape->context ? 0 : CDDPI_POST_ADD;
    const struct cddpi_bf16_matmul by_width = {.m = rows, .n = columns, .k = width};
    const struct cddpi_bf16_matmul by_keys = {.m = rows, .n = width, .k = columns};
    const struct cddpi_bf16_matmul by_rows = {.m = columns, .n = width, .k = rows, .post = add};
    const struct {
        struct cddpi_primitive *primitive;
        const struct cddpi_bf16_matmul *matmul;
        enum cddpi_lifetime lifetime;
    } all[] = {{&block->scores, &by_width, CDDPI_IN_BOTH},
               {&block->values, &by_keys, CDDPI_IN_FORWARD},
               {&block->grad_p, &by_width, CDDPI_IN_BACKWARD},
               {&block->grad_v, &by_rows, CDDPI_IN_BACKWARD},
               {&block->grad_k, &by_rows, CDDPI_IN_BACKWARD},
               {&block->grad_q, &by_keys, CDDPI_IN_BACKWARD}};

    for (int i = 0; i < (plan->training ? 6 : 2); i++) {
        CDDPI_TRY(cddpi_bf16_matmul_init(all[i].primitive, dnnl, all[i].matmul, plan, index,
                                         all[i].lifetime));
    }
    return CDDP_OK;
}

static cddp_status plan_blocks(struct cddpi_plan *plan, int index,
                               struct cddpi_attention_bf16 *state)
{
    size_t context = state->shape.context;
    struct cddpi_dnnl *dnnl;
    cddp_status status = cddpi_dnnl_get(plan->model, &dnnl);

    state->block_count = (context + BLOCK - 1) / BLOCK;
    state->blocks = cddpi_zalloc_array(state->block_count, sizeof *state->blocks);
    CDDPI_TRY_MEMORY(state->blocks != NULL, "attention: no memory for %zu blocks",
                     state->block_count);
    for (size_t i = 0; status == CDDP_OK && i < state->block_count; i++) {
        struct attention_bf16_block *block = &state->blocks[i];

        block->first = i * BLOCK;
        block->rows = context - block->first < BLOCK ? context - block->first : BLOCK;
        block->keys = block->first + block->rows;
        block->columns = (block->keys + 15) / 16 * 16;
        status = plan_block(plan, index, dnnl, &state->shape, block);
    }
    return status;
}

cddp_status cddpi_attention_bf16_plan(struct cddpi_plan *plan, int index,
                                      const struct cddpi_attention *shape,
                                      struct cddpi_attention_bf16 **out)
{
    struct cddpi_attention_bf16 *state;
    struct attention_bf16_memory memory;
    cddp_status status;

    *out = NULL;
    if (plan->model->precision != CDDPI_PRECISION_BF16 || plan->model->bf16 != CDDPI_BF16_AMX ||
        shape->width > CDDPI_BF16_COLUMNS) {
        return CDDP_OK;
    }
    state = cddpi_zalloc(sizeof *state);
    CDDPI_TRY_MEMORY(state != NULL, "attention: no memory for %zu bytes", sizeof *state);
    *out = state;
    state->shape = *shape;
    status = plan_blocks(plan, index, state);
    if (status == CDDP_ERR_UNAVAILABLE) {
        cddpi_attention_bf16_destroy(state);
        *out = NULL;
        return CDDP_OK;
    }
    CDDPI_TRY(status);
    state->forward_memory = cddpi_plan_buffer(plan, index, lay_out(shape, false, NULL, &memory),
                                              CDDPI_IN_FORWARD);
    if (plan->training) {
        state->backward_memory = cddpi_plan_buffer(plan, index, lay_out(shape, true, NULL, &memory),
                                                   CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

void cddpi_attention_bf16_destroy(struct cddpi_attention_bf16 *state)
{
    if (state == NULL) {
        return;
    }
    for (size_t i = 0; state->blocks != NULL && i < state->block_count; i++) {
        cddpi_primitive_fini(&state->blocks[i].scores);
        cddpi_primitive_fini(&state->blocks[i].values);
        cddpi_primitive_fini(&state->blocks[i].grad_p);
        cddpi_primitive_fini(&state->blocks[i].grad_v);
        cddpi_primitive_fini(&state->blocks[i].grad_k);
        cddpi_primitive_fini(&state->blocks[i].grad_q);
    }
    cddpi_free(state->blocks);
    cddpi_free(state);
}

/* out = scale x, for rows of @p width elements that are @p stride apart. */
static void copy_rows(const float *x, size_t stride, size_t rows, size_t width, float scale,
                      float *out, size_t out_stride)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < width; c++) {
            out[r * out_stride + c] = scale * x[r * stride + c];
        }
    }
}

static float scale_of(const struct cddpi_attention *shape)
{
    return (float)(1 / sqrt((double)shape->width));
}

/* One head of one sample: the offsets of its columns. */
struct attention_bf16_head {
    size_t packed_at, plain_at, row_at; /* offsets in qkv, out and kept */
    size_t packed, plain;               /* elements between rows */
};

static struct attention_bf16_head head_at(const struct cddpi_attention *shape, size_t i)
{
    size_t plain = shape->heads * shape->width;
    size_t row = i / shape->heads * shape->context;
    size_t column = i % shape->heads * shape->width;

    return (struct attention_bf16_head){row * 3 * plain + column, row * plain + column,
                                        i * shape->context, 3 * plain, plain};
}

static cddp_status forward_block(const struct cddpi_exec *exec, struct attention_bf16_block *block,
                                 size_t width, const struct attention_bf16_head *head,
                                 const struct attention_bf16_memory *memory, float *out,
                                 float *kept)
{
    const struct cddpi_attention_kernels *kernels = cddpi_transformer_kernels()->attention;
    float *log_sum = kept != NULL ? kept + head->row_at + block->first : NULL;
    const uint16_t *q = memory->q + block->first * width;
    struct cddpi_bf16_forms p = {.plain = memory->p};

    CDDPI_TRY(cddpi_primitive_run(exec, &block->scores,
                                  (const void *[]){q, memory->k_turned, memory->scores}));
    out += head->plain_at + block->first * head->plain;
    kernels->softmax(memory->scores, block->columns, block->rows, block->keys, block->first,
                     memory->rows, log_sum);
    cddpi_bf16_split(memory->scores, block->rows, block->columns, &p);
    CDDPI_TRY(cddpi_primitive_run(exec, &block->values,
                                  (const void *[]){memory->p, memory->v_packed, memory->result}));
    kernels->divide(memory->result, width, block->rows, width, memory->rows);
    copy_rows(memory->result, width, block->rows, width, 1, out, head->plain);
    return CDDP_OK;
}

cddp_status cddpi_attention_bf16_forward(const struct cddpi_exec *exec,
                                         struct cddpi_attention_bf16 *state, const float *qkv,
                                         float *out, float *kept)
{
    const struct cddpi_attention *shape = &state->shape;
    size_t context = shape->context;
    size_t width = shape->width;
    struct attention_bf16_memory memory;
    cddp_status status = CDDP_OK;

    (void)lay_out(shape, false, cddpi_exec_buffer(exec, state->forward_memory), &memory);
    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        struct attention_bf16_head head = head_at(shape, i);
        const float *q = qkv + head.packed_at;

        copy_rows(q, head.packed, context, width, scale_of(shape), memory.head, width);
        cddpi_bf16_split(memory.head, context, width,
                         &(struct cddpi_bf16_forms){.plain = memory.q});
        copy_rows(q + head.plain, head.packed, context, width, 1, memory.head, width);
        cddpi_bf16_pack_transposed(memory.head, context, width, memory.k_turned);
        copy_rows(q + 2 * head.plain, head.packed, context, width, 1, memory.head, width);
        cddpi_bf16_split(memory.head, context, width,
                         &(struct cddpi_bf16_forms){.packed = memory.v_packed});
        for (size_t b = 0; status == CDDP_OK && b < state->block_count; b++) {
            status = forward_block(exec, &state->blocks[b], width, &head, &memory, out, kept);
        }
    }
    return status;
}

/* Pack the factors of a head's products. */
static void take_head(const struct cddpi_attention *shape, const struct attention_bf16_head *head,
                      const float *qkv, const float *grad_out,
                      const struct attention_bf16_memory *memory)
{
    size_t context = shape->context;
    size_t width = shape->width;
    const float *q = qkv + head->packed_at;
    struct cddpi_bf16_forms queries = {.plain = memory->q, .packed = memory->q_packed};
    struct cddpi_bf16_forms keys = {.packed = memory->k_packed};
    struct cddpi_bf16_forms grads = {.plain = memory->grad, .packed = memory->grad_packed};

    copy_rows(q, head->packed, context, width, scale_of(shape), memory->head, width);
    cddpi_bf16_split(memory->head, context, width, &queries);
    copy_rows(q + head->plain, head->packed, context, width, 1, memory->head, width);
    cddpi_bf16_pack_transposed(memory->head, context, width, memory->k_turned);
    cddpi_bf16_split(memory->head, context, width, &keys);
    copy_rows(q + 2 * head->plain, head->packed, context, width, 1, memory->head, width);
    cddpi_bf16_pack_transposed(memory->head, context, width, memory->v_turned);
    copy_rows(grad_out + head->plain_at, head->plain, context, width, 1, memory->head, width);
    cddpi_bf16_split(memory->head, context, width, &grads);
}

/* Recompute probabilities, and the gradient of the scores, and round both to factors. */
static cddp_status recompute(const struct cddpi_exec *exec, struct attention_bf16_block *block,
                             size_t width, const struct attention_bf16_head *head,
                             const struct attention_bf16_memory *memory, const float *out,
                             const float *grad_out, const float *log_sum)
{
    const struct cddpi_attention_kernels *kernels = cddpi_transformer_kernels()->attention;
    size_t at = head->plain_at + block->first * head->plain;
    struct cddpi_bf16_forms p = {.transposed = memory->p_turned};
    struct cddpi_bf16_forms ds = {.plain = memory->p, .transposed = memory->ds_turned};
    const uint16_t *q = memory->q + block->first * width;
    const uint16_t *grad = memory->grad + block->first * width;

    CDDPI_TRY(cddpi_primitive_run(exec, &block->scores,
                                  (const void *[]){q, memory->k_turned, memory->scores}));
    CDDPI_TRY(cddpi_primitive_run(exec, &block->grad_p,
                                  (const void *[]){grad, memory->v_turned, memory->grad_scores}));
    kernels->row_products(grad_out + at, out + at, head->plain, block->rows, width, memory->rows);
    kernels->backward(memory->scores, memory->grad_scores, block->columns, block->rows, block->keys,
                      block->first, log_sum + block->first, memory->rows);
    cddpi_bf16_split(memory->scores, block->rows, block->columns, &p);
    cddpi_bf16_split(memory->grad_scores, block->rows, block->columns, &ds);
    return CDDP_OK;
}

static cddp_status add_gradients(const struct cddpi_exec *exec, struct attention_bf16_block *block,
                                 const struct cddpi_attention *shape,
                                 const struct attention_bf16_head *head,
                                 const struct attention_bf16_memory *memory, float *grad_qkv)
{
    size_t width = shape->width;
    size_t part = cddpi_bf16_packed_count(block->first, width);
    float *grad_q = grad_qkv + head->packed_at + block->first * head->packed;

    CDDPI_TRY(cddpi_primitive_run(
        exec, &block->grad_v,
        (const void *[]){memory->p_turned, memory->grad_packed + part, memory->grad_v}));
    CDDPI_TRY(cddpi_primitive_run(
        exec, &block->grad_k,
        (const void *[]){memory->ds_turned, memory->q_packed + part, memory->grad_k}));
    CDDPI_TRY(cddpi_primitive_run(exec, &block->grad_q,
                                  (const void *[]){memory->p, memory->k_packed, memory->result}));
    copy_rows(memory->result, width, block->rows, width, scale_of(shape), grad_q, head->packed);
    return CDDP_OK;
}

/* Start with the last block: only this one reaches every key, so it overwrites the sums to which
 * the others add. */
cddp_status cddpi_attention_bf16_backward(const struct cddpi_exec *exec,
                                          struct cddpi_attention_bf16 *state, const float *qkv,
                                          const float *out, const float *grad_out,
                                          const float *kept, float *grad_qkv)
{
    const struct cddpi_attention *shape = &state->shape;
    struct attention_bf16_memory memory;
    cddp_status status = CDDP_OK;

    (void)lay_out(shape, true, cddpi_exec_buffer(exec, state->backward_memory), &memory);
    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        struct attention_bf16_head head = head_at(shape, i);

        take_head(shape, &head, qkv, grad_out, &memory);
        for (size_t b = state->block_count; status == CDDP_OK && b-- > 0;) {
            struct attention_bf16_block *block = &state->blocks[b];

            status = recompute(exec, block, shape->width, &head, &memory, out, grad_out,
                               kept + head.row_at);
            status = status == CDDP_OK ? add_gradients(exec, block, shape, &head, &memory, grad_qkv)
                                       : status;
        }
        copy_rows(memory.grad_k, shape->width, shape->context, shape->width, 1,
                  grad_qkv + head.packed_at + head.plain, head.packed);
        copy_rows(memory.grad_v, shape->width, shape->context, shape->width, 1,
                  grad_qkv + head.packed_at + 2 * head.plain, head.packed);
    }
    return status;
}
