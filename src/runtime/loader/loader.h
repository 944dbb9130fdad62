/* loader.h - the inside of a loader: the memory of its ring of batches, whose pieces are samples.
 */
#ifndef CDDPI_LOADER_LOADER_H
#define CDDPI_LOADER_LOADER_H

#include "base/handle.h"
#include "device/device.h"
#include "loader/batch_ring.h"

#include <cddp/loader.h>

struct cddpi_loader_slot {
    unsigned char *data;
    uint64_t *indices;
    cddp_share share; /* positions of the epoch; of the batch that is in it */
};

struct cddp_loader {
    struct cddpi_handle handle;
    cddp_loader_options options;
    cddp_group *group; /* kept until the end; NULL: none */
    struct cddpi_device *device;
    int rank;
    int world_size;
    cddp_sampler *sampler;
    uint64_t epoch;
    bool begun;       /* an epoch, that has not failed */
    uint64_t batches; /* of an epoch */
    struct cddpi_loader_slot *slots;
    struct cddpi_batch_ring ring;
};

/* samples.c */
/** What the ring asks for; the owner is a cddp_loader. */
extern const struct cddpi_batch_ring_ops cddpi_loader_ring_ops;
/** The batch that is @p number in the epoch: its positions. */
cddp_share cddpi_loader_positions(const cddp_loader *loader, uint64_t number);

#endif
