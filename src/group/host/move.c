/* move.c - collectives that move data (and reduce_scatter, which reduces while it moves).
 *
 * staged: piece t is copied into the staging buffer at stage t and taken by the peers at stage
 *         t + 1. A buffer is used again two pieces later, when all have passed the stage between.
 * direct: where everyone's `in` is mapped by all, it is read where it lies, at stage 1. */
#include "group/host/host.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

enum { COPY_BYTES = 4096 };

static bool scatters(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
           op->kind == CDDPI_REDUCE_SCATTER;
}

static bool gives(const struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    bool rooted = op->kind == CDDPI_BROADCAST || op->kind == CDDPI_SCATTER;

    return !rooted || host->rank == op->root;
}

static bool takes(const struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    if (op->kind == CDDPI_BROADCAST) {
        return host->rank != op->root;
    }
    return op->kind != CDDPI_GATHER || host->rank == op->root;
}

static void give(struct cddpi_backend *host, struct cddpi_group_op *op, size_t piece, size_t n)
{
    size_t element = cddp_type_bytes(op->type);
    unsigned char *staging = host_staging(host, host->rank, op->parity + piece);
    const char *in = (const char *)op->in + piece * op->chunk * element;
    size_t blocks = scatters(op) ? (size_t)host->size : 1;

    for (size_t b = 0; b < blocks; b++) {
        memcpy(staging + b * op->chunk * element, in + b * op->count * element, n * element);
    }
}

/* Piece by piece: what a peer has just written comes faster by plain loads than by the string move
 * that libc takes for long blocks. A block never overlaps another, unless it is the same. */
static void copy(void *out, const void *in, size_t bytes)
{
    for (size_t at = 0; out != in && at < bytes; at += COPY_BYTES) {
        memcpy((char *)out + at, (const char *)in + at,
               bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES);
    }
}

/* host->src[r] is rank r's data for this piece; @p stride separates its blocks, in elements. */
static void take(struct cddpi_backend *host, struct cddpi_group_op *op, size_t at, size_t stride,
                 size_t n)
{
    size_t element = cddp_type_bytes(op->type);
    size_t mine = (size_t)host->rank * stride * element;
    char *out = (char *)op->out + at * element;
    size_t bytes = n * element;

    switch (op->kind) {
    case CDDPI_BROADCAST:
        copy(out, host->src[op->root], bytes);
        break;
    case CDDPI_SCATTER:
        copy(out, (const char *)host->src[op->root] + mine, bytes);
        break;
    case CDDPI_REDUCE_SCATTER: {
        struct cddpi_reduce how = cddpi_host_kernel(host, op);

        for (int r = 0; r < host->size; r++) {
            host->src[r] = (const char *)host->src[r] + mine;
        }
        host->dst[0] = out;
        cddpi_reduce(&how, host->dst, host->src, n);
        break;
    }
    default: /* from everyone; each rank begins elsewhere, so that they do not meet */
        for (int i = 0; i < host->size; i++) {
            int r = (host->rank + i) % host->size;
            const char *from = (const char *)host->src[r];

            copy(out + (size_t)r * op->count * element,
                 op->kind == CDDPI_ALL_TO_ALL ? from + mine : from, bytes);
        }
    }
}

static void move_direct(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    for (int r = 0; r < host->size; r++) {
        const struct host_descriptor *what = host_descriptor(host, r, op->number);

        host->src[r] = (const char *)cddpi_host_segment(host, what->in_segment)->at[r] +
                       what->in_offset;
    }
    take(host, op, 0, op->count, op->count);
}

static size_t piece_count(const struct cddpi_group_op *op, size_t piece)
{
    size_t left = op->count - piece * op->chunk;

    return left < op->chunk ? left : op->chunk;
}

void cddpi_host_move_stage(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage)
{
    size_t t = stage - op->lag;

    if (op->path == HOST_PATH_DIRECT) {
        if (stage == 1 && takes(host, op)) {
            move_direct(host, op);
        }
        return;
    }
    if (stage < op->lag) {
        return;
    }
    if (t < op->chunks && gives(host, op)) {
        give(host, op, t, piece_count(op, t));
    }
    if (t >= 1 && takes(host, op)) {
        for (int r = 0; r < host->size; r++) {
            host->src[r] = host_staging(host, r, op->parity + t - 1);
        }
        take(host, op, (t - 1) * op->chunk, op->chunk, piece_count(op, t - 1));
    }
}
