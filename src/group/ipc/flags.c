/* flags.c - what the ranks' streams tell each other: flags and weights in host memory. */
#include "group/ipc/ipc.h"

#include <string.h>

struct batch {
    CUstreamBatchMemOpParams items[IPC_RANKS + 2];
    unsigned count;
};

static cddp_status checked(const struct cddpi_plane *plane, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? CDDP_OK
                                  : cuda_fail(plane->device, CDDP_ERR_DEVICE,
                                              "%s: error %d of the driver", call, (int)result);
}

static cddp_status ask(const struct cddpi_plane *plane, CUdevice_attribute what, int *out)
{
    __typeof__(&cuDeviceGet) get;
    __typeof__(&cuDeviceGetAttribute) attribute;
    CUdevice device;
    cddp_status status;

    *(void **)&get = cuda_driver_symbol("cuDeviceGet");
    *(void **)&attribute = cuda_driver_symbol("cuDeviceGetAttribute");
    if (get == NULL || attribute == NULL) {
        return cuda_fail(plane->device, CDDP_ERR_DEVICE, "the driver has no cuDeviceGetAttribute");
    }
    status = checked(plane, get(&device, plane->device->index), "cuDeviceGet");
    return status != CDDP_OK ? status
                             : checked(plane, attribute(out, what, device), "cuDeviceGetAttribute");
}

cddp_status cddpi_ipc_entry_points(struct cddpi_plane *plane)
{
    int value = 0;
    cddp_status status = ask(plane, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &value);

    *(void **)&plane->batch = cuda_driver_symbol("cuStreamBatchMemOp");
    if (status != CDDP_OK) {
        return status;
    }
    if (value == 0 || plane->batch == NULL) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "streams of device %s cannot wait for values in memory",
                                plane->device->unique);
    }
    status = ask(plane, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, &value);
    plane->wait_flags = value != 0 ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
    return status;
}

static CUdeviceptr address(const struct cddpi_plane *plane, const volatile void *member)
{
    return (CUdeviceptr)(uintptr_t)(plane->block_device +
                                    ((const volatile char *)member - (char *)plane->block));
}

static _Atomic uint64_t *flag_of(const struct cddpi_plane *plane, int rank, enum ipc_flag flag)
{
    struct ipc_rank *theirs = &plane->block->ranks[rank];

    return flag == IPC_ARRIVED ? &theirs->arrived : &theirs->done;
}

uint64_t cddpi_ipc_read(const struct cddpi_plane *plane, int rank, enum ipc_flag flag)
{
    return atomic_load_explicit(flag_of(plane, rank, flag), memory_order_acquire);
}

static void add_write32(struct batch *batch, CUdeviceptr where, uint32_t value)
{
    CUstreamBatchMemOpParams *item = &batch->items[batch->count++];

    item->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    item->writeValue.address = where;
    item->writeValue.value = value;
    item->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT; /* a fence before it */
}

static cddp_status put(struct cddpi_plane *plane, cudaStream_t stream, struct batch *batch)
{
    return batch->count == 0
               ? CDDP_OK
               : checked(plane, plane->batch((CUstream)stream, batch->count, batch->items, 0),
                         "cuStreamBatchMemOp");
}

cddp_status cddpi_ipc_signal(struct cddpi_plane *plane, cudaStream_t stream, enum ipc_flag flag,
                             uint64_t piece)
{
    CUdeviceptr where = address(plane, flag_of(plane, plane->rank, flag));
    struct batch batch = {.count = 0};

    memset(batch.items, 0, 2 * sizeof *batch.items);
    add_write32(&batch, where, (uint32_t)piece);
    /* Little endian. In this order the flag is never ahead of itself, only behind for a moment. */
    if (piece >> 32 != (piece - 1) >> 32) {
        add_write32(&batch, where + 4, (uint32_t)(piece >> 32));
    }
    return put(plane, stream, &batch);
}

cddp_status cddpi_ipc_await(struct cddpi_plane *plane, cudaStream_t stream, enum ipc_flag flag,
                            uint64_t piece)
{
    struct batch batch = {.count = 0};

    memset(batch.items, 0, sizeof batch.items);
    for (int r = 0; r < plane->size; r++) {
        CUstreamBatchMemOpParams *item = &batch.items[batch.count];

        if (r == plane->rank) {
            continue;
        }
        item->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        item->waitValue.address = address(plane, flag_of(plane, r, flag));
        item->waitValue.value64 = piece;
        item->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ | plane->wait_flags;
        batch.count++;
    }
    return put(plane, stream, &batch);
}

cddp_status cddpi_ipc_tell_weight(struct cddpi_plane *plane, cudaStream_t stream, uint64_t piece,
                                  double weight)
{
    struct batch batch = {.count = 1};
    CUstreamBatchMemOpParams *item = &batch.items[0];

    memset(item, 0, sizeof *item);
    item->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    item->writeValue.address = address(plane,
                                       &plane->block->weights[piece % IPC_SLOTS][plane->rank]);
    memcpy(&item->writeValue.value64, &weight, sizeof weight);
    return put(plane, stream, &batch);
}

void cddpi_ipc_release(struct cddpi_plane *plane)
{
    for (int r = 0; r < plane->size; r++) {
        for (int f = 0; f < 2; f++) {
            _Atomic uint32_t *upper =
                (_Atomic uint32_t *)flag_of(plane, r, f == 0 ? IPC_ARRIVED : IPC_DONE) + 1;

            atomic_store_explicit(upper, IPC_RELEASED, memory_order_release);
        }
    }
}
