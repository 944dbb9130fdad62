/* rank_cores.h - the processors that this process may use, ordered so that those of one core and of
 * one NUMA node are adjacent, and how ranks share them. */
#ifndef CDDPI_LAUNCHER_CORES_H
#define CDDPI_LAUNCHER_CORES_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_rank_cores {
    int *cpus;     /* cpu_count processor numbers; core i has those from first[i] to before
                      first[i+1] */
    int cpu_count; /* hardware threads */
    int *first;    /* core_count + 1 indices into cpus */
    int *nodes;    /* core_count NUMA nodes; -1: not known */
    int core_count;
    int node_count;  /* NUMA nodes with at least one of these cores */
    int usable;      /* number of cores that the control groups' CPU quota covers; 0: all */
    double quota;    /* the CPU quota, in processors; 0: no limit */
    char limit[512]; /* the source of the quota; "": none */
};

/* Cores [begin, end) of a rank; all cores if it is not bound. */
struct cddpi_core_share {
    int begin;
    int end;
    bool bound;
    int threads; /* suitable number of compute threads, at least 1 */
};

/** Read the affinity mask and the topology below @p sys ("/sys/devices/system"). If the topology
 *  cannot be read, each processor counts as a core. Release with cddpi_cores_fini(). */
CDDP_CHECKED cddp_status cddpi_cores_read(const char *sys, struct cddpi_rank_cores *out);
/** As cddpi_cores_read(), but for the @p cpu_count processors @p allowed, in ascending order,
 *  instead of the affinity mask. */
CDDP_CHECKED cddp_status cddpi_cores_order(const char *sys, const int *allowed, int cpu_count,
                                           struct cddpi_rank_cores *out);
void cddpi_cores_fini(struct cddpi_rank_cores *cores);

/** The share of @p rank among @p ranks: disjoint ranges of cores, unless @p bind is false. With
 *  more ranks than cores, rank r gets core r modulo core_count. */
struct cddpi_core_share cddpi_cores_share(const struct cddpi_rank_cores *cores, int rank, int ranks,
                                          bool bind);

/** Apply the CPU quotas of this process's control groups to @p cores. */
void cddpi_cores_limit(struct cddpi_rank_cores *cores);

/** Write "2 of 64 cores (cpu.max 2.0 of /sys/fs/cgroup/a)", or "64 cores". */
void cddpi_cores_print_usable(const struct cddpi_rank_cores *cores, char *out, size_t bytes);

/** How many of the cores can be busy at a time. */
int cddpi_cores_usable(const struct cddpi_rank_cores *cores);

/** Write the processors of @p share as text, such as "0-3,8-11", cut to @p bytes. */
void cddpi_cores_text(const struct cddpi_rank_cores *cores, const struct cddpi_core_share *share,
                      char *out, size_t bytes);

#endif
