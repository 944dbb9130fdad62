/* recovery_bytes.c - the bytes of recovery_rank's loops, on a device, too: what they are after each
 * step is known in advance. */
#include "recovery/recovery_loop.h"

#include "device/device.h"
#include "group/on_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PUTS = 256 };

/* Byte @p i of array @p array after @p step steps. */
unsigned char bytes_value(uint64_t array, uint64_t i, uint64_t step)
{
    uint64_t mixed = (array * 1000003 + i) * UINT64_C(0x9e3779b97f4a7c15) +
                     step * UINT64_C(0xbf58476d1ce4e5b9);

    mixed = (mixed ^ mixed >> 29) * UINT64_C(0x94d049bb133111eb);
    return (unsigned char)(mixed >> 56);
}

/* Bytes at @p at, in the CPU's memory: a copy, if the device has them. */
static unsigned char *take(const struct loop *loop, void *at, uint64_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(loop->group);
    unsigned char *copy;

    if (!cddpi_device_is_async(device) || !device->ops->owns(device, at)) {
        return at;
    }
    copy = malloc(bytes);
    if (copy == NULL ||
        device->ops->copy(device, CDDPI_STREAM_COMPUTE, copy, at, bytes) != CDDP_OK ||
        device->ops->finish(device, 60000) != CDDP_OK) {
        fprintf(stderr, "recovery_rank: %s\n", cddp_last_error());
        abort();
    }
    return copy;
}

/* Put what take() gave back to @p at. The device does it later: no call of cddp may need more. */
static void put_back(const struct loop *loop, unsigned char *taken, void *at, uint64_t bytes)
{
    static void *last[PUTS]; /* which the device may still read */
    static size_t count;
    struct cddpi_device *device = cddpi_group_on_device(loop->group);

    if (taken == at) {
        return;
    }
    if (device->ops->copy(device, CDDPI_STREAM_COMPUTE, at, taken, bytes) != CDDP_OK) {
        abort();
    }
    free(last[count % PUTS]);
    last[count++ % PUTS] = taken;
}

/* An update: wrong bytes stay wrong. */
void bytes_update(const struct loop *loop, void *at, uint64_t array, uint64_t first, uint64_t bytes)
{
    unsigned char *data = take(loop, at, bytes);

    for (uint64_t i = 0; i < bytes; i++) {
        data[i] ^= bytes_value(array, first + i, loop->step) ^
                   bytes_value(array, first + i, loop->step + 1);
    }
    put_back(loop, data, at, bytes);
}

int bytes_check(const struct loop *loop, void *at, uint64_t array, uint64_t first, uint64_t bytes,
                uint64_t step)
{
    unsigned char *data = take(loop, at, bytes);
    int wrong = 0;

    for (uint64_t i = 0; i < bytes && wrong == 0; i++) {
        wrong = data[i] != bytes_value(array, first + i, step);
        if (wrong != 0) {
            printf("WRONG: byte %" PRIu64 " of array %" PRIu64 " at step %" PRIu64 "\n", first + i,
                   array, step);
        }
    }
    if (data != at) {
        free(data);
    }
    return wrong;
}

void bytes_set(const struct loop *loop, void *at, uint64_t array, uint64_t first, uint64_t bytes,
               uint64_t step)
{
    unsigned char *data = take(loop, at, bytes);

    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = bytes_value(array, first + i, step);
    }
    put_back(loop, data, at, bytes);
}

/* Memory of the group's device, or of the CPU. */
void *bytes_alloc(const struct loop *loop, uint64_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(loop->group);
    void *memory = NULL;

    if (!cddpi_device_is_async(device)) {
        return malloc(bytes + 1);
    }
    return device->ops->alloc(device, bytes + 1, "a test", &memory) == CDDP_OK ? memory : NULL;
}

void bytes_free(const struct loop *loop, void *memory)
{
    struct cddpi_device *device = cddpi_group_on_device(loop->group);

    if (!cddpi_device_is_async(device)) {
        free(memory);
    } else if (memory != NULL) {
        device->ops->release(device, memory);
    }
}
