/* link.h - describes in numbers the link that carries a group's data, to plan when to send how
 * much. */
#ifndef CDDPI_GROUP_LINK_H
#define CDDPI_GROUP_LINK_H

#include "group/group.h"

enum { CDDPI_LINK_SIZES = 12 };

struct cddpi_group_link {
    const char *carrier; /* what carries the data: "tcp", "mpi" */
    int hosts;
    bool is_measured;   /* measured between hosts when the group was created; false: all numbers are
                           assumed */
    double latency_s;   /* half a round trip of a small message */
    double bytes_per_s; /* in one direction, while the other direction is as busy */
    double reduce_bytes_per_s; /* how fast one core adds two arrays */
    /* Seconds that an all_reduce of 1 KiB << 2 i bytes of the requested type takes when nothing
     * else runs. */
    double all_reduce_s[CDDPI_LINK_SIZES];
};

/** Describe the link that carries CPU memory of @p group, for sums of @p type. Local; all ranks get
 * the same numbers. False: there is no link between ranks, or it is not known. */
bool cddpi_group_link(const cddp_group *group, cddp_type type, struct cddpi_group_link *out);

/** How many seconds an all_reduce of @p bytes takes, interpolated linearly between two sizes of the
 *  table. */
double cddpi_link_all_reduce_s(const struct cddpi_group_link *link, double bytes);

/** The size of entry @p i of the table, in bytes. */
static inline double cddpi_link_size(int i)
{
    return (double)(1024ULL << (2 * i));
}

#endif
