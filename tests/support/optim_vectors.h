/* optim_vectors.h - reads the results of PyTorch's optimizers and GradScaler. */
#ifndef CDDP_TESTS_SUPPORT_OPTIM_VECTORS_H
#define CDDP_TESTS_SUPPORT_OPTIM_VECTORS_H

#include "support/test.h"

#include <jansson.h>

json_t *read_vectors(void);
double number_or(const json_t *object, const char *key, double otherwise);

#endif
