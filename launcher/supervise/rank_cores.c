/* rank_cores.c - reads the usable processors from the affinity mask and /sys. It does not use
 * hwloc, which takes longer to load a topology (2 to 5 ms on 2 cores) than starting the ranks
 * takes. */
#include "launcher/supervise/rank_cores.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_BYTES = 8192 };

/* Read a list such as "0-3,8" from the file @p path into a new table, which has 1 for each number
 * in the list. NULL if the file cannot be read or memory is missing. */
static unsigned char *read_list(const char *path)
{
    char text[LIST_BYTES];
    unsigned char *is_in;
    ssize_t got;
    char *at = text;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return NULL;
    }
    got = read(fd, text, sizeof text - 1);
    close(fd);
    is_in = got > 0 ? cddpi_zalloc(CDDPI_MAX_CPUS) : NULL;
    if (is_in == NULL) {
        return NULL;
    }
    text[got] = '\0';
    while (*at >= '0' && *at <= '9') {
        long low = strtol(at, &at, 10);
        long high = *at == '-' ? strtol(at + 1, &at, 10) : low;

        for (long cpu = low; cpu >= 0 && cpu <= high && cpu < CDDPI_MAX_CPUS; cpu++) {
            is_in[cpu] = 1;
        }
        at += *at == ',' ? 1 : 0;
    }
    return is_in;
}

/* Append the core of processor @p cpu: all its allowed siblings. Only the first sibling's file is
 * read, since it names the others. */
static void add_core(const char *sys, int cpu, int node, unsigned char *left,
                     struct cddpi_rank_cores *cores)
{
    char path[512];
    unsigned char *siblings;

    snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/thread_siblings_list", sys, cpu);
    siblings = read_list(path);
    cores->nodes[cores->core_count] = node;
    cores->first[cores->core_count++] = cores->cpu_count;
    cores->cpus[cores->cpu_count++] = cpu;
    left[cpu] = 0;
    for (int other = cpu + 1; siblings != NULL && other < CDDPI_MAX_CPUS; other++) {
        if (siblings[other] && left[other]) {
            cores->cpus[cores->cpu_count++] = other;
            left[other] = 0;
        }
    }
    cddpi_free(siblings);
}

/* Append the cores of NUMA node @p id: the processors of @p left that are in @p node (NULL: all).
 */
static void add_node(const char *sys, int id, const unsigned char *node, unsigned char *left,
                     struct cddpi_rank_cores *cores)
{
    int before = cores->cpu_count;

    for (int cpu = 0; cpu < CDDPI_MAX_CPUS; cpu++) {
        if (left[cpu] && (node == NULL || node[cpu])) {
            add_core(sys, cpu, id, left, cores);
        }
    }
    cores->node_count += cores->cpu_count > before ? 1 : 0;
}

static void add_all(const char *sys, unsigned char *left, struct cddpi_rank_cores *cores)
{
    char path[512];
    unsigned char *nodes;

    snprintf(path, sizeof path, "%s/node/online", sys);
    nodes = read_list(path);
    for (int id = 0; nodes != NULL && id < CDDPI_MAX_CPUS; id++) {
        unsigned char *node;

        if (!nodes[id]) {
            continue;
        }
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", sys, id);
        node = read_list(path);
        if (node != NULL) {
            add_node(sys, id, node, left, cores);
        }
        cddpi_free(node);
    }
    cddpi_free(nodes);
    add_node(sys, -1, NULL, left, cores); /* cores without a NUMA node */
    cores->first[cores->core_count] = cores->cpu_count;
}

cddp_status cddpi_cores_order(const char *sys, const int *allowed, int cpu_count,
                              struct cddpi_rank_cores *out)
{
    struct cddpi_rank_cores cores = {0};
    unsigned char *left = cddpi_zalloc(CDDPI_MAX_CPUS);

    cores.cpus = cddpi_zalloc_array((size_t)cpu_count, sizeof *cores.cpus);
    cores.first = cddpi_zalloc_array((size_t)cpu_count + 1, sizeof *cores.first);
    cores.nodes = cddpi_zalloc_array((size_t)cpu_count, sizeof *cores.nodes);
    if (left == NULL || cores.cpus == NULL || cores.first == NULL || cores.nodes == NULL) {
        cddpi_free(left);
        cddpi_cores_fini(&cores);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a list of %d processors", cpu_count);
    }
    for (int i = 0; i < cpu_count; i++) {
        left[allowed[i]] = 1;
    }
    add_all(sys, left, &cores);
    cddpi_free(left);
    *out = cores;
    return CDDP_OK;
}

cddp_status cddpi_cores_read(const char *sys, struct cddpi_rank_cores *out)
{
    int *allowed;
    int count = cddpi_allowed_cpus(&allowed);
    cddp_status status = count > 0 ? cddpi_cores_order(sys, allowed, count, out)
                                   : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                                      "reading the affinity mask");

    cddpi_free(allowed);
    return status;
}

void cddpi_cores_fini(struct cddpi_rank_cores *cores)
{
    cddpi_free(cores->cpus);
    cddpi_free(cores->first);
    cddpi_free(cores->nodes);
    *cores = (struct cddpi_rank_cores){0};
}

void cddpi_cores_limit(struct cddpi_rank_cores *cores)
{
    struct cddpi_processors processors;

    cddpi_processors(&processors);
    cores->quota = processors.quota;
    cores->usable = 0;
    cores->limit[0] = '\0';
    if (processors.quota > 0 && processors.quota < cores->core_count) {
        cores->usable = cddpi_processors_within(cores->core_count, processors.quota);
        memcpy(cores->limit, processors.limit, sizeof cores->limit);
    }
}

int cddpi_cores_usable(const struct cddpi_rank_cores *cores)
{
    return cores->usable > 0 ? cores->usable : cores->core_count;
}

void cddpi_cores_print_usable(const struct cddpi_rank_cores *cores, char *out, size_t bytes)
{
    if (cores->usable > 0) {
        snprintf(out, bytes, "%d of %d core%s (%s)", cores->usable, cores->core_count,
                 cores->core_count == 1 ? "" : "s", cores->limit);
    } else {
        snprintf(out, bytes, "%d core%s", cores->core_count, cores->core_count == 1 ? "" : "s");
    }
}

struct cddpi_core_share cddpi_cores_share(const struct cddpi_rank_cores *cores, int rank, int ranks,
                                          bool bind)
{
    struct cddpi_core_share share = {0, cores->core_count, bind, 1};
    int64_t count = cores->core_count;

    if (bind && count >= ranks) {
        share.begin = (int)(count * rank / ranks);
        share.end = (int)(count * (rank + 1) / ranks);
        share.threads = share.end - share.begin;
    } else if (bind) {
        share.begin = rank % cores->core_count;
        share.end = share.begin + 1;
    } else if (count >= ranks) {
        share.threads = cores->core_count / ranks;
    }
    if (cores->usable > 0 && share.threads > cores->usable / ranks) {
        share.threads = cores->usable > ranks ? cores->usable / ranks : 1;
    }
    return share;
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void cddpi_cores_text(const struct cddpi_rank_cores *cores, const struct cddpi_core_share *share,
                      char *out, size_t bytes)
{
    int begin = cores->first[share->begin];
    int count = cores->first[share->end] - begin;
    int *sorted = cddpi_zalloc_array((size_t)count, sizeof *sorted);
    size_t used = 0;

    out[0] = '\0';
    if (sorted == NULL) {
        return;
    }
    memcpy(sorted, cores->cpus + begin, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_ints);
    for (int i = 0; i < count && used + 1 < bytes;) {
        int last = i;

        while (last + 1 < count && sorted[last + 1] == sorted[last] + 1) {
            last++;
        }
        used += (size_t)snprintf(out + used, bytes - used, last > i ? "%s%d-%d" : "%s%d",
                                 i > 0 ? "," : "", sorted[i], sorted[last]);
        i = last + 1;
    }
    cddpi_free(sorted);
}
