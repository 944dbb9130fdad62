/* cudnn_run.c - owns the entries of the kernel table that cuDNN takes over: passes their memory to
 * cuDNN's plans. */
#include "base/error.h"
#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/cuda/cudnn/cudnn_graphs.h"
#include "kernels/cuda/cudnn/cudnn_plan.h"

#include "base/log.h"

#include <math.h>

static const void *behind(const void *memory, size_t bytes)
{
    return (const char *)memory + bytes;
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* A plan that was built may still fail to run here. That is only known at its first call; if it
 * fails, the caller's own kernels do that call, and overwrite all of the output. */
static cddp_status execute(const struct cddpi_cudnn_use *use,
                           const struct cddpi_cudnn_pointers *pointers, void *workspace,
                           bool *out_done)
{
    bool measure = use->plan->alternative_count > 0 && !cddpi_cuda_capturing(use->cudnn->device);
    cddp_status status = CDDP_OK;

    if (measure) {
        status = cddpi_cudnn_plan_measure(use->plan, use->handle, pointers, workspace);
    }
    if (status == CDDP_OK) {
        status = cddpi_cudnn_plan_execute(use->plan, use->handle, pointers, workspace);
    }
    *out_done = status == CDDP_OK;
    if (status != CDDP_OK && !use->plan->ran && !cddpi_cuda_capturing(use->cudnn->device)) {
        cddpi_log(CDDPI_LOG_WARN, "%s; slower kernels are taken instead", cddp_last_error());
        use->plan->failed = true;
        cddpi_cudnn_reject(use);
        return CDDP_OK;
    }
    if (measure && status == CDDP_OK) {
        cddpi_cudnn_keep(use);
    }
    use->plan->ran = true;
    return status;
}

/* --- attention --- */

static void build_attention(struct cddpi_cudnn_graph *graph, const void *shape)
{
    graph->status = cddpi_cudnn_attention_fits(graph->cudnn, shape);
    cddpi_cudnn_attention_forward(graph, shape);
}

static void build_attention_grad(struct cddpi_cudnn_graph *graph, const void *shape)
{
    const struct cddpi_cuda_attention *attention = shape;

    graph->status = cddpi_cudnn_attention_fits(graph->cudnn, shape);
    cddpi_cudnn_attention_backward(graph, attention, attention->any_order);
}

static struct cddpi_cudnn_key attention_key(const struct cddpi_cuda_attention *shape,
                                            enum cddpi_cudnn_kind kind)
{
    bool any_order = kind == CDDPI_CUDNN_ATTENTION_GRAD && shape->any_order;

    return (struct cddpi_cudnn_key){kind,
                                    (int32_t)shape->type,
                                    {shape->batch, shape->heads, shape->length, shape->head},
                                    any_order};
}

/* Values in CPU memory, which cuDNN reads during the call. */
struct constants {
    float scale, hidden, one;
};

static struct constants constants_of(const struct cddpi_cuda_attention *shape)
{
    return (struct constants){1.0f / sqrtf((float)shape->head), -INFINITY, 1.0f};
}

/* Bytes of one sequence's queries, and of its results. */
static size_t row_bytes(const struct cddpi_cuda_attention *shape)
{
    return (size_t)shape->heads * (size_t)shape->head * cddp_type_bytes(shape->type);
}

/* The pointers that the gradient needs, too. */
static void bind_forward(struct cddpi_cudnn_pointers *p, const struct cddpi_cuda_attention *shape,
                         const void *qkv, const void *out, const float *stats,
                         const struct constants *constants)
{
    size_t row = row_bytes(shape);

    cddpi_cudnn_bind(p, CDDPI_ATTENTION_Q, qkv);
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_K, behind(qkv, row));
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_V, behind(qkv, 2 * row));
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_OUT, out);
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_STATS, stats);
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_SCALE, &constants->scale);
    cddpi_cudnn_bind(p, CDDPI_ATTENTION_HIDDEN, &constants->hidden);
}

cddp_status cddpi_cudnn_attention(struct cddpi_device *device,
                                  const struct cddpi_cuda_attention *shape, const void *qkv,
                                  void *out, float *stats, bool *out_done)
{
    struct cddpi_cudnn_key key = attention_key(shape, CDDPI_CUDNN_ATTENTION);
    struct constants constants = constants_of(shape);
    struct cddpi_cudnn_pointers p = {.count = 0};
    struct cddpi_cudnn_use use;
    void *workspace;
    size_t unwanted = 0; /* bytes for statistics that the caller did not ask for */

    /* no version has engines for float32, so do not even open the library */
    if (shape->type == CDDP_F32) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cudnn_find(device, &key, build_attention, shape, &use));
    if (use.plan == NULL) {
        return CDDP_OK;
    }
    if (stats == NULL) {
        unwanted = rounded_up((size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length *
                              sizeof(float));
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, unwanted + use.plan->workspace_bytes, &workspace));
    if (stats == NULL) {
        stats = workspace;
        workspace = (char *)workspace + unwanted;
    }
    bind_forward(&p, shape, qkv, out, stats, &constants);
    return execute(&use, &p, workspace, out_done);
}

/* Without any_order, cuDNN stores the gradients of all scores, 2 bytes each, so only a few
 * sequences are processed at once. Some versions also fail to compile such a plan beyond 1 GiB. */
static int sequences_at_once(const struct cddpi_cuda_attention *shape)
{
    const size_t most_bytes = (size_t)1 << 30;
    size_t length = ((size_t)shape->length + 127) / 128 * 128;
    size_t each = (size_t)shape->heads * length * length * 2;
    int count = shape->batch;

    if (shape->any_order) {
        return count;
    }
    while (count > 1 && (shape->batch % count != 0 || (size_t)count * each > most_bytes)) {
        count--;
    }
    return count;
}

/* Scratch memory of one call: the plan's workspace, the rows' dot products, the sums of dq. */
struct backward_scratch {
    void *workspace;
    float *dots, *sums;
};

static cddp_status get_scratch(struct cddpi_device *device,
                               const struct cddpi_cuda_attention *shape,
                               const struct cddpi_cudnn_plan *plan, struct backward_scratch *out)
{
    size_t rows = (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length;
    size_t dots = rounded_up(rows * sizeof(float));
    size_t sums = shape->any_order ? rounded_up(rows * (size_t)shape->head * sizeof(float)) : 0;
    char *memory;
    void *made;

    CDDPI_TRY(cddpi_cuda_scratch(device, dots + sums + plan->workspace_bytes, &made));
    memory = made;
    *out = (struct backward_scratch){memory + dots + sums, (float *)(void *)memory,
                                     (float *)(void *)(memory + dots)};
    return CDDP_OK;
}

struct backward_memory {
    const void *qkv, *out, *dout;
    const float *stats;
    void *dqkv;
};

static cddp_status run_backward(const struct cddpi_cudnn_use *use,
                                const struct cddpi_cuda_attention *shape,
                                const struct backward_memory *m,
                                const struct backward_scratch *scratch, bool *out_done)
{
    struct constants constants = constants_of(shape);
    struct cddpi_cudnn_pointers p = {.count = 0};
    size_t row = row_bytes(shape);

    bind_forward(&p, shape, m->qkv, m->out, m->stats, &constants);
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DOUT, m->dout);
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DQ, m->dqkv);
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DK, behind(m->dqkv, row));
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DV, behind(m->dqkv, 2 * row));
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DOTS, scratch->dots);
    cddpi_cudnn_bind(&p, CDDPI_ATTENTION_ONE, &constants.one);
    if (shape->any_order) {
        cddpi_cudnn_bind(&p, CDDPI_ATTENTION_DQ_SUMS, scratch->sums);
    }
    return execute(use, &p, scratch->workspace, out_done);
}

cddp_status cddpi_cudnn_attention_grad(struct cddpi_device *device,
                                       const struct cddpi_cuda_attention *shape, const void *qkv,
                                       const void *out, const float *stats, const void *dout,
                                       void *dqkv, bool *out_done)
{
    struct cddpi_cuda_attention part = *shape;
    struct cddpi_cudnn_key key;
    struct cddpi_cudnn_use use;
    struct backward_scratch scratch;
    cddp_status status;

    if (shape->type == CDDP_F32) {
        return CDDP_OK;
    }
    part.batch = sequences_at_once(shape);
    key = attention_key(&part, CDDPI_CUDNN_ATTENTION_GRAD);
    CDDPI_TRY(cddpi_cudnn_find(device, &key, build_attention_grad, &part, &use));
    if (use.plan == NULL) {
        return CDDP_OK;
    }
    status = get_scratch(device, &part, use.plan, &scratch);
    *out_done = status == CDDP_OK;
    for (int first = 0; *out_done && first < shape->batch; first += part.batch) {
        size_t rows = (size_t)first * (size_t)shape->length;
        size_t bytes = rows * row_bytes(shape);
        struct backward_memory memory = {behind(qkv, 3 * bytes), behind(out, bytes),
                                         behind(dout, bytes), stats + rows * (size_t)shape->heads,
                                         (char *)dqkv + 3 * bytes};

        status = run_backward(&use, &part, &memory, &scratch, out_done);
    }
    return status;
}

/* --- convolution --- */

struct conv_call {
    enum cddpi_cudnn_conv_pass pass;
    const struct cddpi_cuda_conv *shape;
};

static void build_conv(struct cddpi_cudnn_graph *graph, const void *shape)
{
    const struct conv_call *call = shape;

    cddpi_cudnn_conv_build(graph, call->pass, call->shape);
}

static cddp_status find_conv(struct cddpi_device *device, enum cddpi_cudnn_conv_pass pass,
                             const struct cddpi_cuda_conv *shape, struct cddpi_cudnn_use *out)
{
    struct conv_call call = {pass, shape};
    struct cddpi_cudnn_key key = {CDDPI_CUDNN_CONV + (int32_t)pass,
                                  (int32_t)shape->type,
                                  {shape->count, shape->channels, shape->height, shape->width,
                                   shape->outputs, shape->kernel, shape->stride, shape->padding},
                                  shape->any_order};

    return cddpi_cudnn_find(device, &key, build_conv, &call, out);
}

static cddp_status run_conv(const struct cddpi_cudnn_use *use, const void *x, const void *weight,
                            const void *y, void *workspace, bool *out_done)
{
    struct cddpi_cudnn_pointers p = {.count = 0};

    cddpi_cudnn_bind(&p, CDDPI_CONV_X, x);
    cddpi_cudnn_bind(&p, CDDPI_CONV_W, weight);
    cddpi_cudnn_bind(&p, CDDPI_CONV_Y, y);
    return execute(use, &p, workspace, out_done);
}

static cddp_status convolve(struct cddpi_device *device, enum cddpi_cudnn_conv_pass pass,
                            const struct cddpi_cuda_conv *shape, const void *x, const void *weight,
                            const void *y, bool *out_done)
{
    struct cddpi_cudnn_use use;
    void *workspace;

    CDDPI_TRY(find_conv(device, pass, shape, &use));
    if (use.plan == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, use.plan->workspace_bytes, &workspace));
    return run_conv(&use, x, weight, y, workspace, out_done);
}

cddp_status cddpi_cudnn_conv(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                             const void *x, const void *weight, void *y, bool *out_done)
{
    return convolve(device, CDDPI_CONV_FORWARD, shape, x, weight, y, out_done);
}

cddp_status cddpi_cudnn_conv_input(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                   const void *dy, const void *weight, void *dx, bool *out_done)
{
    return convolve(device, CDDPI_CONV_INPUT, shape, dx, weight, dy, out_done);
}

/* cuDNN writes the gradient in the type of activations, rounded once from float32 sums, and
 * overwrites the output. So the gradient goes through scratch memory, unless it is float32 and not
 * accumulated. */
static cddp_status convolve_weight(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                   const void *dy, const void *x, bool add, float *dweight,
                                   bool *out_done)
{
    size_t count = (size_t)shape->outputs * (size_t)shape->kernel * (size_t)shape->kernel *
                   (size_t)shape->channels;
    size_t bytes = rounded_up(count * cddp_type_bytes(shape->type));
    bool direct = shape->type == CDDP_F32 && !add;
    struct cddpi_cudnn_use use;
    void *memory;

    CDDPI_TRY(find_conv(device, CDDPI_CONV_WEIGHT, shape, &use));
    if (use.plan == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, bytes + use.plan->workspace_bytes, &memory));
    CDDPI_TRY(
        run_conv(&use, x, direct ? (void *)dweight : memory, dy, (char *)memory + bytes, out_done));
    return direct || !*out_done
               ? CDDP_OK
               : cddpi_cuda_add_float(device, shape->type, memory, count, add, dweight);
}

/* The same, with a copy of x that has whole vectors of channels. Scratch memory holds that copy,
 * then the gradient with those channels, then the plan's workspace. */
static cddp_status convolve_weight_whole(struct cddpi_device *device,
                                         const struct cddpi_cuda_conv *few, const void *dy,
                                         const void *x, bool add, float *dweight, bool *out_done)
{
    struct cddpi_cuda_conv whole = cddpi_cudnn_conv_whole(few);
    size_t row = CDDPI_WHOLE_CHANNELS * cddp_type_bytes(few->type);
    size_t pixels = (size_t)few->count * (size_t)few->height * (size_t)few->width;
    size_t taps = (size_t)few->outputs * (size_t)few->kernel * (size_t)few->kernel;
    size_t x_bytes = rounded_up(pixels * row);
    size_t gradient_bytes = rounded_up(taps * row);
    struct cddpi_cudnn_use use;
    void *memory;
    char *gradient;

    CDDPI_TRY(find_conv(device, CDDPI_CONV_WEIGHT, &whole, &use));
    if (use.plan == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(
        cddpi_cuda_scratch(device, x_bytes + gradient_bytes + use.plan->workspace_bytes, &memory));
    gradient = (char *)memory + x_bytes;
    CDDPI_TRY(cddpi_cuda_pad_channels(device, few->type, x, pixels, few->channels, memory));
    CDDPI_TRY(run_conv(&use, memory, gradient, dy, gradient + gradient_bytes, out_done));
    return *out_done ? cddpi_cuda_add_channels(device, few->type, gradient, taps, few->channels,
                                               add, dweight)
                     : CDDP_OK;
}

cddp_status cddpi_cudnn_conv_weight(struct cddpi_device *device,
                                    const struct cddpi_cuda_conv *shape, const void *dy,
                                    const void *x, bool add, float *dweight, bool *out_done)
{
    bool done = false;
    cddp_status status = cddpi_cudnn_conv_few(shape)
                             ? convolve_weight_whole(device, shape, dy, x, add, dweight, &done)
                             : CDDP_OK;

    if (status != CDDP_OK || done) {
        *out_done = done;
        return status;
    }
    return convolve_weight(device, shape, dy, x, add, dweight, out_done);
}
