/* collectives.c - the public collectives: checks their arguments and starts them. */
#include "base/error.h"
#include "group/device/device.h"
#include "group/group.h"

#include <math.h>

static cddp_status start(cddp_group *group, const struct cddpi_group_op *op, cddp_work **work)
{
    const char *name = cddpi_kind_name(op->kind);
    size_t bytes = cddp_type_bytes(op->type);
    bool message = op->kind == CDDPI_SEND || op->kind == CDDPI_RECV;

    if (group == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: no group", name);
    }
    if (bytes == 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no element type %d",
                               name, (int)op->type);
    }
    if ((unsigned)op->op > CDDP_OP_PROD) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no operation %d", name,
                               (int)op->op);
    }
    if (op->root < 0 || op->root >= group->world_size || (message && op->root == group->rank)) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: rank %d is %s", name, op->root,
                               message && op->root == group->rank ? "this one"
                                                                  : "not in the group");
    }
    if (op->count > SIZE_MAX / 4 / bytes / (size_t)group->world_size) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: %zu elements are too many",
                               name, op->count);
    }
    return cddpi_group_has_device(group) ? cddpi_group_device_start(group, op, work)
                                         : cddpi_group_run(group, op, work);
}

/* Start @p op once the buffers that this rank needs are known to be there; the text names the one
 * that is missing. */
static cddp_status start_checked(cddp_group *group, const struct cddpi_group_op *op, bool needs_in,
                                 bool needs_out, cddp_work **work)
{
    if (op->count > 0 && ((needs_in && op->in == NULL) || (needs_out && op->out == NULL))) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group != NULL ? group->rank : -1,
                               "%s: %s is NULL", cddpi_kind_name(op->kind),
                               needs_in && op->in == NULL ? "in" : "out");
    }
    return start(group, op, work);
}

static bool is_root(const cddp_group *group, int root)
{
    return group != NULL && group->rank == root;
}

cddp_status cddp_all_reduce(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_op op, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_REDUCE, .type = type, .op = op, .count = count, .in = in, .out = out};

    return start_checked(group, &what, true, true, work);
}

static cddp_status start_weighted(cddp_group *group, struct cddpi_group_op *what, double weight,
                                  cddp_work **work)
{
    const char *name = cddpi_kind_name(what->kind);
    cddp_type type = what->type;

    if (!(weight >= 0) || !isfinite(weight)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: a weight of %g", name, weight);
    }
    if (type != CDDP_F32 && type != CDDP_F64 && type != CDDP_F16 && type != CDDP_BF16) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: a weighted mean of %s, only of floating types",
                          name, cddp_type_name(type));
    }
    what->op = CDDP_OP_SUM;
    what->weighted = true;
    what->weight = weight;
    return start_checked(group, what, true, true, work);
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

    return start_checked(group, &what, true, is_root(group, root), work);
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

    return start_checked(group, &what, true, true, work);
}

cddp_status cddp_all_gather(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_GATHER, .type = type, .count = count, .in = in, .out = out};

    return start_checked(group, &what, true, true, work);
}

cddp_status cddp_reduce_scatter(cddp_group *group, const void *in, void *out, size_t count,
                                cddp_type type, cddp_op op, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_REDUCE_SCATTER, .type = type, .op = op, .count = count, .in = in, .out = out};

    return start_checked(group, &what, true, true, work);
}

cddp_status cddp_gather(cddp_group *group, const void *in, void *out, size_t count, cddp_type type,
                        int root, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_GATHER, .type = type, .root = root, .count = count, .in = in, .out = out};

    return start_checked(group, &what, true, is_root(group, root), work);
}

cddp_status cddp_scatter(cddp_group *group, const void *in, void *out, size_t count, cddp_type type,
                         int root, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_SCATTER, .type = type, .root = root, .count = count, .in = in, .out = out};

    return start_checked(group, &what, is_root(group, root), true, work);
}

cddp_status cddp_all_to_all(cddp_group *group, const void *in, void *out, size_t count,
                            cddp_type type, cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_ALL_TO_ALL, .type = type, .count = count, .in = in, .out = out};

    return start_checked(group, &what, true, true, work);
}

cddp_status cddp_send(cddp_group *group, const void *data, size_t count, cddp_type type, int to,
                      cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_SEND, .type = type, .root = to, .count = count, .in = data};

    return start_checked(group, &what, true, false, work);
}

cddp_status cddp_recv(cddp_group *group, void *data, size_t count, cddp_type type, int from,
                      cddp_work **work)
{
    struct cddpi_group_op what = {
        .kind = CDDPI_RECV, .type = type, .root = from, .count = count, .out = data};

    return start_checked(group, &what, false, true, work);
}

cddp_status cddp_barrier(cddp_group *group, cddp_work **work)
{
    struct cddpi_group_op what = {.kind = CDDPI_BARRIER, .type = CDDP_U8};

    return start(group, &what, work);
}
