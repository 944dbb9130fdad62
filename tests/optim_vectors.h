/* optim_vectors.h - what PyTorch's optimizers and its GradScaler did, as numbers. */
#ifndef CDDPI_TESTS_OPTIM_VECTORS_H
#define CDDPI_TESTS_OPTIM_VECTORS_H

#include "support.h"

#include <jansson.h>

static inline json_t *read_vectors(void)
{
    char path[4096];
    json_error_t error;
    json_t *root;

    snprintf(path, sizeof path, "%s/tests/data/optim_vectors.json", getenv("CDDP_TEST_SOURCE"));
    root = json_load_file(path, 0, &error);
    if (root == NULL) {
        fail_msg("%s: %s", path, error.text);
    }
    return root;
}

static inline double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);

    return value != NULL ? json_number_value(value) : otherwise;
}

#endif
