/* config_file.h - text of a configuration file, and its parsing. */
#ifndef CDDPI_TRAIN_CONFIG_FILE_H
#define CDDPI_TRAIN_CONFIG_FILE_H

#include <cddp/status.h>

#include <libconfig.h>

/** All of @p path, at most 1 MiB of text; release with cddpi_free(). CDDP_ERR_CONFIG names it. */
CDDP_CHECKED cddp_status cddpi_config_read_text(const char *path, char **out);
/** The same for a file that the user has not named himself: it has to be a regular one. */
CDDP_CHECKED cddp_status cddpi_config_read_included(const char *path, char **out);

/** How many bytes from @p text on are one string or comment, or 0. */
size_t cddpi_config_opaque_length(const char *text);

/** The line of the first whole number in @p text that libconfig would cut to 32 bits; 0: none. */
int cddpi_config_wide_line(const char *text);

/** Parse @p text into @p parsed, which is initialised: CONFIG_TRUE, or CONFIG_FALSE also when there
 * is no memory. Whole numbers keep their 64 bits. */
int cddpi_config_parse(config_t *parsed, const char *text);

#endif
