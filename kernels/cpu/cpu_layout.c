/* cpu_layout.c - owns copies between blocked layouts and means over positions. */
#include "kernels/cpu/cpu_layout.h"

#include "kernels/cpu/isa.h"

#include <stdbool.h>
#include <string.h>

CDDPI_BODY size_t group_count(const struct cddpi_nn_layout *layout)
{
    return (layout->channels + layout->block - 1) / layout->block;
}

CDDPI_BODY size_t used_channels(const struct cddpi_nn_layout *layout, size_t group)
{
    size_t left = layout->channels - group * layout->block;

    return left < layout->block ? left : layout->block;
}

CDDPI_BODY void body_to_plain(const float *x, const struct cddpi_nn_layout *layout, float *plain)
{
    size_t groups = group_count(layout);
    size_t spatial = layout->spatial;
    size_t block = layout->block;

    for (size_t i = 0; i < layout->samples * groups; i++) {
        size_t group = i % groups;
        const float *from = x + i * spatial * block;
        float *to = plain + (i / groups * layout->channels + group * block) * spatial;

        for (size_t c = 0; c < used_channels(layout, group); c++) {
            for (size_t s = 0; s < spatial; s++) {
                to[c * spatial + s] = from[s * block + c];
            }
        }
    }
}

CDDPI_BODY void body_from_plain(const float *plain, const struct cddpi_nn_layout *layout,
                                float *out)
{
    size_t groups = group_count(layout);
    size_t spatial = layout->spatial;
    size_t block = layout->block;

    for (size_t i = 0; i < layout->samples * groups; i++) {
        size_t group = i % groups;
        size_t used = used_channels(layout, group);
        const float *from = plain + (i / groups * layout->channels + group * block) * spatial;
        float *to = out + i * spatial * block;

        for (size_t s = 0; s < spatial; s++) {
            for (size_t c = 0; c < used; c++) {
                to[s * block + c] = from[c * spatial + s];
            }
            for (size_t c = used; c < block; c++) {
                to[s * block + c] = 0;
            }
        }
    }
}

CDDPI_BODY size_t offset_of(const struct cddpi_nn_layout *layout, size_t channel, size_t position)
{
    return (channel / layout->block * layout->spatial + position) * layout->block +
           channel % layout->block;
}

/* Between layouts without padding, where the larger blocks consist of the smaller ones, of size
 * @p block. */
CDDPI_BODY void body_regroup_by(const float *x, const struct cddpi_nn_layout *from, float *out,
                                const struct cddpi_nn_layout *to, size_t block)
{
    size_t stride = from->channels * from->spatial;

    for (size_t n = 0; n < to->samples; n++) {
        for (size_t first = 0; first < to->channels; first += block) {
            const float *source = x + n * stride + offset_of(from, first, 0);
            float *sink = out + n * stride + offset_of(to, first, 0);

            for (size_t s = 0; s < to->spatial; s++) {
                for (size_t c = 0; c < block; c++) {
                    sink[s * to->block + c] = source[s * from->block + c];
                }
            }
        }
    }
}

CDDPI_BODY void body_regroup(const float *x, const struct cddpi_nn_layout *from, float *out,
                             const struct cddpi_nn_layout *to)
{
    size_t block = from->block < to->block ? from->block : to->block;

    if (block == 16) { /* the usual size, unrolled */
        body_regroup_by(x, from, out, to, 16);
    } else {
        body_regroup_by(x, from, out, to, block);
    }
}

CDDPI_BODY size_t run_length(const struct cddpi_nn_layout *layout, size_t channel)
{
    return layout->block - channel % layout->block;
}

/* Between any two layouts: copies as many channels at a time as are adjacent in both. */
CDDPI_BODY void body_reblock(const float *x, const struct cddpi_nn_layout *from, float *out,
                             const struct cddpi_nn_layout *to)
{
    size_t from_stride = group_count(from) * from->block * from->spatial;
    size_t to_stride = group_count(to) * to->block * to->spatial;
    size_t length;

    if (to->channels % to->block != 0) {
        memset(out, 0, to->samples * to_stride * sizeof *out);
    }
    for (size_t n = 0; n < to->samples; n++) {
        for (size_t c = 0; c < to->channels; c += length) {
            const float *source = x + n * from_stride + offset_of(from, c, 0);
            float *sink = out + n * to_stride + offset_of(to, c, 0);

            length = run_length(from, c) < run_length(to, c) ? run_length(from, c)
                                                             : run_length(to, c);
            length = length < to->channels - c ? length : to->channels - c;
            for (size_t s = 0; s < to->spatial; s++) {
                for (size_t i = 0; i < length; i++) {
                    sink[s * to->block + i] = source[s * from->block + i];
                }
            }
        }
    }
}

CDDPI_VARIANTS(reblock,
               (const float *x, const struct cddpi_nn_layout *from, float *out,
                const struct cddpi_nn_layout *to),
               (x, from, out, to))
CDDPI_VARIANTS(regroup,
               (const float *x, const struct cddpi_nn_layout *from, float *out,
                const struct cddpi_nn_layout *to),
               (x, from, out, to))

static bool regroups(const struct cddpi_nn_layout *a, const struct cddpi_nn_layout *b)
{
    return a->channels % a->block == 0 && b->channels % b->block == 0 &&
           (a->block % b->block == 0 || b->block % a->block == 0);
}

void cddpi_nn_convert(const float *x, const struct cddpi_nn_layout *from, float *out,
                      const struct cddpi_nn_layout *to)
{
    if (from->block == to->block) {
        memcpy(out, x, to->samples * group_count(to) * to->block * to->spatial * sizeof *out);
        return;
    }
    if (to->block == 1) {
        cddpi_nn_to_plain(x, from, out);
        return;
    }
    if (from->block == 1) {
        cddpi_nn_from_plain(x, to, out);
        return;
    }
    if (regroups(from, to)) {
        cddpi_nn_regroup(x, from, out, to);
        return;
    }
    cddpi_nn_reblock(x, from, out, to);
}

/* Means: a few positions are summed in float32, and these sums are added in float64. */
enum { MEAN_LANES = 16, MEAN_RUN = 16 };

CDDPI_BODY double plane_sum(const float *x, size_t count)
{
    double sum = 0;

    for (size_t first = 0; first < count; first += (size_t)MEAN_RUN * MEAN_LANES) {
        size_t left = count - first;
        size_t end = left < (size_t)MEAN_RUN * MEAN_LANES ? count
                                                          : first + (size_t)MEAN_RUN * MEAN_LANES;
        float part[MEAN_LANES] = {0};
        size_t s = first;

        for (; s + MEAN_LANES <= end; s += MEAN_LANES) {
            for (size_t lane = 0; lane < MEAN_LANES; lane++) {
                part[lane] += x[s + lane];
            }
        }
        for (size_t lane = 0; s < end; s++, lane++) {
            part[lane] += x[s];
        }
        for (size_t lane = 0; lane < MEAN_LANES; lane++) {
            sum += (double)part[lane];
        }
    }
    return sum;
}

/* The means of @p lanes adjacent channels. */
CDDPI_BODY void means_of(const float *x, const struct cddpi_nn_layout *layout, size_t lanes,
                         float *out)
{
    double sum[MEAN_LANES] = {0};

    for (size_t first = 0; first < layout->spatial; first += MEAN_RUN) {
        size_t left = layout->spatial - first;
        size_t end = left < MEAN_RUN ? layout->spatial : first + MEAN_RUN;
        float part[MEAN_LANES] = {0};

        for (size_t s = first; s < end; s++) {
            for (size_t c = 0; c < lanes; c++) {
                part[c] += x[s * layout->block + c];
            }
        }
        for (size_t c = 0; c < lanes; c++) {
            sum[c] += (double)part[c];
        }
    }
    for (size_t c = 0; c < lanes; c++) {
        out[c] = (float)(sum[c] / (double)layout->spatial);
    }
}

CDDPI_BODY void body_global_mean(const float *x, const struct cddpi_nn_layout *layout, float *mean)
{
    size_t groups = group_count(layout);

    for (size_t i = 0; i < layout->samples * groups; i++) {
        size_t group = i % groups;
        size_t used = used_channels(layout, group);
        const float *from = x + i * layout->spatial * layout->block;
        float *to = mean + i / groups * layout->channels + group * layout->block;

        if (layout->block == 1) {
            to[0] = (float)(plane_sum(from, layout->spatial) / (double)layout->spatial);
            continue;
        }
        for (size_t c = 0; c < used; c += MEAN_LANES) {
            size_t lanes = used - c < MEAN_LANES ? used - c : MEAN_LANES;

            means_of(from + c, layout, lanes, to + c);
        }
    }
}

CDDPI_BODY void body_global_mean_backward(const float *grad, const struct cddpi_nn_layout *layout,
                                          float *out)
{
    size_t groups = group_count(layout);
    float count = (float)layout->spatial;

    for (size_t i = 0; i < layout->samples * groups; i++) {
        size_t group = i % groups;
        size_t used = used_channels(layout, group);
        const float *from = grad + i / groups * layout->channels + group * layout->block;
        float *to = out + i * layout->spatial * layout->block;

        for (size_t s = 0; s < layout->spatial; s++) {
            for (size_t c = 0; c < layout->block; c++) {
                to[s * layout->block + c] = c < used ? from[c] / count : 0;
            }
        }
    }
}

CDDPI_VARIANTS(to_plain, (const float *x, const struct cddpi_nn_layout *layout, float *plain),
               (x, layout, plain))
CDDPI_VARIANTS(from_plain, (const float *plain, const struct cddpi_nn_layout *layout, float *out),
               (plain, layout, out))
CDDPI_VARIANTS(global_mean, (const float *x, const struct cddpi_nn_layout *layout, float *mean),
               (x, layout, mean))
CDDPI_VARIANTS(global_mean_backward,
               (const float *grad, const struct cddpi_nn_layout *layout, float *out),
               (grad, layout, out))
