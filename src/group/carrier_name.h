/* carrier_name.h - which carrier takes a group's data from host to host. */
#ifndef CDDPI_GROUP_CARRIER_NAME_H
#define CDDPI_GROUP_CARRIER_NAME_H

#include <cddp/group.h>

/** The name of the carrier, as in CDDP_CARRIER, of what the group itself sends between hosts; lives
 *  as long as the program. NULL: all its ranks are on one host. */
const char *cddpi_group_carrier_name(const cddp_group *group);

#endif
