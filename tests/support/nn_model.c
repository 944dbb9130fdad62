/* nn_model.c - the small models that tests of whole models share. */
#include "support/nn_model.h"

void model_setup(struct fixture *f, const struct cddpi_model_spec *spec, int count)
{
    if (!fixture_init(f, spec, 45, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
}
