/* stream_flags.c - owns flags in host memory, implemented with calls of the CUDA driver. */
#include "group/cuda/stream_flags.h"

#include <string.h>

static cddp_status checked(const struct cddpi_device *device, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? CDDP_OK
                                  : cuda_fail(device, CDDP_ERR_DEVICE, "%s: error %d of the driver",
                                              call, (int)result);
}

static cddp_status ask(const struct cddpi_device *device, CUdevice_attribute what, int *out)
{
    __typeof__(&cuDeviceGet) get;
    __typeof__(&cuDeviceGetAttribute) attribute;
    CUdevice handle;

    *(void **)&get = cuda_driver_symbol("cuDeviceGet");
    *(void **)&attribute = cuda_driver_symbol("cuDeviceGetAttribute");
    if (get == NULL || attribute == NULL) {
        return cuda_fail(device, CDDP_ERR_DEVICE, "the driver has no cuDeviceGetAttribute");
    }
    CDDPI_TRY(checked(device, get(&handle, device->index), "cuDeviceGet"));
    return checked(device, attribute(out, what, handle), "cuDeviceGetAttribute");
}

cddp_status cddpi_flags_find(struct cddpi_device *device, struct cddpi_stream_flags *out)
{
    int value = 0;

    out->device = device;
    *(void **)&out->batch = cuda_driver_symbol("cuStreamBatchMemOp");
    CDDPI_TRY(ask(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &value));
    if (value == 0 || out->batch == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "streams of device %s cannot wait for values in memory", device->unique);
    }
    CDDPI_TRY(ask(device, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, &value));
    out->wait_flags = value != 0 ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
    return CDDP_OK;
}

cddp_status cddpi_flag_items(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             CUstreamBatchMemOpParams *items, unsigned count)
{
    return count == 0 ? CDDP_OK
                      : checked(flags->device, flags->batch((CUstream)stream, count, items, 0),
                                "cuStreamBatchMemOp");
}

static void write_item(CUdeviceptr where, uint32_t value, CUstreamBatchMemOpParams *out)
{
    memset(out, 0, sizeof *out);
    out->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    out->writeValue.address = where;
    out->writeValue.value = value;
    out->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT; /* with a fence before the write */
}

cddp_status cddpi_flag_raise(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             const _Atomic uint64_t *flag, uint64_t value)
{
    CUdeviceptr where = cddpi_flag_address(flags, flag);
    CUstreamBatchMemOpParams items[2];
    unsigned count = 1;

    write_item(where, (uint32_t)value, &items[0]);
    /* Little endian. In this order a reader never sees a number that is too large; for a moment it
     * may see one that is too small. */
    if (value >> 32 != (value - 1) >> 32) {
        write_item(where + 4, (uint32_t)(value >> 32), &items[1]);
        count = 2;
    }
    return cddpi_flag_items(flags, stream, items, count);
}

void cddpi_flag_wait_item(const struct cddpi_stream_flags *flags, const _Atomic uint64_t *flag,
                          uint64_t value, CUstreamBatchMemOpParams *out)
{
    memset(out, 0, sizeof *out);
    out->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    out->waitValue.address = cddpi_flag_address(flags, flag);
    out->waitValue.value64 = value;
    out->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ | flags->wait_flags;
}

cddp_status cddpi_flag_await(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             const _Atomic uint64_t *flag, uint64_t value)
{
    CUstreamBatchMemOpParams item;

    cddpi_flag_wait_item(flags, flag, value, &item);
    return cddpi_flag_items(flags, stream, &item, 1);
}
