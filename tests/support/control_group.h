/* control_group.h - real control groups (cgroups) for tests, where they can be made. */
#ifndef CDDP_TESTS_SUPPORT_CONTROL_GROUP_H
#define CDDP_TESTS_SUPPORT_CONTROL_GROUP_H

#include "support/test.h"

#include <stdbool.h>

/* A new control group below that of this process, of version 1 if its @p controller has @p file, or
 * of version 2; its folder, to be removed by rmdir(). NULL: none can be made. */
const char *support_control_group(const char *controller, const char *file);

/* Write @p text to @p file of @p group. */
bool support_control(const char *group, const char *file, const char *text);

/* So many microseconds of a processor's time in each tenth of a second. */
void support_set_quota(const char *group, const char *microseconds);

#endif
