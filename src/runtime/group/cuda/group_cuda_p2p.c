/* group_cuda_p2p.c - owns messages between two ranks of a machine: channels, their streams, and the
 * pieces in them. */
#include "group/cuda/group_cuda_p2p.h"
#include "group/cuda/stream_flags.h"

#include <pthread.h>
#include <stdio.h>

enum {
    P2P_SLOTS = 2,
    P2P_DEPTH = 64, /* maximum pieces of a channel in its stream at once */
    P2P_GRAIN = 4096,
    P2P_DRAIN_MS = 10000 /* time limit for streams that nothing blocks any more */
};

/* Tests use smaller pieces, so that little data has many pieces, and start shortly before the lower
 * half of the flags overflows. */
#ifndef CDDPI_P2P_SIZES
#define CDDPI_P2P_SIZES 1 << 20, 32 << 20, 0
#endif
static const struct {
    size_t slot;    /* bytes, at most */
    size_t machine; /* maximum bytes of all slots of all ranks */
    uint64_t start; /* the number before the first piece */
} p2p_sizes = {CDDPI_P2P_SIZES};

/* The flags of messages from one rank to another. */
struct group_cuda_p2p_pair {
    _Alignas(128) _Atomic uint64_t sent; /* written by the sender's stream */
    _Alignas(128) _Atomic uint64_t taken;
};

/* A message that is not, or not completely, in its stream. */
struct queued_message {
    struct queued_message *next;
    struct cddpi_group_op op;
    struct cddpi_event *ready, *done;
    _Atomic bool *begun;
    size_t bytes, at;
};

struct channel {
    cudaStream_t stream; /* NULL: not used yet */
    struct queued_message *first, *last;
    uint64_t put; /* number of the last enqueued piece */
};

struct cddpi_p2p {
    struct cddpi_device *device;
    int rank, size;
    size_t slot;
    struct cddpi_stream_flags flags;
    struct cddpi_failure why; /* why messages are impossible; status CDDP_OK: they are possible */
    struct group_cuda_p2p_pair *pairs; /* by sender, then receiver; shared */
    char **areas;                      /* by rank */
    bool registered;

    pthread_mutex_t mutex;    /* guards the fields below */
    struct channel *channels; /* by peer: the channel to it, the channel from it */
    _Atomic int waiting;      /* number of messages that wait */
    _Atomic bool closed;
};

static size_t slot_bytes(int size)
{
    size_t most = p2p_sizes.machine / ((size_t)size * (size_t)size * P2P_SLOTS);
    size_t bytes = (most < p2p_sizes.slot ? most : p2p_sizes.slot) / P2P_GRAIN * P2P_GRAIN;

    return bytes > 0 ? bytes : P2P_GRAIN;
}

size_t cddpi_p2p_area_bytes(int world_size)
{
    return (size_t)world_size * P2P_SLOTS * slot_bytes(world_size);
}

static struct group_cuda_p2p_pair *pair_of(const struct cddpi_p2p *p2p, int from, int to)
{
    return &p2p->pairs[from * p2p->size + to];
}

/* --- opening and closing --- */

static size_t pairs_bytes(int size)
{
    return cddpi_align_to((size_t)size * (size_t)size * sizeof(struct group_cuda_p2p_pair),
                          P2P_GRAIN);
}

static cddp_status make_own(struct cddpi_p2p *p2p, size_t bytes, char *const *areas)
{
    for (int r = 0; r < p2p->size; r++) {
        atomic_store(&pair_of(p2p, p2p->rank, r)->sent, p2p_sizes.start);
        atomic_store(&pair_of(p2p, r, p2p->rank)->taken, p2p_sizes.start);
        p2p->channels[2 * r].put = p2p->channels[2 * r + 1].put = p2p_sizes.start;
        p2p->areas[r] = areas != NULL ? areas[r]
                                      : (char *)p2p->pairs + pairs_bytes(p2p->size) +
                                            (size_t)r * cddpi_p2p_area_bytes(p2p->size);
    }
    CDDPI_TRY(cddpi_flags_find(p2p->device, &p2p->flags));
    CDDPI_TRY(CUDA_CHECK(
        p2p->device,
        cudaHostRegister(p2p->pairs, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped)));
    p2p->registered = true;
    p2p->flags.memory = p2p->pairs;
    return CUDA_CHECK(p2p->device,
                      cudaHostGetDevicePointer((void **)&p2p->flags.memory_device, p2p->pairs, 0));
}

static cddp_status set_up(struct cddpi_p2p *p2p, const struct cddpi_device_open_params *params,
                          char *const *areas)
{
    size_t bytes = pairs_bytes(p2p->size);
    cddp_status status;

    if (areas == NULL) {
        bytes += (size_t)p2p->size * cddpi_p2p_area_bytes(p2p->size);
    }
    status = params->shared(params->context, bytes, (void **)&p2p->pairs);
    if (status != CDDP_OK) {
        p2p->pairs = NULL;
        return status;
    }
    return cddpi_transport_agree(params, make_own(p2p, bytes, areas));
}

static struct cddpi_p2p *create(const struct cddpi_device_open_params *params)
{
    struct cddpi_p2p *p2p = cddpi_zalloc(sizeof *p2p);
    size_t size = (size_t)params->world_size;

    if (p2p == NULL) {
        return NULL;
    }
    p2p->device = params->device;
    p2p->rank = params->rank;
    p2p->size = params->world_size;
    p2p->slot = slot_bytes(params->world_size);
    p2p->channels = cddpi_zalloc(2 * size * sizeof *p2p->channels);
    p2p->areas = cddpi_zalloc(size * sizeof *p2p->areas);
    pthread_mutex_init(&p2p->mutex, NULL);
    if (p2p->channels == NULL || p2p->areas == NULL) {
        (void)cddpi_p2p_close(p2p);
        return NULL;
    }
    return p2p;
}

cddp_status cddpi_p2p_open(const struct cddpi_device_open_params *params, char *const *areas,
                           struct cddpi_p2p **out)
{
    struct cddpi_p2p *p2p = create(params);
    cddp_status status = cddpi_transport_agree(
        params, p2p != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for messages"));

    if (status != CDDP_OK) {
        (void)cddpi_p2p_close(p2p);
        return status;
    }
    if (set_up(p2p, params, areas) != CDDP_OK) {
        /* without messages, the transport's collectives may still work */
        p2p->why = *cddpi_last_failure();
    }
    *out = p2p;
    return CDDP_OK;
}

static void drop_queued(struct cddpi_p2p *p2p)
{
    for (int i = 0; p2p->channels != NULL && i < 2 * p2p->size; i++) {
        while (p2p->channels[i].first != NULL) {
            struct queued_message *next = p2p->channels[i].first->next;

            cddpi_free(p2p->channels[i].first);
            p2p->channels[i].first = next;
        }
    }
    atomic_store(&p2p->waiting, 0);
}

void cddpi_p2p_release(struct cddpi_p2p *p2p)
{
    if (p2p == NULL) {
        return;
    }
    atomic_store(&p2p->closed, true);
    /* before locking the mutex, because the thread that holds it may wait for streams that wait for
     * these flags */
    for (int i = 0; p2p->pairs != NULL && i < p2p->size * p2p->size; i++) {
        cddpi_flag_release(&p2p->pairs[i].sent);
        cddpi_flag_release(&p2p->pairs[i].taken);
    }
    pthread_mutex_lock(&p2p->mutex);
    drop_queued(p2p);
    pthread_mutex_unlock(&p2p->mutex);
}

/* Wait until all streams are empty, and return whether they are in time. Drops messages that are
 * not in their stream yet. */
static bool is_dry(struct cddpi_p2p *p2p)
{
    bool released = false;
    bool dry = true;

    for (int i = 0; p2p->channels != NULL && i < 2 * p2p->size && dry; i++) {
        cudaStream_t stream = p2p->channels[i].stream;

        if (stream != NULL && !cddpi_transport_drain(p2p->device, stream, 0)) {
            if (!released) {
                cddpi_p2p_release(p2p);
                released = true;
            }
            dry = cddpi_transport_drain(p2p->device, stream, P2P_DRAIN_MS);
        }
    }
    return dry && cuda_may_free(p2p->device); /* the driver waits for other streams, too */
}

bool cddpi_p2p_close(struct cddpi_p2p *p2p)
{
    bool dry;

    if (p2p == NULL) {
        return true;
    }
    dry = is_dry(p2p);
    drop_queued(p2p);
    for (int i = 0; p2p->channels != NULL && i < 2 * p2p->size && dry; i++) {
        if (p2p->channels[i].stream != NULL) {
            (void)cudaStreamDestroy(p2p->channels[i].stream);
        }
    }
    if (dry && p2p->registered) {
        (void)cudaHostUnregister(p2p->pairs);
    }
    (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
    pthread_mutex_destroy(&p2p->mutex);
    cddpi_free(p2p->channels);
    cddpi_free(p2p->areas);
    cddpi_free(p2p);
    return dry;
}

/* --- messages that wait --- */

static cddp_status put_piece(struct cddpi_p2p *p2p, struct channel *channel,
                             struct queued_message *queued)
{
    bool sends = queued->op.kind == CDDPI_SEND;
    int from = sends ? p2p->rank : queued->op.root;
    int to = sends ? queued->op.root : p2p->rank;
    struct group_cuda_p2p_pair *pair = pair_of(p2p, from, to);
    uint64_t number = channel->put + 1;
    size_t left = queued->bytes - queued->at;
    size_t bytes = left < p2p->slot ? left : p2p->slot;
    char *slot = p2p->areas[from] + ((size_t)to * P2P_SLOTS + number % P2P_SLOTS) * p2p->slot;
    char *to_memory = sends ? slot : (char *)queued->op.out + queued->at;
    const char *from_memory = sends ? (const char *)queued->op.in + queued->at : slot;
    cudaStream_t stream = channel->stream;

    channel->put = number;
    queued->at += bytes;
    CDDPI_TRY(sends ? cddpi_flag_await(&p2p->flags, stream, &pair->taken, number - P2P_SLOTS)
                    : cddpi_flag_await(&p2p->flags, stream, &pair->sent, number));
    CDDPI_TRY(CUDA_CHECK(
        p2p->device, cudaMemcpyAsync(to_memory, from_memory, bytes, cudaMemcpyDefault, stream)));
    return cddpi_flag_raise(&p2p->flags, stream, sends ? &pair->sent : &pair->taken, number);
}

/* The whole message is in the stream. */
static cddp_status finish(struct cddpi_p2p *p2p, struct channel *channel)
{
    struct queued_message *queued = channel->first;
    cddp_status status = CDDP_OK;

    if (queued->op.kind == CDDPI_SEND) {
        status = cddpi_flag_await(&p2p->flags, channel->stream,
                                  &pair_of(p2p, p2p->rank, queued->op.root)->taken, channel->put);
    }
    if (status == CDDP_OK) {
        status = cuda_event_record_in(p2p->device, queued->done, channel->stream);
    }
    if (status == CDDP_OK) {
        atomic_store_explicit(queued->begun, true, memory_order_release);
    }
    channel->first = queued->next;
    atomic_fetch_sub(&p2p->waiting, 1);
    cddpi_free(queued);
    return status;
}

static bool has_room(const struct cddpi_p2p *p2p, const struct channel *channel)
{
    const struct cddpi_group_op *op = &channel->first->op;
    uint64_t through = op->kind == CDDPI_SEND
                           ? atomic_load(&pair_of(p2p, p2p->rank, op->root)->sent)
                           : atomic_load(&pair_of(p2p, op->root, p2p->rank)->taken);

    return (int64_t)(channel->put - through) < P2P_DEPTH;
}

static cddp_status advance(struct cddpi_p2p *p2p, struct channel *channel)
{
    while (channel->first != NULL && !atomic_load(&p2p->closed) && has_room(p2p, channel)) {
        struct queued_message *queued = channel->first;

        if (queued->at == 0) {
            CDDPI_TRY(cuda_event_order_in(p2p->device, channel->stream, queued->ready));
        }
        CDDPI_TRY(put_piece(p2p, channel, queued));
        if (queued->at == queued->bytes) {
            CDDPI_TRY(finish(p2p, channel));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_p2p_advance(struct cddpi_p2p *p2p)
{
    cddp_status status = CDDP_OK;

    if (p2p == NULL || atomic_load(&p2p->waiting) == 0) {
        return CDDP_OK;
    }
    cddpi_transport_enter(p2p->device);
    pthread_mutex_lock(&p2p->mutex);
    for (int i = 0; i < 2 * p2p->size && status == CDDP_OK; i++) {
        status = advance(p2p, &p2p->channels[i]);
    }
    pthread_mutex_unlock(&p2p->mutex);
    return status;
}

static cddp_status append(struct cddpi_p2p *p2p, struct channel *channel,
                          struct queued_message *queued)
{
    cddp_status status = CDDP_OK;

    if (channel->stream == NULL) {
        status = CUDA_CHECK(p2p->device,
                            cudaStreamCreateWithFlags(&channel->stream, cudaStreamNonBlocking));
    }
    if (status != CDDP_OK) {
        cddpi_free(queued);
        return status;
    }
    if (channel->first == NULL) {
        channel->first = queued;
    } else {
        channel->last->next = queued;
    }
    channel->last = queued;
    atomic_fetch_add(&p2p->waiting, 1);
    return advance(p2p, channel);
}

cddp_status cddpi_p2p_start(struct cddpi_p2p *p2p, const struct cddpi_p2p_message *message)
{
    const struct cddpi_group_op *op = message->op;
    struct queued_message *queued;
    cddp_status status;

    if (p2p->why.status != CDDP_OK) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "messages on the device: %s", p2p->why.text);
    }
    queued = cddpi_zalloc(sizeof *queued);
    if (queued == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a message");
    }
    *queued = (struct queued_message){.op = *op,
                                      .ready = message->ready,
                                      .done = message->done,
                                      .begun = message->begun,
                                      .bytes = op->count * cddp_type_bytes(op->type)};
    cddpi_transport_enter(p2p->device);
    pthread_mutex_lock(&p2p->mutex);
    if (atomic_load(&p2p->closed)) {
        cddpi_free(queued);
        status = cddpi_fail_rank(CDDP_ERR_BROKEN, p2p->rank, "messages have been ended");
    } else {
        status = append(p2p, &p2p->channels[2 * op->root + (op->kind == CDDPI_RECV ? 1 : 0)],
                        queued);
    }
    pthread_mutex_unlock(&p2p->mutex);
    return status;
}
