/* config_file.h - text of a configuration file, and its parsing. */
#ifndef CDDPI_TRAIN_CONFIG_FILE_H
#define CDDPI_TRAIN_CONFIG_FILE_H

#include <cddp/status.h>

#include <libconfig.h>

/** All of @p path, at most 1 MiB of text; release with cddpi_free(). CDDP_ERR_CONFIG names it. */
CDDP_CHECKED cddp_status cddpi_config_read_text(const char *path, char **out);

/** Parse @p text into @p parsed, which is initialised: CONFIG_TRUE, or CONFIG_FALSE also when there
 * is no memory. Whole numbers keep their 64 bits. */
int cddpi_config_parse(config_t *parsed, const char *text);

#endif
