/* on_device.h - what layers above ask of a group that may be on a device, beyond the public calls;
 * the rest is in group/device/group_device.h. */
#ifndef CDDPI_GROUP_ON_DEVICE_H
#define CDDPI_GROUP_ON_DEVICE_H

#include <cddp/group.h>

struct cddpi_device;

/** The device of @p group's memory, which lives as long as the group, or the processor. */
struct cddpi_device *cddpi_group_on_device(const cddp_group *group);

/** What the next operations on the device are for, in texts of failures ("bucket 3 of 20"), copied;
 *  NULL: nothing in particular. Nothing happens on the processor. */
void cddpi_group_label(cddp_group *group, const char *label);

#endif
