/* net_describe.c - describes the link of a group over several hosts: see group/join/link.h.
 */
#include "group/net/net_describe.h"

#include "group/join/link.h"
#include "kernels/cpu/reduce.h"

bool cddpi_net_link(const struct cddpi_backend *backend, cddp_type type,
                    struct cddpi_group_link *out)
{
    const struct net_backend *net = net_of_const(backend);
    double widening = (double)cddp_type_bytes(cddpi_reduce_sum_type(type, CDDP_OP_SUM)) /
                      (double)cddp_type_bytes(type);

    if (net->host_count == 1 || !(net->link.bytes_per_s > 0) ||
        !(net->link.reduce_bytes_per_s > 0)) {
        return false;
    }
    out->carrier = net->carrier->ops->name;
    out->hosts = net->host_count;
    out->is_measured = true;
    out->latency_s = net->link.latency_s;
    out->bytes_per_s = net->link.bytes_per_s;
    out->reduce_bytes_per_s = net->link.reduce_bytes_per_s;
    for (int i = 0; i < CDDPI_LINK_SIZES; i++) {
        double bytes = cddpi_link_size(i);

        (void)cddpi_algorithm_choose(&net->tree, &net->link, (size_t)bytes,
                                     (size_t)(bytes * widening), &out->all_reduce_s[i]);
    }
    return true;
}
