/* sequence.h - small language models, for tests. */
#ifndef CDDP_TESTS_SUPPORT_SEQUENCE_H
#define CDDP_TESTS_SUPPORT_SEQUENCE_H

#include "support/nn.h"

static const struct cddpi_model_spec tiny = {.preset = "gpt2",
                                             .blocks = 2,
                                             .heads = 2,
                                             .embed = 16,
                                             .context = 8,
                                             .vocab = 37,
                                             .classes = 37};

void sequence_setup(struct fixture *f, const struct cddpi_model_spec *spec, int first, int count);

/* Set parameters to larger values than initial ones, so that every error shows. */
void spread_params(struct fixture *f);
struct cddpi_model_spec tokens_through(const struct cddpi_layer *layers, size_t count);

#endif
