/* slurm_list.h - parses the two compressed lists in Slurm's variables: hosts,
 * "node[01-03,7],gpu[1-2]", and ranks per node, "2(x3),1". The input is not trusted: lengths and
 * counts are bounded. */
#ifndef CDDPI_GROUP_SLURM_LIST_H
#define CDDPI_GROUP_SLURM_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a host name with its NUL; maximum number of hosts, and of ranks, in a list. */
enum { CDDPI_HOST_NAME_BYTES = 256, CDDPI_SLURM_LIST_MAX = 1 << 20 };

/** How many hosts @p text names; 0: not a list of hosts, or too many. */
size_t cddpi_slurm_hosts(const char *text);

/** The name of host @p index, in the list's order. False: the list has no such host. */
bool cddpi_slurm_host(const char *text, size_t index, char out[CDDPI_HOST_NAME_BYTES]);

/* What a list such as "2(x3),1" says about one node. */
struct cddpi_slurm_tasks {
    int nodes;      /* in the list */
    int total;      /* ranks on all of them */
    int local_size; /* ranks on the node asked for */
};

/** False: @p text is not such a list, or has no node number @p node. */
bool cddpi_slurm_tasks(const char *text, int node, struct cddpi_slurm_tasks *out);

#endif
