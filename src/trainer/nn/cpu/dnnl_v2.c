/* dnnl_v2.c - how primitives are described to oneDNN 2: by a struct of each kind of operation. */
#include "nn/cpu/dnnl.h"

const dnnl_cpu_isa_t cddpi_dnnl_every_isa = dnnl_cpu_isa_all;

dnnl_status_t cddpi_dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

dnnl_status_t cddpi_dnnl_append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}

/* The description of an operation of any kind. */
union operation {
    dnnl_convolution_desc_t conv;
    dnnl_pooling_desc_t pool;
    dnnl_matmul_desc_t matmul;
};

static dnnl_status_t fill_in(union operation *to, const struct cddpi_dnnl_request *request)
{
    dnnl_prop_kind_t kind = request->training ? dnnl_forward_training : dnnl_forward_inference;
    const struct cddpi_dnnl_window *window = &request->window;

    switch (request->kind) {
    case CDDPI_DNNL_CONV:
        return dnnl_convolution_forward_desc_init(
            &to->conv, kind, dnnl_convolution_direct, request->src, request->weight, request->bias,
            request->dst, window->strides, window->before, window->after);
    case CDDPI_DNNL_CONV_DATA:
        return dnnl_convolution_backward_data_desc_init(
            &to->conv, dnnl_convolution_direct, request->src, request->weight, request->dst,
            window->strides, window->before, window->after);
    case CDDPI_DNNL_CONV_WEIGHTS:
        return dnnl_convolution_backward_weights_desc_init(
            &to->conv, dnnl_convolution_direct, request->src, request->weight, request->bias,
            request->dst, window->strides, window->before, window->after);
    case CDDPI_DNNL_POOL:
        return dnnl_pooling_forward_desc_init(&to->pool, kind, request->pooling, request->src,
                                              request->dst, window->strides, window->kernel,
                                              window->before, window->after);
    case CDDPI_DNNL_POOL_DATA:
        return dnnl_pooling_backward_desc_init(&to->pool, request->pooling, request->src,
                                               request->dst, window->strides, window->kernel,
                                               window->before, window->after);
    case CDDPI_DNNL_MATMUL:
        return dnnl_matmul_desc_init(&to->matmul, request->src, request->weight, request->bias,
                                     request->dst);
    }
    return dnnl_unimplemented;
}

dnnl_status_t cddpi_dnnl_make(dnnl_engine_t engine, const struct cddpi_dnnl_request *request,
                              dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out)
{
    union operation operation;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = fill_in(&operation, request);

    if (status == dnnl_success) {
        status = dnnl_primitive_desc_iterator_create(&iterator, &operation, attributes, engine,
                                                     request->forward);
    }
    while (status == dnnl_success && desc == NULL) {
        desc = dnnl_primitive_desc_iterator_fetch(iterator);
        if (desc == NULL) {
            status = dnnl_out_of_memory;
        } else if (cddpi_dnnl_is_reference(cddpi_dnnl_name(desc))) {
            dnnl_primitive_desc_destroy(desc);
            desc = NULL;
            status = dnnl_primitive_desc_iterator_next(iterator);
        }
    }
    if (iterator != NULL) {
        dnnl_primitive_desc_iterator_destroy(iterator);
    }
    if (status == dnnl_success) {
        *out = desc;
    }
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}
