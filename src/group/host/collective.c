/* collective.c - runs a collective as a row of stages: what each rank says about it, whether all
 * say the same, and which algorithm follows. */
#include "base/error.h"
#include "group/host/host.h"

#include <stdio.h>
#include <string.h>

enum {
    SMALL_BYTES = 16 << 10,    /* all ranks reduce everything themselves up to this */
    DIRECT_BYTES = 4 << 10,    /* but above this not if all memory is mapped by all */
    SMALL_ALL_BYTES = 64 << 10 /* and up to this over all ranks */
};

void cddpi_host_describe(const struct host_descriptor *what, char *out, size_t bytes)
{
    const char *name = cddpi_kind_name((enum cddpi_kind)what->kind);
    const char *type = cddp_type_name((cddp_type)what->type);
    const char *op = what->weighted ? "weighted mean" : cddp_op_name((cddp_op)what->op);
    unsigned long long count = what->count;

    switch ((enum cddpi_kind)what->kind) {
    case CDDPI_BARRIER:
        snprintf(out, bytes, "%s", name);
        break;
    case CDDPI_ALLOC:
        snprintf(out, bytes, "%s of %llu bytes", name, count);
        break;
    case CDDPI_REPLAY:
        snprintf(out, bytes, "%s of recording %016llx", name, count);
        break;
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        snprintf(out, bytes, "%s %s %s x %llu", name, op, type, count);
        break;
    case CDDPI_REDUCE:
        snprintf(out, bytes, "%s %s %s x %llu to %d", name, op, type, count, what->root);
        break;
    case CDDPI_BROADCAST:
    case CDDPI_SCATTER:
        snprintf(out, bytes, "%s %s x %llu from %d", name, type, count, what->root);
        break;
    case CDDPI_GATHER:
        snprintf(out, bytes, "%s %s x %llu to %d", name, type, count, what->root);
        break;
    default:
        snprintf(out, bytes, "%s %s x %llu", name, type, count);
    }
}

bool cddpi_host_same_call(const struct host_descriptor *a, const struct host_descriptor *b)
{
    return a->kind == b->kind && a->type == b->type && a->op == b->op &&
           a->weighted == b->weighted && a->root == b->root && a->count == b->count;
}

void cddpi_host_word_calls(host_call_fn call_of, const void *context, int size, char *out,
                           size_t bytes)
{
    size_t used = 0;

    for (int first = 0; first < size && used < bytes - 200; first++) {
        const struct host_descriptor *what = call_of(context, first);
        char call[128];
        bool told = false;
        int others = 0;

        for (int r = 0; r < first && !told; r++) {
            told = cddpi_host_same_call(what, call_of(context, r));
        }
        if (told) {
            continue;
        }
        for (int r = first + 1; r < size; r++) {
            others += cddpi_host_same_call(what, call_of(context, r));
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s%s %d", used > 0 ? "; " : "",
                                 others > 0 ? "ranks" : "rank", first);
        for (int r = first + 1; r < size && used < bytes - 200; r++) {
            if (cddpi_host_same_call(what, call_of(context, r))) {
                used += (size_t)snprintf(out + used, bytes - used, ", %d", r);
            }
        }
        cddpi_host_describe(what, call, sizeof call);
        used += (size_t)snprintf(out + used, bytes - used, ": %s", call);
    }
}

struct call_row {
    const struct cddpi_backend *host;
    uint64_t number;
};

static const struct host_descriptor *call_in_row(const void *context, int rank)
{
    const struct call_row *row = context;

    return host_descriptor(row->host, rank, row->number);
}

static cddp_status mismatch(struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    struct call_row row = {host, op->number};
    char text[HOST_TEXT_BYTES - 64];

    cddpi_host_word_calls(call_in_row, &row, host->size, text, sizeof text);
    return cddpi_fail(CDDP_ERR_MISMATCH, "ranks disagree at collective #%llu: %s",
                      (unsigned long long)op->number, text);
}

static size_t blocks_of(const struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    switch (op->kind) {
    case CDDPI_SCATTER:
    case CDDPI_ALL_TO_ALL:
    case CDDPI_REDUCE_SCATTER:
        return (size_t)host->size;
    default:
        return 1;
    }
}

static bool reduces(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE;
}

/* Elements of a piece: whole cache lines, so that pieces of different ranks share none. */
static void cut(const struct cddpi_backend *host, struct cddpi_group_op *op)
{
    size_t element = cddp_type_bytes(op->type);
    size_t bytes = HOST_CHUNK_BYTES / blocks_of(host, op) / 64 * 64;

    op->chunk = bytes / element;
    op->chunks = (op->count + op->chunk - 1) / op->chunk;
    /* pieces of equal size, so that all ranks have work in the last one too */
    bytes = (op->count + op->chunks - 1) / op->chunks * element;
    op->chunk = (bytes + 63) / 64 * 64 / element;
    op->chunks = (op->count + op->chunk - 1) / op->chunk;
}

/* How many bytes of `in` and `out` this rank's part of @p op uses. */
static void extent(const struct cddpi_backend *host, const struct cddpi_group_op *op, size_t *in,
                   size_t *out)
{
    size_t one = op->count * cddp_type_bytes(op->type);
    size_t all = one * (size_t)host->size;
    bool in_all = op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
                  op->kind == CDDPI_REDUCE_SCATTER;
    bool out_all = op->kind == CDDPI_GATHER || op->kind == CDDPI_ALL_TO_ALL ||
                   op->kind == CDDPI_ALL_GATHER;

    *in = in_all ? all : one;
    *out = out_all ? all : one;
}

/* Memory that the peers map too is told to them by block and offset. */
static void describe_memory(struct cddpi_backend *host, const struct cddpi_group_op *op,
                            struct host_descriptor *what)
{
    struct host_segment *in;
    struct host_segment *out;
    size_t in_bytes;
    size_t out_bytes;

    what->in_segment = what->out_segment = 0;
    if (op->count == 0 || host->last_segment == 0 || op->in == NULL) {
        return;
    }
    extent(host, op, &in_bytes, &out_bytes);
    in = cddpi_host_find(host, op->in, in_bytes);
    if (in == NULL) {
        return;
    }
    what->in_segment = in->id;
    what->in_offset = (uint64_t)((const char *)op->in - (const char *)in->at[host->rank]);
    if (!reduces(op)) {
        return; /* the others are read by peers, never written */
    }
    out = op->out == NULL     ? NULL
          : op->out == op->in ? in
                              : cddpi_host_find(host, op->out, out_bytes);
    if (out != NULL) {
        what->out_segment = out->id;
        what->out_offset = (uint64_t)((char *)op->out - (char *)out->at[host->rank]);
    }
}

static bool candidate(const struct cddpi_group_op *op, const struct host_descriptor *what, int rank)
{
    return what->in_segment != 0 && (op->kind != CDDPI_ALL_REDUCE || what->out_segment != 0) &&
           (op->kind != CDDPI_REDUCE || rank != op->root || what->out_segment != 0);
}

static cddp_status begin(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    struct host_descriptor *what = host_descriptor(host, host->rank, op->number);
    size_t bytes = op->count * cddp_type_bytes(op->type);

    op->base = atomic_load_explicit(&host->me->counter, memory_order_relaxed);
    op->parity = host->parity;
    op->path = HOST_PATH_NONE;
    what->kind = (uint8_t)op->kind;
    what->type = (uint8_t)op->type;
    what->op = (uint8_t)op->op;
    what->weighted = op->weighted;
    what->root = op->root;
    what->count = op->count;
    what->weight = op->weight;
    if (op->kind == CDDPI_ALLOC) {
        int fd;
        cddp_status status = cddpi_host_alloc_own(host, op, &fd);

        what->fd = status == CDDP_OK ? fd : -1;
        op->last = 2;
        return status;
    }
    op->last = 1;
    if (op->count == 0 || op->kind == CDDPI_BARRIER) {
        return CDDP_OK;
    }
    cut(host, op);
    what->in_segment = what->out_segment = 0;
    if (reduces(op) && bytes <= SMALL_BYTES && bytes * (size_t)host->size <= SMALL_ALL_BYTES) {
        op->path = HOST_PATH_SMALL;
        op->chunks = 1;
    } else {
        op->path = HOST_PATH_STAGED;
    }
    if (op->path == HOST_PATH_STAGED || bytes > DIRECT_BYTES) {
        describe_memory(host, op, what);
    }
    if (!candidate(op, what, host->rank)) {
        if (reduces(op)) {
            cddpi_host_reduce_stage(host, op, 0);
        } else {
            cddpi_host_move_stage(host, op, 0);
        }
    }
    return CDDP_OK;
}

/* All have come, so all know the same: the algorithm and its number of stages. */
static cddp_status decide(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    const struct host_descriptor *mine = host_descriptor(host, host->rank, op->number);
    bool all = true;
    bool any = false;

    for (int r = 0; r < host->size; r++) {
        const struct host_descriptor *theirs = host_descriptor(host, r, op->number);

        if (!cddpi_host_same_call(mine, theirs)) {
            return mismatch(host, op);
        }
        if (candidate(op, theirs, r)) {
            const struct host_descriptor *first = host_descriptor(host, 0, op->number);

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
        op->path = HOST_PATH_DIRECT;
        op->last = 2;
        return CDDP_OK;
    }
    host->parity += op->chunks;
    op->lag = any; /* those with shared memory have not copied their first piece yet */
    op->last = (uint32_t)op->chunks + op->lag;
    if (op->path != HOST_PATH_SMALL && reduces(op)) {
        op->last++;
    }
    return CDDP_OK;
}

static cddp_status run_stage(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    cddp_status status = CDDP_OK;

    if (op->stage == 0) {
        return begin(host, op);
    }
    if (op->stage == 1) {
        status = decide(host, op);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (op->kind == CDDPI_ALLOC) {
        if (op->stage == 1) {
            return cddpi_host_alloc_map(host, op);
        }
        cddpi_host_alloc_drop(host, op); /* all have opened our file */
        return CDDP_OK;
    }
    if (op->path == HOST_PATH_NONE) {
        return CDDP_OK;
    }
    if (reduces(op)) {
        cddpi_host_reduce_stage(host, op, op->stage);
    } else {
        cddpi_host_move_stage(host, op, op->stage);
    }
    return CDDP_OK;
}

/* Whether all counters have reached @p target. */
static bool arrived(struct cddpi_backend *host, struct cddpi_group_op *op, uint32_t target)
{
    for (int i = 0; i < host->size; i++) {
        int r = i + op->laggard < host->size ? i + op->laggard : i + op->laggard - host->size;

        if ((int32_t)(host->seen[r] - target) >= 0 || r == host->rank) {
            continue;
        }
        host->seen[r] = atomic_load_explicit(&host->block->ranks[r].counter, memory_order_acquire);
        if ((int32_t)(host->seen[r] - target) < 0) {
            op->laggard = r;
            return false;
        }
    }
    return true;
}

cddp_status cddpi_host_advance(struct cddpi_backend *host, struct cddpi_group_op *op,
                               bool *out_done)
{
    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        return cddpi_host_message(host, op, out_done);
    }
    for (;;) {
        cddp_status status;

        if (op->stage > 0 && !arrived(host, op, op->base + op->stage)) {
            *out_done = false;
            return CDDP_OK;
        }
        status = run_stage(host, op);
        if (status != CDDP_OK) {
            return status;
        }
        if (op->stage > 0 && op->stage == op->last) {
            *out_done = true;
            return CDDP_OK;
        }
        op->stage++;
        cddpi_host_publish(host, op->base + op->stage);
    }
}
