/* control_group.h - real control groups (cgroups) for tests, where this process can create them. */
#ifndef CDDP_TESTS_SUPPORT_CONTROL_GROUP_H
#define CDDP_TESTS_SUPPORT_CONTROL_GROUP_H

#include "support/test.h"

#include <stdbool.h>

/* Create a control group below this process's group: of version 1 if its @p controller has @p file,
 * else of version 2. Returns its folder, which the caller removes with rmdir(); NULL: none can be
 * created. */
const char *support_control_group(const char *controller, const char *file);

/* Write @p text to @p file of @p group. */
bool support_control(const char *group, const char *file, const char *text);

/* Set the CPU quota, in microseconds per 100 ms. */
void support_set_quota(const char *group, const char *microseconds);

#endif
