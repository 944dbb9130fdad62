/* nn_bf16.c - owns matrix products of bf16 factors by oneDNN's matmul. With a packed right factor
 * and a row-major left one, it reaches six to nine times the rate of float32 on a core with AMX.
 * oneDNN's transposed forms and inner products are up to two times slower than that. */
#include "nn/cpu/dnnl.h"

#include "base/error.h"
#include "nn/model_state.h"

#include <string.h>

static cddp_status describe(struct cddpi_dnnl *dnnl, struct cddpi_mds *holder,
                            const struct cddpi_bf16_matmul *matmul, dnnl_primitive_desc_t *out)
{
    const dnnl_dim_t a[] = {(dnnl_dim_t)matmul->m, (dnnl_dim_t)matmul->k};
    const dnnl_dim_t b[] = {(dnnl_dim_t)matmul->k, (dnnl_dim_t)matmul->n};
    const dnnl_dim_t c[] = {(dnnl_dim_t)matmul->m, (dnnl_dim_t)matmul->n};
    const dnnl_dim_t bias[] = {1, (dnnl_dim_t)matmul->n};
    struct cddpi_dnnl_request request = {
        .kind = CDDPI_DNNL_MATMUL,
        .src = cddpi_md_tagged(holder, 2, a, dnnl_bf16, dnnl_ab),
        .weight = cddpi_md_tagged(holder, 2, b, dnnl_bf16, dnnl_BA16a64b2a),
        .bias = matmul->bias ? cddpi_md_tagged(holder, 2, bias, dnnl_f32, dnnl_ab) : NULL,
        .dst = cddpi_md_tagged(holder, 2, c, dnnl_f32, dnnl_ab),
        .post = matmul->post,
        .what = "bf16 product"};

    return cddpi_dnnl_describe(dnnl, &request, out);
}

/* Derived from the kernel's name: "brg:avx512_core_amx_bf16" in version 2,
 * "brg_matmul:avx512_core_amx" in version 3, and similar ones. */
static enum cddpi_bf16 level_of(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;

    if (!cddpi_dnnl_is_fast(desc) ||
        dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        (strstr(name, "bf16") == NULL && strstr(name, "fp16") == NULL &&
         strstr(name, "amx") == NULL)) {
        return CDDPI_BF16_ROUNDED;
    }
    return strstr(name, "amx") != NULL ? CDDPI_BF16_AMX : CDDPI_BF16_PAIRS;
}

cddp_status cddpi_bf16_probe(struct cddpi_model *model)
{
    const struct cddpi_bf16_matmul matmul = {.m = 256, .n = 256, .k = 256};
    struct cddpi_mds layouts = {.last = NULL};
    dnnl_primitive_desc_t desc;
    struct cddpi_dnnl *dnnl;
    cddp_status status = cddpi_dnnl_get(model, &dnnl);

    model->bf16 = CDDPI_BF16_ROUNDED;
    if (status != CDDP_OK) {
        return status;
    }
    status = describe(dnnl, &layouts, &matmul, &desc);
    if (status == CDDP_OK) {
        model->bf16 = level_of(desc);
        dnnl_primitive_desc_destroy(desc);
    }
    cddpi_mds_drop(&layouts);
    if (layouts.failed) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "bf16 product: no memory for its layouts");
    }
    return status == CDDP_ERR_UNAVAILABLE ? CDDP_OK : status;
}

cddp_status cddpi_bf16_matmul_init(struct cddpi_primitive *primitive, struct cddpi_dnnl *dnnl,
                                   const struct cddpi_bf16_matmul *matmul, struct cddpi_plan *plan,
                                   int op, enum cddpi_lifetime lifetime)
{
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    dnnl_primitive_desc_t desc;

    CDDPI_TRY(describe(dnnl, &plan->layouts, matmul, &desc));
    if (level_of(desc) == CDDPI_BF16_ROUNDED) {
        dnnl_primitive_desc_destroy(desc);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "bf16 product: oneDNN has no kernel for it");
    }
    CDDPI_TRY(cddpi_primitive_init(
        primitive, dnnl, desc, plan,
        &(struct cddpi_plan_part){
            .op = op,
            .what = (matmul->post & CDDPI_POST_ADD) != 0 ? NULL : "bf16 product",
            .work = (double)matmul->m * (double)matmul->n * (double)matmul->k},
        lifetime));
    return cddpi_primitive_args(
        primitive, matmul->bias ? 4 : 3, args,
        (const cddpi_md[]){cddpi_dnnl_query(desc, dnnl_query_src_md),
                           cddpi_dnnl_query(desc, dnnl_query_weights_md),
                           cddpi_dnnl_query(desc, dnnl_query_dst_md),
                           dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1)});
}

const char *cddpi_bf16_note(const struct cddpi_model *model)
{
    if (model->precision != CDDPI_PRECISION_BF16 || model->bf16 == CDDPI_BF16_AMX) {
        return NULL;
    }
    return model->bf16 == CDDPI_BF16_ROUNDED
               ? "oneDNN has no bf16 instructions on this processor: factors are rounded to bf16 "
                 "and multiplied as f32, which is no faster than f32"
               : "this processor multiplies bf16 without AMX: that may be slower than f32 (it is "
                 "on "
                 "Intel's)";
}
