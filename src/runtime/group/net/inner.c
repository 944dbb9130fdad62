/* inner.c - runs the operations of the inner transport that are parts of a collective. */
#include "group/net/inner.h"

#include "group/net/net_collective.h"

void cddpi_net_inner_begin(struct net_backend *net, struct net_collective *collective,
                           enum cddpi_kind kind, int root, const void *in, void *out, size_t bytes)
{
    const struct cddpi_group_op *op = collective->op;

    collective->inner = (struct cddpi_group_op){.kind = kind,
                                                .type = CDDP_U8,
                                                .count = bytes,
                                                .in = in,
                                                .out = out,
                                                .root = net->local_of[root],
                                                .whole = op,
                                                .number = ++net->inner_collectives,
                                                .start_ns = op->start_ns,
                                                .deadline_ns = op->deadline_ns};
    collective->inner_runs = true;
    net->waits_inside = true;
}

cddp_status cddpi_net_inner_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done)
{
    cddp_status status = CDDP_OK;

    *out_done = true;
    if (collective->inner_runs) {
        status = net->inner->ops->advance(net->inner, &collective->inner, out_done);
    }
    CDDPI_TRY(status);
    if (*out_done) {
        collective->inner_runs = false;
        net->waits_inside = false;
    }
    return CDDP_OK;
}
