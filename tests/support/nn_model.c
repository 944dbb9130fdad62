/* nn_model.c - small models, shared by tests of whole models. */
#include "support/nn_model.h"

void model_setup(struct fixture *f, const struct cddpi_model_spec *spec, int count)
{
    if (!fixture_init(f, spec, 45, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
}
