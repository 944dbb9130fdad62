/* nn_reference.h - a small network in float64, in plain loops: convolutions, batch normalisation,
 * relu, pools, one linear layer, cross-entropy. Images are N x C x H x W. */
#ifndef CDDP_TESTS_NN_NN_REFERENCE_H
#define CDDP_TESTS_NN_NN_REFERENCE_H

#include "support/nn.h"

enum { REFERENCE_LAYERS = 16 };

struct reference_value {
    int count, channels, height, width;
    double *x, *dx;
};

struct reference {
    const struct cddpi_layer *layers; /* complete: strides and kernels are set */
    int layer_count;
    struct reference_value values[REFERENCE_LAYERS + 1];
    double *grads[2 * REFERENCE_LAYERS]; /* of parameters, in their order */
    int grad_count;
    const cddp_param *params;
    const int32_t *labels;
    double loss;
    double margin; /* how near to a decision (of a relu, of a maximum) any number came */
};

static inline double *reference_at(const struct reference_value *v, double *numbers, int n, int c,
                                   int y, int x)
{
    return &numbers[((n * v->channels + c) * v->height + y) * v->width + x];
}

static inline size_t reference_elements(const struct reference_value *v)
{
    return (size_t)v->count * (size_t)v->channels * (size_t)v->height * (size_t)v->width;
}

/* What each tap of a window does, forward (dy NULL) or backward. */
static inline void reference_conv(const struct cddpi_layer *l, struct reference_value *in,
                                  struct reference_value *out, const float *w, double *dw,
                                  bool backward)
{
    for (int n = 0; n < out->count; n++) {
        for (int o = 0; o < out->channels; o++) {
            for (int y = 0; y < out->height; y++) {
                for (int x = 0; x < out->width; x++) {
                    double *result = reference_at(out, backward ? out->dx : out->x, n, o, y, x);

                    for (int tap = 0; tap < in->channels * l->kernel * l->kernel; tap++) {
                        int c = tap / (l->kernel * l->kernel);
                        int iy = y * l->stride - l->padding + tap / l->kernel % l->kernel;
                        int ix = x * l->stride - l->padding + tap % l->kernel;
                        size_t at = (size_t)(o * in->channels * l->kernel * l->kernel + tap);

                        if (iy < 0 || ix < 0 || iy >= in->height || ix >= in->width) {
                            continue;
                        }
                        if (backward) {
                            dw[at] += *result * *reference_at(in, in->x, n, c, iy, ix);
                            *reference_at(in, in->dx, n, c, iy, ix) += *result * (double)w[at];
                        } else {
                            *result += (double)w[at] * *reference_at(in, in->x, n, c, iy, ix);
                        }
                    }
                }
            }
        }
    }
}

static inline void reference_bias(struct reference_value *out, const float *b, double *db,
                                  bool backward)
{
    size_t plane = (size_t)out->height * (size_t)out->width;

    for (size_t i = 0; i < reference_elements(out); i++) {
        size_t c = i / plane % (size_t)out->channels;

        if (backward) {
            db[c] += out->dx[i];
        } else {
            out->x[i] += (double)b[c];
        }
    }
}

static inline void reference_pool(struct reference *r, const struct cddpi_layer *l,
                                  struct reference_value *in, struct reference_value *out,
                                  bool backward)
{
    double taps = (double)l->kernel * l->kernel;
    int plane = out->height * out->width;

    for (int i = 0; i < (int)reference_elements(out); i++) {
        int n = i / plane / out->channels;
        int c = i / plane % out->channels;
        double best = -INFINITY;
        double second = -INFINITY;
        double *from = NULL;
        double sum = 0;

        for (int tap = 0; tap < l->kernel * l->kernel; tap++) {
            int iy = i % plane / out->width * l->stride - l->padding + tap / l->kernel;
            int ix = i % out->width * l->stride - l->padding + tap % l->kernel;
            double value;

            if (iy < 0 || ix < 0 || iy >= in->height || ix >= in->width) {
                continue;
            }
            value = *reference_at(in, in->x, n, c, iy, ix);
            if (l->type == CDDPI_LAYER_AVG_POOL && backward) {
                *reference_at(in, in->dx, n, c, iy, ix) += out->dx[i] / taps;
            }
            sum += value;
            if (value > best) {
                second = best;
                best = value;
                from = reference_at(in, in->dx, n, c, iy, ix);
            } else {
                second = fmax(second, value);
            }
        }
        if (l->type == CDDPI_LAYER_AVG_POOL) {
            out->x[i] = sum / taps;
            continue;
        }
        out->x[i] = best;
        if (backward) {
            *from += out->dx[i];
        } else if (best != 0 || second != 0) { /* zeros of a relu have no gradient */
            r->margin = fmin(r->margin, best - second);
        }
    }
}

static inline void reference_norm(struct reference_value *in, struct reference_value *out,
                                  double epsilon, const float *scale, const float *shift,
                                  double *dscale, double *dshift, bool backward)
{
    size_t plane = (size_t)in->height * (size_t)in->width;
    size_t channels = (size_t)in->channels;
    double count = (double)in->count * (double)plane;

    for (size_t c = 0; c < channels; c++) {
        double sums[4] = {0}; /* x, (x - mean)^2, dy, dy (x - mean) */
        double mean, deviation;

        for (int pass = 0; pass < 3; pass++) {
            mean = sums[0] / count;
            deviation = sqrt(sums[1] / count + epsilon);
            for (size_t i = 0; i < (size_t)in->count * plane; i++) {
                size_t at = (i / plane * channels + c) * plane + i % plane;
                double centred = in->x[at] - mean;

                if (pass == 0) {
                    sums[0] += in->x[at];
                } else if (pass == 1) {
                    sums[1] += centred * centred;
                    sums[2] += backward ? out->dx[at] : 0;
                    sums[3] += backward ? out->dx[at] * centred : 0;
                } else if (backward) {
                    in->dx[at] = (double)scale[c] / deviation *
                                 (out->dx[at] - sums[2] / count -
                                  centred * sums[3] / (deviation * deviation * count));
                } else {
                    out->x[at] = centred / deviation * (double)scale[c] + (double)shift[c];
                }
            }
        }
        if (backward) {
            dscale[c] += sums[3] / deviation;
            dshift[c] += sums[2];
        }
    }
}

static inline void reference_relu(struct reference *r, struct reference_value *in,
                                  struct reference_value *out, bool backward)
{
    for (size_t i = 0; i < reference_elements(out); i++) {
        if (backward) {
            in->dx[i] = in->x[i] > 0 ? out->dx[i] : 0;
        } else {
            out->x[i] = fmax(in->x[i], 0);
            r->margin = fmin(r->margin, fabs(in->x[i]));
        }
    }
}

/* Layer @p i, whose parameters begin with number @p param. */
static inline void reference_layer(struct reference *r, int i, int param, bool backward)
{
    const struct cddpi_layer *l = &r->layers[i];
    struct reference_value *in = &r->values[i];
    struct reference_value *out = &r->values[i + 1];
    const float *first = r->params[param].data;
    double *first_grad = r->grads[param];

    switch (l->type) {
    case CDDPI_LAYER_CONV2D:
    case CDDPI_LAYER_LINEAR: /* its kernel is 1, of 1 x 1 images */
        reference_conv(l, in, out, first, first_grad, backward);
        if (!l->no_bias) {
            reference_bias(out, r->params[param + 1].data, r->grads[param + 1], backward);
        }
        break;
    case CDDPI_LAYER_BATCH_NORM:
        reference_norm(in, out, 1e-5, first, r->params[param + 1].data, first_grad,
                       r->grads[param + 1], backward);
        break;
    case CDDPI_LAYER_RELU:
        reference_relu(r, in, out, backward);
        break;
    case CDDPI_LAYER_FLATTEN:
        memcpy(backward ? in->dx : out->x, backward ? out->dx : in->x,
               reference_elements(in) * sizeof(double));
        break;
    default:
        reference_pool(r, l, in, out, backward);
    }
}

static inline int reference_params_of(const struct cddpi_layer *l)
{
    switch (l->type) {
    case CDDPI_LAYER_CONV2D:
    case CDDPI_LAYER_LINEAR:
        return l->no_bias ? 1 : 2;
    case CDDPI_LAYER_BATCH_NORM:
        return 2;
    default:
        return 0;
    }
}

static inline void reference_shape(struct reference *r, int i)
{
    const struct cddpi_layer *l = &r->layers[i];
    struct reference_value *out = &r->values[i + 1];

    *out = r->values[i];
    if (l->type == CDDPI_LAYER_FLATTEN) {
        out->channels *= out->height * out->width;
        out->height = out->width = 1;
    } else if (l->kernel > 0) {
        out->height = (out->height + 2 * l->padding - l->kernel) / l->stride + 1;
        out->width = (out->width + 2 * l->padding - l->kernel) / l->stride + 1;
    }
    if (l->units > 0) {
        out->channels = l->units;
    }
    out->x = calloc(reference_elements(out), sizeof(double));
    out->dx = calloc(reference_elements(out), sizeof(double));
}

/* Cross-entropy's loss and gradient, summed over samples. */
static inline void reference_loss(struct reference *r)
{
    struct reference_value *v = &r->values[r->layer_count];

    for (int n = 0; n < v->count; n++) {
        double *x = v->x + n * v->channels;
        double sum = 0;

        for (int c = 0; c < v->channels; c++) {
            sum += exp(x[c]);
        }
        r->loss += log(sum) - x[r->labels[n]];
        for (int c = 0; c < v->channels; c++) {
            v->dx[n * v->channels + c] = exp(x[c]) / sum - (c == r->labels[n] ? 1 : 0);
        }
    }
}

/* Loss and gradients of @p f's batch. */
static inline void reference_run(struct reference *r, const struct fixture *f,
                                 const struct cddpi_layer *layers, int layer_count,
                                 const struct cddpi_model_spec *spec)
{
    int param = 0;

    *r = (struct reference){.layers = layers,
                            .layer_count = layer_count,
                            .params = f->params,
                            .labels = f->label,
                            .margin = INFINITY};
    r->values[0] = (struct reference_value){f->batch.count, spec->channels, spec->height,
                                            spec->width,    NULL,           NULL};
    r->values[0].x = calloc(reference_elements(&r->values[0]), sizeof(double));
    r->values[0].dx = calloc(reference_elements(&r->values[0]), sizeof(double));
    for (size_t i = 0; i < reference_elements(&r->values[0]); i++) {
        r->values[0].x[i] = (double)f->input[i];
    }
    for (r->grad_count = 0; r->grad_count < (int)f->param_count; r->grad_count++) {
        r->grads[r->grad_count] = calloc(cddpi_tensor_elements(&f->params[r->grad_count]),
                                         sizeof(double));
    }
    for (int i = 0; i < layer_count; i++) {
        reference_shape(r, i);
        reference_layer(r, i, param, false);
        param += reference_params_of(&layers[i]);
    }
    reference_loss(r);
    for (int i = layer_count - 1; i >= 0; i--) {
        param -= reference_params_of(&layers[i]);
        reference_layer(r, i, param, true);
    }
}

static inline void reference_fini(struct reference *r)
{
    for (int i = 0; i <= r->layer_count; i++) {
        free(r->values[i].x);
        free(r->values[i].dx);
    }
    for (int i = 0; i < r->grad_count; i++) {
        free(r->grads[i]);
    }
}

#endif
