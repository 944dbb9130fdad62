/* on_device.h - owns the private calls about a group's device that layers above need. The others
 * are in group/device/group_device.h. */
#ifndef CDDPI_GROUP_ON_DEVICE_H
#define CDDPI_GROUP_ON_DEVICE_H

#include "base/shared.h"

#include <cddp/group.h>

struct cddpi_device;

/** The device of @p group's memory; it lives as long as the group. For a group on the CPU, that is
 *  the CPU's device. */
CDDPI_SHARED struct cddpi_device *cddpi_group_on_device(const cddp_group *group);

/** Whether ranks of @p group can send each other its device's memory (cddp_send()): all of them are
 *  on one host. The same on all ranks. */
CDDPI_SHARED bool cddpi_group_sends_on_device(const cddp_group *group);

/** Name the purpose of the next operations on the device for error texts ("bucket 3 of 20"). The
 *  text is copied; NULL: no purpose. Does nothing on the CPU. */
CDDPI_SHARED void cddpi_group_label(cddp_group *group, const char *label);

#endif
