/* dnnl_v3.c - how primitives are described to oneDNN 3: by a call for each kind of operation. */
#include "nn/cpu/dnnl.h"

const dnnl_cpu_isa_t cddpi_dnnl_every_isa = dnnl_cpu_isa_default;

dnnl_status_t cddpi_dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t cddpi_dnnl_append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
}

static dnnl_status_t make_first(dnnl_engine_t engine, const struct cddpi_dnnl_request *request,
                                dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out)
{
    static const dnnl_dims_t dense = {0}; /* no dilation */
    dnnl_prop_kind_t kind = request->training ? dnnl_forward_training : dnnl_forward_inference;
    const struct cddpi_dnnl_window *window = &request->window;

    switch (request->kind) {
    case CDDPI_DNNL_CONV:
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, kind, dnnl_convolution_direct, request->src, request->weight,
            request->bias, request->dst, window->strides, dense, window->before, window->after,
            attributes);
    case CDDPI_DNNL_CONV_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, dnnl_convolution_direct, request->src, request->weight, request->dst,
            window->strides, dense, window->before, window->after, request->forward, attributes);
    case CDDPI_DNNL_CONV_WEIGHTS:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, dnnl_convolution_direct, request->src, request->weight, request->bias,
            request->dst, window->strides, dense, window->before, window->after, request->forward,
            attributes);
    case CDDPI_DNNL_POOL:
        return dnnl_pooling_forward_primitive_desc_create(
            out, engine, kind, request->pooling, request->src, request->dst, window->strides,
            window->kernel, dense, window->before, window->after, attributes);
    case CDDPI_DNNL_POOL_DATA:
        return dnnl_pooling_backward_primitive_desc_create(
            out, engine, request->pooling, request->src, request->dst, window->strides,
            window->kernel, dense, window->before, window->after, request->forward, attributes);
    case CDDPI_DNNL_MATMUL:
        return dnnl_matmul_primitive_desc_create(out, engine, request->src, request->weight,
                                                 request->bias, request->dst, attributes);
    }
    return dnnl_unimplemented;
}

dnnl_status_t cddpi_dnnl_make(dnnl_engine_t engine, const struct cddpi_dnnl_request *request,
                              dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = make_first(engine, request, attributes, &desc);

    while (status == dnnl_success && cddpi_dnnl_is_reference(cddpi_dnnl_name(desc))) {
        status = dnnl_primitive_desc_next_impl(desc);
    }
    if (status == dnnl_success) {
        *out = desc;
    } else if (desc != NULL) {
        dnnl_primitive_desc_destroy(desc);
    }
    return status == dnnl_last_impl_reached ? dnnl_unimplemented : status;
}
