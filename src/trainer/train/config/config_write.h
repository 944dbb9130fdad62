/* config_write.h - a configuration as text. */
#ifndef CDDPI_TRAIN_CONFIG_WRITE_H
#define CDDPI_TRAIN_CONFIG_WRITE_H

#include "train/config/config.h"

/** All keys with their values, in a form that cddpi_config_load() reads back to the same; NULL: no
 * memory. @param shared_only  Leave out what ranks need not agree about. */
char *cddpi_config_text(const struct cddpi_config *config, bool shared_only);

#endif
