/* placed_shares.c - owns the gradients of weights that several segments share. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/placed/placed_state.h"

#include <string.h>

static size_t elements_of(const struct cddpi_placed_part *part, size_t index)
{
    const cddp_param *param = &part->placed->params[part->numbers[index]];

    return cddpi_elements(param->dims, param->shape);
}

/* Allocate a part's own share of a gradient; of each micro-batch under way, if they are separate.
 */
static cddp_status make_share(const struct cddpi_placed *placed, struct cddpi_placed_part *part,
                              size_t index)
{
    size_t count = elements_of(part, index) * (placed->separate ? (size_t)placed->slots : 1);

    if (part->shares[index] == NULL) {
        part->shares[index] = cddpi_alloc_aligned(count * sizeof(float));
    }
    part->has_shares = true;
    return part->shares[index] != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for a gradient of %s",
                            placed->params[part->numbers[index]].name);
}

cddp_status cddpi_placed_share_param(struct cddpi_placed *placed, int s, size_t index, int owner,
                                     size_t owner_index)
{
    struct cddpi_placed_part *part = &placed->parts[s];
    struct cddpi_placed_part *from = &placed->parts[owner];
    bool added = placed->has_gpu || (placed->pipelined && !placed->separate);

    placed->is_tied = true;
    part->numbers[index] = from->numbers[owner_index];
    part->is_later[index] = true;
    from->is_owner[owner_index] = true;
    if (added || placed->separate) {
        CDDPI_TRY(make_share(placed, part, index));
    }
    if (added && !placed->pipelined) {
        CDDPI_TRY(make_share(placed, from, owner_index));
    }
    return cddpi_device_model_share_param(part->model, index, from->model, owner_index, !added);
}

bool cddpi_placed_comes_later(const struct cddpi_placed_part *part, size_t index)
{
    const struct cddpi_placed *placed = part->placed;

    return part->is_owner[index] && !placed->separate &&
           (placed->pipelined || part->shares[index] != NULL);
}

cddp_status cddpi_placed_add_shares(struct cddpi_placed *placed, cddpi_grad_ready_fn ready,
                                    void *context)
{
    for (int s = 0; s < placed->part_count; s++) {
        const struct cddpi_placed_part *part = &placed->parts[s];

        for (size_t i = 0; i < part->param_count; i++) {
            size_t count = part->shares[i] != NULL ? elements_of(part, i) : 0;
            float *sum = placed->grads[part->numbers[i]];
            bool first = !part->is_later[i];

            for (size_t e = 0; e < count; e++) {
                sum[e] = first ? part->shares[i][e] : sum[e] + part->shares[i][e];
            }
        }
    }
    for (int s = 0; ready != NULL && s < placed->part_count; s++) {
        const struct cddpi_placed_part *part = &placed->parts[s];

        for (size_t i = 0; i < part->param_count; i++) {
            if (cddpi_placed_comes_later(part, i) && !part->is_later[i]) {
                CDDPI_TRY(ready(context, part->numbers[i]));
            }
        }
    }
    return CDDP_OK;
}

/* Where @p part writes gradient @p index of a micro-batch. As many are under way as there are
 * slots, and they are consecutive. */
static float *place_of(const struct cddpi_placed_part *part, size_t index, int micro_batch)
{
    size_t slot = (size_t)(micro_batch % part->placed->slots);

    return part->shares[index] != NULL ? part->shares[index] + slot * elements_of(part, index)
                                       : part->placed->grads[part->numbers[index]];
}

/* The gradient of the next later segment that also has parameter @p index of @p part. */
static const float *later_place(const struct cddpi_placed_part *part, size_t index, int micro_batch)
{
    const struct cddpi_placed *placed = part->placed;

    for (const struct cddpi_placed_part *later = part + 1;
         later < placed->parts + placed->part_count; later++) {
        for (size_t i = 0; i < later->param_count; i++) {
            if (later->numbers[i] == part->numbers[index]) {
                return place_of(later, i, micro_batch);
            }
        }
    }
    return NULL; /* it is no owner */
}

void cddpi_placed_begin_shares(struct cddpi_placed_part *part, int micro_batch)
{
    for (size_t i = 0; i < part->param_count; i++) {
        float *place = place_of(part, i, micro_batch);

        part->places[i] = place;
        if (part->is_owner[i]) {
            memcpy(place, later_place(part, i, micro_batch), elements_of(part, i) * sizeof *place);
        }
    }
    if (part->has_shares) {
        cddpi_device_model_bind_grads(part->model, part->places);
    }
}
