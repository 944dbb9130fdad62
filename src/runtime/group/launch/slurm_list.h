/* slurm_list.h - the two compressed lists in Slurm's variables: hosts, "node[01-03,7],gpu[1-2]",
 * and ranks of each node, "2(x3),1". Nothing in them is trusted: lengths and counts are bounded. */
#ifndef CDDPI_GROUP_SLURM_LIST_H
#define CDDPI_GROUP_SLURM_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A host's name with its NUL; and the most hosts, and the most ranks, of a list. */
enum { CDDPI_HOST_NAME_BYTES = 256, CDDPI_SLURM_LIST_MAX = 1 << 20 };

/** How many hosts @p text names; 0: it is no list of hosts, or one of too many. */
size_t cddpi_slurm_hosts(const char *text);

/** The name of host @p index, in the list's order. False: the list has no such host. */
bool cddpi_slurm_host(const char *text, size_t index, char out[CDDPI_HOST_NAME_BYTES]);

/* What "2(x3),1" says about one node. */
struct cddpi_slurm_tasks {
    int nodes;      /* that the list names */
    int total;      /* ranks on all of them */
    int local_size; /* ranks on the node asked for */
};

/** False: @p text is no such list, or has no node @p node. */
bool cddpi_slurm_tasks(const char *text, int node, struct cddpi_slurm_tasks *out);

#endif
