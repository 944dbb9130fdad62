/* matmul.c - owns float32 matrix products: it chooses between AMX and sgemm, and adds bias and relu
 * after an sgemm. sgemm is oneDNN's own where it generates code for the CPU (on the MLP's shapes it
 * is about 12 % faster than OpenBLAS 0.3.21 on an AVX-512 core), elsewhere a CBLAS's. */
#include "nn/cpu/matmul.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "cddp_config.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/dnnl.h"
#include "nn/cpu/threads.h"
#include "nn/model_state.h"

#include <dlfcn.h>
#include <string.h>
#if CDDP_HAVE_CBLAS
#include <cblas.h>
#endif

/* address space for the code that a library generates, and its working memory */
enum { CODE_BYTES = 32 << 20 };

/* If the process has the library, call the function that sets its number of threads. */
static void tell(const char *function, int threads)
{
    void (*set_threads)(int);

    *(void **)&set_threads = dlsym(RTLD_DEFAULT, function);
    if (set_threads != NULL) {
        set_threads(threads);
    }
}

void cddpi_compute_threads(void)
{
    int threads = (int)cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1);

    /* Debian's oneDNN uses any OpenMP runtime in the process */
    tell("omp_set_num_threads", threads);
    tell("openblas_set_num_threads", threads);
}

cddp_status cddpi_compute_begin(void)
{
    float a[4] = {1, 2, 3, 4};
    float c[4];

    cddpi_compute_threads();
    cddpi_dnnl_limit();
    if (!cddpi_address_space_is_limited()) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_address_space_need(CODE_BYTES, "the first matrix product"));
    return cddpi_gemm(false, false, 2, 2, 2, a, a, 0, c);
}

cddp_status cddpi_gemm_strided(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                               float alpha, const float *a, size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    if (m == 0) { /* m or k is 0: a batch without samples */
        return CDDP_OK;
    }
    if (k == 0) {
        for (size_t r = 0; beta == 0 && r < m; r++) {
            memset(c + r * ldc, 0, n * sizeof *c);
        }
        return CDDP_OK;
    }
#if CDDP_HAVE_CBLAS
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda,
                b, (int)ldb, beta, c, (int)ldc);
    return CDDP_OK;
#else
    return cddpi_dnnl_check(dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N',
                                       (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a,
                                       (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c,
                                       (dnnl_dim_t)ldc),
                            "matrix product");
#endif
}

cddp_status cddpi_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                       const float *a, const float *b, float beta, float *c)
{
    return cddpi_gemm_strided(transpose_a, transpose_b, m, n, k, 1, a, transpose_a ? m : k, b,
                              transpose_b ? k : n, beta, c, n);
}

/* For smaller products, splitting the factors takes longer than AMX saves. */
static const size_t LEAST_SIDE = 64;
static const size_t LEAST_WORK = (size_t)1 << 20; /* in multiplications */

bool cddpi_matmul_has_amx(enum cddpi_matmul_mode matmul, bool invariant)
{
    bool one_thread = cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1) == 1;

    return matmul == CDDPI_MATMUL_AUTO && (one_thread || invariant) && cddpi_amx_gemm_available();
}

bool cddpi_matmul_fits_amx(size_t m, size_t n, size_t k)
{
    return m >= LEAST_SIDE && n >= LEAST_SIDE && k >= LEAST_SIDE && m * n * k >= LEAST_WORK;
}

enum { AMX_ROWS = 32 /* which the kernel computes together */ };

/* How many threads share a product with @p rows rows on AMX; other models use it only on one. */
static size_t threads_of(const struct cddpi_plan *plan, size_t rows)
{
    size_t threads = (size_t)cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1);
    size_t most = (rows + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);

    threads = plan->model->invariant ? threads : 1;
    return threads < most ? threads : most;
}

struct cddpi_planned_matmul cddpi_matmul_plan(struct cddpi_plan *plan, int op, size_t m, size_t n,
                                              size_t k, enum cddpi_lifetime lifetime)
{
    struct cddpi_planned_matmul out = {.amx = plan->model->amx && cddpi_matmul_fits_amx(m, n, k)};

    if (out.amx) {
        out.threads = threads_of(plan, m);
        out.scratch_bytes = cddpi_align_to(cddpi_amx_gemm_scratch(n, k), CDDPI_ALIGNMENT);
        out.scratch = cddpi_plan_buffer(plan, op, out.threads * out.scratch_bytes, lifetime);
    }
    return out;
}

/* What the threads of a product share. */
struct amx_rows {
    const struct cddpi_nn_matmul *matmul;
    char *scratch;
    size_t scratch_bytes, rows;
};

/* The rows of C of one thread. Their bits do not depend on the other rows: see amx_gemm.h. */
static void multiply_rows(void *context, size_t thread)
{
    const struct amx_rows *all = context;
    struct cddpi_nn_matmul own = *all->matmul;
    size_t first = thread * all->rows;

    if (first >= own.m) {
        return;
    }
    own.m = own.m - first < all->rows ? own.m - first : all->rows;
    own.a += own.transpose_a ? first : first * own.lda;
    own.c += first * own.ldc;
    cddpi_amx_gemm(&own, all->scratch + thread * all->scratch_bytes);
}

static void run_amx(const struct cddpi_exec *exec, const struct cddpi_planned_matmul *plan,
                    const struct cddpi_nn_matmul *matmul)
{
    struct amx_rows all = {
        .matmul = matmul,
        .scratch = cddpi_exec_buffer(exec, plan->scratch),
        .scratch_bytes = plan->scratch_bytes,
        .rows = cddpi_align_to((matmul->m + plan->threads - 1) / plan->threads, AMX_ROWS)};
    size_t team = cddpi_team_size(); /* 1: see plan_threads.c */

    cddpi_team_resize(plan->threads);
    cddpi_for_each(plan->threads, multiply_rows, &all);
    cddpi_team_resize(team);
}

cddp_status cddpi_matmul_run(const struct cddpi_exec *exec, const struct cddpi_planned_matmul *plan,
                             const struct cddpi_nn_matmul *matmul)
{
    if (plan->amx && plan->threads > 1) {
        run_amx(exec, plan, matmul);
        return CDDP_OK;
    }
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
