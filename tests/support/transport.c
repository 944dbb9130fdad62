/* transport.c - transports without a group: forked ranks on devices of the fake CUDA, a seat that
 * exchanges through memory mapped before the fork, and the part of the group that orders compute
 * and communication and watches for hangs. */
#include "support/transport.h"

bool transport_module(void)
{
    const char *module = getenv("CDDP_CUDA_MODULE");

    if (gpu_count() > 0) {
        return true;
    }
    if (module == NULL || strstr(module, "emulated") == NULL) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return false;
    }
    setenv("CDDP_FAKE_CUDA_IDLE_US", "100", 0);
    return true;
}

struct transport_world *transport_world_create(int size)
{
    struct transport_world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    world->size = size;
    world->shared = mmap(NULL, TRANSPORT_SHARED, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return world;
}

bool transport_world_reset(struct transport_world *world)
{
    atomic_store(&world->came, 0);
    atomic_store(&world->round, 0);
    atomic_store(&world->broken, false);
    return madvise(world->shared, TRANSPORT_SHARED, MADV_REMOVE) == 0;
}

void transport_world_destroy(struct transport_world *world)
{
    munmap(world->shared, TRANSPORT_SHARED);
    munmap(world, sizeof *world);
}

bool transport_barrier(struct transport_rank *me)
{
    uint32_t round = atomic_load(&me->world->round);
    int64_t deadline = cddpi_deadline_ns(me->timeout_ms);

    if (atomic_fetch_add(&me->world->came, 1) + 1 == (uint32_t)me->size) {
        atomic_store(&me->world->came, 0);
        atomic_store(&me->world->round, round + 1);
        return true;
    }
    while (atomic_load(&me->world->round) == round) {
        if (atomic_load(&me->world->broken) || cddpi_now_ns() > deadline) {
            return false;
        }
        support_sleep_ms(1);
    }
    return true;
}

static cddp_status transport_exchange(void *context, const void *own, size_t bytes, void *out_all)
{
    struct transport_rank *me = context;

    if (bytes > TRANSPORT_RECORD) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "an exchange of %zu bytes", bytes);
    }
    memcpy(me->world->records[me->rank], own, bytes);
    if (!transport_barrier(me)) {
        return cddpi_fail(CDDP_ERR_PEER, "a rank did not come");
    }
    for (int r = 0; r < me->size; r++) {
        memcpy((char *)out_all + (size_t)r * bytes, me->world->records[r], bytes);
    }
    return transport_barrier(me) ? CDDP_OK : cddpi_fail(CDDP_ERR_PEER, "a rank did not come");
}

static cddp_status transport_agree(void *context, cddp_status own)
{
    struct transport_rank *me = context;
    struct cddpi_exchange exchange = {
        .context = me, .world_size = me->size, .all_gather = transport_exchange};

    return cddpi_agree_by(&exchange, own);
}

static cddp_status transport_shared(void *context, size_t bytes, void **out)
{
    struct transport_rank *me = context;

    bytes = (bytes + 4095) / 4096 * 4096;
    if (TRANSPORT_SHARED - me->given < bytes) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no %zu bytes to share", bytes);
    }
    *out = me->world->shared + me->given;
    me->given += bytes;
    return CDDP_OK;
}

static const struct cddpi_transport *transport_named(const struct cddpi_device *device,
                                                     const char *name)
{
    const struct cddpi_transport *row;
    size_t i = 0;

    do {
        row = cddpi_transport_of_device(device, i++);
    } while (row != NULL && strcmp(row->name, name) != 0);
    return row;
}

cddp_status transport_rank_open(struct transport_world *world, int rank, const char *name,
                                bool deterministic, struct transport_rank *me)
{
    cddp_status status;

    *me = (struct transport_rank){
        .world = world, .rank = rank, .size = world->size, .timeout_ms = SUPPORT_TIMEOUT_MS};
    status = cddpi_device_open("cuda", rank, world->size, rank, world->size, true, &me->device);
    if (status != CDDP_OK) {
        return status;
    }
    me->row = transport_named(me->device, name);
    if (me->row == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "no transport %s in this module", name);
    }
    me->params = (struct cddpi_device_open_params){.rank = rank,
                                                   .world_size = world->size,
                                                   .local_rank = rank,
                                                   .local_world_size = world->size,
                                                   .timeout_ms = me->timeout_ms,
                                                   .deterministic = deterministic,
                                                   .device = me->device,
                                                   .context = me,
                                                   .exchange = transport_exchange,
                                                   .agree = transport_agree,
                                                   .shared = transport_shared};
    status = me->device->ops->event_create(me->device, false, &me->computed);
    return status != CDDP_OK ? status
                             : me->device->ops->event_create(me->device, false, &me->communicated);
}

cddp_status transport_open(struct transport_rank *me)
{
    cddp_status status = transport_agree(me, me->row->device.probe(&me->params));

    CDDPI_TRY(status);
    CDDPI_TRY(me->row->device.open(&me->params, &me->transport));
    me->ops = me->transport->ops;
    return CDDP_OK;
}

cddp_status transport_rank_start(struct transport_world *world, int rank, const char *name,
                                 bool deterministic, struct transport_rank *me)
{
    cddp_status status = transport_rank_open(world, rank, name, deterministic, me);

    return status != CDDP_OK ? status : transport_open(me);
}

void transport_rank_end(struct transport_rank *me)
{
    if (me->transport != NULL) {
        me->ops->close(me->transport);
    }
    me->device->ops->event_destroy(me->device, me->computed);
    me->device->ops->event_destroy(me->device, me->communicated);
    cddpi_device_close(me->device);
}

cddp_status transport_start(struct transport_rank *me, struct cddpi_group_op *op)
{
    const struct cddpi_device_ops *device = me->device->ops;
    cddp_status status;

    op->number = ++me->number;
    status = device->record(me->device, me->computed, CDDPI_STREAM_COMPUTE);
    if (status == CDDP_OK) {
        status = device->order(me->device, CDDPI_STREAM_COMM, me->computed);
    }
    if (status == CDDP_OK) {
        status = me->ops->enqueue(me->transport, op);
    }
    if (status == CDDP_OK) {
        status = device->record(me->device, me->communicated, CDDPI_STREAM_COMM);
    }
    return status != CDDP_OK ? status
                             : device->order(me->device, CDDPI_STREAM_COMPUTE, me->communicated);
}

cddp_status transport_watch(struct transport_rank *me, uint32_t timeout_ms)
{
    int64_t deadline = cddpi_deadline_ns(timeout_ms);
    cddp_status status = CDDP_OK;
    bool done = false;

    while (status == CDDP_OK && !done) {
        status = me->ops->poll(me->transport);
        if (status == CDDP_OK) {
            status = me->device->ops->query(me->device, me->communicated, &done);
        }
        if (status == CDDP_OK && cddpi_now_ns() > deadline) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "the collective did not end");
        }
        if (!done) {
            support_sleep_ms(1);
        }
    }
    if (status == CDDP_OK) { /* the stream may have ended because a peer gave up */
        status = me->ops->poll(me->transport);
    }
    if (status != CDDP_OK) {
        char text[1024];

        snprintf(text, sizeof text, "%s", cddp_last_error());
        me->ops->abort(me->transport, text);
        if (me->device->ops->finish(me->device, TRANSPORT_DRY_MS) != CDDP_OK) {
            return cddpi_fail(CDDP_ERR_STATE, "streams do not run dry after: %s", text);
        }
        (void)cddpi_fail(status, "%s", text);
    }
    return status;
}

cddp_status transport_run(struct transport_rank *me, struct cddpi_group_op *op)
{
    cddp_status status = transport_start(me, op);

    return status != CDDP_OK ? status : transport_watch(me, SUPPORT_TIMEOUT_MS);
}

struct cddpi_group_op transport_sum(void *data, size_t count)
{
    return (struct cddpi_group_op){.kind = CDDPI_ALL_REDUCE,
                                   .type = CDDP_F32,
                                   .op = CDDP_OP_SUM,
                                   .count = count,
                                   .in = data,
                                   .out = data};
}

float *transport_zeros(struct transport_rank *me, bool registered, size_t count)
{
    void *data = NULL;
    cddp_status status = registered ? me->ops->alloc(me->transport, count * sizeof(float), &data)
                                    : me->device->ops->alloc(me->device, count * sizeof(float),
                                                             "test", &data);

    return status == CDDP_OK && me->device->ops->clear(me->device, CDDPI_STREAM_COMPUTE, data,
                                                       count * sizeof(float)) == CDDP_OK
               ? data
               : NULL;
}

int transport_begin(struct transport_world *world, int rank, const char *name, bool deterministic,
                    bool registered, size_t count, struct transport_rank *me,
                    struct cddpi_group_op *out)
{
    float *data;

    CHECK(transport_rank_start(world, rank, name, deterministic, me) == CDDP_OK);
    data = transport_zeros(me, registered, count);
    CHECK(data != NULL);
    *out = transport_sum(data, count);
    return 0;
}

void *transport_upload(struct transport_rank *me, void *to, const void *from, size_t bytes)
{
    if (to == NULL &&
        me->device->ops->alloc(me->device, bytes > 0 ? bytes : 1, "test", &to) != CDDP_OK) {
        return NULL;
    }
    return bytes == 0 || me->device->ops->copy(me->device, CDDPI_STREAM_COMPUTE, to, from, bytes) ==
                             CDDP_OK
               ? to
               : NULL;
}

cddp_status transport_download(struct transport_rank *me, void *to, const void *from, size_t bytes)
{
    cddp_status status = bytes == 0 ? CDDP_OK
                                    : me->device->ops->copy(me->device, CDDPI_STREAM_COMPUTE, to,
                                                            from, bytes);

    return status != CDDP_OK ? status : me->device->ops->finish(me->device, SUPPORT_TIMEOUT_MS);
}
