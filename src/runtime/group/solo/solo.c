/* solo.c - owns the transports for a group of one rank: every operation is at most a copy, in CPU
 * memory or within the device. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/transports.h"

#include <string.h>

/* Memory from cddp_group_alloc(); freed with the group at the latest. */
struct solo_cpu_block {
    struct solo_cpu_block *next;
    void *memory;
};

struct solo_backend {
    struct cddpi_backend base; /* first: see solo_of() */
    struct solo_cpu_block *blocks;
    _Atomic uint32_t aborted; /* 0: no, 1: being written, 2: yes */
    struct cddpi_failure failure;
};

static inline struct solo_backend *solo_of(struct cddpi_backend *base)
{
    return (struct solo_backend *)(void *)base;
}

static void close_solo(struct cddpi_backend *backend)
{
    struct solo_backend *solo = solo_of(backend);

    while (solo->blocks != NULL) {
        struct solo_cpu_block *next = solo->blocks->next;

        cddpi_free(solo->blocks->memory);
        cddpi_free(solo->blocks);
        solo->blocks = next;
    }
    cddpi_free(solo);
}

static cddp_status give_memory(struct solo_backend *solo, struct cddpi_group_op *op)
{
    struct solo_cpu_block *block = cddpi_zalloc(sizeof *block);
    void *memory = block != NULL ? cddpi_alloc_aligned(op->count) : NULL;

    if (memory == NULL) {
        cddpi_free(block);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory for %zu bytes", op->count);
    }
    memset(memory, 0, op->count);
    block->memory = memory;
    block->next = solo->blocks;
    solo->blocks = block;
    *(void **)op->out = memory;
    return CDDP_OK;
}

static void free_memory(struct cddpi_backend *backend, void *memory)
{
    struct solo_backend *solo = solo_of(backend);

    for (struct solo_cpu_block **link = &solo->blocks; *link != NULL; link = &(*link)->next) {
        struct solo_cpu_block *block = *link;

        if (block->memory == memory) {
            *link = block->next;
            cddpi_free(block->memory);
            cddpi_free(block);
            return;
        }
    }
}

static cddp_status advance(struct cddpi_backend *backend, struct cddpi_group_op *op, bool *out_done)
{
    struct solo_backend *solo = solo_of(backend);
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->kind == CDDPI_ALLOC) {
        cddp_status status = give_memory(solo, op);

        if (status != CDDP_OK) {
            return status;
        }
    } else if (op->kind != CDDPI_BARRIER && bytes > 0) { /* otherwise there may be no memory */
        if (op->weighted && op->weight == 0) {
            memset(op->out, 0, bytes);
        } else if (op->out != op->in) {
            memmove(op->out, op->in, bytes);
        }
    }
    *out_done = true;
    return CDDP_OK;
}

static cddp_status check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                         bool thorough)
{
    (void)backend;
    (void)op;
    (void)thorough;
    return CDDP_OK;
}

static cddp_status expired(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    (void)backend;
    return cddpi_fail(CDDP_ERR_TIMEOUT, "%s: the deadline passed", cddpi_kind_name(op->kind));
}

static uint32_t prepare_sleep(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    (void)backend;
    (void)op;
    return 0;
}

static bool sleep_solo(struct cddpi_backend *backend, uint32_t ticket, int64_t ns)
{
    (void)backend;
    (void)ticket;
    (void)ns;
    return true; /* operations never wait here, so no thread ever sleeps */
}

static void nothing(struct cddpi_backend *backend)
{
    (void)backend;
}

static void abort_solo(struct cddpi_backend *backend, const struct cddpi_failure *failure)
{
    struct solo_backend *solo = solo_of(backend);
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&solo->aborted, &none, 1)) {
        solo->failure = *failure;
        atomic_store_explicit(&solo->aborted, 2, memory_order_release);
    }
}

static cddp_status broken(struct cddpi_backend *backend)
{
    struct solo_backend *solo = solo_of(backend);

    if (atomic_load_explicit(&solo->aborted, memory_order_acquire) != 2) {
        return CDDP_OK;
    }
    (void)cddpi_fail_again(CDDP_ERR_BROKEN, &solo->failure);
    return cddpi_fail_name(CDDP_ERR_BROKEN, 0);
}

static const struct cddpi_backend_ops cpu_ops = {.close = close_solo,
                                                 .advance = advance,
                                                 .check = check,
                                                 .expired = expired,
                                                 .prepare_sleep = prepare_sleep,
                                                 .sleep = sleep_solo,
                                                 .end_sleep = nothing,
                                                 .wake = nothing,
                                                 .abort = abort_solo,
                                                 .broken = broken,
                                                 .free_memory = free_memory};

static cddp_status open_solo(const struct cddpi_members *members, struct cddpi_backend **out)
{
    struct solo_backend *solo = cddpi_zalloc(sizeof *solo);

    (void)members;
    CDDPI_TRY_MEMORY(solo != NULL, "solo: no memory for a group");
    solo->base.ops = &cpu_ops;
    *out = &solo->base;
    return CDDP_OK;
}

static cddp_status probe(const struct cddpi_members *members)
{
    const struct cddpi_launch_env *env = members->env;

    if (env->world_size != 1) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, env->rank, "backend solo is for one rank, not %d",
                               env->world_size);
    }
    return CDDP_OK;
}

static cddp_status split(cddp_group *group, const struct cddpi_open_params *params, int first,
                         bool joins, struct cddpi_backend **out)
{
    (void)group;
    (void)params;
    (void)first;
    return joins ? open_solo(NULL, out) : CDDP_OK;
}

const struct cddpi_transport cddpi_solo_transport = {
    .name = "solo",
    .carries = CDDPI_MEMORY_CPU,
    .cpu = {.probe = probe, .open = open_solo, .split = split}};

struct solo_transport {
    struct cddpi_device_transport base; /* first: see device_solo_of() */
    struct cddpi_device *device;
};

static inline struct solo_transport *device_solo_of(struct cddpi_device_transport *base)
{
    return (struct solo_transport *)(void *)base;
}

static void close_device(struct cddpi_device_transport *base)
{
    struct solo_transport *transport = device_solo_of(base);

    cddpi_free(transport);
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct solo_transport *transport = device_solo_of(base);
    const struct cddpi_device_ops *ops = transport->device->ops;
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return ops->clear(transport->device, CDDPI_STREAM_COMM, op->out, bytes);
    }
    if (op->out == op->in) {
        return CDDP_OK;
    }
    return ops->copy(transport->device, CDDPI_STREAM_COMM, op->out, op->in, bytes);
}

static cddp_status poll_device(struct cddpi_device_transport *base)
{
    (void)base;
    return CDDP_OK; /* the device's own calls find its failures */
}

static void abort_device(struct cddpi_device_transport *base, const char *reason)
{
    (void)base; /* no operation here waits for a rank */
    (void)reason;
}

static cddp_status alloc_device(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct solo_transport *transport = device_solo_of(base);

    return transport->device->ops->alloc(transport->device, bytes, "group_alloc", out);
}

static void free_device(struct cddpi_device_transport *base, void *memory)
{
    struct solo_transport *transport = device_solo_of(base);

    transport->device->ops->release(transport->device, memory);
}

static bool can_capture(const struct cddpi_device_transport *base)
{
    (void)base;
    return true;
}

static const struct cddpi_device_transport_ops device_ops = {.close = close_device,
                                                             .enqueue = enqueue,
                                                             .poll = poll_device,
                                                             .abort = abort_device,
                                                             .alloc = alloc_device,
                                                             .free_memory = free_device,
                                                             .can_capture = can_capture};

static cddp_status open_device(const struct cddpi_device_open_params *params,
                               struct cddpi_device_transport **out)
{
    struct solo_transport *transport = cddpi_zalloc(sizeof *transport);

    CDDPI_TRY_MEMORY(transport != NULL, "solo: no memory for a group");
    transport->device = params->device;
    transport->base.ops = &device_ops;
    *out = &transport->base;
    return CDDP_OK;
}

static cddp_status probe_device(const struct cddpi_device_open_params *params)
{
    if (params->world_size != 1) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "backend solo is for one rank, not %d",
                          params->world_size);
    }
    return CDDP_OK;
}

const struct cddpi_transport cddpi_solo_device_transport = {
    .name = "solo",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe_device, .open = open_device, .ranks = 1, .for_host = true}};
