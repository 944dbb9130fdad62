/* mail.c - messages between two ranks of a machine: lanes, their streams, and what passes there. */
#include "group/mail.h"
#include "group/stream_flags.h"

#include <pthread.h>
#include <stdio.h>

enum {
    MAIL_SLOTS = 2,
    MAIL_DEPTH = 64, /* pieces of a lane that are in its stream at once */
    MAIL_GRAIN = 4096,
    MAIL_DRAIN_MS = 10000 /* for streams that nothing holds up any more */
};

/* Tests take smaller pieces, so that little has many, and begin shortly before the lower half of
 * the flags overflows. */
#ifndef CDDPI_MAIL_SIZES
#define CDDPI_MAIL_SIZES 1 << 20, 32 << 20, 0
#endif
static const struct {
    size_t slot;    /* bytes, at most */
    size_t machine; /* bytes of all slots of all ranks, at most */
    uint64_t start; /* the number before the first piece */
} mail_sizes = {CDDPI_MAIL_SIZES};

/* Of an ordered pair of ranks. */
struct pair {
    _Alignas(128) _Atomic uint64_t sent; /* written by the sender's stream */
    _Alignas(128) _Atomic uint64_t taken;
};

/* A message that is not in its stream yet, or not all of it. */
struct letter {
    struct letter *next;
    struct cddpi_group_op op;
    struct cddpi_event *ready, *done;
    _Atomic bool *begun;
    size_t bytes, at;
};

struct lane {
    cudaStream_t stream; /* NULL: not used yet */
    struct letter *first, *last;
    uint64_t put; /* number of the last piece in the stream */
};

struct cddpi_mail {
    struct cddpi_device *device;
    int rank, size;
    size_t slot;
    struct cddpi_stream_flags flags;
    char why[CDDPI_PLANE_TEXT]; /* nothing can be carried; "": all is well */
    struct pair *pairs;         /* by sender, then receiver; shared */
    char *pairs_device;         /* their address for streams */
    char **areas;               /* by rank */
    bool registered;

    pthread_mutex_t mutex; /* guards the rest */
    struct lane *lanes;    /* by peer: to it, from it */
    _Atomic int waiting;   /* letters */
    _Atomic bool closed;
};

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t slot_bytes(int size)
{
    size_t most = mail_sizes.machine / ((size_t)size * (size_t)size * MAIL_SLOTS);
    size_t bytes = (most < mail_sizes.slot ? most : mail_sizes.slot) / MAIL_GRAIN * MAIL_GRAIN;

    return bytes > 0 ? bytes : MAIL_GRAIN;
}

size_t cddpi_mail_area_bytes(int world_size)
{
    return (size_t)world_size * MAIL_SLOTS * slot_bytes(world_size);
}

static struct pair *pair_of(const struct cddpi_mail *mail, int from, int to)
{
    return &mail->pairs[from * mail->size + to];
}

static CUdeviceptr address(const struct cddpi_mail *mail, const _Atomic uint64_t *flag)
{
    return (CUdeviceptr)(uintptr_t)(mail->pairs_device +
                                    ((const char *)flag - (const char *)mail->pairs));
}

/* --- opening and closing --- */

static size_t pairs_bytes(int size)
{
    return round_up((size_t)size * (size_t)size * sizeof(struct pair), MAIL_GRAIN);
}

static cddp_status make_own(struct cddpi_mail *mail, size_t bytes, char *const *areas)
{
    cddp_status status = cddpi_flags_find(mail->device, &mail->flags);

    for (int r = 0; r < mail->size; r++) {
        atomic_store(&pair_of(mail, mail->rank, r)->sent, mail_sizes.start);
        atomic_store(&pair_of(mail, r, mail->rank)->taken, mail_sizes.start);
        mail->lanes[2 * r].put = mail->lanes[2 * r + 1].put = mail_sizes.start;
        mail->areas[r] = areas != NULL ? areas[r]
                                       : (char *)mail->pairs + pairs_bytes(mail->size) +
                                             (size_t)r * cddpi_mail_area_bytes(mail->size);
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(mail->device,
                            cudaHostRegister(mail->pairs, bytes,
                                             cudaHostRegisterPortable | cudaHostRegisterMapped));
        mail->registered = status == CDDP_OK;
    }
    return status != CDDP_OK
               ? status
               : CUDA_CHECK(mail->device,
                            cudaHostGetDevicePointer((void **)&mail->pairs_device, mail->pairs, 0));
}

static cddp_status set_up(struct cddpi_mail *mail, const struct cddpi_plane_seat *seat,
                          char *const *areas)
{
    size_t bytes = pairs_bytes(mail->size);
    cddp_status status;

    if (areas == NULL) {
        bytes += (size_t)mail->size * cddpi_mail_area_bytes(mail->size);
    }
    status = seat->shared(seat->context, bytes, (void **)&mail->pairs);
    if (status != CDDP_OK) {
        mail->pairs = NULL;
        return status;
    }
    return cddpi_plane_agree(seat, make_own(mail, bytes, areas));
}

static struct cddpi_mail *create(const struct cddpi_plane_seat *seat)
{
    struct cddpi_mail *mail = cddpi_plane_zalloc(seat->device, sizeof *mail);
    size_t size = (size_t)seat->world_size;

    if (mail == NULL) {
        return NULL;
    }
    mail->device = seat->device;
    mail->rank = seat->rank;
    mail->size = seat->world_size;
    mail->slot = slot_bytes(seat->world_size);
    mail->lanes = cddpi_plane_zalloc(seat->device, 2 * size * sizeof *mail->lanes);
    mail->areas = cddpi_plane_zalloc(seat->device, size * sizeof *mail->areas);
    pthread_mutex_init(&mail->mutex, NULL);
    if (mail->lanes == NULL || mail->areas == NULL) {
        (void)cddpi_mail_close(mail);
        return NULL;
    }
    return mail;
}

cddp_status cddpi_mail_open(const struct cddpi_plane_seat *seat, char *const *areas,
                            struct cddpi_mail **out)
{
    struct cddpi_mail *mail = create(seat);
    cddp_status status = cddpi_plane_agree(
        seat, mail != NULL
                  ? CDDP_OK
                  : cddpi_plane_fail(seat->device, CDDP_ERR_NO_MEMORY, "no memory for messages"));

    if (status != CDDP_OK) {
        (void)cddpi_mail_close(mail);
        return status;
    }
    if (set_up(mail, seat, areas) != CDDP_OK) { /* what else the plane does may work all the same */
        snprintf(mail->why, sizeof mail->why, "%s", cddpi_plane_last_error(seat->device));
    }
    *out = mail;
    return CDDP_OK;
}

static void drop_letters(struct cddpi_mail *mail)
{
    for (int i = 0; mail->lanes != NULL && i < 2 * mail->size; i++) {
        while (mail->lanes[i].first != NULL) {
            struct letter *next = mail->lanes[i].first->next;

            cddpi_plane_free(mail->device, mail->lanes[i].first);
            mail->lanes[i].first = next;
        }
    }
    atomic_store(&mail->waiting, 0);
}

void cddpi_mail_release(struct cddpi_mail *mail)
{
    if (mail == NULL) {
        return;
    }
    atomic_store(&mail->closed, true);
    /* first, because who has the mutex may be held up by streams that wait for these */
    for (int i = 0; mail->pairs != NULL && i < mail->size * mail->size; i++) {
        cddpi_flag_release(&mail->pairs[i].sent);
        cddpi_flag_release(&mail->pairs[i].taken);
    }
    pthread_mutex_lock(&mail->mutex);
    drop_letters(mail);
    pthread_mutex_unlock(&mail->mutex);
}

/* Messages that are left here are left for good. */
static bool is_dry(struct cddpi_mail *mail)
{
    bool released = false;
    bool dry = true;

    for (int i = 0; mail->lanes != NULL && i < 2 * mail->size && dry; i++) {
        cudaStream_t stream = mail->lanes[i].stream;

        if (stream != NULL && !cddpi_plane_drain(mail->device, stream, 0)) {
            if (!released) {
                cddpi_mail_release(mail);
                released = true;
            }
            dry = cddpi_plane_drain(mail->device, stream, MAIL_DRAIN_MS);
        }
    }
    return dry;
}

bool cddpi_mail_close(struct cddpi_mail *mail)
{
    bool dry;

    if (mail == NULL) {
        return true;
    }
    dry = is_dry(mail);
    drop_letters(mail);
    for (int i = 0; mail->lanes != NULL && i < 2 * mail->size && dry; i++) {
        if (mail->lanes[i].stream != NULL) {
            (void)cudaStreamDestroy(mail->lanes[i].stream);
        }
    }
    if (dry && mail->registered) {
        (void)cudaHostUnregister(mail->pairs);
    }
    (void)cudaGetLastError(); /* after a lost device all of these fail */
    pthread_mutex_destroy(&mail->mutex);
    cddpi_plane_free(mail->device, mail->lanes);
    cddpi_plane_free(mail->device, mail->areas);
    cddpi_plane_free(mail->device, mail);
    return dry;
}

/* --- letters --- */

static cddp_status await(struct cddpi_mail *mail, cudaStream_t stream, const _Atomic uint64_t *flag,
                         uint64_t value)
{
    CUstreamBatchMemOpParams item;

    cddpi_flag_wait_item(&mail->flags, address(mail, flag), value, &item);
    return cddpi_flag_items(&mail->flags, stream, &item, 1);
}

static cddp_status copy(struct cddpi_mail *mail, cudaStream_t stream, void *to, const void *from,
                        size_t bytes)
{
    return CUDA_CHECK(mail->device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

static cddp_status put_piece(struct cddpi_mail *mail, struct lane *lane, struct letter *letter)
{
    bool sends = letter->op.kind == CDDPI_SEND;
    int from = sends ? mail->rank : letter->op.root;
    int to = sends ? letter->op.root : mail->rank;
    struct pair *pair = pair_of(mail, from, to);
    uint64_t number = lane->put + 1;
    size_t left = letter->bytes - letter->at;
    size_t bytes = left < mail->slot ? left : mail->slot;
    char *slot = mail->areas[from] + ((size_t)to * MAIL_SLOTS + number % MAIL_SLOTS) * mail->slot;
    cddp_status status = sends ? await(mail, lane->stream, &pair->taken, number - MAIL_SLOTS)
                               : await(mail, lane->stream, &pair->sent, number);

    if (status == CDDP_OK) {
        status = sends ? copy(mail, lane->stream, slot, (const char *)letter->op.in + letter->at,
                              bytes)
                       : copy(mail, lane->stream, (char *)letter->op.out + letter->at, slot, bytes);
    }
    if (status == CDDP_OK) {
        status = cddpi_flag_raise(&mail->flags, lane->stream,
                                  address(mail, sends ? &pair->sent : &pair->taken), number);
    }
    lane->put = number;
    letter->at += bytes;
    return status;
}

/* All of it is in the stream. */
static cddp_status finish(struct cddpi_mail *mail, struct lane *lane)
{
    struct letter *letter = lane->first;
    cddp_status status = CDDP_OK;

    if (letter->op.kind == CDDPI_SEND) {
        status = await(mail, lane->stream, &pair_of(mail, mail->rank, letter->op.root)->taken,
                       lane->put);
    }
    if (status == CDDP_OK) {
        status = cuda_event_record_in(mail->device, letter->done, lane->stream);
    }
    if (status == CDDP_OK) {
        atomic_store_explicit(letter->begun, true, memory_order_release);
    }
    lane->first = letter->next;
    atomic_fetch_sub(&mail->waiting, 1);
    cddpi_plane_free(mail->device, letter);
    return status;
}

static bool has_room(const struct cddpi_mail *mail, const struct lane *lane)
{
    const struct cddpi_group_op *op = &lane->first->op;
    uint64_t through = op->kind == CDDPI_SEND
                           ? atomic_load(&pair_of(mail, mail->rank, op->root)->sent)
                           : atomic_load(&pair_of(mail, op->root, mail->rank)->taken);

    return (int64_t)(lane->put - through) < MAIL_DEPTH;
}

static cddp_status advance(struct cddpi_mail *mail, struct lane *lane)
{
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && lane->first != NULL && !atomic_load(&mail->closed) &&
           has_room(mail, lane)) {
        struct letter *letter = lane->first;

        if (letter->at == 0) {
            status = cuda_event_order_in(mail->device, lane->stream, letter->ready);
        }
        if (status == CDDP_OK) {
            status = put_piece(mail, lane, letter);
        }
        if (status == CDDP_OK && letter->at == letter->bytes) {
            status = finish(mail, lane);
        }
    }
    return status;
}

cddp_status cddpi_mail_advance(struct cddpi_mail *mail)
{
    cddp_status status = CDDP_OK;

    if (mail == NULL || atomic_load(&mail->waiting) == 0) {
        return CDDP_OK;
    }
    cddpi_plane_enter(mail->device);
    pthread_mutex_lock(&mail->mutex);
    for (int i = 0; i < 2 * mail->size && status == CDDP_OK; i++) {
        status = advance(mail, &mail->lanes[i]);
    }
    pthread_mutex_unlock(&mail->mutex);
    return status;
}

static cddp_status append(struct cddpi_mail *mail, struct lane *lane, struct letter *letter)
{
    cddp_status status = CDDP_OK;

    if (lane->stream == NULL) {
        status = CUDA_CHECK(mail->device,
                            cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    }
    if (status != CDDP_OK) {
        cddpi_plane_free(mail->device, letter);
        return status;
    }
    if (lane->first == NULL) {
        lane->first = letter;
    } else {
        lane->last->next = letter;
    }
    lane->last = letter;
    atomic_fetch_add(&mail->waiting, 1);
    return advance(mail, lane);
}

cddp_status cddpi_mail_post(struct cddpi_mail *mail, const struct cddpi_plane_message *message)
{
    const struct cddpi_group_op *op = message->op;
    struct letter *letter;
    cddp_status status;

    if (mail->why[0] != '\0') {
        return cddpi_plane_fail(mail->device, CDDP_ERR_UNAVAILABLE, "messages on the device: %s",
                                mail->why);
    }
    letter = cddpi_plane_zalloc(mail->device, sizeof *letter);
    if (letter == NULL) {
        return cddpi_plane_fail(mail->device, CDDP_ERR_NO_MEMORY, "no memory for a message");
    }
    *letter = (struct letter){.op = *op,
                              .ready = message->ready,
                              .done = message->done,
                              .begun = message->begun,
                              .bytes = op->count * cddp_type_bytes(op->type)};
    cddpi_plane_enter(mail->device);
    pthread_mutex_lock(&mail->mutex);
    if (atomic_load(&mail->closed)) {
        cddpi_plane_free(mail->device, letter);
        status = cddpi_plane_fail(mail->device, CDDP_ERR_CLOSED,
                                  "rank %d: messages have been ended", mail->rank);
    } else {
        status = append(mail, &mail->lanes[2 * op->root + (op->kind == CDDPI_RECV ? 1 : 0)],
                        letter);
    }
    pthread_mutex_unlock(&mail->mutex);
    return status;
}
