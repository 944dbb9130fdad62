/* train_infer.h - implements cddp-train --generate and --predict: one process uses a run's model.
 * The model is that of the run's newest checkpoint, of train.resume, or model.weights. */
#ifndef CDDPI_PROGRAMS_TRAIN_INFER_H
#define CDDPI_PROGRAMS_TRAIN_INFER_H

#include "train/config/config.h"

#include <stdio.h>

/** Print @p prompt and its continuation. */
CDDP_CHECKED cddp_status cddpi_train_generate(const struct cddpi_config *config, const char *prompt,
                                              FILE *file);

/** Print a line for each image at @p path (an IDX file, an image file, or a folder of image files):
 *  its number or name, its class, and how probable that is. If the model takes numbers, @p path is
 * a CSV file or one of NumPy's; if it has real targets, a line has these.
 *  @param output  A file .npy or .csv that gets all outputs instead; NULL: none. */
CDDP_CHECKED cddp_status cddpi_train_predict(const struct cddpi_config *config, const char *path,
                                             const char *output, FILE *file);

/* Between the two files: open the model, without the configuration's own checks. */
struct cddp_model;
CDDP_CHECKED cddp_status cddpi_train_open_model(const struct cddpi_config *config,
                                                bool probabilities, struct cddp_model **out);

#endif
