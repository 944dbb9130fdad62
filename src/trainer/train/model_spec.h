/* model_spec.h - turns a configuration into the description of a model and of what happens to an
 * image before it: all that training and inference share of them. */
#ifndef CDDPI_TRAIN_MODEL_SPEC_H
#define CDDPI_TRAIN_MODEL_SPEC_H

#include "data/data_loader.h"
#include "nn/model.h"
#include "train/config/config.h"

/** The model that the configuration describes for @p data; valid as long as both are. */
struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data);
/** How images become floats. */
struct cddpi_transform cddpi_trainer_transform(const struct cddpi_config *config);
/** Where NumPy's files for training or evaluation are, and what is in them; borrows from @p
 * config. */
struct cddpi_npy_options cddpi_trainer_npy_options(const struct cddpi_config *config, bool test);
/** How many tokens the model knows, where those of @p what are @p tokens: as many, or model.vocab.
 * A model may have more than the vocabulary, because round numbers are faster. */
CDDP_CHECKED cddp_status cddpi_trainer_fit_vocabulary(const struct cddpi_config *config,
                                                      const char *what, int tokens, int *out);
/** Check data.image, for synthetic images. */
CDDP_CHECKED cddp_status cddpi_trainer_check_image(const struct cddpi_config *config);
/** Check that data.mean and data.std fit images of @p channels channels. */
CDDP_CHECKED cddp_status cddpi_trainer_check_channels(const struct cddpi_config *config,
                                                      int channels);

#endif
