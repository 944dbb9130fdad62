/* check_finite.c - finds parameters that are NaN or Inf, which never become a checkpoint. */
#include "base/error.h"
#include "base/shape.h"
#include "train/checkpoint.h"

#include <math.h>
#include <string.h>

size_t cddpi_find_infinite(const cddp_param *tensor)
{
    const float *values = tensor->data;
    size_t count = cddpi_elements(tensor->dims, tensor->shape);
    size_t i = 0;

    while (tensor->type == CDDP_F32 && i < count && isfinite(values[i])) {
        i++;
    }
    return tensor->type == CDDP_F32 ? i : count;
}

cddp_status cddpi_fail_infinite(const cddp_param *tensor, size_t element, float value)
{
    return cddpi_fail(CDDP_ERR_STATE,
                      "%s has become %g (element %zu of %zu), so nothing is written: the "
                      "learning rate may be too high",
                      tensor->name, (double)value, element,
                      cddpi_elements(tensor->dims, tensor->shape));
}

cddp_status cddpi_checkpoint_check(const cddp_snapshot *snapshot)
{
    for (size_t t = 0; t < snapshot->model_count; t++) {
        const cddp_tensor *tensor = &snapshot->model[t];
        cddp_param found = {.name = tensor->name,
                            .type = tensor->type,
                            .dims = tensor->dims,
                            .data = (void *)(uintptr_t)tensor->data};
        size_t count, i;

        memcpy(found.shape, tensor->shape, sizeof found.shape);
        count = cddpi_elements(found.dims, found.shape);
        i = found.data != NULL ? cddpi_find_infinite(&found) : count;
        if (i < count) {
            return cddpi_fail_infinite(&found, i, ((const float *)found.data)[i]);
        }
    }
    return CDDP_OK;
}
