/* take_file.h - puts the settings of a configuration file, and of those that it includes, into
 * struct cddpi_config. */
#ifndef CDDPI_TRAIN_CONFIG_TAKE_FILE_H
#define CDDPI_TRAIN_CONFIG_TAKE_FILE_H

#include "train/config/value.h"

/** Take the settings of the file @p path. A file's own settings replace those of files that it
 *  includes, and a later included file's those of an earlier one. */
CDDP_CHECKED cddp_status cddpi_config_take_file(const char *path, struct cddpi_config *config);

/** The same for @p text, the contents of @p path. */
CDDP_CHECKED cddp_status cddpi_config_take_text(const char *path, const char *text,
                                                struct cddpi_config *config);

/** Store the value of @p setting for @p key, and where it was given. */
CDDP_CHECKED cddp_status cddpi_config_store(const struct cddpi_config_source *source,
                                            const config_setting_t *setting,
                                            const struct cddpi_key *key,
                                            struct cddpi_config *config);

/** Whether @p path is a group of keys, as model or optimizer.schedule. */
bool cddpi_config_is_group(const char *path);

/** Fail because there is no key @p path; the text names the nearest. */
cddp_status cddpi_config_fail_unknown(const struct cddpi_config_source *source,
                                      const config_setting_t *setting, const char *path);

#endif
