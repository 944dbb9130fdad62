/* norm_passes.c - owns how batch normalisation's passes are divided: into tiles of at most sixteen
 * channels, and tiles into parts of the samples. The number of parts does not depend on the number
 * of threads, and the parts' sums are added in order. */
#include "nn/ops/norm_passes.h"

#include "kernels/cpu/norm.h"
#include "nn/cpu/threads.h"

#include <math.h>

enum { PARTS = 8 /* parts of the samples */, LANES = CDDPI_NORM_LANES };

/* The positions of the tiles in a layout's memory. */
struct norm_passes_grid {
    struct cddpi_nn_layout layout;
    size_t width;  /* channels in a vector, which then covers 16 / width positions */
    size_t across; /* tiles side by side in a block */
    size_t tiles, parts;
};

static struct norm_passes_grid grid_of(const struct cddpi_nn_layout *layout)
{
    struct norm_passes_grid grid = {.layout = *layout};
    size_t block;

    if (layout->spatial == 1 && (layout->block == 1 || layout->block == layout->channels)) {
        /* features: the same memory as the positions of one channels-last image */
        grid.layout = (struct cddpi_nn_layout){1, layout->channels, layout->samples,
                                               layout->channels};
    }
    block = grid.layout.block;
    grid.width = LANES % block == 0 ? block : LANES;
    grid.across = (block + grid.width - 1) / grid.width;
    grid.tiles = (layout->channels + block - 1) / block * grid.across;
    grid.parts = layout->samples < PARTS ? layout->samples : PARTS;
    return grid;
}

/* One tile of one part of the samples. */
struct norm_passes_place {
    struct cddpi_norm_tile tile;
    size_t channel; /* the channel of lane 0 */
    size_t used;    /* channels; lanes without a channel have coefficients of 0 */
    size_t first;   /* offset of the tile's first element in the first sample */
};

static struct norm_passes_place place_of(const struct norm_passes_grid *grid, size_t index,
                                         size_t begin, size_t end)
{
    const struct cddpi_nn_layout *layout = &grid->layout;
    size_t block = layout->block;
    size_t group = index / grid->across;
    size_t inside = index % grid->across * grid->width;
    size_t lanes = block - inside < grid->width ? block - inside : grid->width;
    struct norm_passes_place place = {.channel = group * block + inside,
                                      .first = group * layout->spatial * block + inside};
    struct cddpi_norm_tile *tile = &place.tile;
    size_t left = layout->channels > place.channel ? layout->channels - place.channel : 0;

    place.used = left < lanes ? left : lanes;
    tile->sample_stride = grid->tiles / grid->across * layout->spatial * block;
    tile->samples = end - begin;
    tile->offset = place.first + begin * tile->sample_stride;
    if (LANES % block == 0) { /* a sample's group of channels is contiguous */
        tile->full = layout->spatial * block / LANES;
        tile->rest = layout->spatial * block % LANES;
        tile->partial = tile->rest > 0 ? 1 : 0;
        tile->stride = LANES;
    } else {
        tile->full = lanes == LANES ? layout->spatial : 0;
        tile->rest = lanes;
        tile->partial = layout->spatial - tile->full;
        tile->stride = block;
    }
    return place;
}

/* The place of all samples. */
static struct norm_passes_place whole_of(const struct norm_passes_grid *grid, size_t index)
{
    return place_of(grid, index, 0, grid->layout.samples);
}

/* The place of part @p part of the samples. */
static struct norm_passes_place part_of(const struct norm_passes_grid *grid, size_t index,
                                        size_t part)
{
    return place_of(grid, index, part * grid->layout.samples / grid->parts,
                    (part + 1) * grid->layout.samples / grid->parts);
}

/* What the threads share; each pass uses the fields that it needs. */
struct norm_passes_pass {
    struct norm_passes_grid grid;
    /* Computes the two sums of a place's lanes; NULL: the pass sums nothing. */
    void (*sum)(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                const struct cddpi_norm_lanes *lanes, double *sums);
    /* Then stores the result of lane @p i's sums over all samples. */
    void (*keep)(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                 size_t i, double sum, double other);
    /* Then writes a place's elements; NULL: the pass writes nothing. */
    void (*transform)(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                      const struct cddpi_norm_lanes *lanes);
    const struct cddpi_norm_affine *affine;
    const float *x;
    double *partial; /* for each part of each tile: 2 x LANES */
    double *mean, *squares;
    bool divides; /* divide squares by the count, which makes them variances */
    const struct cddpi_norm_grad *grad;
    float *out;
};

static struct cddpi_norm_lanes lanes_of(const struct norm_passes_pass *pass, size_t tile,
                                        bool slopes)
{
    const struct cddpi_norm_affine *affine = pass->affine;
    struct norm_passes_place place = whole_of(&pass->grid, tile);
    struct cddpi_norm_lanes lanes = {.relu = affine->relu};

    for (size_t i = 0; i < place.used; i++) {
        size_t c = place.channel + i;
        double variance = affine->variance[c] + affine->epsilon;
        double factor = (double)affine->weight[c] / sqrt(variance);
        double lost;

        lanes.mean[i] = (float)affine->mean[c];
        lost = (double)lanes.mean[i] - affine->mean[c];
        lanes.factor[i] = (float)factor;
        lanes.shift[i] = (float)((double)affine->bias[c] + lost * factor);
        if (slopes) {
            const struct cddpi_norm_grad *grad = pass->grad;
            double slope = grad->products[c] / variance / grad->count;

            lanes.offset[i] = (float)(grad->sums[c] / grad->count + lost * slope);
            lanes.slope[i] = (float)slope;
        }
    }
    /* lanes that repeat the channels for further positions */
    for (size_t i = pass->grid.width; i < LANES; i++) {
        size_t first = i - pass->grid.width;

        lanes.mean[i] = lanes.mean[first];
        lanes.factor[i] = lanes.factor[first];
        lanes.shift[i] = lanes.shift[first];
        lanes.offset[i] = lanes.offset[first];
        lanes.slope[i] = lanes.slope[first];
    }
    return lanes;
}

static double *partial_of(const struct norm_passes_pass *pass, size_t tile, size_t part)
{
    return pass->partial + (tile * pass->grid.parts + part) * 2 * LANES;
}

static void sum_part(const struct norm_passes_pass *pass, size_t tile, size_t part,
                     const struct cddpi_norm_lanes *lanes)
{
    struct norm_passes_place place = part_of(&pass->grid, tile, part);

    pass->sum(pass, &place, lanes, partial_of(pass, tile, part));
}

/* Add up both sums of each lane of a tile's first vector, over all parts and all lanes of the
 * channel. */
static void sum_up(const struct norm_passes_pass *pass, size_t tile)
{
    struct norm_passes_place place = whole_of(&pass->grid, tile);

    for (size_t i = 0; i < place.used; i++) {
        double sum = 0;
        double other = 0;

        for (size_t part = 0; part < pass->grid.parts; part++) {
            const double *from = partial_of(pass, tile, part);

            for (size_t lane = i; lane < LANES; lane += pass->grid.width) {
                sum += from[lane];
                other += from[LANES + lane];
            }
        }
        pass->keep(pass, &place, i, sum, other);
    }
}

static void transform_place(const struct norm_passes_pass *pass, size_t tile,
                            const struct norm_passes_place *place)
{
    struct cddpi_norm_lanes lanes = lanes_of(pass, tile, pass->grad != NULL);

    pass->transform(pass, place, &lanes);
}

static struct cddpi_norm_lanes lanes_of_sum(const struct norm_passes_pass *pass, size_t tile)
{
    return pass->grad != NULL ? lanes_of(pass, tile, false)
                              : (struct cddpi_norm_lanes){.relu = false};
}

static void sum_item(void *context, size_t item)
{
    const struct norm_passes_pass *pass = context;
    size_t tile = item / pass->grid.parts;
    struct cddpi_norm_lanes lanes = lanes_of_sum(pass, tile);

    sum_part(pass, tile, item % pass->grid.parts, &lanes);
}

static void transform_item(void *context, size_t item)
{
    const struct norm_passes_pass *pass = context;
    size_t tile = item / pass->grid.parts;
    struct norm_passes_place place = part_of(&pass->grid, tile, item % pass->grid.parts);

    transform_place(pass, tile, &place);
}

/* Process a whole tile, which is still in the cache when it is read again. */
static void run_tile(void *context, size_t tile)
{
    const struct norm_passes_pass *pass = context;

    if (pass->sum != NULL) {
        struct cddpi_norm_lanes lanes = lanes_of_sum(pass, tile);

        for (size_t part = 0; part < pass->grid.parts; part++) {
            sum_part(pass, tile, part, &lanes);
        }
        sum_up(pass, tile);
    }
    if (pass->transform != NULL) {
        struct norm_passes_place place = whole_of(&pass->grid, tile);

        transform_place(pass, tile, &place);
    }
}

static void run_pass(struct norm_passes_pass *pass)
{
    size_t items = pass->grid.tiles * pass->grid.parts;

    if (pass->grid.tiles >= cddpi_team_size()) {
        cddpi_for_each(pass->grid.tiles, run_tile, pass);
        return;
    }
    if (pass->sum != NULL) {
        cddpi_for_each(items, sum_item, pass);
        for (size_t t = 0; t < pass->grid.tiles; t++) {
            sum_up(pass, t);
        }
    }
    if (pass->transform != NULL) {
        cddpi_for_each(items, transform_item, pass);
    }
}

size_t cddpi_norm_partial(const struct cddpi_nn_layout *layout)
{
    struct norm_passes_grid grid = grid_of(layout);

    return grid.tiles * grid.parts * 2 * LANES;
}

/* The first value of the channel. Its squared distance from the mean is at most the sum of squared
 * deviations, so the cancellation error of the final subtraction is bounded by the float64 rounding
 * of the two sums, times the number of values. */
static float pivot_of(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                      size_t c)
{
    return c < place->used ? pass->x[place->first + c] : 0;
}

static void sum_moments(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                        const struct cddpi_norm_lanes *lanes, double *sums)
{
    float pivot[LANES];

    (void)lanes;
    for (size_t i = 0; i < LANES; i++) {
        pivot[i] = pivot_of(pass, place, i % pass->grid.width);
    }
    cddpi_norm_kernels()->moments(pass->x, &place->tile, pivot, sums, sums + LANES);
}

static double count_of(const struct norm_passes_pass *pass)
{
    return (double)pass->grid.layout.samples * (double)pass->grid.layout.spatial;
}

static void keep_moments(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                         size_t i, double sum, double squares)
{
    double count = count_of(pass);

    squares -= sum / count * sum;
    squares = squares < 0 ? 0 : squares;
    pass->mean[place->channel + i] = (double)pivot_of(pass, place, i) + sum / count;
    pass->squares[place->channel + i] = pass->divides ? squares / count : squares;
}

static void keep_sum(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                     size_t i, double sum, double squares)
{
    (void)squares;
    pass->mean[place->channel + i] = sum + count_of(pass) * (double)pivot_of(pass, place, i);
}

static void normalize(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                      const struct cddpi_norm_lanes *lanes)
{
    cddpi_norm_kernels()->normalize(pass->x, &place->tile, lanes, pass->out);
}

void cddpi_norm_sums(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                     double *sums)
{
    struct norm_passes_pass pass = {.grid = grid_of(layout),
                                    .sum = sum_moments,
                                    .keep = keep_sum,
                                    .x = x,
                                    .partial = partial,
                                    .mean = sums};

    run_pass(&pass);
}

void cddpi_norm_moments(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                        double *mean, double *squares)
{
    struct norm_passes_pass pass = {.grid = grid_of(layout),
                                    .sum = sum_moments,
                                    .keep = keep_moments,
                                    .x = x,
                                    .partial = partial,
                                    .mean = mean,
                                    .squares = squares};

    run_pass(&pass);
}

void cddpi_norm_normalize(const float *x, const struct cddpi_nn_layout *layout,
                          const struct cddpi_norm_affine *affine, float *out)
{
    struct norm_passes_pass pass = {
        .grid = grid_of(layout), .transform = normalize, .affine = affine, .x = x, .out = out};

    run_pass(&pass);
}

void cddpi_norm_forward(const float *x, const struct cddpi_nn_layout *layout,
                        const struct cddpi_norm_affine *affine, double *partial, double *mean,
                        double *variance, float *out)
{
    struct norm_passes_pass pass = {.grid = grid_of(layout),
                                    .sum = sum_moments,
                                    .keep = keep_moments,
                                    .transform = normalize,
                                    .affine = affine,
                                    .x = x,
                                    .partial = partial,
                                    .mean = mean,
                                    .squares = variance,
                                    .divides = true,
                                    .out = out};

    run_pass(&pass);
}

static void sum_products(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                         const struct cddpi_norm_lanes *lanes, double *sums)
{
    cddpi_norm_kernels()->products(pass->grad->dy, pass->x, &place->tile, lanes, sums,
                                   sums + LANES);
}

static void keep_products(const struct norm_passes_pass *pass,
                          const struct norm_passes_place *place, size_t i, double sum,
                          double products)
{
    size_t c = place->channel + i;
    double mean = pass->affine->mean[c];

    pass->grad->sums[c] = sum;
    pass->grad->products[c] = products + ((double)(float)mean - mean) * sum;
}

static void gradient(const struct norm_passes_pass *pass, const struct norm_passes_place *place,
                     const struct cddpi_norm_lanes *lanes)
{
    cddpi_norm_kernels()->gradient(pass->grad->dy, pass->x, &place->tile, lanes, pass->out);
}

/* Only with @p sums, grad's sums are computed first. */
static void run_gradient(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, const struct cddpi_norm_grad *grad,
                         bool sums, float *out)
{
    struct norm_passes_pass pass = {.grid = grid_of(layout),
                                    .sum = sums ? sum_products : NULL,
                                    .keep = sums ? keep_products : NULL,
                                    .transform = out != NULL ? gradient : NULL,
                                    .affine = affine,
                                    .x = x,
                                    .partial = grad->partial,
                                    .grad = grad,
                                    .out = out};

    run_pass(&pass);
}

void cddpi_norm_gradient(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out)
{
    run_gradient(x, layout, affine, grad, false, out);
}

void cddpi_norm_backward(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out)
{
    run_gradient(x, layout, affine, grad, true, out);
}
