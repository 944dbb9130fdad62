/* edge.c - owns the ops at the edges of a part of a model: receive reads a value from the caller's
 * memory and writes its gradient there, send does the opposite. There, values are plain float32: N
 * x C x H x W, or rows of features; or, between devices, as the model has them. */
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "nn/cuda/model_cuda.h"

#include <string.h>

/* The edge of the running op. */
struct edge_place {
    struct cddpi_nn_layout layout; /* the value's layout in the model */
    bool image;
    bool own;          /* the caller's memory has the model's type and layout */
    void *data, *grad; /* the caller's memory; NULL: not bound */
};

static struct edge_place place_of(const struct cddpi_exec *exec)
{
    bool receives = exec->op->ops == &cddpi_op_receive;
    const struct cddpi_edges *edges = cddpi_part_edges(exec->model->part,
                                                       receives ? CDDPI_EDGE_IN : CDDPI_EDGE_OUT);
    int value = receives ? exec->op->output : exec->op->inputs[0];
    const struct cddpi_shape *shape = &exec->model->graph.values[value].shape;
    size_t k = 0;

    while (edges->values[k] != value) {
        k++;
    }
    return (struct edge_place){
        .layout = cddpi_plan_layout(exec->plan, shape, exec->plan->values[value].block),
        .image = !shape->sequence && !shape->flat,
        .own = exec->model->part->own_edges && value != CDDPI_VALUE_INPUT,
        .data = edges->data[k],
        .grad = edges->grads[k]};
}

static cddp_status check_edge(const struct cddpi_exec *exec, const void *memory, const char *what)
{
    return memory != NULL ? CDDP_OK
                          : cddpi_fail(CDDP_ERR_STATE,
                                       "nothing is bound as the %s at the end of a "
                                       "part of the model, of layer \"%s\"",
                                       what, exec->op->layer.name);
}

/* Both parts have channels last, or they would exchange values in the wrong order. */
static cddp_status copy_own(const struct cddpi_exec *exec, const struct edge_place *place,
                            const void *from, void *to)
{
    const struct cddpi_nn_layout *layout = &place->layout;
    struct cddpi_device *device = exec->model->device;
    size_t elements = layout->samples * layout->channels * layout->spatial;

    if (place->image && layout->block != layout->channels) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "layer \"%s\" does not have channels last at the end of a part of the "
                          "model",
                          exec->op->layer.name);
    }
    return device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from,
                             elements * cddp_type_bytes(exec->model->type));
}

/* Convert between the model's own layout and the caller's plain memory. */
static cddp_status to_plain(const struct cddpi_exec *exec, const struct edge_place *place,
                            const void *inside, void *plain)
{
    const struct cddpi_nn_layout *layout = &place->layout;
    size_t elements = layout->samples * layout->channels * layout->spatial;
    struct cddpi_device *device = exec->model->device;

    if (place->own) {
        return copy_own(exec, place, inside, plain);
    }
    if (device->ops->kind != CDDPI_DEVICE_CPU) {
        return place->image && layout->block > 1
                   ? cddpi_exec_kernels(exec)->from_channels_last(device, exec->model->type, inside,
                                                                  layout->samples, layout->channels,
                                                                  layout->spatial, false, plain)
                   : cddpi_exec_kernels(exec)->cast(device, exec->model->type, inside, CDDP_F32,
                                                    plain, elements);
    }
    if (place->image) {
        cddpi_nn_to_plain(inside, layout, plain);
    } else {
        memcpy(plain, inside, elements * sizeof(float));
    }
    return CDDP_OK;
}

static cddp_status from_plain(const struct cddpi_exec *exec, const struct edge_place *place,
                              const void *plain, void *inside)
{
    const struct cddpi_nn_layout *layout = &place->layout;
    size_t elements = layout->samples * layout->channels * layout->spatial;
    struct cddpi_device *device = exec->model->device;

    if (place->own) {
        return copy_own(exec, place, plain, inside);
    }
    if (device->ops->kind != CDDPI_DEVICE_CPU) {
        return place->image && layout->block > 1
                   ? cddpi_exec_kernels(exec)->to_channels_last(device, exec->model->type, plain,
                                                                layout->samples, layout->channels,
                                                                layout->spatial, inside)
                   : cddpi_exec_kernels(exec)->cast(device, CDDP_F32, plain, exec->model->type,
                                                    inside, elements);
    }
    if (place->image) {
        cddpi_nn_from_plain(plain, layout, inside);
    } else {
        memcpy(inside, plain, elements * sizeof(float));
    }
    return CDDP_OK;
}

/* Use the layout that the value has in the whole model, so that its consumers compute the same
 * bits. */
static cddp_status plan_receive(struct cddpi_plan *plan, int index)
{
    cddpi_plan_output(plan, index, cddpi_part_block(plan, cddpi_plan_op_of(plan, index)->output));
    return CDDP_OK;
}

static cddp_status receive(struct cddpi_exec *exec)
{
    struct edge_place place = place_of(exec);

    CDDPI_TRY(check_edge(exec, place.data, "value"));
    return from_plain(exec, &place, place.data, cddpi_exec_output(exec));
}

static cddp_status return_grad(struct cddpi_exec *exec)
{
    struct edge_place place = place_of(exec);

    CDDPI_TRY(check_edge(exec, place.grad, "gradient"));
    return to_plain(exec, &place, cddpi_exec_grad_output(exec, 0), place.grad);
}

static cddp_status send(struct cddpi_exec *exec)
{
    struct edge_place place = place_of(exec);

    CDDPI_TRY(check_edge(exec, place.data, "value"));
    return to_plain(exec, &place, cddpi_exec_input(exec, 0), place.data);
}

static cddp_status take_grad(struct cddpi_exec *exec)
{
    struct edge_place place = place_of(exec);
    void *grad = cddpi_exec_grad_input(exec, 0);

    if (grad == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_edge(exec, place.grad, "gradient"));
    return from_plain(exec, &place, place.grad, grad);
}

static const struct cddpi_op_kernels receiver = {
    .plan = plan_receive, .forward = receive, .backward = return_grad};
static const struct cddpi_op_kernels sender = {.forward = send, .backward = take_grad};

const struct cddpi_op_ops cddpi_op_receive = {
    .name = "receive", .on = {[CDDPI_DEVICE_CPU] = &receiver, [CDDPI_DEVICE_CUDA] = &receiver}};
const struct cddpi_op_ops cddpi_op_send = {
    .name = "send", .on = {[CDDPI_DEVICE_CPU] = &sender, [CDDPI_DEVICE_CUDA] = &sender}};
