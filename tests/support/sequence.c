/* sequence.c - small language models, for tests. */
#include "support/sequence.h"

void sequence_setup(struct fixture *f, const struct cddpi_model_spec *spec, int first, int count)
{
    if (!fixture_init(f, spec, 8, NULL, first, count)) {
        fail_msg("%s", cddp_last_error());
    }
}

void spread_params(struct fixture *f)
{
    for (size_t i = 0; i < f->param_count; i++) {
        const char *name = f->params[i].name;
        bool norm = strstr(name, "ln_") != NULL && strstr(name, "weight") != NULL;
        float *data = f->params[i].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&f->params[i]); e++) {
            data[e] = 0.4f * test_number(200 + (uint32_t)i, e) + (norm ? 1.0f : 0.0f);
        }
    }
}

struct cddpi_model_spec tokens_through(const struct cddpi_layer *layers, size_t count)
{
    return (struct cddpi_model_spec){
        .layers = layers, .layer_count = count, .context = 5, .vocab = 11, .classes = 11};
}
