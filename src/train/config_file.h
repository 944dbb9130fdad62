/* config_file.h - text of a configuration file, and its parsing. */
#ifndef CDDPI_TRAIN_CONFIG_FILE_H
#define CDDPI_TRAIN_CONFIG_FILE_H

#include <cddp/status.h>

#include <libconfig.h>

/** All of @p path, at most 1 MiB of text; release with cddpi_free(). CDDP_ERR_CONFIG names it. */
CDDP_CHECKED cddp_status cddpi_config_read_text(const char *path, char **out);

/** How many bytes from @p text on are one string or comment, or 0. */
size_t cddpi_config_opaque_length(const char *text);

/** The line of the first whole number in @p text that libconfig would cut to 32 bits; 0: none. */
int cddpi_config_wide_line(const char *text);

/** What can be said of the files that @p text, which is that of @p path, includes: that each can be
 *  read, and that libconfig, which reads them itself, keeps their numbers. CDDP_ERR_CONFIG names
 *  file and line. config_include.c */
CDDP_CHECKED cddp_status cddpi_config_check_includes(const char *path, const char *text);

/** Parse @p text into @p parsed, which is initialised: CONFIG_TRUE, or CONFIG_FALSE also when there
 * is no memory. Whole numbers keep their 64 bits. */
int cddpi_config_parse(config_t *parsed, const char *text);

#endif
