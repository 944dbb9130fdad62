/* group_collectives.c - owns the public collectives: checks their arguments and starts them. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/group.h"

#include <math.h>

static bool is_floating(cddp_type type)
{
    return type == CDDP_F32 || type == CDDP_F64 || type == CDDP_F16 || type == CDDP_BF16;
}

static cddp_status check_combination(const cddp_group *group, const struct cddpi_group_op *op)
{
    /* for other kinds op->op has no meaning */
    bool is_reduction = op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE ||
                        op->kind == CDDPI_REDUCE_SCATTER;
    bool bits = op->op == CDDP_OP_AND || op->op == CDDP_OP_OR || op->op == CDDP_OP_XOR;

    if (is_reduction &&
        ((bits && is_floating(op->type)) || (op->op == CDDP_OP_MEAN && op->type == CDDP_BOOL))) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no %s of %s",
                               cddpi_kind_name(op->kind), cddp_op_name(op->op),
                               cddp_type_name(op->type));
    }
    return CDDP_OK;
}

static cddp_status check_numbers(const cddp_group *group, const struct cddpi_group_op *op)
{
    const char *name = cddpi_kind_name(op->kind);
    size_t bytes = cddp_type_bytes(op->type);
    bool message = op->kind == CDDPI_SEND || op->kind == CDDPI_RECV;

    if (bytes == 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no element type %d",
                               name, (int)op->type);
    }
    if ((unsigned)op->op > CDDP_OP_XOR) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no operation %d", name,
                               (int)op->op);
    }
    if (op->root < 0 || op->root >= group->world_size || (message && op->root == group->rank)) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: rank %d is %s", name, op->root,
                               message && op->root == group->rank ? "this one"
                                                                  : "not in the group");
    }
    if (op->count > CDDPI_BYTES_MAX / bytes / (size_t)group->world_size) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: %zu elements are too many",
                               name, op->count);
    }
    return check_combination(group, op);
}

/* Whether this rank reads `in`, writes `out`. */
static bool needs_in(const cddp_group *group, const struct cddpi_group_op *op)
{
    return op->kind != CDDPI_RECV && (op->kind != CDDPI_SCATTER || op->root == group->rank);
}

static bool needs_out(const cddp_group *group, const struct cddpi_group_op *op)
{
    return op->kind != CDDPI_SEND &&
           ((op->kind != CDDPI_REDUCE && op->kind != CDDPI_GATHER) || op->root == group->rank);
}

/* Whether the operation can be done in place: in the same memory, or in this rank's block of the
 * larger one. */
static bool is_in_place(const cddp_group *group, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    uintptr_t in = (uintptr_t)op->in;
    uintptr_t out = (uintptr_t)op->out;

    if (cddpi_op_scatters(op) == cddpi_op_gathers(op)) {
        return in == out;
    }
    return cddpi_op_gathers(op) ? in == out + (size_t)group->rank * bytes
                                : out == in + (size_t)group->rank * bytes;
}

/* Check the buffers that this rank needs. */
static cddp_status check_buffers(const cddp_group *group, const struct cddpi_group_op *op)
{
    const char *name = cddpi_kind_name(op->kind);
    size_t element = cddp_type_bytes(op->type);
    size_t all = op->count * (size_t)group->world_size;
    size_t in_count = cddpi_op_scatters(op) ? all : op->count;
    size_t out_count = cddpi_op_gathers(op) ? all : op->count;

    if (op->kind == CDDPI_BARRIER) {
        return CDDP_OK;
    }
    in_count = needs_in(group, op) ? in_count : 0;
    out_count = needs_out(group, op) ? out_count : 0;
    CDDPI_TRY(cddpi_check_memory(group, name, "in", op->in, in_count, op->type));
    CDDPI_TRY(cddpi_check_memory(group, name, "out", op->out, out_count, op->type));
    return is_in_place(group, op) ? CDDP_OK
                                  : cddpi_check_apart(group, name, op->in, in_count * element,
                                                      op->out, out_count * element);
}

static cddp_status start_operation(cddp_group *group, const struct cddpi_group_op *op,
                                   cddp_work **work)
{
    CDDPI_ENTER_GROUP(group, cddpi_kind_name(op->kind));
    CDDPI_TRY(check_numbers(group, op));
    CDDPI_TRY(check_buffers(group, op));
    return cddpi_group_has_device(group) ? cddpi_group_device_start(group, op, work)
                                         : cddpi_group_run(group, op, work);
}

cddp_status cddp_all_reduce(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_op op, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_REDUCE, .type = type, .op = op, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

static cddp_status start_weighted(cddp_group *group, struct cddpi_group_op *what, double weight,
                                  cddp_work **work)
{
    const char *name = cddpi_kind_name(what->kind);
    cddp_type type = what->type;

    if (!(weight >= 0) || !isfinite(weight)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: a weight of %g", name, weight);
    }
    if (!is_floating(type)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: a weighted mean of %s, only of floating types",
                          name, cddp_type_name(type));
    }
    what->op = CDDP_OP_SUM;
    what->weighted = true;
    what->weight = weight;
    return start_operation(group, what, work);
}

cddp_status cddp_all_reduce_weighted(cddp_group *group, const void *in, void *out, size_t count,
                                     cddp_type type, double weight, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_REDUCE, .type = type, .count = count, .in = in, .out = out};

    return start_weighted(group, &what, weight, work);
}

cddp_status cddp_reduce_scatter_weighted(cddp_group *group, const void *in, void *out, size_t count,
                                         cddp_type type, double weight, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_REDUCE_SCATTER, .type = type, .count = count, .in = in, .out = out};

    return start_weighted(group, &what, weight, work);
}

cddp_status cddp_reduce(cddp_group *group, const void *in, void *out, size_t count, cddp_type type,
                        cddp_op op, int root, cddp_work **work)
{
    struct cddpi_group_op what = {.kind = CDDPI_REDUCE,
                                  .type = type,
                                  .op = op,
                                  .root = root,
                                  .count = count,
                                  .in = in,
                                  .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_broadcast(cddp_group *group, void *data, size_t count, cddp_type type, int root,
                           cddp_work **work)
{
    struct cddpi_group_op what = {.kind = CDDPI_BROADCAST,
                                  .type = type,
                                  .root = root,
                                  .count = count,
                                  .in = data,
                                  .out = data};

    return start_operation(group, &what, work);
}

cddp_status cddp_all_gather(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_GATHER, .type = type, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_reduce_scatter(cddp_group *group, const void *in, void *out, size_t count,
                                cddp_type type, cddp_op op, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_REDUCE_SCATTER, .type = type, .op = op, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_gather(cddp_group *group, const void *in, void *out, size_t count, cddp_type type,
                        int root, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_GATHER, .type = type, .root = root, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_scatter(cddp_group *group, const void *in, void *out, size_t count, cddp_type type,
                         int root, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_SCATTER, .type = type, .root = root, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_all_to_all(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_TO_ALL, .type = type, .count = count, .in = in, .out = out};

    return start_operation(group, &what, work);
}

cddp_status cddp_send(cddp_group *group, const void *data, size_t count, cddp_type type, int to,
                      cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_SEND, .type = type, .root = to, .count = count, .in = data};

    return start_operation(group, &what, work);
}

cddp_status cddp_recv(cddp_group *group, void *data, size_t count, cddp_type type, int from,
                      cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_RECV, .type = type, .root = from, .count = count, .out = data};

    return start_operation(group, &what, work);
}

cddp_status cddp_barrier(cddp_group *group, cddp_work **work)
{
    struct cddpi_group_op what = {.kind = CDDPI_BARRIER, .type = CDDP_U8};

    return start_operation(group, &what, work);
}
