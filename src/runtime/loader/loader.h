/* loader.h - owns the inside of a loader: a ring of batches and its memory. A piece of a batch is a
 * sample. */
#ifndef CDDPI_LOADER_LOADER_H
#define CDDPI_LOADER_LOADER_H

#include "base/handle.h"
#include "device/device.h"
#include "loader/batch_ring.h"

#include <cddp/loader.h>

struct cddpi_loader_slot {
    unsigned char *data;
    uint64_t *indices;
    cddp_share share; /* this rank's part of the batch in the slot, as positions in the epoch */
};

struct cddp_loader {
    struct cddpi_handle handle;
    cddp_loader_options options;
    cddp_group *group; /* holds a reference; NULL: no group, world size 1 */
    struct cddpi_device *device;
    int rank;
    int world_size;
    cddp_sampler *sampler;
    uint64_t epoch;
    bool begun;       /* an epoch has begun and no batch of it has failed */
    uint64_t batches; /* per epoch */
    struct cddpi_loader_slot *slots;
    struct cddpi_batch_ring ring;
};

/* samples.c */
/** The functions that the ring calls; its owner is a cddp_loader. */
extern const struct cddpi_batch_ring_ops cddpi_loader_ring_ops;
/** The positions in the epoch of batch @p number, over all ranks. */
cddp_share cddpi_loader_positions(const cddp_loader *loader, uint64_t number);

#endif
