/* rank_cores.h - the processors this process may use, in an order that keeps those of one core and
 * of one NUMA node together, and how ranks share them. */
#ifndef CDDPI_LAUNCHER_CORES_H
#define CDDPI_LAUNCHER_CORES_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_rank_cores {
    int *cpus; /* cpu_count processor numbers; those of core i are from first[i] to first[i+1] */
    int cpu_count; /* hardware threads */
    int *first;    /* core_count + 1 indices into cpus */
    int core_count;
    int node_count;  /* NUMA nodes that hold at least one of them */
    int usable;      /* of the cores, as many as control groups give time for; 0: all */
    double quota;    /* that time, in processors; 0: no limit */
    char limit[512]; /* what gives it; "": nothing */
};

/* Cores [begin, end) of a rank; all of them when it is not bound. */
struct cddpi_core_share {
    int begin;
    int end;
    bool bound;
    int threads; /* how many compute threads suit it, at least 1 */
};

/** Read the affinity mask and the topology below @p sys ("/sys/devices/system"). Where the topology
 *  cannot be read each processor counts as a core. Release with cddpi_cores_fini(). */
CDDP_CHECKED cddp_status cddpi_cores_read(const char *sys, struct cddpi_rank_cores *out);
/** The same for @p cpu_count processors @p allowed, in ascending order, instead of the mask. */
CDDP_CHECKED cddp_status cddpi_cores_order(const char *sys, const int *allowed, int cpu_count,
                                           struct cddpi_rank_cores *out);
void cddpi_cores_fini(struct cddpi_rank_cores *cores);

/** What @p rank of @p ranks gets: disjoint runs of cores, unless @p bind is false. With more ranks
 *  than cores, rank r gets core r modulo their number. */
struct cddpi_core_share cddpi_cores_share(const struct cddpi_rank_cores *cores, int rank, int ranks,
                                          bool bind);

/** Take the quotas of this process's control groups into account. */
void cddpi_cores_limit(struct cddpi_rank_cores *cores);

/** "2 of 64 cores (cpu.max 2.0 of /sys/fs/cgroup/a)", or "64 cores". */
void cddpi_cores_print_usable(const struct cddpi_rank_cores *cores, char *out, size_t bytes);

/** How many of the cores can be used at a time. */
int cddpi_cores_usable(const struct cddpi_rank_cores *cores);

/** The processors of @p share as text, such as "0-3,8-11", cut to @p bytes. */
void cddpi_cores_text(const struct cddpi_rank_cores *cores, const struct cddpi_core_share *share,
                      char *out, size_t bytes);

#endif
