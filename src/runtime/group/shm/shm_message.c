/* shm_message.c - owns send and recv: one ring for each ordered pair of ranks. A message is a
 * header and its data, padded to 16 bytes. Both sides copy as much as they can and continue later.
 *
 * A sender that goes on to compute returns late to a ring that was full. So a message that does not
 * fit when it begins is sent in pieces, each after a header of its own. While less than half of the
 * ring is in use, the data of a piece follows in the ring: the peer then takes it out of the
 * caches. Otherwise it is put into a send buffer, which is memory of the block that only this rank
 * fills, and which is free again once the peer has taken the piece. So the peer gets the whole
 * message while the sender computes. If no send buffer is free, perhaps because another peer takes
 * nothing, the data goes into the ring until it is full. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/shm/shm.h"

#include <string.h>

struct shm_message_header {
    uint64_t count;
    uint32_t type; /* with the flag STAGED if pieces follow */
    uint32_t number;
};
struct shm_message_piece {
    uint64_t bytes;  /* with padding */
    uint32_t buffer; /* index of the send buffer; IN_RING: the data follows in the ring */
    uint32_t none;
};
enum {
    ALIGN = 16,
    PART_BYTES = SHM_RING_BYTES / 4, /* small enough that the peer can start early */
    KEPT_BYTES = 4096                /* part of the ring that is reserved for headers */
};
static const uint32_t STAGED = UINT32_C(1) << 31, IN_RING = UINT32_MAX;
_Static_assert(sizeof(struct shm_message_header) == ALIGN, "headers keep the stream aligned");
_Static_assert(sizeof(struct shm_message_piece) == ALIGN, "headers keep the stream aligned");
_Static_assert(SHM_RING_BYTES % ALIGN == 0, "a header never wraps");

static uint64_t padded(const struct cddpi_group_op *op)
{
    uint64_t bytes = (uint64_t)op->count * cddp_type_bytes(op->type);

    return cddpi_align_to(bytes, ALIGN);
}

static unsigned char *send_buffer(const struct shm_backend *shm, int rank, size_t index)
{
    return shm->send_buffers + ((size_t)rank * shm->send_buffer_count + index) * SHM_CHUNK_BYTES;
}

/* Copy @p n bytes, without the padding, between @p op's data at done_bytes and @p memory. */
static void copy_part(unsigned char *memory, struct cddpi_group_op *op, uint64_t n)
{
    struct shm_progress *progress = shm_progress(op);
    uint64_t bytes = (uint64_t)op->count * cddp_type_bytes(op->type);
    uint64_t real = progress->done_bytes + n <= bytes ? n : bytes - progress->done_bytes;

    if (op->kind == CDDPI_SEND) {
        memcpy(memory, (const char *)op->in + progress->done_bytes, real);
    } else {
        memcpy((char *)op->out + progress->done_bytes, memory, real);
    }
    progress->done_bytes += n;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copy a part of @p op that is contiguous in @p limit bytes of the ring. Returns its length. */
static uint64_t copy_through(struct shm_ring *ring, uint64_t at, uint64_t limit,
                             struct cddpi_group_op *op)
{
    uint64_t n = smaller(limit, padded(op) - shm_progress(op)->done_bytes);

    n = smaller(smaller(n, SHM_RING_BYTES - at % SHM_RING_BYTES), PART_BYTES);
    copy_part(ring->bytes + at % SHM_RING_BYTES, op, n);
    return n;
}

/* --- the sender --- */

/* The first free send buffer, since it may still be in the caches; IN_RING: no buffer is free. */
static uint32_t free_buffer(const struct shm_backend *shm)
{
    for (uint32_t i = 0; i < shm->send_buffer_count; i++) {
        const struct shm_send_state *state = &shm->send_states[i];
        struct shm_ring *ring = shm_ring(shm, shm->rank, state->peer);

        if (atomic_load_explicit(&ring->consumed, memory_order_acquire) >= state->until) {
            return i;
        }
    }
    return IN_RING;
}

/* Returns the bytes of the ring that the piece uses; 0: there is no room. */
static uint64_t put_piece(struct shm_backend *shm, struct shm_ring *ring, uint64_t at,
                          uint64_t room, struct cddpi_group_op *op)
{
    struct shm_message_piece piece = {.bytes = 0};
    uint64_t used = sizeof piece;

    if (room < sizeof piece) {
        return 0;
    }
    piece.buffer = room > SHM_RING_BYTES / 2 ? IN_RING : free_buffer(shm);
    if (piece.buffer != IN_RING) {
        piece.bytes = smaller(padded(op) - shm_progress(op)->done_bytes, SHM_CHUNK_BYTES);
        copy_part(send_buffer(shm, shm->rank, piece.buffer), op, piece.bytes);
        shm->send_states[piece.buffer] = (struct shm_send_state){op->root, at + sizeof piece};
    } else {
        if (room == sizeof piece) {
            return 0;
        }
        piece.bytes = copy_through(ring, at + sizeof piece, room - sizeof piece, op);
        used += piece.bytes;
    }
    memcpy(ring->bytes + at % SHM_RING_BYTES, &piece, sizeof piece);
    return used;
}

static void send_some(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    struct shm_ring *ring = shm_ring(shm, shm->rank, op->root);
    uint64_t at = atomic_load_explicit(&ring->produced, memory_order_relaxed);
    uint64_t start = at;

    for (;;) {
        uint64_t room = SHM_RING_BYTES -
                        (at - atomic_load_explicit(&ring->consumed, memory_order_acquire));
        uint64_t n;

        if (!progress->began && room > 0) {
            struct shm_message_header header = {op->count, (uint32_t)op->type,
                                                (uint32_t)op->number};

            room -= sizeof header;
            if (op->unattended && padded(op) > KEPT_BYTES && padded(op) + KEPT_BYTES > room) {
                progress->path = SHM_PATH_STAGED;
                header.type |= STAGED;
            }
            memcpy(ring->bytes + at % SHM_RING_BYTES, &header, sizeof header);
            progress->began = true;
            at += sizeof header;
        }
        if (!progress->began || progress->done_bytes == padded(op)) {
            break;
        }
        n = progress->path == SHM_PATH_STAGED ? put_piece(shm, ring, at, room, op)
                                              : copy_through(ring, at, room, op);
        if (n == 0) {
            break;
        }
        at += n;
        atomic_store_explicit(&ring->produced, at, memory_order_release);
        cddpi_shm_notify(shm, op->root);
        start = at;
    }
    if (at != start) {
        atomic_store_explicit(&ring->produced, at, memory_order_release);
        cddpi_shm_notify(shm, op->root);
    }
}

bool cddpi_shm_send_waits(const struct shm_backend *shm, const struct cddpi_group_op *op)
{
    struct shm_ring *ring = shm_ring(shm, shm->rank, op->root);
    uint64_t room = SHM_RING_BYTES - (atomic_load_explicit(&ring->produced, memory_order_relaxed) -
                                      atomic_load_explicit(&ring->consumed, memory_order_acquire));

    if (shm_progress_of(op)->path == SHM_PATH_STAGED && free_buffer(shm) == IN_RING) {
        return room <= sizeof(struct shm_message_piece);
    }
    return room == 0;
}

/* --- the receiver --- */

static cddp_status fail_mismatch(const struct shm_backend *shm, const struct cddpi_group_op *op,
                                 const struct shm_message_header *header)
{
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "message #%llu from rank %d to rank %d: rank %d sends %s x %llu, rank %d "
                      "receives %s x %zu",
                      (unsigned long long)op->number, shm_name(shm, op->root),
                      shm_name(shm, shm->rank), shm_name(shm, op->root),
                      cddp_type_name((cddp_type)(header->type & ~STAGED)),
                      (unsigned long long)header->count, shm_name(shm, shm->rank),
                      cddp_type_name(op->type), op->count);
}

/* Returns the bytes of the ring that the piece used. The whole piece must be there. */
static uint64_t take_piece(struct shm_backend *shm, struct shm_ring *ring, uint64_t at,
                           struct cddpi_group_op *op)
{
    struct shm_message_piece piece;

    memcpy(&piece, ring->bytes + at % SHM_RING_BYTES, sizeof piece);
    at += sizeof piece;
    if (piece.buffer != IN_RING) {
        copy_part(send_buffer(shm, op->root, piece.buffer), op, piece.bytes);
        return sizeof piece;
    }
    copy_part(ring->bytes + at % SHM_RING_BYTES, op, piece.bytes);
    return sizeof piece + piece.bytes;
}

static cddp_status recv_some(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    struct shm_ring *ring = shm_ring(shm, op->root, shm->rank);
    uint64_t at = atomic_load_explicit(&ring->consumed, memory_order_relaxed);
    uint64_t start = at;

    for (;;) {
        uint64_t full = atomic_load_explicit(&ring->produced, memory_order_acquire) - at;

        if (!progress->began && full > 0) {
            struct shm_message_header header;

            memcpy(&header, ring->bytes + at % SHM_RING_BYTES, sizeof header);
            if (header.count != op->count || (header.type & ~STAGED) != (uint32_t)op->type) {
                return fail_mismatch(shm, op, &header);
            }
            progress->path = header.type & STAGED ? SHM_PATH_STAGED : SHM_PATH_NONE;
            progress->began = true;
            at += sizeof header;
            full -= sizeof header;
        }
        if (full == 0 || progress->done_bytes == padded(op)) {
            break;
        }
        at += progress->path == SHM_PATH_STAGED ? take_piece(shm, ring, at, op)
                                                : copy_through(ring, at, full, op);
        atomic_store_explicit(&ring->consumed, at, memory_order_release);
        cddpi_shm_notify(shm, op->root);
        start = at;
    }
    if (at != start) {
        atomic_store_explicit(&ring->consumed, at, memory_order_release);
        cddpi_shm_notify(shm, op->root);
    }
    return CDDP_OK;
}

cddp_status cddpi_shm_message(struct shm_backend *shm, struct cddpi_group_op *op, bool *out_done)
{
    struct shm_progress *progress = shm_progress(op);
    uint64_t before = progress->done_bytes;

    progress->straggler = op->root;
    if (op->kind == CDDPI_SEND) {
        send_some(shm, op);
    } else {
        CDDPI_TRY(recv_some(shm, op));
    }
    shm->base.moves += progress->done_bytes != before;
    *out_done = progress->began && progress->done_bytes == padded(op);
    return CDDP_OK;
}
