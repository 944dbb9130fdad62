/* reduce.h - element-wise reduction of several arrays, and casts between floating types.
 *
 * The sum is a fixed binary tree over the sources in their order (neighbours first, an odd one out
 * goes up alone), so it has the same bits on every instruction set. f16 and bf16 are accumulated in
 * f32 and rounded once, to nearest even. A result that is not a number is always the same NaN. Any
 * thread.
 *
 * A reduction may be cut into complete nodes of that tree, done in several places: each sums its
 * nodes with cddpi_reduce_part(), someone brings the sums together with cddpi_reduce_merges(). The
 * result has the bits of one cddpi_reduce() over all sources. */
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

/** What sums that are not finished are held in: f32 for f16 and bf16, i64 for a mean of i32, u8 or
 * i8, else the type itself. */
cddp_type cddpi_reduce_sum_type(cddp_type type, cddp_op op);

/** out[i] = op over s of src[s][i] in the sum's type, without the last step (a mean's division,
 *  rounding to the type). The sources are all below one node of the tree, in order. @p how:
 *  `destinations` is not used. No overlap.
 *  @return false: all factors are 0; nothing was written, the node adds nothing. */
bool cddpi_reduce_part(const struct cddpi_reduce *how, void *out, const void *const *src,
                       size_t count);

/* A node of the tree that is there. */
struct cddpi_reduce_operand {
    const void *data; /* NULL: all of its sources have factor 0, it adds nothing */
    bool is_leaf;     /* one source, in the caller's type; else a sum, in the sum's type */
    double factor;    /* of a leaf, where there are factors; 0: it is not read */
};

/* Operand `left` becomes its sum with operand `right`, which is its sibling and is used up. */
struct cddpi_reduce_merge {
    int left, right;
    void *out; /* where the sum is wanted, in the sum's type; may be the memory of an operand that
                  is a sum, or, if the types are the same and there are no factors, of a leaf. Not
                  written when both add nothing. NULL: only a later merge or the finish needs it */
};

struct cddpi_reduce_merges {
    cddp_type type;
    cddp_op op;
    bool has_factors;                            /* as in struct cddpi_reduce */
    const struct cddpi_reduce_operand *operands; /* 1 to CDDPI_REDUCE_MAX_SOURCES */
    int operand_count;
    const struct cddpi_reduce_merge *merges; /* children before parents, subtree by subtree */
    int merge_count;
    int destinations; /* 0: no finish; else these get operand `root` finished, which after all
                         merges is the sum over `ranks` sources. A destination may be the memory of
                         an operand that is a leaf, or of any if the types are the same */
    void *const *dst;
    int root;
    int ranks;
};

/** Do all merges, then the finish, a few KiB at a time while they are in the cache. */
void cddpi_reduce_merges(const struct cddpi_reduce_merges *how, size_t count);

/** Convert between f32, f16 and bf16 (or copy, when both types are the same). No overlap, but
 *  @p dst may be @p src when both types have the same size. */
void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count);

/* One instruction set's versions of these. */
struct cddpi_reduce_isa {
    const char *name;
    void (*reduce)(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                   size_t count);
    bool (*part)(const struct cddpi_reduce *how, void *out, const void *const *src, size_t count);
    void (*merges)(const struct cddpi_reduce_merges *how, size_t count);
    void (*cast)(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count);
};

/** The instruction sets that this machine can run, best last. @param out_count  At least 1. */
const struct cddpi_reduce_isa *const *cddpi_reduce_isas(size_t *out_count);

#endif
