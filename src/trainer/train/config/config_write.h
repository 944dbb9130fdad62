/* config_write.h - writes a configuration as text. */
#ifndef CDDPI_TRAIN_CONFIG_WRITE_H
#define CDDPI_TRAIN_CONFIG_WRITE_H

#include "train/config/config.h"

/** All keys and their values, in a form from which cddpi_config_load() reads the same
 *  configuration. NULL: no memory.
 *  @param shared_only  Leave out the keys that may differ between ranks. */
char *cddpi_config_text(const struct cddpi_config *config, bool shared_only);

#endif
