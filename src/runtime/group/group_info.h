/* group_info.h - owns single properties of a group, for layers above that hold a group of their own
 * process. Programs outside get them in one piece: cddp_group_get_info(). */
#ifndef CDDPI_GROUP_INFO_H
#define CDDPI_GROUP_INFO_H

#include "base/shared.h"

#include <cddp/group.h>

CDDPI_SHARED uint32_t cddpi_group_timeout_ms(const cddp_group *group);
CDDPI_SHARED int cddpi_group_local_rank(const cddp_group *group);
CDDPI_SHARED int cddpi_group_local_world_size(const cddp_group *group);
/** For a group on a device, the backend of device memory. A static string. */
const char *cddpi_group_backend(const cddp_group *group);

#endif
