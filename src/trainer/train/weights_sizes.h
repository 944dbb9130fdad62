/* weights_sizes.h - takes the sizes of a gpt2 from the file of its first weights. */
#ifndef CDDPI_TRAIN_WEIGHTS_SIZES_H
#define CDDPI_TRAIN_WEIGHTS_SIZES_H

#include "train/config/config.h"

/** Set model.blocks, heads, embed, vocab and context to those of the weights at @p path, where the
 *  configuration does not give them; a context that is not given is the default's or the file's,
 *  whichever is shorter. Does nothing for other models, for an empty @p path, and for weights that
 *  cannot be read while the sizes are given: who loads them says so.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (a key that is given disagrees: the text has both numbers), and
 *          what cddpi_weights_open() returns. */
CDDP_CHECKED cddp_status cddpi_config_take_sizes(struct cddpi_config *config, const char *path);

#endif
