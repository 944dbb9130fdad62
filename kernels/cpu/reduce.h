/* reduce.h - element-wise reduction of several arrays, and casts between floating types.
 *
 * The sum is a fixed binary tree over the sources in their order (neighbours first; an odd last one
 * moves up alone), so every instruction set gives the same bits. f16 and bf16 are accumulated in
 * f32 and rounded once, to nearest even. If a result is NaN, it is always the same NaN. Any thread.
 *
 * A reduction can be cut into complete nodes of that tree, which are computed in several places:
 * cddpi_reduce_part() sums one node, cddpi_reduce_merges() combines the sums. The result has the
 * same bits as one cddpi_reduce() over all sources. */
#ifndef CDDPI_KERNELS_REDUCE_H
#define CDDPI_KERNELS_REDUCE_H

#include "base/shared.h"

#include <cddp/types.h>

#include <stdbool.h>

enum { CDDPI_REDUCE_MAX_SOURCES = 4096 };

struct cddpi_reduce {
    cddp_type type;
    cddp_op op;
    int sources;           /* 1 to CDDPI_REDUCE_MAX_SOURCES */
    int destinations;      /* 1 or more; all receive the same result */
    const double *factors; /* one for each source, for CDDP_OP_SUM of a floating type; a source with
                              factor 0 is not read. NULL: no factors */
};

/** dst[d][i] = op over s of src[s][i]. A destination may be a source; otherwise they do not
 *  overlap. */
void cddpi_reduce(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                  size_t count);

/** Make @p out a weighted mean of floating values: the plain mean if all weights are equal, and
 *  zero if they are all 0. Fills @p factors, which @p out points to. */
void cddpi_reduce_weighted(struct cddpi_reduce *out, cddp_type type, const double *weights,
                           int sources, double *factors);

/** The type of partial sums: f32 for f16 and bf16, i64 for a mean of i32, u8 or i8, otherwise the
 *  type itself. */
cddp_type cddpi_reduce_sum_type(cddp_type type, cddp_op op);

/** out[i] = op over s of src[s][i] in the type of partial sums, without the last step (dividing for
 *  a mean, rounding to the type). The sources are those below one node of the tree, in order.
 *  @p how: `destinations` is ignored. No overlap.
 *  @return false: all factors are 0; nothing was written, and the node contributes nothing. */
bool cddpi_reduce_part(const struct cddpi_reduce *how, void *out, const void *const *src,
                       size_t count);

/* A node of the tree whose value is available. */
struct cddpi_reduce_operand {
    const void *data; /* NULL: all its sources have factor 0, so it contributes nothing */
    bool is_leaf;  /* true: one source, in the caller's type; false: a sum, in the type of partial
                      sums */
    double factor; /* of a leaf, if there are factors; 0: the leaf is not read */
};

/* Operand `left` becomes its sum with operand `right`, its sibling, which is not used again. */
struct cddpi_reduce_merge {
    int left, right;
    void *out; /* where to write the sum, in the type of partial sums. It may be the memory of an
                  operand that is a sum; of a leaf only if the types are equal and there are no
                  factors. Not written if both operands contribute nothing. NULL: only a later merge
                  or the finish needs the sum */
};

struct cddpi_reduce_merges {
    cddp_type type;
    cddp_op op;
    bool has_factors;                            /* as in struct cddpi_reduce */
    const struct cddpi_reduce_operand *operands; /* 1 to CDDPI_REDUCE_MAX_SOURCES */
    int operand_count;
    /* children before parents, one subtree after the other */
    const struct cddpi_reduce_merge *merges;
    int merge_count;
    int destinations; /* 0: no finish. Otherwise the destinations receive the finished value of
                         operand `root`, which after all merges is the sum over `ranks` sources. A
                         destination may be the memory of an operand that is a leaf, or of any
                         operand if the types are equal */
    void *const *dst;
    int root;
    int ranks;
};

/** Do all merges, then the finish, in blocks of a few KiB that stay in the cache. */
void cddpi_reduce_merges(const struct cddpi_reduce_merges *how, size_t count);

/** Convert between f32, f16 and bf16, or copy if both types are the same. No overlap, but @p dst
 *  may be @p src if both types have the same size. */
CDDPI_SHARED void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type,
                             size_t count);

/* The versions of these functions for one instruction set. */
struct cddpi_reduce_isa {
    const char *name;
    void (*reduce)(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                   size_t count);
    bool (*part)(const struct cddpi_reduce *how, void *out, const void *const *src, size_t count);
    void (*merges)(const struct cddpi_reduce_merges *how, size_t count);
    void (*cast)(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count);
};

/** The instruction sets that this machine can run, the best last. @param out_count  At least 1. */
const struct cddpi_reduce_isa *const *cddpi_reduce_isas(size_t *out_count);

#endif
