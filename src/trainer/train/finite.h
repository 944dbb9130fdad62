/* finite.h - finds NaN and Inf in a tensor. */
#ifndef CDDPI_TRAIN_FINITE_H
#define CDDPI_TRAIN_FINITE_H

#include <cddp/checkpoint.h>

/** The index of the first element of @p tensor that is NaN or Inf; the number of elements if there
 *  is none. */
size_t cddpi_find_infinite(const cddp_tensor *tensor);
/** Fail with CDDP_ERR_STATE and a text about that element. */
cddp_status cddpi_fail_infinite(const cddp_tensor *tensor, size_t element, float value);

#endif
