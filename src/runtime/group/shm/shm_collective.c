/* shm_collective.c - runs a collective in stages: each rank writes its fingerprint, all compare
 * them, and an algorithm follows. */
#include "base/error.h"
#include "group/shm/shm.h"

enum {
    SMALL_BYTES = 16 << 10,    /* up to this size, every rank reduces everything itself */
    ZERO_COPY_BYTES = 4 << 10, /* above this size, zero-copy if all ranks map all memory */
    SMALL_ALL_BYTES = 64 << 10 /* like SMALL_BYTES, for the inputs of all ranks together */
};

struct shm_collective_call_row {
    const struct shm_backend *shm;
    uint64_t number;
};

static const struct cddpi_call *call_in_row(const void *context, int rank)
{
    const struct shm_collective_call_row *row = context;

    return &shm_fingerprint(row->shm, rank, row->number)->call;
}

static bool reduces(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE;
}

/* Choose the number of elements per piece: whole cache lines, so that pieces of different ranks
 * never share a line. */
static void cut_pieces(const struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = SHM_CHUNK_BYTES / (cddpi_op_scatters(op) ? (size_t)shm->size : 1) / 64 * 64;

    progress->chunk = bytes / element;
    progress->chunks = (op->count + progress->chunk - 1) / progress->chunk;
    /* pieces of equal size, so that all ranks have work in the last one, too */
    bytes = (op->count + progress->chunks - 1) / progress->chunks * element;
    progress->chunk = (bytes + 63) / 64 * 64 / element;
    progress->chunks = (op->count + progress->chunk - 1) / progress->chunk;
}

/* Describe memory that the peers map, too, as block and offset. */
static void describe_memory(struct shm_backend *shm, const struct cddpi_group_op *op,
                            struct shm_fingerprint *what)
{
    struct shm_segment *in;
    struct shm_segment *out;
    size_t one = op->count * cddp_type_bytes(op->type);
    size_t all = one * (size_t)shm->size;

    what->in_segment = what->out_segment = 0;
    if (op->count == 0 || shm->last_segment == 0 || op->in == NULL) {
        return;
    }
    if (op->kind == CDDPI_ALL_TO_ALL && op->in == op->out) {
        return; /* this rank would overwrite blocks that peers still read */
    }
    in = cddpi_shm_find(shm, op->in, cddpi_op_scatters(op) ? all : one);
    if (in == NULL) {
        return;
    }
    what->in_segment = in->id;
    what->in_offset = (uint64_t)((const char *)op->in - (const char *)in->at[shm->rank]);
    if (!reduces(op)) {
        return; /* peers read the others, but never write them */
    }
    out = op->out == NULL     ? NULL
          : op->out == op->in ? in
                              : cddpi_shm_find(shm, op->out, one); /* reductions have one block */
    if (out != NULL) {
        what->out_segment = out->id;
        what->out_offset = (uint64_t)((char *)op->out - (char *)out->at[shm->rank]);
    }
}

static bool may_be_zero_copy(const struct cddpi_group_op *op, const struct shm_fingerprint *what,
                             int rank)
{
    return what->in_segment != 0 && (op->kind != CDDPI_ALL_REDUCE || what->out_segment != 0) &&
           (op->kind != CDDPI_REDUCE || rank != op->root || what->out_segment != 0);
}

static void run_path(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage)
{
    if (reduces(op)) {
        cddpi_shm_reduce_stage(shm, op, stage);
    } else {
        cddpi_shm_move_stage(shm, op, stage);
    }
}

static cddp_status begin_stages(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    struct shm_fingerprint *what = shm_fingerprint(shm, shm->rank, op->number);
    size_t bytes = op->count * cddp_type_bytes(op->type);

    progress->base = atomic_load_explicit(&shm->me->counter, memory_order_relaxed);
    progress->parity = shm->parity;
    progress->path = SHM_PATH_NONE;
    what->call = cddpi_call_of(op);
    what->weight = op->weight;
    if (op->kind == CDDPI_ALLOC) {
        int fd;
        cddp_status status = cddpi_shm_alloc_own(shm, op, &fd);

        what->fd = status == CDDP_OK ? fd : -1;
        progress->last = 2;
        return status;
    }
    progress->last = 1;
    if (op->count == 0 || op->kind == CDDPI_BARRIER) {
        return CDDP_OK;
    }
    cut_pieces(shm, op);
    what->in_segment = what->out_segment = 0;
    if (reduces(op) && bytes <= SMALL_BYTES && bytes * (size_t)shm->size <= SMALL_ALL_BYTES) {
        progress->path = SHM_PATH_SMALL;
        progress->chunks = 1;
    } else {
        progress->path = SHM_PATH_STAGED;
    }
    if (progress->path == SHM_PATH_STAGED || bytes > ZERO_COPY_BYTES) {
        describe_memory(shm, op, what);
    }
    if (!may_be_zero_copy(op, what, shm->rank)) {
        run_path(shm, op, 0);
    }
    return CDDP_OK;
}

/* Choose the algorithm and its number of stages. All ranks' fingerprints are complete, so all ranks
 * choose the same. */
static cddp_status choose_path(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    const struct shm_fingerprint *mine = shm_fingerprint(shm, shm->rank, op->number);
    bool all = true;
    bool any = false;

    for (int r = 0; r < shm->size; r++) {
        const struct shm_fingerprint *theirs = shm_fingerprint(shm, r, op->number);

        if (!cddpi_call_same(&mine->call, &theirs->call)) {
            struct shm_collective_call_row row = {shm, op->number};
            char text[SHM_TEXT_BYTES - 64];

            cddpi_call_describe_all(call_in_row, &row, shm->names, shm->size, text, sizeof text);
            return cddpi_call_mismatch(op, text);
        }
        if (may_be_zero_copy(op, theirs, r)) {
            const struct shm_fingerprint *first = shm_fingerprint(shm, 0, op->number);

            any = true;
            all = all && theirs->in_segment == first->in_segment;
        } else {
            all = false;
        }
    }
    if (op->kind == CDDPI_ALLOC || op->count == 0 || op->kind == CDDPI_BARRIER) {
        return CDDP_OK;
    }
    if (any && all) {
        progress->path = SHM_PATH_ZERO_COPY;
        progress->last = 2;
        return CDDP_OK;
    }
    shm->parity += progress->chunks;
    progress->lag = any; /* ranks with shared memory have not copied their first piece yet */
    progress->last = (uint32_t)progress->chunks + progress->lag;
    if (progress->path != SHM_PATH_SMALL && reduces(op)) {
        progress->last++;
    }
    return CDDP_OK;
}

static cddp_status run_stage(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);

    if (progress->stage == 0) {
        return begin_stages(shm, op);
    }
    if (progress->stage == 1) {
        CDDPI_TRY(choose_path(shm, op));
    }
    if (op->kind == CDDPI_ALLOC) {
        if (progress->stage == 1) {
            return cddpi_shm_alloc_map(shm, op);
        }
        cddpi_shm_alloc_drop(&shm->base, op); /* by now all ranks have opened this rank's file */
        return CDDP_OK;
    }
    if (progress->path != SHM_PATH_NONE) {
        run_path(shm, op, progress->stage);
    }
    return CDDP_OK;
}

/* Whether all counters have reached @p target. */
static bool have_all_arrived(struct shm_backend *shm, struct cddpi_group_op *op, uint32_t target)
{
    struct shm_progress *progress = shm_progress(op);

    for (int i = 0; i < shm->size; i++) {
        int r = i + progress->straggler < shm->size ? i + progress->straggler
                                                    : i + progress->straggler - shm->size;

        if ((int32_t)(shm->seen[r] - target) >= 0 || r == shm->rank) {
            continue;
        }
        shm->seen[r] = atomic_load_explicit(&shm->block->ranks[r].counter, memory_order_acquire);
        if ((int32_t)(shm->seen[r] - target) < 0) {
            progress->straggler = r;
            return false;
        }
    }
    return true;
}

cddp_status cddpi_shm_advance(struct cddpi_backend *backend, struct cddpi_group_op *op,
                              bool *out_done)
{
    struct shm_backend *shm = shm_of(backend);
    struct shm_progress *progress = shm_progress(op);

    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        return cddpi_shm_message(shm, op, out_done);
    }
    for (;;) {
        if (progress->stage > 0 && !have_all_arrived(shm, op, progress->base + progress->stage)) {
            *out_done = false;
            return CDDP_OK;
        }
        CDDPI_TRY(run_stage(shm, op));
        if (progress->stage > 0 && progress->stage == progress->last) {
            *out_done = true;
            return CDDP_OK;
        }
        progress->stage++;
        cddpi_shm_publish(shm, progress->base + progress->stage);
        backend->moves++;
    }
}
