/* ddp_device.h - models whose gradients become ready on a device late and in any order, compared
 * with the same models on the CPU. */
#ifndef CDDP_TESTS_SUPPORT_DDP_DEVICE_H
#define CDDP_TESTS_SUPPORT_DDP_DEVICE_H

#include "support/ddp_ranks.h"
#include "support/device_stage.h"

enum { STEPS = 4, SIZES = 12, KEPT_BYTES = 4 << 20 };

/* The variant of a test. */
struct scene {
    enum memory memory;
    bool many_types;
    size_t bucket_bytes;
    cddp_hook_fn hook;
    bool shard, weighted, accumulates, unused;
    int micro_batches; /* a step is a sum over so many; 0: it is not */
};

struct play {
    struct stage stage;
    struct group_seed host_seed;
    struct scene scene;
};

/* A group with its model, on the CPU or on a device. */
struct world {
    cddp_group *group;
    struct cddpi_device *device; /* NULL: the CPU */
    struct model model;
    cddp_ddp *ddp;
    unsigned char *kept; /* the results of each step, in host memory */
    size_t used;
};

int open_world(struct world *world, const struct play *play, int rank, int n, bool there);
int close_world(struct world *world);
int run_step(struct world *world, const struct scene *scene, int rank, int step);

/* Run @p body at each size of at least @p least ranks, and in each order of streams. @p transport
 * names a transport of the emulated module; NULL: the deferred device. Returns how many ranks
 * failed. */
int play_on(const char *transport, rank_fn body, struct scene scene, int least);
int play_all(rank_fn body, struct scene scene, int least);

#endif
