/* norm.c - owns the passes of batch normalisation over a tile. Compiled once for each instruction
 * set, with CDDPI_ISA as its name.
 *
 * Sums run in float32 over at most BLOCK vectors, which stay in the L1 cache, in CHAINS chains for
 * each lane; the results are added in float64. So no float32 sum has more than eight terms, and a
 * moment loses less than twelve roundings (7e-7) for any values. All instruction sets give the same
 * bits, because each lane does the same whatever the register width. */
#include "kernels/cpu/norm.h"
#include "kernels/cpu/per_isa/lanes.h"

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll_count(4)")
#else
#define UNROLLED _Pragma("GCC unroll 4")
#endif

/* As many float64 as fit in a register, and the same number of float32. */
enum { HALF = LANES / 2, HALVES = GROUP / HALF, CHAINS = 4, BLOCK = 32 };
typedef double wide __attribute__((vector_size(4 * CDDPI_LANES)));
typedef float half __attribute__((vector_size(2 * CDDPI_LANES)));

struct wide_sums {
    wide part[HALVES];
};

/* Sixteen elements. */
struct group {
    lanes part[PARTS];
};

CDDPI_LANES_INLINE half half_load(const float *from)
{
    half v;

    memcpy(&v, from, sizeof v);
    return v;
}

CDDPI_LANES_INLINE wide wide_of(half x)
{
    /* gcc 12 turns the last of these into four instructions */
#if defined(__AVX512F__)
    return (wide)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX2__)
    return (wide)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, wide);
#endif
}

CDDPI_LANES_INLINE struct group group_load(const float *from)
{
    struct group group;

    for (size_t p = 0; p < PARTS; p++) {
        group.part[p] = lanes_load(from + p * LANES);
    }
    return group;
}

/* Sixteen elements in memory: the first @p count from @p from, the others from @p fill. */
struct filled {
    float element[GROUP];
};

CDDPI_LANES_INLINE struct filled filled_up(const float *from, size_t count, const float *fill)
{
    struct filled group;

    memcpy(group.element, fill, sizeof group.element);
    memcpy(group.element, from, count * sizeof *from);
    return group;
}

CDDPI_LANES_INLINE struct group group_load_part(const float *from, size_t count, const float *fill)
{
    struct filled group = filled_up(from, count, fill);

    return group_load(group.element);
}

/* The elements of a group from p * HALF on. */
CDDPI_LANES_INLINE half group_half(const struct group *group, size_t p)
{
    half v;

    memcpy(&v, (const char *)group->part + p * sizeof v, sizeof v);
    return v;
}

CDDPI_LANES_INLINE void group_store(float *to, const struct group *group)
{
    for (size_t p = 0; p < PARTS; p++) {
        lanes_store(to + p * LANES, group->part[p]);
    }
}

CDDPI_LANES_INLINE void group_store_part(float *to, const struct group *group, size_t count)
{
    float element[GROUP];

    group_store(element, group);
    memcpy(to, element, count * sizeof *element);
}

CDDPI_LANES_INLINE void store_sums(const struct wide_sums *sums, double *out)
{
    memcpy(out, sums->part, sizeof sums->part);
}

/* Two sums of a block, in several chains each. */
struct chains {
    lanes a[CHAINS], b[CHAINS];
};

CDDPI_LANES_INLINE lanes chains_meet(const lanes *chain)
{
    return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

CDDPI_LANES_INLINE lanes sum_of_block(const float *x, size_t count, size_t stride)
{
    lanes sum[CHAINS] = {{0}};
    size_t i = 0;

    for (; i + CHAINS <= count; i += CHAINS) {
        for (size_t k = 0; k < CHAINS; k++) {
            sum[k] += lanes_load(x + (i + k) * stride);
        }
    }
    for (; i < count; i++) {
        sum[0] += lanes_load(x + i * stride);
    }
    return chains_meet(sum);
}

CDDPI_LANES_INLINE void add_deviation(struct chains *chains, size_t k, const float *x, lanes centre)
{
    lanes d = lanes_load(x) - centre;

    chains->a[k] += d;
    chains->b[k] += d * d;
}

/* Convert a block's sums of d = x - centre to deviations from the pivot, which differs from centre
 * by e, and add them. */
CDDPI_LANES_INLINE void add_block(struct wide_sums *sum, struct wide_sums *squares,
                                  const struct group *centre, const struct group *d,
                                  const struct group *dd, const struct wide_sums *pivot,
                                  double count)
{
    for (size_t p = 0; p < HALVES; p++) {
        wide of_block = wide_of(group_half(d, p));
        wide e = wide_of(group_half(centre, p)) - pivot->part[p];
        wide ne = e * count;

        sum->part[p] += of_block + ne;
        squares->part[p] += wide_of(group_half(dd, p)) + e * (of_block + of_block + ne);
    }
}

CDDPI_LANES_INLINE void add_moments(struct wide_sums *sum, struct wide_sums *squares,
                                    const float *x, size_t count, size_t stride,
                                    const struct wide_sums *pivot)
{
    float share = 1.0f / (float)count;
    struct group centre, d, dd;

    for (size_t p = 0; p < PARTS; p++) {
        const float *from = x + p * LANES;
        struct chains chains = {{{0}}, {{0}}};
        size_t i = 0;

        centre.part[p] = sum_of_block(from, count, stride) * share;
        for (; i + CHAINS <= count; i += CHAINS) {
            for (size_t k = 0; k < CHAINS; k++) {
                add_deviation(&chains, k, from + (i + k) * stride, centre.part[p]);
            }
        }
        for (; i < count; i++) {
            add_deviation(&chains, 0, from + i * stride, centre.part[p]);
        }
        d.part[p] = chains_meet(chains.a);
        dd.part[p] = chains_meet(chains.b);
    }
    add_block(sum, squares, &centre, &d, &dd, pivot, (double)count);
}

/* One vector of which only some elements count. */
CDDPI_LANES_INLINE void add_part_moments(struct wide_sums *sum, struct wide_sums *squares,
                                         const float *x, size_t count, const float *pivot,
                                         const struct wide_sums *wide_pivot)
{
    struct filled group = filled_up(x, count, pivot);

    for (size_t p = 0; p < HALVES; p++) {
        wide d = wide_of(half_load(group.element + p * HALF)) - wide_pivot->part[p];

        sum->part[p] += d;
        squares->part[p] += d * d;
    }
}

CDDPI_LANES_INLINE size_t block_from(size_t i, size_t count)
{
    return count - i < BLOCK ? count - i : BLOCK;
}

static void moments(const float *x, const struct cddpi_norm_tile *where, const float *pivot,
                    double *sum, double *squares)
{
    const struct cddpi_norm_tile tile = *where;
    struct wide_sums sums = {{{0}}};
    struct wide_sums square_sums = {{{0}}};
    struct wide_sums wide_pivot;

    for (size_t p = 0; p < HALVES; p++) {
        wide_pivot.part[p] = wide_of(half_load(pivot + p * HALF));
    }
    for (size_t n = 0; n < tile.samples; n++) {
        const float *from = x + tile.offset + n * tile.sample_stride;

        for (size_t i = 0; i < tile.full; i += BLOCK) {
            add_moments(&sums, &square_sums, from + i * tile.stride, block_from(i, tile.full),
                        tile.stride, &wide_pivot);
        }
        from += tile.full * tile.stride;
        for (size_t i = 0; i < tile.partial; i++) {
            add_part_moments(&sums, &square_sums, from + i * tile.stride, tile.rest, pivot,
                             &wide_pivot);
        }
    }
    store_sums(&sums, sum);
    store_sums(&square_sums, squares);
}

/* Part @p p of the tile's coefficients. */
struct affine {
    lanes mean, factor, shift;
};

CDDPI_LANES_INLINE struct affine affine_of(const struct cddpi_norm_lanes *all, size_t p)
{
    return (struct affine){lanes_load(all->mean + p * LANES), lanes_load(all->factor + p * LANES),
                           lanes_load(all->shift + p * LANES)};
}

/* The same operations in forward and backward, so that the relu's mask in backward agrees with the
 * output. */
CDDPI_LANES_INLINE lanes normal(lanes x, const struct affine *affine)
{
    return (x - affine->mean) * affine->factor + affine->shift;
}

CDDPI_LANES_INLINE lanes mask(lanes dy, lanes x, const struct affine *affine, bool relu)
{
    return relu ? (lanes)((normal(x, affine) > 0) & (lane_bits)dy) : dy;
}

/* Add dy after the mask, and its product with the deviation. */
CDDPI_LANES_INLINE void add_product(struct chains *chains, size_t k, const float *dy,
                                    const float *x, const struct affine *affine, bool relu)
{
    lanes from = lanes_load(x);
    lanes grad = mask(lanes_load(dy), from, affine, relu);

    chains->a[k] += grad;
    chains->b[k] += grad * (from - affine->mean);
}

CDDPI_LANES_INLINE void add_products(struct wide_sums *sum, struct wide_sums *products,
                                     const float *dy, const float *x, size_t count, size_t stride,
                                     const struct affine *affine, bool relu)
{
    struct group of_dy, of_products;

    for (size_t p = 0; p < PARTS; p++) {
        struct chains chains = {{{0}}, {{0}}};
        size_t at = p * LANES;
        size_t i = 0;

        for (; i + CHAINS <= count; i += CHAINS) {
            for (size_t k = 0; k < CHAINS; k++, at += stride) {
                add_product(&chains, k, dy + at, x + at, &affine[p], relu);
            }
        }
        for (; i < count; i++, at += stride) {
            add_product(&chains, 0, dy + at, x + at, &affine[p], relu);
        }
        of_dy.part[p] = chains_meet(chains.a);
        of_products.part[p] = chains_meet(chains.b);
    }
    for (size_t p = 0; p < HALVES; p++) {
        sum->part[p] += wide_of(group_half(&of_dy, p));
        products->part[p] += wide_of(group_half(&of_products, p));
    }
}

CDDPI_LANES_INLINE void sum_products(const float *dy, const float *x,
                                     const struct cddpi_norm_tile *where,
                                     const struct cddpi_norm_lanes *all, bool relu, double *sum,
                                     double *products)
{
    static const float zeros[GROUP];
    const struct cddpi_norm_tile tile = *where;
    struct wide_sums sums = {{{0}}};
    struct wide_sums product_sums = {{{0}}};
    struct affine affine[PARTS];

    for (size_t p = 0; p < PARTS; p++) {
        affine[p] = affine_of(all, p);
    }
    for (size_t n = 0; n < tile.samples; n++) {
        size_t at = tile.offset + n * tile.sample_stride;

        for (size_t i = 0; i < tile.full; i += BLOCK) {
            add_products(&sums, &product_sums, dy + at + i * tile.stride, x + at + i * tile.stride,
                         block_from(i, tile.full), tile.stride, affine, relu);
        }
        at += tile.full * tile.stride;
        for (size_t i = 0; i < tile.partial; i++, at += tile.stride) {
            struct filled grad = filled_up(dy + at, tile.rest, zeros);
            struct filled group = filled_up(x + at, tile.rest, all->mean);

            add_products(&sums, &product_sums, grad.element, group.element, 1, 0, affine, relu);
        }
    }
    store_sums(&sums, sum);
    store_sums(&product_sums, products);
}

static void products(const float *dy, const float *x, const struct cddpi_norm_tile *where,
                     const struct cddpi_norm_lanes *all, double *sum, double *out)
{
    if (all->relu) {
        sum_products(dy, x, where, all, true, sum, out);
    } else {
        sum_products(dy, x, where, all, false, sum, out);
    }
}

CDDPI_LANES_INLINE struct group normal_group(struct group x, const struct affine *affine, bool relu)
{
    for (size_t p = 0; p < PARTS; p++) {
        lanes y = normal(x.part[p], &affine[p]);

        x.part[p] = relu ? (lanes)(~(y < 0) & (lane_bits)y) : y; /* a NaN stays a NaN */
    }
    return x;
}

CDDPI_LANES_INLINE void normalize_tile(const float *x, const struct cddpi_norm_tile *where,
                                       const struct cddpi_norm_lanes *all, bool relu, float *out)
{
    const struct cddpi_norm_tile tile = *where; /* a local copy: stores cannot alias it */
    struct affine affine[PARTS];

    for (size_t p = 0; p < PARTS; p++) {
        affine[p] = affine_of(all, p);
    }
    for (size_t n = 0; n < tile.samples; n++) {
        size_t at = tile.offset + n * tile.sample_stride;

        UNROLLED
        for (size_t i = 0; i < tile.full; i++, at += tile.stride) {
            struct group y = normal_group(group_load(x + at), affine, relu);

            group_store(out + at, &y);
        }
        for (size_t i = 0; i < tile.partial; i++, at += tile.stride) {
            struct group y = normal_group(group_load_part(x + at, tile.rest, all->mean), affine,
                                          relu);

            group_store_part(out + at, &y, tile.rest);
        }
    }
}

static void normalize(const float *x, const struct cddpi_norm_tile *where,
                      const struct cddpi_norm_lanes *all, float *out)
{
    if (all->relu) {
        normalize_tile(x, where, all, true, out);
    } else {
        normalize_tile(x, where, all, false, out);
    }
}

/* Part @p p of a gradient's coefficients. */
struct slopes {
    lanes offset, slope;
};

CDDPI_LANES_INLINE struct group gradient_group(struct group dy, const struct group *x,
                                               const struct affine *affine,
                                               const struct slopes *slopes, bool relu)
{
    for (size_t p = 0; p < PARTS; p++) {
        lanes grad = mask(dy.part[p], x->part[p], &affine[p], relu);

        dy.part[p] = affine[p].factor *
                     (grad - slopes[p].offset - (x->part[p] - affine[p].mean) * slopes[p].slope);
    }
    return dy;
}

CDDPI_LANES_INLINE void gradient_tile(const float *dy, const float *x,
                                      const struct cddpi_norm_tile *where,
                                      const struct cddpi_norm_lanes *all, bool relu, float *out)
{
    const struct cddpi_norm_tile tile = *where; /* a local copy: stores cannot alias it */
    static const float zeros[GROUP];
    struct affine affine[PARTS];
    struct slopes slopes[PARTS];

    for (size_t p = 0; p < PARTS; p++) {
        affine[p] = affine_of(all, p);
        slopes[p] = (struct slopes){lanes_load(all->offset + p * LANES),
                                    lanes_load(all->slope + p * LANES)};
    }
    for (size_t n = 0; n < tile.samples; n++) {
        size_t at = tile.offset + n * tile.sample_stride;

        UNROLLED
        for (size_t i = 0; i < tile.full; i++, at += tile.stride) {
            struct group group = group_load(x + at);
            struct group dx = gradient_group(group_load(dy + at), &group, affine, slopes, relu);

            group_store(out + at, &dx);
        }
        for (size_t i = 0; i < tile.partial; i++, at += tile.stride) {
            struct group group = group_load_part(x + at, tile.rest, all->mean);
            struct group dx = gradient_group(group_load_part(dy + at, tile.rest, zeros), &group,
                                             affine, slopes, relu);

            group_store_part(out + at, &dx, tile.rest);
        }
    }
}

static void gradient(const float *dy, const float *x, const struct cddpi_norm_tile *where,
                     const struct cddpi_norm_lanes *all, float *out)
{
    if (all->relu) {
        gradient_tile(dy, x, where, all, true, out);
    } else {
        gradient_tile(dy, x, where, all, false, out);
    }
}

#define NAME_OF(isa) #isa
#define NAME(isa) NAME_OF(isa)

extern const struct cddpi_norm_kernels CDDPI_LANES_JOIN(cddpi_norm_kernels_, CDDPI_ISA);
const struct cddpi_norm_kernels CDDPI_LANES_JOIN(cddpi_norm_kernels_, CDDPI_ISA) = {
    NAME(CDDPI_ISA), moments, products, normalize, gradient};
