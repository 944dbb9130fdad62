/* param_steps.c - owns the optimizer's tensor that covers all parameters: the number of updates of
 * each. Each stage has the counts of its own parameters. A checkpoint has one tensor for all, in
 * the order of the whole model's layers, with tied parameters once. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

bool cddpi_stages_is_steps(const cddp_tensor *tensor)
{
    return strcmp(tensor->name, "param_steps") == 0;
}

cddp_status cddpi_stages_create_steps(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_order *order = &stages->order[CDDPI_STAGES_OPTIMIZER_FILE];
    size_t params = stages->order[CDDPI_STAGES_MODEL_FILE].params;

    stages->steps = cddpi_zalloc_array(params + 1, sizeof *stages->steps);
    if (stages->steps == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory for %zu numbers", params);
    }
    for (size_t i = 0; i < order->count; i++) {
        if (cddpi_stages_is_steps(&order->tensors[i])) {
            order->tensors[i].shape[0] = (int64_t)params;
            order->tensors[i].data = stages->steps;
        }
    }
    return CDDP_OK;
}

/* The index of the parameter @p name in that tensor. */
static size_t place_of(const struct cddpi_stages_order *order, const char *name)
{
    size_t place = 0;

    while (strcmp(order->tensors[place].name, name) != 0) {
        place++;
    }
    return place;
}

void cddpi_stages_move_steps(const struct cddpi_trainer *trainer, int stage, int64_t *own,
                             bool joins)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_MODEL_FILE][stage];
    size_t next = 0;

    for (size_t i = 0; i < list->count; i++) {
        size_t place;

        if (list->is_buffer[i]) {
            continue;
        }
        place = place_of(&stages->order[CDDPI_STAGES_MODEL_FILE], list->tensors[i].name);
        if (joins) {
            stages->steps[place] = own[next++];
        } else {
            own[next++] = stages->steps[place];
        }
    }
}
