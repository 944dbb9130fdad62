/* products.c - owns the choice between tiles and sgemm, and what sgemm leaves to be done. */
#include "nn/products.h"

#include "base/env.h"
#include "kernels/cpu/nn_elementwise.h"
#include "nn/model_state.h"

/* Below, splitting the factors takes longer than tiles save. */
static const size_t LEAST_SIDE = 64;
static const size_t LEAST_WORK = (size_t)1 << 20; /* multiplications */

bool cddpi_products_have_tiles(enum cddpi_products products)
{
    return products == CDDPI_PRODUCTS_AUTO &&
           cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1) == 1 && cddpi_nn_tiles_here();
}

bool cddpi_products_fit_tiles(size_t m, size_t n, size_t k)
{
    return m >= LEAST_SIDE && n >= LEAST_SIDE && k >= LEAST_SIDE && m * n * k >= LEAST_WORK;
}

cddp_status cddpi_product_plan(struct cddpi_plan *plan, int op, size_t m, size_t n, size_t k,
                               enum cddpi_lifetime lifetime, struct cddpi_product *out)
{
    out->tiled = plan->model->tiles && cddpi_products_fit_tiles(m, n, k);
    return out->tiled
               ? cddpi_plan_buffer(plan, op, cddpi_nn_tiles_scratch(n, k), lifetime, &out->scratch)
               : CDDP_OK;
}

cddp_status cddpi_product_run(const struct cddpi_run *run, const struct cddpi_product *plan,
                              const struct cddpi_nn_product *product)
{
    return cddpi_product(product, plan->tiled ? cddpi_run_buffer(run, plan->scratch) : NULL);
}

static cddp_status without_tiles(const struct cddpi_nn_product *p)
{
    cddp_status status = cddpi_gemm_strided(p->transpose_a, p->transpose_b, p->m, p->n, p->k,
                                            p->alpha, p->a, p->lda, p->b, p->ldb,
                                            p->adds ? 1.0f : 0.0f, p->c, p->ldc);

    if (status != CDDP_OK) {
        return status;
    }
    if (p->bias != NULL && p->relu) {
        cddpi_nn_add_bias_relu(p->c, p->bias, p->m, p->n);
    } else if (p->bias != NULL) {
        cddpi_nn_add_bias(p->c, p->bias, p->m, p->n);
    } else if (p->relu) {
        cddpi_nn_relu(p->c, p->c, p->m * p->n);
    }
    return CDDP_OK;
}

cddp_status cddpi_product(const struct cddpi_nn_product *product, void *scratch)
{
    if (scratch == NULL) {
        return without_tiles(product);
    }
    cddpi_nn_tiles_product(product, scratch);
    return CDDP_OK;
}
