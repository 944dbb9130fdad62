/* link.c - gets the link of a group's transport, and reads the table of times. */
#include "group/join/link.h"

#include "group/transports.h"

bool cddpi_group_link(const cddp_group *group, cddp_type type, struct cddpi_group_link *out)
{
    *out = (struct cddpi_group_link){.hosts = 1};
    return group->world_size > 1 && group->transport->cpu.link != NULL &&
           group->transport->cpu.link(group->backend, type, out);
}

double cddpi_link_size(int i)
{
    return (double)(1024ULL << (2 * i));
}

double cddpi_link_all_reduce_s(const struct cddpi_group_link *link, double bytes)
{
    int i = 1;
    double least, slope;

    if (bytes <= cddpi_link_size(0)) {
        return link->all_reduce_s[0];
    }
    while (i < CDDPI_LINK_SIZES - 1 && bytes > cddpi_link_size(i)) {
        i++;
    }
    least = cddpi_link_size(i - 1);
    slope = (link->all_reduce_s[i] - link->all_reduce_s[i - 1]) / (cddpi_link_size(i) - least);
    return link->all_reduce_s[i - 1] + (bytes - least) * slope;
}
