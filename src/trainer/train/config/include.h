/* include.h - checks the files that a train.conf includes. */
#ifndef CDDPI_TRAIN_CONFIG_INCLUDE_H
#define CDDPI_TRAIN_CONFIG_INCLUDE_H

#include <cddp/status.h>

/** Check the files that @p text includes; @p text is the contents of @p path. libconfig reads
 *  included files itself, so this checks that each is readable, that they are not too many or too
 *  large, and that libconfig does not truncate their numbers. The text of CDDP_ERR_CONFIG names
 *  file and line. */
CDDP_CHECKED cddp_status cddpi_config_check_includes(const char *path, const char *text);

#endif
