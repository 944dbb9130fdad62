/* products.h - float32 products of ops: on AMX, in parts of bf16, where that is faster; else sgemm.
 *
 * Which it is depends on the sizes alone (and on the model), so that each run does the same. */
#ifndef CDDPI_NN_PRODUCTS_H
#define CDDPI_NN_PRODUCTS_H

#include "kernels/cpu/nn_tiles.h"
#include "nn/plan.h"

/** Whether this model's products may use tiles: train.products is "auto", the processor has them,
 *  and products have one thread ($CDDP_THREADS). */
bool cddpi_products_have_tiles(enum cddpi_products products);
/** Whether a product of m x n x k is large enough for them. */
bool cddpi_products_fit_tiles(size_t m, size_t n, size_t k);

/* One product of an op. */
struct cddpi_product {
    bool tiled;
    int scratch; /* buffer, where tiled */
};

/** Decide how a product of @p op's forward or backward is made, and ask for its memory. */
CDDP_CHECKED cddp_status cddpi_product_plan(struct cddpi_plan *plan, int op, size_t m, size_t n,
                                            size_t k, enum cddpi_lifetime lifetime,
                                            struct cddpi_product *out);
CDDP_CHECKED cddp_status cddpi_product_run(const struct cddpi_run *run,
                                           const struct cddpi_product *plan,
                                           const struct cddpi_nn_product *product);

/** The same for who has scratch of their own; NULL: sgemm. A bias or a relu needs ldc == n. */
CDDP_CHECKED cddp_status cddpi_product(const struct cddpi_nn_product *product, void *scratch);

#endif
