/* cudnn_dispatch.c - chooses the implementation of attention and convolutions: cuDNN if it can,
 * otherwise our own. That is for convolutions products of windows (im2col), a few images at a time;
 * for attention kernels that save the same data in forward, so forward and backward can use
 * different ones. */
#include "base/error.h"
#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/cuda/own_kernels.h"

/* One convolution as products: the number of images at once, and the bytes for each. */
struct conv_dispatch_pieces {
    struct cddpi_cuda_conv part;     /* for `part.count` images */
    struct cddpi_cuda_linear linear; /* for the same number of images */
    size_t x_bytes, y_bytes;         /* of one image */
    void *columns;    /* NULL: images need no copy, because each window is one pixel */
    void *transposed; /* transposed filters, for the input's gradient */
};

static bool is_plain(const struct cddpi_cuda_conv *shape)
{
    return shape->kernel == 1 && shape->stride == 1 && shape->padding == 0;
}

static size_t places_of(const struct cddpi_cuda_conv *shape)
{
    return (size_t)cddpi_cuda_conv_extent(shape->height, shape) *
           (size_t)cddpi_cuda_conv_extent(shape->width, shape);
}

/* The product for one image. @p back: for the input's gradient, where windows are of outputs. */
static struct cddpi_cuda_linear matmul_of(const struct cddpi_cuda_conv *shape, bool back)
{
    size_t inside = (size_t)shape->height * (size_t)shape->width;
    size_t window = (size_t)shape->kernel * (size_t)shape->kernel;
    size_t channels = (size_t)shape->channels;
    size_t outputs = (size_t)shape->outputs;
    bool transposed = back && !is_plain(shape);

    return (struct cddpi_cuda_linear){.type = shape->type,
                                      .rows = transposed ? inside : places_of(shape),
                                      .inputs = window * (transposed ? outputs : channels),
                                      .outputs = transposed ? channels : outputs,
                                      .epilogue = CDDPI_EPILOGUE_NONE,
                                      .any_order = shape->any_order};
}

static cddp_status start_pieces(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                bool back, struct conv_dispatch_pieces *out)
{
    const size_t most_bytes = (size_t)256 << 20;
    size_t element = cddp_type_bytes(shape->type);
    struct conv_dispatch_pieces pieces = {.part = *shape, .linear = matmul_of(shape, back)};
    size_t image = pieces.linear.rows * pieces.linear.inputs * element;
    size_t filters = back ? (pieces.linear.inputs * pieces.linear.outputs * element + 255) / 256 *
                                256
                          : 0;

    if (!is_plain(shape)) {
        size_t images = most_bytes / image > 0 ? most_bytes / image : 1;
        void *memory;

        pieces.part.count = images < (size_t)shape->count ? (int)images : shape->count;
        CDDPI_TRY(cddpi_cuda_scratch(device, filters + image * (size_t)pieces.part.count, &memory));
        pieces.transposed = memory;
        pieces.columns = (char *)memory + filters;
    }
    pieces.linear.rows *= (size_t)pieces.part.count;
    pieces.x_bytes = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels *
                     element;
    pieces.y_bytes = places_of(shape) * (size_t)shape->outputs * element;
    *out = pieces;
    return CDDP_OK;
}

/* The last piece may have fewer images. */
static void trim(struct conv_dispatch_pieces *pieces, int left)
{
    if (pieces->part.count > left) {
        pieces->linear.rows = pieces->linear.rows / (size_t)pieces->part.count * (size_t)left;
        pieces->part.count = left;
    }
}

/* The rows of the images from number @p first on: windows copied to columns, or @p x itself. */
static cddp_status rows_of(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                           struct conv_dispatch_pieces *pieces, const char *x, int first,
                           const void **out)
{
    const void *from = x + (size_t)first * pieces->x_bytes;

    trim(pieces, shape->count - first);
    *out = pieces->columns != NULL ? pieces->columns : from;
    return pieces->columns != NULL ? cddpi_cuda_im2col(device, &pieces->part, from, pieces->columns)
                                   : CDDP_OK;
}

static cddp_status own_conv(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                            const char *x, const void *weight, char *y)
{
    struct conv_dispatch_pieces pieces;

    CDDPI_TRY(start_pieces(device, shape, false, &pieces));
    for (int first = 0; first < shape->count; first += pieces.part.count) {
        const void *from;

        CDDPI_TRY(rows_of(device, shape, &pieces, x, first, &from));
        CDDPI_TRY(cddpi_cuda_rows(device)->linear(device, &pieces.linear, from, weight, NULL,
                                                  y + (size_t)first * pieces.y_bytes, NULL));
    }
    return CDDP_OK;
}

static cddp_status own_conv_input(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                  const char *dy, const void *weight, char *dx)
{
    struct conv_dispatch_pieces pieces;

    CDDPI_TRY(start_pieces(device, shape, true, &pieces));
    if (pieces.columns != NULL) {
        CDDPI_TRY(cddpi_cuda_transpose_filters(device, shape, weight, pieces.transposed));
    }
    for (int first = 0; first < shape->count; first += pieces.part.count) {
        const void *from = dy + (size_t)first * pieces.y_bytes;
        void *to = dx + (size_t)first * pieces.x_bytes;

        trim(&pieces, shape->count - first);
        if (pieces.columns == NULL) {
            CDDPI_TRY(cddpi_cuda_rows(device)->linear_input(device, &pieces.linear, from, weight,
                                                            NULL, to));
            continue;
        }
        CDDPI_TRY(cddpi_cuda_outputs_of_inputs(device, &pieces.part, from, pieces.columns));
        CDDPI_TRY(cddpi_cuda_rows(device)->linear(device, &pieces.linear, pieces.columns,
                                                  pieces.transposed, NULL, to, NULL));
    }
    return CDDP_OK;
}

static cddp_status own_conv_weight(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                   const char *dy, const char *x, bool add, float *dweight)
{
    struct conv_dispatch_pieces pieces;

    CDDPI_TRY(start_pieces(device, shape, false, &pieces));
    for (int first = 0; first < shape->count; first += pieces.part.count) {
        const void *from;

        CDDPI_TRY(rows_of(device, shape, &pieces, x, first, &from));
        CDDPI_TRY(cddpi_cuda_rows(device)->linear_weight(device, &pieces.linear,
                                                         dy + (size_t)first * pieces.y_bytes, from,
                                                         add || first > 0, dweight, NULL));
    }
    return CDDP_OK;
}

static bool is_empty(const struct cddpi_cuda_conv *shape)
{
    return shape->count == 0 || shape->channels == 0 || shape->outputs == 0 ||
           cddpi_cuda_conv_extent(shape->height, shape) <= 0 ||
           cddpi_cuda_conv_extent(shape->width, shape) <= 0;
}

static cddp_status conv(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                        const void *x, const void *weight, void *y)
{
    bool done = is_empty(shape);
    cddp_status status = done ? CDDP_OK : cddpi_cudnn_conv(device, shape, x, weight, y, &done);

    return status != CDDP_OK || done ? status : own_conv(device, shape, x, weight, y);
}

static cddp_status conv_input(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *dy, const void *weight, void *dx)
{
    bool done = shape->count == 0;
    cddp_status status = done ? CDDP_OK
                              : cddpi_cudnn_conv_input(device, shape, dy, weight, dx, &done);

    return status != CDDP_OK || done ? status : own_conv_input(device, shape, dy, weight, dx);
}

static cddp_status conv_weight(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                               const void *dy, const void *x, bool add, float *dweight)
{
    size_t count = (size_t)shape->outputs * (size_t)shape->kernel * (size_t)shape->kernel *
                   (size_t)shape->channels;
    bool done = false;
    cddp_status status;

    if (is_empty(shape)) { /* the gradient over an empty batch is 0 */
        return add ? CDDP_OK : cddpi_cuda_clear(device, dweight, count * sizeof *dweight);
    }
    status = cddpi_cudnn_conv_weight(device, shape, dy, x, add, dweight, &done);
    return status != CDDP_OK || done ? status : own_conv_weight(device, shape, dy, x, add, dweight);
}

void cddpi_cuda_fill_conv(struct cddpi_cuda_kernels *out)
{
    out->conv = conv;
    out->conv_input = conv_input;
    out->conv_weight = conv_weight;
}

/* --- attention --- */

static bool has_no_rows(const struct cddpi_cuda_attention *shape)
{
    return shape->batch == 0 || shape->heads == 0 || shape->length == 0 || shape->head == 0;
}

static cddp_status attention(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                             const void *qkv, void *out, float *stats)
{
    bool done = has_no_rows(shape);

    if (!done) {
        CDDPI_TRY(cddpi_cudnn_attention(device, shape, qkv, out, stats, &done));
    }
    return done ? CDDP_OK : cddpi_cuda_own_attention(device, shape, qkv, out, stats);
}

static cddp_status attention_grad(struct cddpi_device *device,
                                  const struct cddpi_cuda_attention *shape, const void *qkv,
                                  const void *out, const float *stats, const void *dout, void *dqkv)
{
    bool done = has_no_rows(shape);
    void *scratch;

    if (!done) {
        CDDPI_TRY(cddpi_cudnn_attention_grad(device, shape, qkv, out, stats, dout, dqkv, &done));
    }
    if (done) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_own_attention_scratch(shape), &scratch));
    return cddpi_cuda_own_attention_grad(device, shape, qkv, out, stats, dout, dqkv, scratch);
}

void cddpi_cuda_fill_attention(struct cddpi_cuda_kernels *out)
{
    out->attention = attention;
    out->attention_grad = attention_grad;
}
