/* deferred_device.c - a device in host memory whose streams run late, and a transport between its
 * ranks (see deferred_device.h). */
#include "support/deferred_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct deferred_item {
    struct deferred_item *next;
    /* Runs the item. Returns whether it is done; if not, it is called again. */
    bool (*run)(struct deferred *device, struct deferred_item *item);
    void *to;
    void *from; /* owned if `owned` */
    bool owned;
    size_t bytes;
    struct deferred_event *event;
    uint64_t point; /* of the event */
    struct deferred_transport_state *transport;
    struct cddpi_group_op op;
    int stage;
    size_t done; /* elements */
    cddp_type type_from, type_to;
    const void *other; /* of a sum */
};

struct deferred_event {
    struct cddpi_event base; /* first: see deferred_event_of() */
    uint64_t recorded;       /* number of records */
    uint64_t passed;         /* the last record that the stream has reached */
    double ms;               /* time of that */
};

static struct deferred_event *deferred_event_of(struct cddpi_event *base)
{
    return (struct deferred_event *)(void *)base;
}

struct deferred_rank {
    _Alignas(64) _Atomic uint64_t brought; /* pieces that the rank has put into its slice */
    _Atomic uint64_t taken;                /* pieces that the rank has read from all slices */
    double weight;
    unsigned char slice[DEFERRED_SLICE];
};

struct deferred_transport_state {
    struct cddpi_device_transport base; /* first: see deferred_transport_of() */
    struct deferred *device;
    int rank, size;
    struct deferred_rank *ranks; /* shared */
    uint64_t pieces;             /* done */
    _Atomic bool aborted;
};

static inline struct deferred_transport_state *
deferred_transport_of(struct cddpi_device_transport *base)
{
    return (struct deferred_transport_state *)(void *)base;
}

/* --- the scheduler; the caller holds the mutex --- */

struct deferred *deferred_of(const struct cddpi_device *device)
{
    return (struct deferred *)(void *)(uintptr_t)device;
}

static unsigned deferred_random(struct deferred *device, unsigned below)
{
    device->random = device->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(device->random >> 33) % below;
}

static bool deferred_run_one(struct deferred *device, int stream)
{
    struct deferred_item *item = device->first[stream];

    if (item == NULL || !item->run(device, item)) {
        return false;
    }
    device->first[stream] = item->next;
    if (item->owned) {
        free(item->from);
    }
    free(item);
    return true;
}

/* Run a few items. A biased device lets one stream advance as far as possible before the others. */
static void deferred_run_some(struct deferred *device, unsigned items)
{
    while (!device->held && items-- > 0) {
        int first = device->bias == DEFERRED_COMM_FIRST      ? CDDPI_STREAM_COMM
                    : device->bias == DEFERRED_COMPUTE_FIRST ? CDDPI_STREAM_COMPUTE
                                                             : -1;
        bool any = false;

        if (first >= 0) {
            while (deferred_run_one(device, first)) {
                any = true;
            }
        }
        for (unsigned i = 0, start = deferred_random(device, CDDPI_STREAM_COUNT);
             i < CDDPI_STREAM_COUNT && !any; i++) {
            any = deferred_run_one(device, (int)((start + i) % CDDPI_STREAM_COUNT));
        }
        if (!any) {
            return;
        }
    }
}

static struct deferred_item *deferred_put(struct deferred *device, enum cddpi_stream stream,
                                          bool (*run)(struct deferred *, struct deferred_item *))
{
    struct deferred_item *item = calloc(1, sizeof *item);

    item->run = run;
    if (device->first[stream] == NULL) {
        device->first[stream] = item;
    } else {
        device->last[stream]->next = item;
    }
    device->last[stream] = item;
    return item;
}

/* --- the device --- */

static void deferred_close(struct cddpi_device *base)
{
    struct deferred *device = deferred_of(base);

    for (int stream = 0; stream < CDDPI_STREAM_COUNT; stream++) {
        while (device->first[stream] != NULL) {
            struct deferred_item *next = device->first[stream]->next;

            if (device->first[stream]->owned) {
                free(device->first[stream]->from);
            }
            free(device->first[stream]);
            device->first[stream] = next;
        }
    }
    munmap(device->memory, DEFERRED_MEMORY);
    free(device);
}

static cddp_status deferred_alloc(struct cddpi_device *base, size_t bytes, const char *what,
                                  void **out)
{
    struct deferred *device = deferred_of(base);

    if (bytes > DEFERRED_MEMORY - device->used) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "deferred device: no %zu bytes for %s", bytes, what);
    }
    *out = device->memory + device->used;
    memset(*out, 0x7b, bytes);
    device->used += (bytes + 255) / 256 * 256;
    return CDDP_OK;
}

static void deferred_release(struct cddpi_device *base, void *memory)
{
    (void)base;
    (void)memory;
}

static cddp_status deferred_pin(struct cddpi_device *base, size_t bytes, void **out)
{
    (void)base;
    *out = calloc(1, bytes);
    return *out != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
}

static void deferred_unpin(struct cddpi_device *base, void *memory)
{
    (void)base;
    free(memory);
}

bool deferred_owns(const struct cddpi_device *base, const void *memory)
{
    const struct deferred *device = deferred_of(base);

    return (uintptr_t)memory - (uintptr_t)device->memory < DEFERRED_MEMORY;
}

static bool deferred_copy_item(struct deferred *device, struct deferred_item *item)
{
    (void)device;
    memmove(item->to, item->from, item->bytes);
    return true;
}

/* Copies from host memory read it at once, as the driver does with small copies. */
static cddp_status deferred_copy(struct cddpi_device *base, enum cddpi_stream stream, void *to,
                                 const void *from, size_t bytes)
{
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, stream, deferred_copy_item);
    item->to = to;
    item->bytes = bytes;
    item->from = (void *)(uintptr_t)from;
    if (!deferred_owns(base, from)) {
        item->owned = true;
        item->from = malloc(bytes + 1);
        memcpy(item->from, from, bytes);
    }
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

static bool deferred_clear_item(struct deferred *device, struct deferred_item *item)
{
    (void)device;
    memset(item->to, 0, item->bytes);
    return true;
}

static cddp_status deferred_clear(struct cddpi_device *base, enum cddpi_stream stream, void *memory,
                                  size_t bytes)
{
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, stream, deferred_clear_item);
    item->to = memory;
    item->bytes = bytes;
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

static cddp_status deferred_event_create(struct cddpi_device *base, bool timed,
                                         struct cddpi_event **out)
{
    struct deferred_event *event = calloc(1, sizeof *event);

    (void)base;
    if (event == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    event->base.timed = timed;
    *out = &event->base;
    return CDDP_OK;
}

static void deferred_event_destroy(struct cddpi_device *base, struct cddpi_event *event_base)
{
    struct deferred_event *event = deferred_event_of(event_base);

    (void)base;
    free(event);
}

static bool deferred_record_item(struct deferred *device, struct deferred_item *item)
{
    (void)device;
    item->event->passed = item->point;
    item->event->ms = (double)cddpi_now_ns() / 1e6;
    return true;
}

static cddp_status deferred_record(struct cddpi_device *base, struct cddpi_event *event_base,
                                   enum cddpi_stream stream)
{
    struct deferred_event *event = deferred_event_of(event_base);
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, stream, deferred_record_item);
    item->event = event;
    item->point = ++event->recorded;
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

static bool deferred_order_item(struct deferred *device, struct deferred_item *item)
{
    (void)device;
    return item->event->passed >= item->point;
}

static cddp_status deferred_order(struct cddpi_device *base, enum cddpi_stream stream,
                                  struct cddpi_event *event_base)
{
    struct deferred_event *event = deferred_event_of(event_base);
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, stream, deferred_order_item);
    item->event = event;
    item->point = event->recorded;
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

static cddp_status deferred_query(struct cddpi_device *base, struct cddpi_event *event_base,
                                  bool *out_done)
{
    struct deferred_event *event = deferred_event_of(event_base);
    struct deferred *device = deferred_of(base);
    bool fails;

    pthread_mutex_lock(&device->mutex);
    deferred_run_some(device, 1 + deferred_random(device, 8));
    *out_done = event->passed == event->recorded;
    fails = device->fails;
    pthread_mutex_unlock(&device->mutex);
    return fails ? cddpi_fail(CDDP_ERR_DEVICE, "deferred device: it was told to fail") : CDDP_OK;
}

static cddp_status deferred_wait(struct cddpi_device *base, struct cddpi_event *event_base,
                                 uint32_t timeout_ms)
{
    struct deferred_event *event = deferred_event_of(event_base);

    int64_t until = cddpi_deadline_ns(timeout_ms);
    bool done = false;

    deferred_of(base)->host_waits++;
    for (;;) {
        struct timespec pause = {0, 100000};
        cddp_status status = deferred_query(base, &event->base, &done);

        if (done || status != CDDP_OK) {
            return status;
        }
        if (cddpi_now_ns() > until) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "deferred device: the event has not come");
        }
        nanosleep(&pause, NULL);
    }
}

static cddp_status deferred_elapsed(struct cddpi_device *base, struct cddpi_event *event_from,
                                    struct cddpi_event *event_to, float *out_ms)
{
    struct deferred_event *from = deferred_event_of(event_from);
    struct deferred_event *to = deferred_event_of(event_to);

    (void)base;
    if (from->passed != from->recorded || to->passed != to->recorded) {
        return cddpi_fail(CDDP_ERR_DEVICE, "deferred device: time of an event to come");
    }
    *out_ms = (float)(to->ms - from->ms);
    return CDDP_OK;
}

static cddp_status deferred_finish(struct cddpi_device *base, uint32_t timeout_ms)
{
    struct deferred *device = deferred_of(base);
    int64_t until = cddpi_deadline_ns(timeout_ms);
    bool empty = false;

    device->host_waits++;
    while (!empty) {
        struct timespec pause = {0, 100000};

        pthread_mutex_lock(&device->mutex);
        deferred_run_some(device, 8);
        empty = true;
        for (int stream = 0; stream < CDDPI_STREAM_COUNT; stream++) {
            empty = empty && device->first[stream] == NULL;
        }
        pthread_mutex_unlock(&device->mutex);
        if (!empty && cddpi_now_ns() > until) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "deferred device: the streams do not end");
        }
        if (!empty) {
            nanosleep(&pause, NULL);
        }
    }
    return CDDP_OK;
}

static bool deferred_cast_item(struct deferred *device, struct deferred_item *item)
{
    (void)device;
    cddpi_cast(item->to, item->type_to, item->from, item->type_from, item->bytes);
    return true;
}

static cddp_status deferred_cast(struct cddpi_device *base, cddp_type from, const void *in,
                                 cddp_type to, void *out, size_t count)
{
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, CDDPI_STREAM_COMPUTE, deferred_cast_item);
    item->from = (void *)(uintptr_t)in;
    item->to = out;
    item->bytes = count;
    item->type_from = from;
    item->type_to = to;
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

static bool deferred_add_item(struct deferred *device, struct deferred_item *item)
{
    struct cddpi_reduce how = {item->type_from, CDDP_OP_SUM, 2, 1, NULL};
    const void *src[] = {item->from, item->other};

    (void)device;
    cddpi_reduce(&how, &item->to, src, item->bytes);
    return true;
}

static cddp_status deferred_add(struct cddpi_device *base, cddp_type type, const void *a,
                                const void *b, bool relu, size_t count, void *out)
{
    struct deferred *device = deferred_of(base);
    struct deferred_item *item;

    if (relu) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "deferred device: no relu");
    }
    pthread_mutex_lock(&device->mutex);
    item = deferred_put(device, CDDPI_STREAM_COMPUTE, deferred_add_item);
    item->from = (void *)(uintptr_t)a;
    item->other = b;
    item->to = out;
    item->bytes = count;
    item->type_from = type;
    pthread_mutex_unlock(&device->mutex);
    return CDDP_OK;
}

/* --- the transport --- */

static const struct cddpi_device_transport_ops deferred_transport_ops;

static cddp_status deferred_transport_open(const struct cddpi_device_open_params *params,
                                           struct cddpi_device_transport **out)
{
    struct deferred_transport_state *transport = calloc(1, sizeof *transport);
    void *memory;
    cddp_status status;

    transport->base.ops = &deferred_transport_ops;
    transport->device = deferred_of(params->device);
    transport->rank = params->rank;
    transport->size = params->world_size;
    status = params->shared(params->context, (size_t)transport->size * sizeof *transport->ranks,
                            &memory);
    transport->ranks = memory;
    *out = &transport->base;
    return status;
}

static void deferred_transport_close(struct cddpi_device_transport *base)
{
    struct deferred_transport_state *transport = deferred_transport_of(base);

    free(transport);
}

static size_t deferred_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Pieces: elements [first, first + count) of each block. */
static void deferred_bring(struct deferred_transport_state *transport,
                           const struct cddpi_group_op *op, size_t first, size_t count)
{
    size_t element = cddp_type_bytes(op->type);
    bool blocks = op->kind == CDDPI_REDUCE_SCATTER || op->kind == CDDPI_SCATTER ||
                  op->kind == CDDPI_ALL_TO_ALL;
    struct deferred_rank *own = &transport->ranks[transport->rank];
    bool brings = (op->kind != CDDPI_BROADCAST && op->kind != CDDPI_SCATTER) ||
                  op->root == transport->rank;

    own->weight = op->weight;
    for (int b = 0; b < (blocks ? transport->size : 1) && brings; b++) {
        memcpy(own->slice + (size_t)b * count * element,
               (const char *)op->in + ((size_t)b * op->count + first) * element, count * element);
    }
}

static void deferred_reduce(struct deferred_transport_state *transport,
                            const struct cddpi_group_op *op, size_t first, size_t count)
{
    struct cddpi_reduce how = {op->type, op->op, transport->size, 1, NULL};
    size_t element = cddp_type_bytes(op->type);
    size_t block = op->kind == CDDPI_REDUCE_SCATTER ? (size_t)transport->rank : 0;
    const void *in[DEFERRED_RANKS];
    double weights[DEFERRED_RANKS];
    double factors[DEFERRED_RANKS];
    void *out = (char *)op->out + first * element;

    for (int r = 0; r < transport->size; r++) {
        in[r] = transport->ranks[r].slice + block * count * element;
        weights[r] = transport->ranks[r].weight;
    }
    if (op->weighted) {
        cddpi_reduce_weighted(&how, op->type, weights, transport->size, factors);
    }
    cddpi_reduce(&how, &out, in, count);
}

static void deferred_take(struct deferred_transport_state *transport,
                          const struct cddpi_group_op *op, size_t first, size_t count)
{
    size_t element = cddp_type_bytes(op->type);
    bool root = op->root == transport->rank;

    switch (op->kind) {
    case CDDPI_REDUCE:
        if (!root) {
            return;
        }
        /* fall through */
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        deferred_reduce(transport, op, first, count);
        return;
    case CDDPI_BROADCAST:
        memcpy((char *)op->out + first * element, transport->ranks[op->root].slice,
               count * element);
        return;
    case CDDPI_SCATTER:
        memcpy((char *)op->out + first * element,
               transport->ranks[op->root].slice + (size_t)transport->rank * count * element,
               count * element);
        return;
    case CDDPI_GATHER:
        if (!root) {
            return;
        }
        /* fall through */
    default:
        for (int r = 0; r < transport->size; r++) {
            size_t block = op->kind == CDDPI_ALL_TO_ALL ? (size_t)transport->rank : 0;

            memcpy((char *)op->out + ((size_t)r * op->count + first) * element,
                   transport->ranks[r].slice + block * count * element, count * element);
        }
    }
}

static bool deferred_all_have(struct deferred_transport_state *transport, bool taken,
                              uint64_t pieces)
{
    for (int r = 0; r < transport->size; r++) {
        if (atomic_load(taken ? &transport->ranks[r].taken : &transport->ranks[r].brought) <
            pieces) {
            return false;
        }
    }
    return true;
}

static bool deferred_transport_item(struct deferred *device, struct deferred_item *item)
{
    struct deferred_transport_state *transport = item->transport;
    struct deferred_rank *own = &transport->ranks[transport->rank];
    size_t piece = DEFERRED_SLICE / cddp_type_bytes(item->op.type) / (size_t)transport->size;

    (void)device;
    while (item->done < item->op.count) {
        size_t first = item->done;
        size_t count = deferred_least(piece, item->op.count - first);

        if (atomic_load(&transport->aborted)) {
            return true;
        }
        if (item->stage == 0) { /* the slice is free once all ranks have read its last contents */
            if (!deferred_all_have(transport, true, transport->pieces)) {
                return false;
            }
            deferred_bring(transport, &item->op, first, count);
            atomic_store(&own->brought, transport->pieces + 1);
            item->stage = 1;
        }
        if (item->stage == 1) {
            if (!deferred_all_have(transport, false, transport->pieces + 1)) {
                return false;
            }
            deferred_take(transport, &item->op, first, count);
            atomic_store(&own->taken, ++transport->pieces);
            item->done += count;
            item->stage = 0;
        }
    }
    return true;
}

static cddp_status deferred_enqueue(struct cddpi_device_transport *base,
                                    const struct cddpi_group_op *op)
{
    struct deferred_transport_state *transport = deferred_transport_of(base);
    struct deferred_item *item;

    if (op->kind == CDDPI_ALL_TO_ALL && op->type == CDDP_I64) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "deferred transport: no all_to_all of i64");
    }
    pthread_mutex_lock(&transport->device->mutex);
    item = deferred_put(transport->device, CDDPI_STREAM_COMM, deferred_transport_item);
    item->transport = transport;
    item->op = *op;
    item->done = 0;
    pthread_mutex_unlock(&transport->device->mutex);
    return CDDP_OK;
}

static cddp_status deferred_poll(struct cddpi_device_transport *base)
{
    (void)base;
    return CDDP_OK;
}

static void deferred_abort(struct cddpi_device_transport *base, const char *reason)
{
    struct deferred_transport_state *transport = deferred_transport_of(base);

    (void)reason;
    atomic_store(&transport->aborted, true);
}

static cddp_status deferred_transport_alloc(struct cddpi_device_transport *base, size_t bytes,
                                            void **out)
{
    struct deferred_transport_state *transport = deferred_transport_of(base);

    return deferred_alloc(&transport->device->device, bytes, "the transport", out);
}

static void deferred_transport_free(struct cddpi_device_transport *base, void *memory)
{
    (void)base;
    (void)memory;
}

static bool deferred_can_capture(const struct cddpi_device_transport *base)
{
    (void)base;
    return false;
}

static cddp_status deferred_transport_probe(const struct cddpi_device_open_params *params)
{
    (void)params;
    return CDDP_OK;
}

static const struct cddpi_device_transport_ops deferred_transport_ops = {
    .close = deferred_transport_close,
    .enqueue = deferred_enqueue,
    .poll = deferred_poll,
    .abort = deferred_abort,
    .alloc = deferred_transport_alloc,
    .free_memory = deferred_transport_free,
    .can_capture = deferred_can_capture};

static const struct cddpi_transport deferred_transport = {
    .name = "deferred",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {
        .probe = deferred_transport_probe, .open = deferred_transport_open, .for_host = true}};

static void deferred_range_push(struct cddpi_device *of, const char *name)
{
    (void)of, (void)name;
}

static void deferred_range_pop(struct cddpi_device *of)
{
    (void)of;
}

static void *deferred_compute_stream(struct cddpi_device *of)
{
    (void)of;
    return NULL;
}

static void deferred_faults(const struct cddpi_device *device, char *out, size_t bytes)
{
    (void)device, (void)bytes;
    out[0] = '\0';
}

static bool deferred_meters(struct cddpi_device *device, struct cddpi_device_meters *out)
{
    (void)device, (void)out;
    return false;
}

const struct cddpi_device_ops deferred_ops = {.name = "deferred",
                                              .kind = CDDPI_DEVICE_CUDA,
                                              .close = deferred_close,
                                              .alloc = deferred_alloc,
                                              .release = deferred_release,
                                              .pin = deferred_pin,
                                              .unpin = deferred_unpin,
                                              .owns = deferred_owns,
                                              .copy = deferred_copy,
                                              .clear = deferred_clear,
                                              .event_create = deferred_event_create,
                                              .event_destroy = deferred_event_destroy,
                                              .record = deferred_record,
                                              .order = deferred_order,
                                              .query = deferred_query,
                                              .wait = deferred_wait,
                                              .elapsed = deferred_elapsed,
                                              .finish = deferred_finish,
                                              .faults = deferred_faults,
                                              .meters = deferred_meters,
                                              .range_push = deferred_range_push,
                                              .range_pop = deferred_range_pop,
                                              .compute_stream = deferred_compute_stream};

struct cddpi_device *deferred_open(int rank, enum deferred_bias bias, unsigned seed)
{
    struct deferred *device = calloc(1, sizeof *device);

    pthread_mutex_init(&device->mutex, NULL);
    device->bias = bias;
    device->random = seed * 2654435761u + (unsigned)rank;
    device->memory = mmap(NULL, DEFERRED_MEMORY, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    device->kernels.cast = deferred_cast;
    device->kernels.add = deferred_add;
    device->transports[0] = &deferred_transport;
    device->device.ops = &deferred_ops;
    device->device.kernels = &device->kernels;
    device->device.transports = device->transports;
    device->device.rank = rank;
    return &device->device;
}
