/* message.c - send and recv: a ring for each ordered pair of ranks. A message is a header and its
 * bytes, padded to 16; both sides copy what they can and go on later. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/shm/shm.h"

#include <string.h>

struct header {
    uint64_t count;
    uint32_t type;
    uint32_t number;
};
enum { ALIGN = 16 };
_Static_assert(sizeof(struct header) == ALIGN, "headers keep the stream aligned");
_Static_assert(SHM_RING_BYTES % ALIGN == 0, "a header never wraps");

static uint64_t padded(const struct cddpi_group_op *op)
{
    uint64_t bytes = (uint64_t)op->count * cddp_type_bytes(op->type);

    return cddpi_align_to(bytes, ALIGN);
}

/* Copy between @p op's data at done_bytes and the ring at @p position, padding left out. */
static void copy_part(struct shm_ring *ring, uint64_t position, struct cddpi_group_op *op,
                      uint64_t n)
{
    struct shm_progress *progress = shm_progress(op);
    uint64_t bytes = (uint64_t)op->count * cddp_type_bytes(op->type);
    uint64_t real = progress->done_bytes + n <= bytes ? n : bytes - progress->done_bytes;
    unsigned char *at = ring->bytes + position % SHM_RING_BYTES;

    if (op->kind == CDDPI_SEND) {
        memcpy(at, (const char *)op->in + progress->done_bytes, real);
    } else {
        memcpy((char *)op->out + progress->done_bytes, at, real);
    }
    progress->done_bytes += n;
}

static uint64_t smallest(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t least = a < b ? a : b;

    return least < c ? least : c;
}

static void send_some(struct cddpi_backend *shm, struct cddpi_group_op *op)
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
            struct header header = {op->count, (uint32_t)op->type, (uint32_t)op->number};

            memcpy(ring->bytes + at % SHM_RING_BYTES, &header, sizeof header);
            progress->began = true;
            at += sizeof header;
            room -= sizeof header;
        }
        n = smallest(room, SHM_RING_BYTES - at % SHM_RING_BYTES, padded(op) - progress->done_bytes);
        if (!progress->began || n == 0) {
            break;
        }
        n = n < SHM_RING_BYTES / 4 ? n : SHM_RING_BYTES / 4; /* so that the peer may begin */
        copy_part(ring, at, op, n);
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

static cddp_status recv_some(struct cddpi_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    struct shm_ring *ring = shm_ring(shm, op->root, shm->rank);
    uint64_t at = atomic_load_explicit(&ring->consumed, memory_order_relaxed);
    uint64_t start = at;

    for (;;) {
        uint64_t full = atomic_load_explicit(&ring->produced, memory_order_acquire) - at;
        uint64_t n;

        if (!progress->began && full > 0) {
            struct header header;

            memcpy(&header, ring->bytes + at % SHM_RING_BYTES, sizeof header);
            if (header.count != op->count || header.type != (uint32_t)op->type) {
                return cddpi_fail(CDDP_ERR_MISMATCH,
                                  "message #%llu from rank %d to rank %d: rank %d sends %s x %llu, "
                                  "rank %d receives %s x %zu",
                                  (unsigned long long)op->number, shm_name(shm, op->root),
                                  shm_name(shm, shm->rank), shm_name(shm, op->root),
                                  cddp_type_name((cddp_type)header.type),
                                  (unsigned long long)header.count, shm_name(shm, shm->rank),
                                  cddp_type_name(op->type), op->count);
            }
            progress->began = true;
            at += sizeof header;
            full -= sizeof header;
        }
        n = smallest(full, SHM_RING_BYTES - at % SHM_RING_BYTES, padded(op) - progress->done_bytes);
        if (!progress->began || n == 0) {
            break;
        }
        n = n < SHM_RING_BYTES / 4 ? n : SHM_RING_BYTES / 4;
        copy_part(ring, at, op, n);
        at += n;
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

cddp_status cddpi_shm_message(struct cddpi_backend *shm, struct cddpi_group_op *op, bool *out_done)
{
    struct shm_progress *progress = shm_progress(op);
    cddp_status status = CDDP_OK;

    progress->straggler = op->root;
    if (op->kind == CDDPI_SEND) {
        send_some(shm, op);
    } else {
        status = recv_some(shm, op);
    }
    if (status == CDDP_OK) {
        *out_done = progress->began && progress->done_bytes == padded(op);
    }
    return status;
}
