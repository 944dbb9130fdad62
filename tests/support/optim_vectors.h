/* optim_vectors.h - what PyTorch's optimizers and its GradScaler did, as numbers. */
#ifndef CDDP_TESTS_SUPPORT_OPTIM_VECTORS_H
#define CDDP_TESTS_SUPPORT_OPTIM_VECTORS_H

#include "support/test.h"

#include <jansson.h>

json_t *read_vectors(void);
double number_or(const json_t *object, const char *key, double otherwise);

#endif
