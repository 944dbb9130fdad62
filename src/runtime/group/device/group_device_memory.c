/* group_device_memory.c - owns a group's device memory: blocks that the transport reduces
 * fastest. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/join/group_agree.h"

cddp_status cddpi_group_device_alloc(cddp_group *group, size_t bytes, void **out)
{
    struct cddpi_group_device *dev = group->device;
    struct cddpi_device_block *block = cddpi_zalloc(sizeof *block);
    void *all = NULL;
    uint64_t wanted = bytes;
    cddp_status status = cddpi_group_device_status(dev);

    if (status == CDDP_OK) {
        status = cddpi_all_gather_bytes(group, &wanted, sizeof wanted, &all);
    }
    for (int r = 0; status == CDDP_OK && r < group->world_size; r++) {
        uint64_t theirs = ((const uint64_t *)all)[r];

        if (theirs != ((const uint64_t *)all)[0]) {
            status = cddpi_fail(CDDP_ERR_MISMATCH,
                                "ranks disagree at group_alloc: rank 0: %llu bytes; rank %d: %llu",
                                (unsigned long long)((const uint64_t *)all)[0], r,
                                (unsigned long long)theirs);
            status = cddpi_group_device_fail_call(dev, status);
        }
    }
    cddpi_free(all);
    if (status != CDDP_OK) {
        cddpi_free(block);
        return status;
    }
    if (block == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
        /* the other ranks are about to call the transport */
        cddp_group_abort(group, cddp_last_error());
        return status;
    }
    status = dev->transport->ops->alloc(dev->transport, bytes > 0 ? bytes : 1, &block->memory);
    if (status == CDDP_OK) {
        status = dev->device->ops->clear(dev->device, CDDPI_STREAM_COMPUTE, block->memory, bytes);
    }
    status = cddpi_agree(group, status);
    if (status != CDDP_OK) {
        if (block->memory != NULL) {
            dev->transport->ops->free_memory(dev->transport, block->memory);
        }
        cddpi_free(block);
        return cddpi_fail_prefix(status, "group_alloc of %zu bytes", bytes);
    }
    block->bytes = bytes;
    block->next = dev->blocks;
    dev->blocks = block;
    *out = block->memory;
    return CDDP_OK;
}

bool cddpi_group_device_free(cddp_group *group, void *memory)
{
    struct cddpi_group_device *dev = group->device;

    for (struct cddpi_device_block **link = &dev->blocks; *link != NULL; link = &(*link)->next) {
        struct cddpi_device_block *block = *link;

        if (block->memory == memory) {
            /* Wait for all streams. After that the peers no longer use the memory either, since an
             * operation ends only when no rank needs its memory any more. If the device is lost, so
             * is its memory. */
            cddpi_device_p2p_drain(dev);
            (void)dev->device->ops->finish(dev->device, group->timeout_ms);
            *link = block->next;
            dev->transport->ops->free_memory(dev->transport, memory);
            cddpi_free(block);
            return true;
        }
    }
    return false;
}

void cddpi_group_device_free_all(struct cddpi_group_device *dev)
{
    while (dev->blocks != NULL) {
        struct cddpi_device_block *next = dev->blocks->next;

        dev->transport->ops->free_memory(dev->transport, dev->blocks->memory);
        cddpi_free(dev->blocks);
        dev->blocks = next;
    }
}
