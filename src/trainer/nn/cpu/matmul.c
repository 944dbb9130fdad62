/* matmul.c - chooses between AMX and sgemm for matrix products, and adds bias and relu after an
 * sgemm. */
#include "nn/cpu/matmul.h"

#include "base/env.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/model_state.h"

/* For smaller products, splitting the factors takes longer than AMX saves. */
static const size_t LEAST_SIDE = 64;
static const size_t LEAST_WORK = (size_t)1 << 20; /* in multiplications */

bool cddpi_matmul_has_amx(enum cddpi_matmul_mode matmul)
{
    return matmul == CDDPI_MATMUL_AUTO && cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1) == 1 &&
           cddpi_amx_gemm_available();
}

bool cddpi_matmul_fits_amx(size_t m, size_t n, size_t k)
{
    return m >= LEAST_SIDE && n >= LEAST_SIDE && k >= LEAST_SIDE && m * n * k >= LEAST_WORK;
}

struct cddpi_planned_matmul cddpi_matmul_plan(struct cddpi_plan *plan, int op, size_t m, size_t n,
                                              size_t k, enum cddpi_lifetime lifetime)
{
    struct cddpi_planned_matmul out = {.amx = plan->model->amx && cddpi_matmul_fits_amx(m, n, k)};

    if (out.amx) {
        out.scratch = cddpi_plan_buffer(plan, op, cddpi_amx_gemm_scratch(n, k), lifetime);
    }
    return out;
}

cddp_status cddpi_matmul_run(const struct cddpi_exec *exec, const struct cddpi_planned_matmul *plan,
                             const struct cddpi_nn_matmul *matmul)
{
    return cddpi_matmul(matmul, plan->amx ? cddpi_exec_buffer(exec, plan->scratch) : NULL);
}

static cddp_status by_sgemm(const struct cddpi_nn_matmul *p)
{
    CDDPI_TRY(cddpi_gemm_strided(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->alpha, p->a,
                                 p->lda, p->b, p->ldb, p->adds ? 1.0f : 0.0f, p->c, p->ldc));
    if (p->bias != NULL && p->relu) {
        cddpi_nn_add_bias_relu(p->c, p->bias, p->m, p->n);
    } else if (p->bias != NULL) {
        cddpi_nn_add_bias(p->c, p->bias, p->m, p->n);
    } else if (p->relu) {
        cddpi_nn_relu(p->c, p->c, p->m * p->n);
    }
    return CDDP_OK;
}

cddp_status cddpi_matmul(const struct cddpi_nn_matmul *matmul, void *scratch)
{
    if (scratch == NULL) {
        return by_sgemm(matmul);
    }
    cddpi_amx_gemm(matmul, scratch);
    return CDDP_OK;
}
