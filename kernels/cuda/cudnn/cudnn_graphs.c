/* cudnn_graphs.c - owns the operation graphs of causal attention and of convolution.
 *
 * Attention's nodes are those that NVIDIA documents for fused attention ("cuDNN graph API":
 * supported graph patterns, "fused attention fprop" and "fused attention bprop"). Their order and
 * types are those that its open-source frontend (github.com/NVIDIA/cudnn-frontend, MIT) uses for
 * versions without single nodes for softmax and mask; versions newer than 9.20 still accept them.
 * cuDNN recognises the pattern as a whole: if a node is missing or a tensor has another type, there
 * is no engine for it.
 *
 *     forward   S = scale Q K', masked above the diagonal;  P = exp(S - max) / sum;  O = P V;
 *               stats = max + log(sum)
 *     backward  D = sum over columns of dO O;  P = exp(S - stats);  dV = P' dO;
 *               dS = scale P (dO V' - D);  dK = dS' Q;  dQ = dS K
 *
 * Values between products are float32. P and dS are rounded to the type of the inputs before they
 * are multiplied, as in other implementations for 16-bit types.
 *
 * A convolution's graph is a single node ("cuDNN graph API": CONVOLUTION_FORWARD,
 * CONVOLUTION_BACKWARD_DATA and CONVOLUTION_BACKWARD_FILTER). cuDNN names dimensions N, C, H, W
 * whatever their order in memory; strides say that channels are last. */
#include "kernels/cuda/cudnn/cudnn_graphs.h"

/* What the nodes of one graph share. */
struct cudnn_attention_builder {
    struct cddpi_cudnn_graph *graph;
    cudnnDataType_t type;
    struct cddpi_cudnn_layout packed;  /* strides of queries, keys and values in qkv */
    struct cddpi_cudnn_layout plain;   /* out and its gradient */
    struct cddpi_cudnn_layout scores;  /* batch x heads x length x length */
    struct cddpi_cudnn_layout flipped; /* its transpose */
    struct cddpi_cudnn_layout column;  /* batch x heads x length x 1 */
    cddpi_cudnn_node scale;
};

cddp_status cddpi_cudnn_attention_fits(const struct cddpi_cudnn *cudnn,
                                       const struct cddpi_cuda_attention *shape)
{
    /* up to this version, backward needs whole blocks of 128 keys */
    enum { LAST_WITH_PADDING = 91500 };

    if (shape->type != CDDP_BF16 && shape->type != CDDP_F16) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE,
                         "cuDNN's attention takes bf16 and f16, not %s",
                         cddp_type_name(shape->type));
    }
    if (shape->head % 8 != 0 || shape->head > 128) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE,
                         "cuDNN's attention takes heads whose width is a multiple of 8 up to 128, "
                         "not %d",
                         shape->head);
    }
    if (shape->length < 2 || (shape->length % 128 != 0 && cudnn->version <= LAST_WITH_PADDING)) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE,
                         "cuDNN %d.%d's attention is not used for sequences of %d",
                         cudnn->version / 10000, cudnn->version / 100 % 100, shape->length);
    }
    return CDDP_OK;
}

static struct cudnn_attention_builder make_builder(struct cddpi_cudnn_graph *graph,
                                                   const struct cddpi_cuda_attention *shape)
{
    int64_t b = shape->batch, h = shape->heads, t = shape->length, d = shape->head;
    struct cudnn_attention_builder builder = {
        .graph = graph,
        .type = cddpi_cudnn_type(shape->type),
        .packed = {{b, h, t, d}, {t * 3 * h * d, d, 3 * h * d, 1}},
        .plain = {{b, h, t, d}, {t * h * d, d, h * d, 1}},
        .scores = cddpi_cudnn_packed(b, h, t, t),
        .column = cddpi_cudnn_packed(b, h, t, 1),
    };

    builder.flipped = cddpi_cudnn_transposed(builder.scores);
    builder.scale = cddpi_cudnn_scalar(graph, CDDPI_ATTENTION_SCALE);
    return builder;
}

static cddpi_cudnn_node pointwise(const struct cudnn_attention_builder *builder,
                                  cudnnPointwiseMode_t mode, cddpi_cudnn_node x, cddpi_cudnn_node b,
                                  const struct cddpi_cudnn_layout *layout)
{
    cddpi_cudnn_node y = cddpi_cudnn_intermediate(builder->graph, CUDNN_DATA_FLOAT, layout);

    cddpi_cudnn_pointwise(builder->graph,
                          &(struct cddpi_cudnn_pointwise){
                              .mode = mode, .x = x, .b = b, .y = y, .math = CUDNN_DATA_FLOAT});
    return y;
}

static cddpi_cudnn_node matmul(const struct cudnn_attention_builder *builder, cddpi_cudnn_node a,
                               cddpi_cudnn_node b)
{
    cddpi_cudnn_node c = cddpi_cudnn_intermediate(builder->graph, CUDNN_DATA_FLOAT,
                                                  &builder->scores);

    cddpi_cudnn_matmul(builder->graph, a, b, c);
    return c;
}

static cddpi_cudnn_node reduce(const struct cudnn_attention_builder *builder,
                               cudnnReduceTensorOp_t op, cddpi_cudnn_node x)
{
    cddpi_cudnn_node y = cddpi_cudnn_intermediate(builder->graph, CUDNN_DATA_FLOAT,
                                                  &builder->column);

    cddpi_cudnn_reduce(builder->graph, op, x, y);
    return y;
}

static cddpi_cudnn_node index_of(const struct cudnn_attention_builder *builder,
                                 cddpi_cudnn_node scores, int axis)
{
    cddpi_cudnn_node y = cddpi_cudnn_intermediate(builder->graph, CUDNN_DATA_INT32,
                                                  &builder->scores);

    cddpi_cudnn_pointwise(builder->graph,
                          &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                                          .x = scores,
                                                          .y = y,
                                                          .math = CUDNN_DATA_FLOAT,
                                                          .axis = axis});
    return y;
}

/* row >= column ? scores : -inf */
static cddpi_cudnn_node mask(const struct cudnn_attention_builder *builder, cddpi_cudnn_node scores)
{
    struct cddpi_cudnn_graph *graph = builder->graph;
    cddpi_cudnn_node row = index_of(builder, scores, 2);
    cddpi_cudnn_node column = index_of(builder, scores, 3);
    cddpi_cudnn_node seen = cddpi_cudnn_intermediate(graph, CUDNN_DATA_BOOLEAN, &builder->scores);
    cddpi_cudnn_node hidden = cddpi_cudnn_scalar(graph, CDDPI_ATTENTION_HIDDEN);
    cddpi_cudnn_node masked = cddpi_cudnn_intermediate(graph, CUDNN_DATA_FLOAT, &builder->scores);

    cddpi_cudnn_pointwise(graph, &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_CMP_GE,
                                                                 .x = row,
                                                                 .b = column,
                                                                 .y = seen,
                                                                 .math = CUDNN_DATA_BOOLEAN});
    cddpi_cudnn_pointwise(graph,
                          &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                                          .x = scores,
                                                          .b = hidden,
                                                          .t = seen,
                                                          .y = masked,
                                                          .math = CUDNN_DATA_FLOAT});
    return masked;
}

void cddpi_cudnn_attention_forward(struct cddpi_cudnn_graph *graph,
                                   const struct cddpi_cuda_attention *shape)
{
    struct cudnn_attention_builder b = make_builder(graph, shape);
    struct cddpi_cudnn_layout keys = cddpi_cudnn_transposed(b.packed);
    cddpi_cudnn_node q = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_Q, b.type, &b.packed);
    cddpi_cudnn_node k = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_K, b.type, &keys);
    cddpi_cudnn_node v = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_V, b.type, &b.packed);
    cddpi_cudnn_node out = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_OUT, b.type, &b.plain);
    cddpi_cudnn_node stats = cddpi_cudnn_rows(graph, CDDPI_ATTENTION_STATS, &b.column);
    cddpi_cudnn_node p = cddpi_cudnn_intermediate(graph, b.type, &b.scores);
    cddpi_cudnn_node scores, max, powers, sum, log_sum;

    scores = pointwise(&b, CUDNN_POINTWISE_MUL, matmul(&b, q, k), b.scale, &b.scores);
    scores = mask(&b, scores);
    max = reduce(&b, CUDNN_REDUCE_TENSOR_MAX, scores);
    powers = pointwise(&b, CUDNN_POINTWISE_SUB, scores, max, &b.scores);
    powers = pointwise(&b, CUDNN_POINTWISE_EXP, powers, NULL, &b.scores);
    sum = reduce(&b, CUDNN_REDUCE_TENSOR_ADD, powers);
    log_sum = pointwise(&b, CUDNN_POINTWISE_LOG, sum, NULL, &b.column);
    cddpi_cudnn_pointwise(graph, &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_ADD,
                                                                 .x = max,
                                                                 .b = log_sum,
                                                                 .y = stats,
                                                                 .math = CUDNN_DATA_FLOAT});
    cddpi_cudnn_pointwise(
        graph,
        &(struct cddpi_cudnn_pointwise){
            .mode = CUDNN_POINTWISE_DIV, .x = powers, .b = sum, .y = p, .math = CUDNN_DATA_FLOAT});
    cddpi_cudnn_matmul(graph, p, v, out);
}

/* --- backward --- */

struct cudnn_attention_gradients {
    cddpi_cudnn_node q, k, v, out, stats, dout, dq, dk, dv, dots;
};

static struct cudnn_attention_gradients make_gradients(const struct cudnn_attention_builder *b)
{
    struct cddpi_cudnn_graph *graph = b->graph;
    struct cddpi_cudnn_layout transposed = cddpi_cudnn_transposed(b->packed);

    return (struct cudnn_attention_gradients){
        .q = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_Q, b->type, &b->packed),
        .k = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_K, b->type, &transposed),
        .v = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_V, b->type, &transposed),
        .out = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_OUT, b->type, &b->plain),
        .stats = cddpi_cudnn_rows(graph, CDDPI_ATTENTION_STATS, &b->column),
        .dout = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_DOUT, b->type, &b->plain),
        .dq = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_DQ, b->type, &b->packed),
        .dk = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_DK, b->type, &b->packed),
        .dv = cddpi_cudnn_memory(graph, CDDPI_ATTENTION_DV, b->type, &b->packed),
        .dots = cddpi_cudnn_rows(graph, CDDPI_ATTENTION_DOTS, &b->column)};
}

/* dots = sum of dout x out over a row, times 1 (the place of dropout's factor) */
static void make_dots(const struct cudnn_attention_builder *b,
                      const struct cudnn_attention_gradients *g)
{
    struct cddpi_cudnn_layout rows = cddpi_cudnn_packed(b->plain.dims[0], b->plain.dims[1],
                                                        b->plain.dims[2], b->plain.dims[3]);
    cddpi_cudnn_node one = cddpi_cudnn_scalar(b->graph, CDDPI_ATTENTION_ONE);
    cddpi_cudnn_node products = pointwise(b, CUDNN_POINTWISE_MUL, g->dout, g->out, &rows);

    cddpi_cudnn_pointwise(
        b->graph, &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_MUL,
                                                  .x = reduce(b, CUDNN_REDUCE_TENSOR_ADD, products),
                                                  .b = one,
                                                  .y = g->dots,
                                                  .math = CUDNN_DATA_FLOAT});
}

/* to = from' x: rows of keys from rows of queries */
static void transposed_matmul(const struct cudnn_attention_builder *b, cddpi_cudnn_node from,
                              cddpi_cudnn_node x, cddpi_cudnn_node to)
{
    cddpi_cudnn_node transposed = cddpi_cudnn_intermediate(b->graph, b->type, &b->flipped);

    cddpi_cudnn_reshape(b->graph, from, transposed);
    cddpi_cudnn_matmul(b->graph, transposed, x, to);
}

static void make_dq(const struct cudnn_attention_builder *b,
                    const struct cudnn_attention_gradients *g, cddpi_cudnn_node ds, bool sums_dq)
{
    struct cddpi_cudnn_graph *graph = b->graph;
    cddpi_cudnn_node keys = cddpi_cudnn_intermediate(graph, CUDNN_DATA_FLOAT, &b->packed);
    cddpi_cudnn_node sums;

    cddpi_cudnn_reshape(graph, g->k, keys);
    if (!sums_dq) {
        cddpi_cudnn_matmul(graph, ds, keys, g->dq);
        return;
    }
    sums = cddpi_cudnn_memory(
        graph, CDDPI_ATTENTION_DQ_SUMS, CUDNN_DATA_FLOAT,
        &(struct cddpi_cudnn_layout){
            {b->plain.dims[0], b->plain.dims[1], b->plain.dims[2], b->plain.dims[3]},
            {b->plain.dims[1] * b->plain.dims[2] * b->plain.dims[3],
             b->plain.dims[2] * b->plain.dims[3], b->plain.dims[3], 1}});
    cddpi_cudnn_matmul(graph, ds, keys, sums);
    cddpi_cudnn_pointwise(graph, &(struct cddpi_cudnn_pointwise){.mode = CUDNN_POINTWISE_IDENTITY,
                                                                 .x = sums,
                                                                 .y = g->dq,
                                                                 .math = CUDNN_DATA_FLOAT});
}

void cddpi_cudnn_attention_backward(struct cddpi_cudnn_graph *graph,
                                    const struct cddpi_cuda_attention *shape, bool sums_dq)
{
    struct cudnn_attention_builder b = make_builder(graph, shape);
    struct cudnn_attention_gradients g = make_gradients(&b);
    cddpi_cudnn_node p, ds;

    make_dots(&b, &g);
    p = pointwise(&b, CUDNN_POINTWISE_MUL, matmul(&b, g.q, g.k), b.scale, &b.scores);
    p = pointwise(&b, CUDNN_POINTWISE_SUB, p, g.stats, &b.scores);
    p = mask(&b, p);
    p = pointwise(&b, CUDNN_POINTWISE_EXP, p, NULL, &b.scores);
    transposed_matmul(&b, p, g.dout, g.dv);
    ds = pointwise(&b, CUDNN_POINTWISE_SUB, matmul(&b, g.dout, g.v), g.dots, &b.scores);
    ds = pointwise(&b, CUDNN_POINTWISE_MUL, ds, p, &b.scores);
    ds = pointwise(&b, CUDNN_POINTWISE_MUL, ds, b.scale, &b.scores);
    transposed_matmul(&b, ds, g.q, g.dk);
    make_dq(&b, &g, ds, sums_dq);
}

/* --- convolution --- */

static struct cddpi_cudnn_layout channels_last(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (struct cddpi_cudnn_layout){{n, c, h, w}, {h * w * c, 1, w * c, c}};
}

void cddpi_cudnn_conv_build(struct cddpi_cudnn_graph *graph, enum cddpi_cudnn_conv_pass pass,
                            const struct cddpi_cuda_conv *shape)
{
    struct cddpi_cudnn_layout x = channels_last(shape->count, shape->channels, shape->height,
                                                shape->width);
    struct cddpi_cudnn_layout w = channels_last(shape->outputs, shape->channels, shape->kernel,
                                                shape->kernel);
    struct cddpi_cudnn_layout y = channels_last(shape->count, shape->outputs,
                                                cddpi_cuda_conv_extent(shape->height, shape),
                                                cddpi_cuda_conv_extent(shape->width, shape));
    cudnnDataType_t type = cddpi_cudnn_type(shape->type);

    graph->single = type == CUDNN_DATA_FLOAT;
    cddpi_cudnn_convolve(graph, pass, shape->stride, shape->padding,
                         cddpi_cudnn_memory(graph, CDDPI_CONV_X, type, &x),
                         cddpi_cudnn_memory(graph, CDDPI_CONV_W, type, &w),
                         cddpi_cudnn_memory(graph, CDDPI_CONV_Y, type, &y));
}

bool cddpi_cudnn_conv_few(const struct cddpi_cuda_conv *shape)
{
    return cddp_type_bytes(shape->type) == 2 && shape->channels < CDDPI_WHOLE_CHANNELS;
}

struct cddpi_cuda_conv cddpi_cudnn_conv_whole(const struct cddpi_cuda_conv *shape)
{
    struct cddpi_cuda_conv whole = *shape;

    whole.channels = CDDPI_WHOLE_CHANNELS;
    return whole;
}
