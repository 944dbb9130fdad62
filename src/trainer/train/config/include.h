/* include.h - files that a train.conf includes. */
#ifndef CDDPI_TRAIN_CONFIG_INCLUDE_H
#define CDDPI_TRAIN_CONFIG_INCLUDE_H

#include <cddp/status.h>

/** Check the files that @p text, the text of @p path, includes: each can be read, they are not too
 *  many or too large, and libconfig, which reads them itself, keeps their numbers. The text of
 *  CDDP_ERR_CONFIG names file and line. */
CDDP_CHECKED cddp_status cddpi_config_check_includes(const char *path, const char *text);

#endif
