/* optim_vectors.c - reads the results of PyTorch's optimizers and GradScaler. */
#include "support/optim_vectors.h"

json_t *read_vectors(void)
{
    char path[4096];
    json_error_t error;
    json_t *root;

    snprintf(path, sizeof path, "%s/tests/vectors/optim_vectors.json", getenv("CDDP_TEST_SOURCE"));
    root = json_load_file(path, 0, &error);
    if (root == NULL) {
        fail_msg("%s: %s", path, error.text);
    }
    return root;
}

double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);

    return value != NULL ? json_number_value(value) : otherwise;
}
