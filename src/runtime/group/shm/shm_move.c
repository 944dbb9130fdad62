/* shm_move.c - owns the collectives that move data, and reduce_scatter, which reduces while it
 * moves data.
 *
 * - staged: piece t is copied into the staging buffer at stage t and taken by the peers at stage t
 *   + 1. A buffer is reused two pieces later, when all ranks have passed the stage in between.
 * - zero-copy: if all ranks map `in` of every rank, it is read directly, at stage 1. Not for an
 *   all_to_all in place, which would overwrite what peers still read. */
#include "group/shm/shm.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

enum { COPY_BYTES = 4096 };

static bool gives(const struct shm_backend *shm, const struct cddpi_group_op *op)
{
    bool rooted = op->kind == CDDPI_BROADCAST || op->kind == CDDPI_SCATTER;

    return !rooted || shm->rank == op->root;
}

static bool takes(const struct shm_backend *shm, const struct cddpi_group_op *op)
{
    if (op->kind == CDDPI_BROADCAST) {
        return shm->rank != op->root;
    }
    return op->kind != CDDPI_GATHER || shm->rank == op->root;
}

static void give(struct shm_backend *shm, struct cddpi_group_op *op, size_t piece, size_t n)
{
    struct shm_progress *progress = shm_progress(op);
    size_t element = cddp_type_bytes(op->type);
    unsigned char *staging = shm_staging(shm, shm->rank, progress->parity + piece);
    const char *in = (const char *)op->in + piece * progress->chunk * element;
    size_t blocks = cddpi_op_scatters(op) ? (size_t)shm->size : 1;

    for (size_t b = 0; b < blocks; b++) {
        memcpy(staging + b * progress->chunk * element, in + b * op->count * element, n * element);
    }
}

/* Copy in small steps: for data that a peer has just written, plain loads are faster than the
 * string move that libc uses for long blocks. Blocks do not overlap, unless they are the same. */
static void copy(void *out, const void *in, size_t bytes)
{
    for (size_t at = 0; out != in && at < bytes; at += COPY_BYTES) {
        memcpy((char *)out + at, (const char *)in + at,
               bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES);
    }
}

/* shm->src[r] is rank r's data for this piece; @p stride separates its blocks, in elements. */
static void take(struct shm_backend *shm, struct cddpi_group_op *op, size_t at, size_t stride,
                 size_t n)
{
    size_t element = cddp_type_bytes(op->type);
    size_t mine = (size_t)shm->rank * stride * element;
    char *out = (char *)op->out + at * element;
    size_t bytes = n * element;

    switch (op->kind) {
    case CDDPI_BROADCAST:
        copy(out, shm->src[op->root], bytes);
        break;
    case CDDPI_SCATTER:
        copy(out, (const char *)shm->src[op->root] + mine, bytes);
        break;
    case CDDPI_REDUCE_SCATTER: {
        struct cddpi_reduce how = cddpi_shm_reduction(shm, op);

        for (int r = 0; r < shm->size; r++) {
            shm->src[r] = (const char *)shm->src[r] + mine;
        }
        shm->dst[0] = out;
        cddpi_reduce(&how, shm->dst, shm->src, n);
        break;
    }
    default: /* from all ranks; each rank begins with a different one, so that they do not all read
                from the same rank at once */
        for (int i = 0; i < shm->size; i++) {
            int r = (shm->rank + i) % shm->size;
            const char *from = (const char *)shm->src[r];

            copy(out + (size_t)r * op->count * element,
                 op->kind == CDDPI_ALL_TO_ALL ? from + mine : from, bytes);
        }
    }
}

static void move_zero_copy(struct shm_backend *shm, struct cddpi_group_op *op)
{
    for (int r = 0; r < shm->size; r++) {
        const struct shm_fingerprint *what = shm_fingerprint(shm, r, op->number);

        shm->src[r] = (const char *)cddpi_shm_segment(shm, what->in_segment)->at[r] +
                      what->in_offset;
    }
    take(shm, op, 0, op->count, op->count);
}

static size_t piece_count(const struct cddpi_group_op *op, size_t piece)
{
    const struct shm_progress *progress = shm_progress_of(op);
    size_t left = op->count - piece * progress->chunk;

    return left < progress->chunk ? left : progress->chunk;
}

void cddpi_shm_move_stage(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage)
{
    struct shm_progress *progress = shm_progress(op);
    size_t t = stage - progress->lag;

    if (progress->path == SHM_PATH_ZERO_COPY) {
        if (stage == 1 && takes(shm, op)) {
            move_zero_copy(shm, op);
        }
        return;
    }
    if (stage < progress->lag) {
        return;
    }
    if (t < progress->chunks && gives(shm, op)) {
        give(shm, op, t, piece_count(op, t));
    }
    if (t >= 1 && takes(shm, op)) {
        for (int r = 0; r < shm->size; r++) {
            shm->src[r] = shm_staging(shm, r, progress->parity + t - 1);
        }
        take(shm, op, (t - 1) * progress->chunk, progress->chunk, piece_count(op, t - 1));
    }
}
