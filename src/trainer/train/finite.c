/* finite.c - finds NaN and Inf in tensors, and makes the error text. */
#include "train/finite.h"

#include "base/error.h"
#include "base/shape.h"

#include <math.h>

size_t cddpi_find_infinite(const cddp_tensor *tensor)
{
    const float *values = tensor->data;
    size_t count = cddpi_elements(tensor->dims, tensor->shape);
    size_t i = 0;

    while (tensor->type == CDDP_F32 && i < count && isfinite(values[i])) {
        i++;
    }
    return tensor->type == CDDP_F32 ? i : count;
}

cddp_status cddpi_fail_infinite(const cddp_tensor *tensor, size_t element, float value)
{
    return cddpi_fail(CDDP_ERR_STATE,
                      "%s has become %g (element %zu of %zu), so nothing is written: the "
                      "learning rate may be too high",
                      tensor->name, (double)value, element,
                      cddpi_elements(tensor->dims, tensor->shape));
}
