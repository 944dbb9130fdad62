/* device_stage.h - groups of forked ranks on a device, for tests: on the deferred device, or on a
 * device that the CUDA module for tests emulates. */
#ifndef CDDP_TESTS_SUPPORT_DEVICE_STAGE_H
#define CDDP_TESTS_SUPPORT_DEVICE_STAGE_H

#include "support/deferred_device.h"
#include "support/gpu.h"
#include "support/group.h"
#include "support/rank_pool.h"
#include "support/test.h"

static const int device_sizes[] = {1, 2, 3};

enum { DEVICE_SIZES = 3, SEEDS = 6 };

/* One way to run a test, and the test's own variant. */
struct stage {
    struct group_seed seed;
    const char *module_transport; /* a transport of the emulated module; NULL: the deferred
                                     device */
    enum deferred_bias bias;
    unsigned number;
    uint32_t timeout_ms;
    int which; /* the test's own variant */
};

/* In a test: skip it if there is no CUDA module, real or emulated. */
void need_module(void);

/* In a test that needs the emulated module's faults, or several devices: skip it without that
 * module. */
void need_emulated_module(void);

static const char *const module_transports[] = {"ipc", "staged", "nccl"};

enum { MODULE_TRANSPORTS = sizeof module_transports / sizeof *module_transports };

cddp_status stage_enter(const struct stage *stage, int rank, int world_size, cddp_group **out);

/* How many orders of streams, at most @p seeds, to run. The deferred device can always vary
 * them. */
int stage_runs(const char *transport, int size, int seeds);

/* Run @p body at each size and in each order of streams. A culprit (@p dies) may fail. Returns how
 * many other ranks failed. */
int stage_run(rank_fn body, struct stage stage, int least, int seeds, int dies);
void *on_device(cddp_group *group, size_t bytes);

/* Copy to the device in the compute stream. */
int put_there(cddp_group *group, void *to, const void *from, size_t bytes);

/* Copy from the device in the compute stream: the data at @p from when the stream gets there. */
int fetch(cddp_group *group, void *to, const void *from, size_t bytes);
struct stage on_module(int transport);

/* Query until the group has failed, for at most half the time limit of a test. */
cddp_status await_failure(cddp_group *group);

#endif
