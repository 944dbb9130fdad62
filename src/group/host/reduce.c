/* reduce.c - all_reduce and reduce: three ways with the same bits.
 *
 * small:  everyone copies its input into its staging buffer; everyone reduces all of them.
 * direct: all memory is mapped by all: rank r reduces part r of everyone's input and writes it into
 *         everyone's output, in one pass.
 * staged: the same through staging buffers, piece by piece: piece t is copied in at stage t,
 *         reduced at stage t + 1 and copied out at stage t + 2. */
#include "kernels/cpu/reduce.h"
#include "group/host/host.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What the weights of all ranks make of the sum. */
static struct cddpi_reduce kernel_for(struct cddpi_backend *host, const struct cddpi_op *op)
{
    struct cddpi_reduce how = {op->type, op->op, host->size, 1, NULL};
    bool equal = true;
    double total = 0;

    if (!op->weighted) {
        return how;
    }
    for (int r = 0; r < host->size; r++) {
        double weight = host_descriptor(host, r, op->number)->weight;

        host->factors[r] = weight;
        equal = equal && weight == host->factors[0] && weight > 0;
        total += weight;
    }
    how.op = equal ? CDDP_OP_MEAN : CDDP_OP_SUM;
    if (!equal) {
        for (int r = 0; r < host->size; r++) {
            host->factors[r] = total > 0 ? host->factors[r] / total : 0;
        }
        how.factors = host->factors;
    }
    return how;
}

/* Rank r's part of @p count elements, in multiples of a cache line or (if large) of a page. */
static size_t part_start(const struct cddpi_backend *host, const struct cddpi_op *op, size_t count,
                         int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = count * element;
    size_t grain = bytes / (size_t)host->size >= 16 * (size_t)HOST_PAGE_BYTES ? HOST_PAGE_BYTES
                                                                              : 64;
    size_t grains = (bytes + grain - 1) / grain;
    size_t start = grains * (size_t)rank / (size_t)host->size * grain / element;

    return least(start, count);
}

static void reduce_small(struct cddpi_backend *host, struct cddpi_op *op, unsigned stage)
{
    struct cddpi_reduce how;

    if (stage == 0) {
        memcpy(host_staging(host, host->rank, op->parity), op->in,
               op->count * cddp_type_bytes(op->type));
        return;
    }
    if (op->kind == CDDPI_REDUCE && host->rank != op->root) {
        return;
    }
    how = kernel_for(host, op);
    for (int r = 0; r < host->size; r++) {
        host->src[r] = host_staging(host, r, op->parity);
    }
    host->dst[0] = op->out;
    cddpi_reduce(&how, host->dst, host->src, op->count);
}

/* Who gets the result: all ranks, or root. */
static int destinations(const struct cddpi_backend *host, const struct cddpi_op *op)
{
    return op->kind == CDDPI_REDUCE ? 1 : host->size;
}

static int destination(const struct cddpi_op *op, int index)
{
    return op->kind == CDDPI_REDUCE ? op->root : index;
}

static void reduce_direct(struct cddpi_backend *host, struct cddpi_op *op)
{
    size_t element = cddp_type_bytes(op->type);
    size_t start = part_start(host, op, op->count, host->rank);
    size_t end = part_start(host, op, op->count, host->rank + 1);
    struct cddpi_reduce how = kernel_for(host, op);

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

static void reduce_piece(struct cddpi_backend *host, struct cddpi_op *op, size_t piece, size_t n)
{
    size_t element = cddp_type_bytes(op->type);
    size_t start = part_start(host, op, n, host->rank);
    size_t end = part_start(host, op, n, host->rank + 1);
    struct cddpi_reduce how = kernel_for(host, op);

    how.destinations = destinations(host, op);
    for (int r = 0; r < host->size; r++) {
        host->src[r] = host_staging(host, r, op->parity + piece) + start * element;
    }
    for (int d = 0; d < how.destinations; d++) {
        host->dst[d] = host_staging(host, destination(op, d), op->parity + piece) + start * element;
    }
    cddpi_reduce(&how, host->dst, host->src, end - start);
}

static size_t piece_count(const struct cddpi_op *op, size_t piece)
{
    return least(op->chunk, op->count - piece * op->chunk);
}

static void reduce_staged(struct cddpi_backend *host, struct cddpi_op *op, unsigned stage)
{
    size_t element = cddp_type_bytes(op->type);
    size_t t = stage - op->lag;
    bool wants = op->kind == CDDPI_ALL_REDUCE || host->rank == op->root;

    if (stage < op->lag) {
        return;
    }
    if (t >= 2 && wants) {
        memcpy((char *)op->out + (t - 2) * op->chunk * element,
               host_staging(host, host->rank, op->parity + t - 2),
               piece_count(op, t - 2) * element);
    }
    if (t < op->chunks) {
        memcpy(host_staging(host, host->rank, op->parity + t),
               (const char *)op->in + t * op->chunk * element, piece_count(op, t) * element);
    }
    if (t >= 1 && t - 1 < op->chunks) {
        reduce_piece(host, op, t - 1, piece_count(op, t - 1));
    }
}

void cddpi_host_reduce_stage(struct cddpi_backend *host, struct cddpi_op *op, unsigned stage)
{
    if (op->path == HOST_PATH_SMALL) {
        reduce_small(host, op, stage);
    } else if (op->path == HOST_PATH_STAGED) {
        reduce_staged(host, op, stage);
    } else if (stage == 1) {
        reduce_direct(host, op);
    }
}
