/* nn_model.h - small models, shared by tests of whole models. */
#ifndef CDDP_TESTS_SUPPORT_NN_MODEL_H
#define CDDP_TESTS_SUPPORT_NN_MODEL_H

#include "support/nn.h"

#define IMAGE .channels = 1, .height = 28, .width = 28, .classes = 10

static const struct cddpi_model_spec mlp = {.preset = "mlp", IMAGE};
static const struct cddpi_model_spec cnn = {.preset = "cnn", IMAGE};
static const struct cddpi_model_spec resnet20 = {.preset = "resnet20", IMAGE};
static const struct cddpi_model_spec resnet50 = {.preset = "resnet50", .stage_units = 4, IMAGE};
static const struct cddpi_model_spec *const presets[] = {&mlp, &cnn, &resnet20, &resnet50};

void model_setup(struct fixture *f, const struct cddpi_model_spec *spec, int count);

#endif
