/* zero_model.h - a model of tokens whose weights are zeros, and calls with its structs. */
#ifndef CDDP_TESTS_SUPPORT_ZERO_MODEL_H
#define CDDP_TESTS_SUPPORT_ZERO_MODEL_H

#include "support/test.h"

#include <cddp/model.h>

/* Open it from a file in @p folder, until close_zero_model(). */
void open_zero_model(const char *folder);
void close_zero_model(void);

/* Calls that read or fill a struct. */
cddp_status use_model_options(const void *from);
cddp_status use_generate_options(const void *from);
cddp_status fill_model_value(void *out);
cddp_status fill_model_info(void *out);

#endif
