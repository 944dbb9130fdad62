/* shm_reduce.c - owns all_reduce and reduce: three algorithms with bitwise equal results.
 *
 * - small: every rank copies its input into its staging buffer, then reduces all of them.
 * - zero-copy: all ranks map all memory; rank r reduces part r of all ranks' input and writes it
 *   into all ranks' output, in one pass.
 * - staged: piece by piece through staging buffers. A rank copies in the parts that peers reduce,
 *   reduces its own part, and copies out the parts that peers have reduced. */
#include "group/shm/shm.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How inputs are reduced: the operation, or a sum with the factors that all ranks' weights give. */
struct cddpi_reduce cddpi_shm_reduction(struct shm_backend *shm, const struct cddpi_group_op *op)
{
    struct cddpi_reduce how = {op->type, op->op, shm->size, 1, NULL};

    if (!op->weighted) {
        return how;
    }
    for (int r = 0; r < shm->size; r++) {
        shm->factors[r] = shm_fingerprint(shm, r, op->number)->weight;
    }
    cddpi_reduce_weighted(&how, op->type, shm->factors, shm->size, shm->factors);
    return how;
}

/* Rank r's part of @p count elements, in multiples of a cache line or (if large) of a page. */
static size_t part_start(const struct shm_backend *shm, const struct cddpi_group_op *op,
                         size_t count, int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = count * element;
    size_t grain = bytes / (size_t)shm->size >= 16 * (size_t)SHM_PAGE_BYTES ? SHM_PAGE_BYTES : 64;
    size_t grains = (bytes + grain - 1) / grain;
    size_t start = grains * (size_t)rank / (size_t)shm->size * grain / element;

    return least(start, count);
}

static void reduce_small(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage)
{
    struct shm_progress *progress = shm_progress(op);
    struct cddpi_reduce how;

    if (stage <= progress->lag) {
        memcpy(shm_staging(shm, shm->rank, progress->parity), op->in,
               op->count * cddp_type_bytes(op->type));
        return;
    }
    if (op->kind == CDDPI_REDUCE && shm->rank != op->root) {
        return;
    }
    how = cddpi_shm_reduction(shm, op);
    for (int r = 0; r < shm->size; r++) {
        shm->src[r] = shm_staging(shm, r, progress->parity);
    }
    shm->dst[0] = op->out;
    cddpi_reduce(&how, shm->dst, shm->src, op->count);
}

/* How many ranks get the result: all, or only the root. */
static int destinations(const struct shm_backend *shm, const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_REDUCE ? 1 : shm->size;
}

static int destination(const struct cddpi_group_op *op, int index)
{
    return op->kind == CDDPI_REDUCE ? op->root : index;
}

static void reduce_zero_copy(struct shm_backend *shm, struct cddpi_group_op *op)
{
    size_t element = cddp_type_bytes(op->type);
    size_t start = part_start(shm, op, op->count, shm->rank);
    size_t end = part_start(shm, op, op->count, shm->rank + 1);
    struct cddpi_reduce how = cddpi_shm_reduction(shm, op);

    how.destinations = destinations(shm, op);
    for (int r = 0; r < shm->size; r++) {
        const struct shm_fingerprint *what = shm_fingerprint(shm, r, op->number);

        shm->src[r] = (const char *)cddpi_shm_segment(shm, what->in_segment)->at[r] +
                      what->in_offset + start * element;
    }
    for (int d = 0; d < how.destinations; d++) {
        int r = destination(op, d);
        const struct shm_fingerprint *what = shm_fingerprint(shm, r, op->number);

        shm->dst[d] = (char *)cddpi_shm_segment(shm, what->out_segment)->at[r] + what->out_offset +
                      start * element;
    }
    cddpi_reduce(&how, shm->dst, shm->src, end - start);
}

/* Rank r's part of a piece. The last piece is cut at the same places as the others, so that no part
 * of a staging buffer gets another writer while peers still read it. */
struct shm_reduce_part {
    size_t start; /* in elements, from the start of the piece */
    size_t count;
};

static struct shm_reduce_part part_of(const struct shm_backend *shm,
                                      const struct cddpi_group_op *op, size_t piece, int rank)
{
    const struct shm_progress *progress = shm_progress_of(op);
    size_t count = least(progress->chunk, op->count - piece * progress->chunk);
    size_t start = least(part_start(shm, op, progress->chunk, rank), count);
    size_t end = least(part_start(shm, op, progress->chunk, rank + 1), count);

    return (struct shm_reduce_part){start, end - start};
}

/* Copy one rank's part of a piece; @p from and @p to point to the start of the piece. */
static void copy_part(void *to, const void *from, struct shm_reduce_part part, size_t element)
{
    memcpy((char *)to + part.start * element, (const char *)from + part.start * element,
           part.count * element);
}

/* Reduce this rank's part. Reads this rank's own input, and writes its own output, without
 * copies. */
static void reduce_piece(struct shm_backend *shm, struct cddpi_group_op *op, size_t piece,
                         bool wants)
{
    struct shm_progress *progress = shm_progress(op);
    size_t element = cddp_type_bytes(op->type);
    struct shm_reduce_part part = part_of(shm, op, piece, shm->rank);
    size_t at = (piece * progress->chunk + part.start) * element;
    struct cddpi_reduce how = cddpi_shm_reduction(shm, op);
    unsigned char *staging = shm_staging(shm, shm->rank, progress->parity + piece);

    for (int r = 0; r < shm->size; r++) {
        shm->src[r] = shm_staging(shm, r, progress->parity + piece) + part.start * element;
    }
    shm->src[shm->rank] = (const char *)op->in + at;
    how.destinations = wants ? 2 : 1;
    shm->dst[0] = staging + part.start * element;
    if (wants) {
        shm->dst[1] = (char *)op->out + at;
    }
    cddpi_reduce(&how, shm->dst, shm->src, part.count);
}

/* Piece t: copy the peers' parts in at stage t, reduce this rank's part at stage t + 1, copy the
 * peers' results out of their buffers at stage t + 2. */
static void reduce_staged(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage)
{
    struct shm_progress *progress = shm_progress(op);
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = progress->chunk * element;
    size_t t = stage - progress->lag;
    bool wants = op->kind == CDDPI_ALL_REDUCE || shm->rank == op->root;

    if (stage < progress->lag) {
        return;
    }
    for (int r = 0; r < shm->size && t >= 2 && wants; r++) {
        if (r != shm->rank) {
            copy_part((char *)op->out + (t - 2) * bytes,
                      shm_staging(shm, r, progress->parity + t - 2), part_of(shm, op, t - 2, r),
                      element);
        }
    }
    for (int r = 0; r < shm->size && t < progress->chunks; r++) {
        if (r != shm->rank) {
            copy_part(shm_staging(shm, shm->rank, progress->parity + t),
                      (const char *)op->in + t * bytes, part_of(shm, op, t, r), element);
        }
    }
    if (t >= 1 && t - 1 < progress->chunks) {
        reduce_piece(shm, op, t - 1, wants);
    }
}

void cddpi_shm_reduce_stage(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage)
{
    struct shm_progress *progress = shm_progress(op);

    if (progress->path == SHM_PATH_SMALL) {
        reduce_small(shm, op, stage);
    } else if (progress->path == SHM_PATH_STAGED) {
        reduce_staged(shm, op, stage);
    } else if (stage == 1) {
        reduce_zero_copy(shm, op);
    }
}
