/* slots.c - owns what a model remembers of several batches between their passes, and their memory.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"

#include <string.h>

/* The memory of the current slots, and what belongs to them, goes to their rows or comes from
 * there.
 */
static void save(struct cddpi_model *model)
{
    for (int r = 0; r < CDDPI_REGION_SCRATCH; r++) {
        model->slots[model->places[r]].memory[r] = model->regions[r];
    }
    model->slots[model->places[CDDPI_REGION_KEPT]].last = model->last;
}

static void load(struct cddpi_model *model)
{
    for (int r = 0; r < CDDPI_REGION_SCRATCH; r++) {
        model->regions[r] = model->slots[model->places[r]].memory[r];
    }
    model->last = model->slots[model->places[CDDPI_REGION_KEPT]].last;
}

cddp_status cddpi_model_use_slots(struct cddpi_model *model, const struct cddpi_model_slots *slots)
{
    const int wanted[CDDPI_REGION_SCRATCH] = {[CDDPI_REGION_BATCH] = slots->batch,
                                              [CDDPI_REGION_KEPT] = slots->kept,
                                              [CDDPI_REGION_GRADS] = slots->grads};
    bool same = true;

    for (int r = 0; r < CDDPI_REGION_SCRATCH; r++) {
        if (wanted[r] < 0 || wanted[r] >= CDDPI_MODEL_SLOTS) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "model: there is no slot %d; 0 to %d there are",
                              wanted[r], CDDPI_MODEL_SLOTS - 1);
        }
        same = same && wanted[r] == model->places[r];
    }
    if (same) {
        return CDDP_OK;
    }
    if (model->slots == NULL) {
        model->slots = cddpi_zalloc_array(CDDPI_MODEL_SLOTS, sizeof *model->slots);
    }
    CDDPI_TRY_MEMORY(model->slots != NULL, "model: no memory for %d slots", CDDPI_MODEL_SLOTS);
    save(model);
    memcpy(model->places, wanted, sizeof wanted);
    load(model);
    return CDDP_OK;
}

cddp_status cddpi_model_use_slot(struct cddpi_model *model, int slot)
{
    return cddpi_model_use_slots(model, &(struct cddpi_model_slots){slot, slot, slot});
}

bool cddpi_model_waits_for(const struct cddpi_model *model, const struct cddpi_plan *plan)
{
    for (int i = 0; model->slots != NULL && i < CDDPI_MODEL_SLOTS; i++) {
        if (i != model->places[CDDPI_REGION_KEPT] && model->slots[i].last.pending == plan) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_model_grow_region(struct cddpi_model *model, const struct cddpi_plan *plan,
                                    enum cddpi_region region)
{
    struct cddpi_region_memory *memory = &model->regions[region];
    size_t bytes = plan->arena.bytes[region];
    char *data;

    if (bytes <= memory->bytes) {
        return CDDP_OK;
    }
    data = cddpi_alloc_aligned(bytes); /* a split model is always on the CPU */
    CDDPI_TRY_MEMORY(data != NULL, "model: no memory for %zu bytes of what gradients are made of",
                     bytes);
    if (region == CDDPI_REGION_KEPT) {
        cddpi_model_forget_forward(model);
    }
    cddpi_free(memory->data);
    *memory = (struct cddpi_region_memory){data, bytes};
    return CDDP_OK;
}

void cddpi_model_release_slots(struct cddpi_model *model)
{
    for (int i = 0; model->slots != NULL && i < CDDPI_MODEL_SLOTS; i++) {
        for (int r = 0; r < CDDPI_REGION_SCRATCH; r++) {
            if (i != model->places[r]) {
                model->device->ops->release(model->device, model->slots[i].memory[r].data);
            }
        }
    }
    for (int r = CDDPI_REGION_KEPT; r < CDDPI_REGIONS; r++) {
        cddpi_free(model->regions[r].data);
    }
    cddpi_free(model->slots);
}
