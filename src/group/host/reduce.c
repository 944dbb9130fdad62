/* reduce.c - all_reduce and reduce: three ways with the same bits.
 *
 * small:  everyone copies its input into its staging buffer; everyone reduces all of them.
 * direct: all memory is mapped by all: rank r reduces part r of everyone's input and writes it into
 *         everyone's output, in one pass.
 * staged: piece by piece through staging buffers: what the peers reduce is copied in, one's own
 *         part reduced, what the peers have reduced copied out. */
#include "kernels/cpu/reduce.h"
#include "group/host/host.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What the weights of all ranks make of the sum. */
struct cddpi_reduce cddpi_host_kernel(struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    struct cddpi_reduce how = {op->type, op->op, host->size, 1, NULL};

    if (!op->weighted) {
        return how;
    }
    for (int r = 0; r < host->size; r++) {
        host->factors[r] = host_descriptor(host, r, op->number)->weight;
    }
    cddpi_reduce_weighted(&how, op->type, host->factors, host->size, host->factors);
    return how;
}

/* Rank r's part of @p count elements, in multiples of a cache line or (if large) of a page. */
static size_t part_start(const struct cddpi_backend *host, const struct cddpi_group_op *op,
                         size_t count, int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = count * element;
    size_t grain = bytes / (size_t)host->size >= 16 * (size_t)HOST_PAGE_BYTES ? HOST_PAGE_BYTES
                                                                              : 64;
    size_t grains = (bytes + grain - 1) / grain;
    size_t start = grains * (size_t)rank / (size_t)host->size * grain / element;

    return least(start, count);
}

static void reduce_small(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage)
{
    struct cddpi_reduce how;

    if (stage <= op->lag) {
        memcpy(host_staging(host, host->rank, op->parity), op->in,
               op->count * cddp_type_bytes(op->type));
        return;
    }
    if (op->kind == CDDPI_REDUCE && host->rank != op->root) {
        return;
    }
    how = cddpi_host_kernel(host, op);
    for (int r = 0; r < host->size; r++) {
        host->src[r] = host_staging(host, r, op->parity);
    }
    host->dst[0] = op->out;
    cddpi_reduce(&how, host->dst, host->src, op->count);
}

/* Who gets the result: all ranks, or root. */
static int destinations(const struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_REDUCE ? 1 : host->size;
}

static int destination(const struct cddpi_group_op *op, int index)
{
    return op->kind == CDDPI_REDUCE ? op->root : index;
}

static void reduce_direct(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    size_t element = cddp_type_bytes(op->type);
    size_t start = part_start(host, op, op->count, host->rank);
    size_t end = part_start(host, op, op->count, host->rank + 1);
    struct cddpi_reduce how = cddpi_host_kernel(host, op);

    how.destinations = destinations(host, op);
    for (int r = 0; r < host->size; r++) {
        const struct host_descriptor *what = host_descriptor(host, r, op->number);

        host->src[r] = (const char *)cddpi_host_segment(host, what->in_segment)->at[r] +
                       what->in_offset + start * element;
    }
    for (int d = 0; d < how.destinations; d++) {
        int r = destination(op, d);
        const struct host_descriptor *what = host_descriptor(host, r, op->number);

        host->dst[d] = (char *)cddpi_host_segment(host, what->out_segment)->at[r] +
                       what->out_offset + start * element;
    }
    cddpi_reduce(&how, host->dst, host->src, end - start);
}

/* Rank r's part of a piece. The last piece is cut where the others are, so that no part of a
 * staging buffer changes hands while peers still read there. */
struct part {
    size_t start; /* in the piece, elements */
    size_t count;
};

static struct part part_of(const struct cddpi_backend *host, const struct cddpi_group_op *op,
                           size_t piece, int rank)
{
    size_t count = least(op->chunk, op->count - piece * op->chunk);
    size_t start = least(part_start(host, op, op->chunk, rank), count);
    size_t end = least(part_start(host, op, op->chunk, rank + 1), count);

    return (struct part){start, end - start};
}

/* Copy rank @p r's part of a piece from @p from to @p to, both at the start of the piece. */
static void copy_part(void *to, const void *from, struct part part, size_t element)
{
    memcpy((char *)to + part.start * element, (const char *)from + part.start * element,
           part.count * element);
}

/* This rank's part: its own input is read, and its own output written, where they lie. */
static void reduce_piece(struct cddpi_backend *host, struct cddpi_group_op *op, size_t piece,
                         bool wants)
{
    size_t element = cddp_type_bytes(op->type);
    struct part part = part_of(host, op, piece, host->rank);
    size_t at = (piece * op->chunk + part.start) * element;
    struct cddpi_reduce how = cddpi_host_kernel(host, op);
    unsigned char *staging = host_staging(host, host->rank, op->parity + piece);

    for (int r = 0; r < host->size; r++) {
        host->src[r] = host_staging(host, r, op->parity + piece) + part.start * element;
    }
    host->src[host->rank] = (const char *)op->in + at;
    how.destinations = wants ? 2 : 1;
    host->dst[0] = staging + part.start * element;
    if (wants) {
        host->dst[1] = (char *)op->out + at;
    }
    cddpi_reduce(&how, host->dst, host->src, part.count);
}

/* Piece t: the peers' parts are copied in at stage t, this rank's is reduced at stage t + 1, the
 * peers' results are copied out of their buffers at stage t + 2. */
static void reduce_staged(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage)
{
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = op->chunk * element;
    size_t t = stage - op->lag;
    bool wants = op->kind == CDDPI_ALL_REDUCE || host->rank == op->root;

    if (stage < op->lag) {
        return;
    }
    for (int r = 0; r < host->size && t >= 2 && wants; r++) {
        if (r != host->rank) {
            copy_part((char *)op->out + (t - 2) * bytes, host_staging(host, r, op->parity + t - 2),
                      part_of(host, op, t - 2, r), element);
        }
    }
    for (int r = 0; r < host->size && t < op->chunks; r++) {
        if (r != host->rank) {
            copy_part(host_staging(host, host->rank, op->parity + t),
                      (const char *)op->in + t * bytes, part_of(host, op, t, r), element);
        }
    }
    if (t >= 1 && t - 1 < op->chunks) {
        reduce_piece(host, op, t - 1, wants);
    }
}

void cddpi_host_reduce_stage(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage)
{
    if (op->path == HOST_PATH_SMALL) {
        reduce_small(host, op, stage);
    } else if (op->path == HOST_PATH_STAGED) {
        reduce_staged(host, op, stage);
    } else if (stage == 1) {
        reduce_direct(host, op);
    }
}
