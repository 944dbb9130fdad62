/* reduce.h - element-wise reduction of several arrays, and casts between floating types.
 *
 * The sum is a fixed binary tree over the sources in their order (neighbours first, an odd one out
 * goes up alone), so it has the same bits on every instruction set. f16 and bf16 are accumulated in
 * f32 and rounded once, to nearest even; a NaN stays one. Any thread. */
#ifndef CDDPI_KERNELS_REDUCE_H
#define CDDPI_KERNELS_REDUCE_H

#include <cddp/types.h>

#include <stdbool.h>

enum { CDDPI_REDUCE_MAX_SOURCES = 4096 };

struct cddpi_reduce {
    cddp_type type;
    cddp_op op;
    int sources;           /* 1 to CDDPI_REDUCE_MAX_SOURCES */
    int destinations;      /* all get the same; 1 or more */
    const double *factors; /* one a source, used with CDDP_OP_SUM of a floating type; a source with
                              factor 0 is not read. NULL: none */
};

/** dst[d][i] = op over s of src[s][i]. A destination may be a source, else they do not overlap. */
void cddpi_reduce(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                  size_t count);

/** The mean of floating numbers weighted by each source's weight: plain where all weights are
 * equal, and zero where they are 0. Fills @p factors, which @p out then uses. */
void cddpi_reduce_weighted(struct cddpi_reduce *out, cddp_type type, const double *weights,
                           int sources, double *factors);

/** Convert between f32, f16 and bf16 (or copy, when both types are the same). No overlap, but
 *  @p dst may be @p src when both types have the same size. */
void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count);

/* One instruction set's versions of the two. */
struct cddpi_reduce_isa {
    const char *name;
    void (*reduce)(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                   size_t count);
    void (*cast)(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count);
};

/** The instruction sets that this machine can run, best last. @param out_count  At least 1. */
const struct cddpi_reduce_isa *const *cddpi_reduce_isas(size_t *out_count);

#endif
