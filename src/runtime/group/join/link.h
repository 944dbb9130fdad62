/* link.h - what a group's data go over, in numbers: for those who plan when to send how much. */
#ifndef CDDPI_GROUP_LINK_H
#define CDDPI_GROUP_LINK_H

#include "group/group.h"

enum { CDDPI_LINK_SIZES = 12 };

struct cddpi_group_link {
    const char *carrier; /* what carries the data: "tcp", "mpi" */
    int hosts;
    bool is_measured;          /* between hosts, when the group formed; else all is assumed */
    double latency_s;          /* half a round trip of a small message */
    double bytes_per_s;        /* in one direction, while the other is as busy */
    double reduce_bytes_per_s; /* how fast one core adds two arrays */
    /* How long an all_reduce takes alone, of 1 KiB << 2 i bytes of the type that was asked for. */
    double all_reduce_s[CDDPI_LINK_SIZES];
};

/** Describe what carries the processor's memory of @p group, for sums of elements of @p type.
 * Local; all ranks get the same numbers. False: there is nothing between ranks, or nothing is
 * known. */
bool cddpi_group_link(const cddp_group *group, cddp_type type, struct cddpi_group_link *out);

/** How long an all_reduce of @p bytes takes: between two sizes of the table in proportion. */
double cddpi_link_all_reduce_s(const struct cddpi_group_link *link, double bytes);

/** The size of entry @p i of the table, in bytes. */
double cddpi_link_size(int i);

#endif
