/* folder.h - making folders. Any thread. */
#ifndef CDDPI_FOLDER_H
#define CDDPI_FOLDER_H

#include <cddp/status.h>

/** Make @p path and what is missing above it, as mkdir -p does; "" is nothing to make.
 *  @return CDDP_OK, CDDP_ERR_IO (names the folder), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_folder_make(const char *path);

#endif
