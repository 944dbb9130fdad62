/* bf16.c - owns products of bf16 on oneDNN's matmul. With its right factor packed and its left one
 * row-major it reaches six to nine times float32's rate on a core with AMX; its transposed forms
 * and its inner products are up to twice slower than that. */
#include "nn/bf16.h"

#include "base/error.h"
#include "nn/model_state.h"

#include <string.h>

static cddp_status describe(struct cddpi_dnnl *dnnl, const struct cddpi_bf16_product *product,
                            dnnl_primitive_desc_t *out)
{
    const dnnl_dims_t a_dims = {(dnnl_dim_t)product->m, (dnnl_dim_t)product->k};
    const dnnl_dims_t b_dims = {(dnnl_dim_t)product->k, (dnnl_dim_t)product->n};
    const dnnl_dims_t c_dims = {(dnnl_dim_t)product->m, (dnnl_dim_t)product->n};
    const dnnl_dims_t bias_dims = {1, (dnnl_dim_t)product->n};
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&a, 2, a_dims, dnnl_bf16, dnnl_ab);

    if (status == dnnl_success) {
        status = dnnl_memory_desc_init_by_tag(&b, 2, b_dims, dnnl_bf16, dnnl_BA16a64b2a);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_desc_init_by_tag(&c, 2, c_dims, dnnl_f32, dnnl_ab);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_desc_init_by_tag(&bias, 2, bias_dims, dnnl_f32, dnnl_ab);
    }
    if (status == dnnl_success) {
        status = dnnl_matmul_desc_init(&matmul, &a, &b, product->bias ? &bias : NULL, &c);
    }
    return status == dnnl_success
               ? cddpi_dnnl_describe(dnnl, &matmul, product->post, NULL, "bf16 product", out)
               : cddpi_dnnl_check(status, "bf16 product");
}

/* By the name of its kernel: "brg:avx512_core_amx_bf16" and the like. */
static enum cddpi_bf16 level_of(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;

    if (!cddpi_dnnl_is_fast(desc) ||
        dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        strstr(name, "bf16") == NULL) {
        return CDDPI_BF16_ROUNDED;
    }
    return strstr(name, "amx") != NULL ? CDDPI_BF16_TILES : CDDPI_BF16_PAIRS;
}

cddp_status cddpi_bf16_probe(struct cddpi_model *model)
{
    const struct cddpi_bf16_product product = {.m = 256, .n = 256, .k = 256};
    dnnl_primitive_desc_t desc;
    struct cddpi_dnnl *dnnl;
    cddp_status status = cddpi_dnnl_get(model, &dnnl);

    model->bf16 = CDDPI_BF16_ROUNDED;
    if (status != CDDP_OK) {
        return status;
    }
    status = describe(dnnl, &product, &desc);
    if (status == CDDP_OK) {
        model->bf16 = level_of(desc);
        dnnl_primitive_desc_destroy(desc);
    }
    return status == CDDP_ERR_UNAVAILABLE ? CDDP_OK : status;
}

cddp_status cddpi_bf16_product_init(struct cddpi_primitive *primitive, struct cddpi_dnnl *dnnl,
                                    const struct cddpi_bf16_product *product,
                                    struct cddpi_plan *plan, int op, enum cddpi_lifetime lifetime)
{
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    static const dnnl_query_t queries[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                           dnnl_query_dst_md, dnnl_query_weights_md};
    dnnl_primitive_desc_t desc;
    cddp_status status = describe(dnnl, product, &desc);

    if (status != CDDP_OK) {
        return status;
    }
    if (level_of(desc) == CDDPI_BF16_ROUNDED) {
        dnnl_primitive_desc_destroy(desc);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "bf16 product: oneDNN has no kernel for it");
    }
    status = cddpi_primitive_init(primitive, dnnl, desc, plan, op, lifetime);
    for (int i = 0; status == CDDP_OK && i < (product->bias ? 4 : 3); i++) {
        status = cddpi_primitive_arg(primitive, args[i],
                                     dnnl_primitive_desc_query_md(desc, queries[i], i == 3));
    }
    return status;
}

const char *cddpi_model_precision_note(const struct cddpi_model *model)
{
    if (model->precision != CDDPI_PRECISION_BF16 || model->cuda != NULL ||
        model->bf16 == CDDPI_BF16_TILES) {
        return NULL;
    }
    return model->bf16 == CDDPI_BF16_ROUNDED
               ? "oneDNN has no bf16 instructions on this processor: factors are rounded to bf16 "
                 "and multiplied as f32, which is no faster than f32"
               : "this processor multiplies bf16 without AMX: that may be slower than f32 (it is "
                 "on "
                 "Intel's)";
}
