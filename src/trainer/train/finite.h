/* finite.h - whether all numbers of a tensor are finite. */
#ifndef CDDPI_TRAIN_FINITE_H
#define CDDPI_TRAIN_FINITE_H

#include <cddp/checkpoint.h>

/** The first element of @p tensor that is not finite; as many as it has: there is none. */
size_t cddpi_find_infinite(const cddp_tensor *tensor);
/** Word that there is one: CDDP_ERR_STATE. */
cddp_status cddpi_fail_infinite(const cddp_tensor *tensor, size_t element, float value);

#endif
