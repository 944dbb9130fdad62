/* norm.c - owns the passes of batch normalisation over blocked layouts.
 *
 * Each loop runs over one sample's block of channels at a time: `block` lanes for each of `spatial`
 * positions. A plain layout has one lane; there the positions take the lanes' place, so that its
 * sums run over several in parallel, too. */
#include "kernels/cpu/norm.h"

#include "kernels/cpu/variants.h"

enum { LANES = 16 };

/* Where row i (a block of channels of a sample) lies, and which channels it has. */
struct row {
    size_t offset, channel, used;
};

CDDPI_BODY size_t row_count(const struct cddpi_nn_layout *layout)
{
    return layout->samples * ((layout->channels + layout->block - 1) / layout->block);
}

CDDPI_BODY struct row row_at(const struct cddpi_nn_layout *layout, size_t i)
{
    size_t groups = (layout->channels + layout->block - 1) / layout->block;
    size_t channel = i % groups * layout->block;
    size_t left = layout->channels - channel;

    return (struct row){i * layout->spatial * layout->block, channel,
                        left < layout->block ? left : layout->block};
}

enum kind { SUM, SQUARES, PRODUCTS };

CDDPI_BODY float term(enum kind kind, const float *dy, const float *x, size_t at, float mean)
{
    float centred = kind == SUM ? 0 : x[at] - mean;

    switch (kind) {
    case SUM:
        return x[at];
    case SQUARES:
        return centred * centred;
    default:
        return dy[at] * centred;
    }
}

/* Rows whose lanes are channels. */
CDDPI_BODY void sum_lanes(enum kind kind, const float *dy, const float *x,
                          const struct cddpi_nn_layout *layout, const float *mean, double *sum)
{
    for (size_t i = 0; i < row_count(layout); i++) {
        struct row row = row_at(layout, i);

        for (size_t first = 0; first < row.used; first += LANES) {
            size_t lanes = row.used - first < LANES ? row.used - first : LANES;
            float part[LANES] = {0};

            for (size_t s = 0; s < layout->spatial; s++) {
                size_t at = row.offset + s * layout->block + first;

                for (size_t c = 0; c < lanes; c++) {
                    part[c] += term(kind, dy, x, at + c,
                                    kind == SUM ? 0 : mean[row.channel + first + c]);
                }
            }
            for (size_t c = 0; c < lanes; c++) {
                sum[row.channel + first + c] += (double)part[c];
            }
        }
    }
}

/* Rows of one channel. */
CDDPI_BODY void sum_positions(enum kind kind, const float *dy, const float *x,
                              const struct cddpi_nn_layout *layout, const float *mean, double *sum)
{
    for (size_t i = 0; i < row_count(layout); i++) {
        struct row row = row_at(layout, i);
        float centre = kind == SUM ? 0 : mean[row.channel];
        float part[LANES] = {0};
        size_t s = 0;

        for (; s + LANES <= layout->spatial; s += LANES) {
            for (size_t lane = 0; lane < LANES; lane++) {
                part[lane] += term(kind, dy, x, row.offset + s + lane, centre);
            }
        }
        for (size_t lane = 0; s < layout->spatial; s++, lane++) {
            part[lane] += term(kind, dy, x, row.offset + s, centre);
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            sum[row.channel] += (double)part[lane];
        }
    }
}

CDDPI_BODY void sum_terms(enum kind kind, const float *dy, const float *x,
                          const struct cddpi_nn_layout *layout, const float *mean, double *sum)
{
    for (size_t c = 0; c < layout->channels; c++) {
        sum[c] = 0;
    }
    if (layout->block == 1) {
        sum_positions(kind, dy, x, layout, mean, sum);
    } else {
        sum_lanes(kind, dy, x, layout, mean, sum);
    }
}

CDDPI_BODY void body_channel_sums(const float *x, const struct cddpi_nn_layout *layout, double *sum)
{
    sum_terms(SUM, x, x, layout, NULL, sum);
}

CDDPI_BODY void body_channel_squares(const float *x, const struct cddpi_nn_layout *layout,
                                     const float *mean, double *sum)
{
    sum_terms(SQUARES, x, x, layout, mean, sum);
}

CDDPI_BODY void body_channel_products(const float *dy, const float *x,
                                      const struct cddpi_nn_layout *layout, const float *mean,
                                      double *sum)
{
    sum_terms(PRODUCTS, dy, x, layout, mean, sum);
}

CDDPI_BODY float normal(float x, float mean, float factor, float shift, bool relu)
{
    float y = (x - mean) * factor + shift;

    return relu && y < 0 ? 0 : y;
}

CDDPI_BODY void body_normalize(const float *x, const struct cddpi_nn_layout *layout,
                               const float *mean, const float *factor, const float *shift,
                               bool relu, float *out)
{
    for (size_t i = 0; i < row_count(layout); i++) {
        struct row row = row_at(layout, i);

        if (layout->block == 1) {
            size_t c = row.channel;

            for (size_t s = 0; s < layout->spatial; s++) {
                out[row.offset + s] = normal(x[row.offset + s], mean[c], factor[c], shift[c], relu);
            }
            continue;
        }
        for (size_t s = 0; s < layout->spatial; s++) {
            size_t at = row.offset + s * layout->block;

            for (size_t lane = 0; lane < row.used; lane++) {
                size_t c = row.channel + lane;

                out[at + lane] = normal(x[at + lane], mean[c], factor[c], shift[c], relu);
            }
            for (size_t lane = row.used; lane < layout->block; lane++) {
                out[at + lane] = 0;
            }
        }
    }
}

CDDPI_BODY void body_normalize_backward(const float *dy, const float *x,
                                        const struct cddpi_nn_layout *layout, const float *mean,
                                        const float *factor, const float *offset,
                                        const float *slope, float *out)
{
    for (size_t i = 0; i < row_count(layout); i++) {
        struct row row = row_at(layout, i);

        if (layout->block == 1) {
            size_t c = row.channel;

            for (size_t s = 0; s < layout->spatial; s++) {
                size_t at = row.offset + s;

                out[at] = factor[c] * (dy[at] - offset[c] - (x[at] - mean[c]) * slope[c]);
            }
            continue;
        }
        for (size_t s = 0; s < layout->spatial; s++) {
            size_t at = row.offset + s * layout->block;

            for (size_t lane = 0; lane < row.used; lane++) {
                size_t c = row.channel + lane;

                out[at + lane] = factor[c] *
                                 (dy[at + lane] - offset[c] - (x[at + lane] - mean[c]) * slope[c]);
            }
            for (size_t lane = row.used; lane < layout->block; lane++) {
                out[at + lane] = 0;
            }
        }
    }
}

CDDPI_VARIANTS(channel_sums, (const float *x, const struct cddpi_nn_layout *layout, double *sum),
               (x, layout, sum))
CDDPI_VARIANTS(channel_squares,
               (const float *x, const struct cddpi_nn_layout *layout, const float *mean,
                double *sum),
               (x, layout, mean, sum))
CDDPI_VARIANTS(channel_products,
               (const float *dy, const float *x, const struct cddpi_nn_layout *layout,
                const float *mean, double *sum),
               (dy, x, layout, mean, sum))
CDDPI_VARIANTS(normalize,
               (const float *x, const struct cddpi_nn_layout *layout, const float *mean,
                const float *factor, const float *shift, bool relu, float *out),
               (x, layout, mean, factor, shift, relu, out))
CDDPI_VARIANTS(normalize_backward,
               (const float *dy, const float *x, const struct cddpi_nn_layout *layout,
                const float *mean, const float *factor, const float *offset, const float *slope,
                float *out),
               (dy, x, layout, mean, factor, offset, slope, out))
