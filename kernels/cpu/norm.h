/* norm.h - the passes of batch normalisation over a tile of sixteen lanes. Sums are in float64: a
 * channel of a batch has millions of values, and float32 would lose digits that the variance needs.
 * The best instruction set of this CPU is chosen at run time; all choices give the same bits. Any
 * thread. */
#ifndef CDDPI_KERNELS_CPU_NORM_H
#define CDDPI_KERNELS_CPU_NORM_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_NORM_LANES = 16 };

/* The elements of an array that a pass reads or writes: for each sample `full` vectors of sixteen
 * elements, then `partial` vectors of which only the first `rest` elements count. Lane i of every
 * vector has coefficient i. */
struct cddpi_norm_tile {
    size_t samples, sample_stride; /* in elements, as all fields here */
    size_t offset;                 /* of the first vector of the first sample */
    size_t full, partial, rest;
    size_t stride; /* between vectors */
};

/* y = (x - mean) * factor + shift, then max(y, 0) if `relu` is set. For the gradient, dx = factor *
 * (dy - offset - (x - mean) * slope), where dy counts as 0 if the relu gave 0. */
struct cddpi_norm_lanes {
    float mean[CDDPI_NORM_LANES], factor[CDDPI_NORM_LANES], shift[CDDPI_NORM_LANES];
    float offset[CDDPI_NORM_LANES], slope[CDDPI_NORM_LANES];
    bool relu;
};

struct cddpi_norm_kernels {
    const char *name;
    /* sum[i] = sum of d, squares[i] = sum of d * d, where d is x - pivot[i] in float64. */
    void (*moments)(const float *x, const struct cddpi_norm_tile *tile, const float *pivot,
                    double *sum, double *squares);
    /* sum[i] = sum of dy, products[i] = sum of dy * (x - mean[i]) */
    void (*products)(const float *dy, const float *x, const struct cddpi_norm_tile *tile,
                     const struct cddpi_norm_lanes *lanes, double *sum, double *products);
    /* @p out may be @p x */
    void (*normalize)(const float *x, const struct cddpi_norm_tile *tile,
                      const struct cddpi_norm_lanes *lanes, float *out);
    /* @p out is dx; it may be @p dy or @p x */
    void (*gradient)(const float *dy, const float *x, const struct cddpi_norm_tile *tile,
                     const struct cddpi_norm_lanes *lanes, float *out);
};

const struct cddpi_norm_kernels *cddpi_norm_kernels(void);
/** The tables that this CPU can run, the best last. Returns their number. */
size_t cddpi_norm_kernels_all(const struct cddpi_norm_kernels *out[3]);

#endif
