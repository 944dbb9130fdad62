/* optim_device.c - owns the optimizer's state on a CUDA device. Updates only enqueue work in the
 * device's compute stream. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "optim/optim_impl.h"

enum { RATES = 4 }; /* learning rates that can be on their way to the device */

/* Slots in the kernels' form. */
struct optim_table {
    void *memory;
    size_t bytes;
    struct cddpi_cuda_tensors tensors;
};

struct cddpi_optim_device {
    struct cddpi_device *device;
    uint32_t timeout_ms;
    float *moments; /* in the same layout as on the CPU */
    int64_t *steps; /* for each slot: updates so far */
    double *rate;   /* the learning rate in device memory ... */
    double *rates; /* ... and pinned copies on their way there; each can be reused once its event is
                      done */
    struct cddpi_event *sent[RATES];
    uint64_t rates_sent;
    bool *counted; /* RATES x trainable parameters: whether the CPU has counted an update of the
                      parameter */
    cddp_type copy_type;
    void **copies; /* for each slot: updates also write here; NULL: no copy */
    void **grads;  /* for each slot: the gradients for which the table below was made; NULL: no
                      gradient */
    bool outdated; /* the table was made for other copies */
    struct optim_table all;
    bool *uncounted; /* for each slot: its squares count elsewhere; NULL: all count here */
    struct optim_table counted_squares;
};

static void leave(struct cddpi_optim *optim)
{
    struct cddpi_optim_device *on = optim->device;
    struct cddpi_device *device = on->device;

    for (int i = 0; i < RATES; i++) {
        device->ops->event_destroy(device, on->sent[i]);
    }
    device->ops->release(device, on->moments);
    device->ops->release(device, on->steps);
    device->ops->release(device, on->rate);
    device->ops->release(device, on->all.memory);
    device->ops->release(device, on->counted_squares.memory);
    device->ops->unpin(device, on->rates);
    cddpi_free(on->copies);
    cddpi_free(on->grads);
    cddpi_free(on->counted);
    cddpi_free(on->uncounted);
    cddpi_free(on);
    optim->device = NULL;
    optim->placement = &cddpi_optim_on_cpu;
}

static cddp_status allocate(struct cddpi_optim *optim, struct cddpi_optim_device *on)
{
    const struct cddpi_device_ops *ops = on->device->ops;
    size_t moments = optim->moment_elements > 0 ? optim->moment_elements : 1;
    void *memory = NULL;

    CDDPI_TRY(ops->alloc(on->device, moments * sizeof(float), "the optimizer's state", &memory));
    on->moments = memory;
    CDDPI_TRY(ops->alloc(on->device, (optim->slot_count + 1) * sizeof(int64_t),
                         "the optimizer's counts", &memory));
    on->steps = memory;
    CDDPI_TRY(ops->alloc(on->device, sizeof(double), "the learning rate", &memory));
    on->rate = memory;
    CDDPI_TRY(ops->pin(on->device, RATES * sizeof(double), &memory));
    on->rates = memory;
    for (int i = 0; i < RATES; i++) {
        CDDPI_TRY(ops->event_create(on->device, false, &on->sent[i]));
    }
    return CDDP_OK;
}

static cddp_status fetch_state(struct cddpi_optim *optim)
{
    struct cddpi_optim_device *on = optim->device;

    CDDPI_TRY(on->device->ops->copy(on->device, CDDPI_STREAM_COMPUTE, optim->moments, on->moments,
                                    optim->moment_elements * sizeof(float)));
    return on->device->ops->finish(on->device, on->timeout_ms);
}

static cddp_status send_state(struct cddpi_optim *optim)
{
    struct cddpi_optim_device *on = optim->device;
    int64_t *steps = cddpi_zalloc_array(optim->slot_count + 1, sizeof *steps);
    cddp_status status;

    CDDPI_TRY_MEMORY(steps != NULL, "optimizer: no memory for %zu slots", optim->slot_count);
    for (size_t i = 0; i < optim->slot_count; i++) {
        steps[i] = *optim->slots[i].steps;
    }
    CDDPI_TRY_GOTO(done, status,
                   on->device->ops->copy(on->device, CDDPI_STREAM_COMPUTE, on->moments,
                                         optim->moments, optim->moment_elements * sizeof(float)));
    CDDPI_TRY_GOTO(done, status,
                   on->device->ops->copy(on->device, CDDPI_STREAM_COMPUTE, on->steps, steps,
                                         (optim->slot_count + 1) * sizeof *steps));
    CDDPI_TRY_GOTO(done, status, on->device->ops->finish(on->device, on->timeout_ms));
done:
    cddpi_free(steps);
    return status;
}

static const struct cddpi_optim_placement on_device = {
    .fetch = fetch_state, .send = send_state, .leave = leave};

cddp_status cddpi_optim_to_device(struct cddpi_optim *optim, struct cddpi_device *device,
                                  uint32_t timeout_ms)
{
    struct cddpi_optim_device *on = cddpi_zalloc(sizeof *on);
    cddp_status status;

    CDDPI_TRY_MEMORY(on != NULL, "optimizer: no memory for %zu bytes", sizeof *on);
    on->device = device;
    on->timeout_ms = timeout_ms;
    optim->device = on;
    optim->placement = &on_device;
    on->copy_type = CDDP_F32; /* there are no copies */
    on->copies = cddpi_zalloc_array(optim->slot_count + 1, sizeof *on->copies);
    on->grads = cddpi_zalloc_array(optim->slot_count + 1, sizeof *on->grads);
    on->counted = cddpi_zalloc_array(optim->trainable_count + 1, RATES * sizeof *on->counted);
    status = on->copies != NULL && on->grads != NULL && on->counted != NULL
                 ? allocate(optim, on)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory for %zu slots",
                              optim->slot_count);
    status = status == CDDP_OK ? send_state(optim) : status;
    if (status != CDDP_OK) {
        leave(optim);
    }
    return status;
}

void cddpi_optim_device_copies(struct cddpi_optim *optim, cddp_type type, void *const *copies)
{
    struct cddpi_optim_device *on = optim->device;

    on->copy_type = type;
    on->outdated = true;
    for (size_t i = 0; i < optim->slot_count; i++) {
        const struct cddpi_optim_slot *slot = &optim->slots[i];
        char *copy = copies[slot->index];

        on->copies[i] = copy != NULL ? copy + slot->first * cddp_type_bytes(type) : NULL;
    }
}

cddp_status cddpi_optim_device_uncount(struct cddpi_optim *optim, const bool *skips)
{
    struct cddpi_optim_device *on = optim->device;

    on->uncounted = cddpi_zalloc_array(optim->slot_count + 1, sizeof *on->uncounted);
    CDDPI_TRY_MEMORY(on->uncounted != NULL, "optimizer: no memory for %zu slots",
                     optim->slot_count);
    on->outdated = true;
    for (size_t i = 0; i < optim->slot_count; i++) {
        on->uncounted[i] = skips[optim->slots[i].index];
    }
    return CDDP_OK;
}

/* The gradient of @p slot: the whole one, or the part in this rank's shard. */
static float *grad_of(const struct cddpi_optim_slot *slot, void *const *grads)
{
    float *grad = grads[slot->index];

    return grad != NULL ? grad + slot->first : NULL;
}

static bool has_table_for(const struct cddpi_optim *optim, void *const *grads)
{
    const struct cddpi_optim_device *on = optim->device;
    bool same = on->all.memory != NULL && !on->outdated;

    for (size_t i = 0; same && i < optim->slot_count; i++) {
        same = on->grads[i] == grad_of(&optim->slots[i], grads);
    }
    return same;
}

/* Fill in the slots that have a gradient, in the kernels' form, without those that @p skips marks.
 * Returns their number. */
static size_t fill_slots(const struct cddpi_optim *optim, void *const *grads, const bool *skips,
                         struct cddpi_cuda_slot *out)
{
    const struct cddpi_optim_device *on = optim->device;
    size_t count = 0;

    for (size_t i = 0; i < optim->slot_count; i++) {
        const struct cddpi_optim_slot *slot = &optim->slots[i];
        float *grad = grad_of(slot, grads);

        on->grads[i] = grad;
        if (grad == NULL || slot->count == 0 || (skips != NULL && skips[i])) {
            continue;
        }
        out[count] = (struct cddpi_cuda_slot){.param = slot->data,
                                              .grad = grad,
                                              .copy = on->copies[i],
                                              .count = slot->count,
                                              .decays = slot->decays,
                                              .steps = on->steps + i};
        if (slot->moments[0] != NULL) {
            out[count].first = on->moments + (slot->moments[0] - optim->moments);
        }
        if (slot->moments[1] != NULL) {
            out[count].second = on->moments + (slot->moments[1] - optim->moments);
        }
        count++;
    }
    return count;
}

static cddp_status grow_table(struct cddpi_optim_device *on, struct optim_table *table,
                              size_t bytes)
{
    void *memory = NULL;

    if (bytes <= table->bytes) {
        return CDDP_OK;
    }
    CDDPI_TRY(on->device->ops->alloc(on->device, bytes, "the optimizer's table", &memory));
    on->device->ops->release(on->device, table->memory);
    table->memory = memory;
    table->bytes = bytes;
    return CDDP_OK;
}

static cddp_status fill_table(struct cddpi_optim *optim, void *const *grads, const bool *skips,
                              struct cddpi_cuda_slot *slots, struct optim_table *table)
{
    struct cddpi_optim_device *on = optim->device;
    const struct cddpi_cuda_kernels *kernels = on->device->kernels;
    size_t count = fill_slots(optim, grads, skips, slots);

    CDDPI_TRY(grow_table(on, table, kernels->tensors_bytes(slots, count) + 1));
    return kernels->tensors(on->device, slots, count, table->memory, &table->tensors);
}

static cddp_status make_table(struct cddpi_optim *optim, void *const *grads)
{
    struct cddpi_optim_device *on = optim->device;
    struct cddpi_cuda_slot *slots = cddpi_zalloc_array(optim->slot_count + 1, sizeof *slots);
    cddp_status status;

    CDDPI_TRY_MEMORY(slots != NULL, "optimizer: no memory for %zu slots", optim->slot_count);
    status = fill_table(optim, grads, NULL, slots, &on->all);
    if (status == CDDP_OK && on->uncounted != NULL) {
        status = fill_table(optim, grads, on->uncounted, slots, &on->counted_squares);
    }
    /* after a failure, parts of the table may have been overwritten */
    on->outdated = status != CDDP_OK;
    cddpi_free(slots);
    return status;
}

cddp_status cddpi_optim_device_rate(struct cddpi_optim *optim, void *const *grads, double lr)
{
    struct cddpi_optim_device *on = optim->device;
    const struct cddpi_device_ops *ops = on->device->ops;
    int place = (int)(on->rates_sent % RATES);
    bool *counted = on->counted + (size_t)place * optim->trainable_count;
    cddp_status status;

    if (!has_table_for(optim, grads)) {
        CDDPI_TRY(make_table(optim, grads));
    }
    /* it was sent RATES steps ago, so this rarely waits */
    CDDPI_TRY(ops->wait(on->device, on->sent[place], on->timeout_ms));
    on->rates[place] = lr;
    status = ops->copy(on->device, CDDPI_STREAM_COMPUTE, on->rate, &on->rates[place], sizeof lr);
    status = status == CDDP_OK ? ops->record(on->device, on->sent[place], CDDPI_STREAM_COMPUTE)
                               : status;
    on->rates_sent++;
    /* count on the CPU, which does not know yet whether the device will skip the update */
    ++*optim->step;
    for (size_t i = 0; i < optim->trainable_count; i++) {
        counted[i] = grads[optim->trainable[i].index] != NULL;
        optim->step[1 + i] += counted[i];
    }
    return status;
}

cddp_status cddpi_optim_device_squares(struct cddpi_optim *optim, struct cddpi_exact_sum *out)
{
    struct cddpi_optim_device *on = optim->device;

    return on->device->kernels->squares(
        on->device, on->uncounted != NULL ? &on->counted_squares.tensors : &on->all.tensors, out);
}

cddp_status cddpi_optim_device_update(struct cddpi_optim *optim, const float *scale,
                                      const int32_t *skip)
{
    struct cddpi_optim_device *on = optim->device;
    struct cddpi_cuda_update update = {.adamw = optim->spec.type == CDDPI_OPTIM_ADAMW,
                                       .copy_type = on->copy_type,
                                       .lr = on->rate,
                                       .weight_decay = optim->spec.weight_decay,
                                       .momentum = optim->spec.momentum,
                                       .nesterov = optim->spec.nesterov,
                                       .beta1 = optim->spec.beta1,
                                       .beta2 = optim->spec.beta2,
                                       .epsilon = optim->spec.epsilon,
                                       .grad_scale = 1,
                                       .device_scale = scale,
                                       .skip = skip};

    return on->device->kernels->update(on->device, &update, &on->all.tensors);
}

void cddpi_optim_skipped(struct cddpi_optim *optim, uint64_t back)
{
    const struct cddpi_optim_device *on = optim->device;
    const bool *counted = on->counted +
                          (size_t)((on->rates_sent - 1 - back) % RATES) * optim->trainable_count;

    --*optim->step;
    for (size_t i = 0; i < optim->trainable_count; i++) {
        optim->step[1 + i] -= counted[i];
    }
}
