/* group_device.h - what tests of collectives on a device's memory share. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_DEVICE_H
#define CDDP_TESTS_SUPPORT_GROUP_DEVICE_H

#include "support/device_stage.h"
#include "support/group_reference.h"

enum { SOON_MS = SUPPORT_TIMEOUT_MS / 2, COUNT = 1000, KINDS = 9 };

static const struct stage plain = {.timeout_ms = SUPPORT_TIMEOUT_MS};

/* Far more operations than ranks may be apart, by a rank that is never waited for. */
int drift_rank(int rank, int n, void *argument);
int split_rank(int rank, int n, void *argument);

#endif
