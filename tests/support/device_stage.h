/* device_stage.h - groups of forked ranks on a device, for tests: on the deferred one, or on what
 * the CUDA module that was built for tests emulates. */
#ifndef CDDP_TESTS_SUPPORT_DEVICE_STAGE_H
#define CDDP_TESTS_SUPPORT_DEVICE_STAGE_H

#include "support/deferred_device.h"
#include "support/gpu.h"
#include "support/group.h"
#include "support/rank_pool.h"
#include "support/test.h"

static const int device_sizes[] = {1, 2, 3};

enum { DEVICE_SIZES = 3, SEEDS = 6 };

/* One way to run a test, and what the test adds. */
struct stage {
    struct group_seed seed;
    const char *module_transport; /* of the emulated module; NULL: the deferred device */
    enum deferred_bias bias;
    unsigned number;
    uint32_t timeout_ms;
    int which; /* variant of the test */
};

/* In a test: without CUDA's headers there is no such module. */
void need_module(void);

/* What is tried takes its faults, or several devices. */
void need_emulated_module(void);

static const char *const module_transports[] = {"ipc", "staged", "nccl"};

enum { MODULE_TRANSPORTS = sizeof module_transports / sizeof *module_transports };

cddp_status stage_enter(const struct stage *stage, int rank, int world_size, cddp_group **out);

/* The deferred device has its orders anywhere. */
int stage_runs(const char *transport, int size, int seeds);

/* At each size and in each order of streams; a culprit may die. Returns how many others fail. */
int stage_run(rank_fn body, struct stage stage, int least, int seeds, int dies);
void *on_device(cddp_group *group, size_t bytes);

/* In the compute stream. */
int put_there(cddp_group *group, void *to, const void *from, size_t bytes);

/* What the compute stream has at @p from once it comes to this. */
int fetch(cddp_group *group, void *to, const void *from, size_t bytes);
struct stage on_module(int transport);

/* Ask until the failure is there; within half of what a test may take. */
cddp_status await_failure(cddp_group *group);

#endif
