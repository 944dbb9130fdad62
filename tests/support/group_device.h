/* group_device.h - shared by the tests of collectives on device memory. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_DEVICE_H
#define CDDP_TESTS_SUPPORT_GROUP_DEVICE_H

#include "support/device_stage.h"
#include "support/group_reference.h"

enum { SOON_MS = SUPPORT_TIMEOUT_MS / 2, COUNT = 1000, KINDS = 9 };

static const struct stage plain = {.timeout_ms = SUPPORT_TIMEOUT_MS};

/* Issue far more operations than the limit by which ranks may drift apart, on a rank that never
 * waits. */
int drift_rank(int rank, int n, void *argument);
int split_rank(int rank, int n, void *argument);

#endif
