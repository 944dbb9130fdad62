/* param_steps.c - owns the one tensor of an optimizer that is not of a parameter but of all: how
 * many updates each has had. Each stage has that of its own parameters; a checkpoint has one of
 * all, in the order of the whole model's layers, tied parameters once. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/stages/state.h"

#include <string.h>

static const char tensor_name[] = "param_steps";

static const cddp_tensor *find(struct cddpi_optim *optim)
{
    size_t count = 0;
    const cddp_tensor *tensors = cddpi_optim_tensors(optim, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, tensor_name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* Where a walk over all stages' parameters, in the order of the layers, is. */
struct walk {
    const struct cddpi_trainer *trainer;
    size_t *next;       /* per stage of ranks: its parameter that comes next */
    const char **names; /* of the parameters met so far */
    size_t count;
};

static struct cddpi_optim *optim_of(const struct cddpi_trainer *trainer, int stage)
{
    return stage == 0 ? trainer->optim : trainer->stages->others[stage].optim;
}

static const cddp_param *params_of(const struct cddpi_trainer *trainer, int stage, int chunk,
                                   size_t *out_count)
{
    return cddpi_model_params(stage == 0 ? trainer->models[chunk].model
                                         : trainer->stages->others[stage].models[chunk],
                              out_count);
}

static size_t place_of(const struct walk *walk, const char *name)
{
    size_t place = 0;

    while (place < walk->count && strcmp(walk->names[place], name) != 0) {
        place++;
    }
    return place;
}

/* One chunk's numbers to the whole tensor, or back. */
static void walk_chunk(struct walk *walk, int stage, int chunk, int64_t *whole, bool fills)
{
    size_t count;
    const cddp_param *params = params_of(walk->trainer, stage, chunk, &count);
    int64_t *own = find(optim_of(walk->trainer, stage))->data;

    for (size_t i = 0; i < count; i++) {
        size_t place = place_of(walk, params[i].name);
        int64_t *number = &own[walk->next[stage]++];

        if (place == walk->count) {
            walk->names[walk->count++] = params[i].name;
        }
        if (fills) {
            whole[place] = *number;
        } else {
            *number = whole[place];
        }
    }
}

static cddp_status walk_all(const struct cddpi_trainer *trainer, int64_t *whole, bool fills,
                            size_t *out_count)
{
    const struct cddpi_stages *stages = trainer->stages;
    struct walk walk = {.trainer = trainer};

    walk.next = cddpi_zalloc_array((size_t)stages->count, sizeof *walk.next);
    walk.names = cddpi_zalloc_array(stages->most * (size_t)stages->count + 1, sizeof *walk.names);
    if (walk.next == NULL || walk.names == NULL) {
        cddpi_free(walk.next);
        cddpi_free((void *)walk.names);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory for %zu names", stages->most);
    }
    for (int chunk = 0; chunk < trainer->model_count; chunk++) {
        for (int stage = 0; stage < stages->count; stage++) {
            walk_chunk(&walk, stage, chunk, whole, fills);
        }
    }
    *out_count = walk.count;
    cddpi_free(walk.next);
    cddpi_free((void *)walk.names);
    return CDDP_OK;
}

cddp_status cddpi_stages_join_steps(struct cddpi_trainer *trainer, cddp_tensor *tensors,
                                    size_t count)
{
    struct cddpi_stages *stages = trainer->stages;
    size_t most = stages->most * (size_t)stages->count + 1;
    size_t params = 0;
    cddp_status status;

    if (find(trainer->optim) == NULL) {
        return CDDP_OK;
    }
    if (stages->steps == NULL) {
        stages->steps = cddpi_zalloc_array(most, sizeof *stages->steps);
    }
    if (stages->steps == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory for %zu numbers", most);
    }
    status = walk_all(trainer, stages->steps, true, &params);
    for (size_t i = 0; status == CDDP_OK && i < count; i++) {
        if (strcmp(tensors[i].name, tensor_name) == 0) {
            tensors[i].shape[0] = (int64_t)params;
            tensors[i].data = stages->steps;
        }
    }
    return status;
}

cddp_status cddpi_stages_split_steps(struct cddpi_trainer *trainer)
{
    size_t count;

    return trainer->stages->steps == NULL || find(trainer->optim) == NULL
               ? CDDP_OK
               : walk_all(trainer, trainer->stages->steps, false, &count);
}
