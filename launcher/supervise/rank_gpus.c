/* rank_gpus.c - reads where GPUs are from /sys. It does not ask CUDA, which takes seconds to start,
 * and which a process must not use before it forks. */
#include "launcher/supervise/rank_gpus.h"

#include "base/alloc.h"
#include "base/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read the number in a file of /sys; @p otherwise: it cannot be read. */
static long read_number(const char *pci, const char *device, const char *name, long otherwise)
{
    char path[512];
    char text[32];
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "%s/%s/%s", pci, device, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return otherwise;
    }
    got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) {
        return otherwise;
    }
    text[got] = '\0';
    return strtol(text, NULL, 0);
}

static bool is_gpu(const char *pci, const char *device)
{
    enum { NVIDIA = 0x10de, DISPLAY = 3 };

    return device[0] != '.' && read_number(pci, device, "vendor", 0) == NVIDIA &&
           read_number(pci, device, "class", 0) >> 16 == DISPLAY;
}

/* Choose from the @p count nodes those that CUDA_VISIBLE_DEVICES names by number. As in CUDA, the
 * first number without a GPU ends the list. */
static int choose_visible(const char *visible, const int *nodes, int count, int *out)
{
    const char *at = visible;
    int chosen = 0;

    while (*at != '\0' && chosen < CDDPI_MACHINE_GPUS) {
        char *end;
        long index = strtol(at, &end, 10);

        if (end == at || (*end != ',' && *end != '\0')) {
            return 0; /* a UUID, or a part of a GPU */
        }
        if (index < 0 || index >= count) {
            break;
        }
        out[chosen++] = nodes[index];
        at = *end == ',' ? end + 1 : end;
    }
    return chosen;
}

int cddpi_gpu_nodes(const char *pci, const char *visible, int out[CDDPI_MACHINE_GPUS])
{
    int nodes[CDDPI_MACHINE_GPUS];
    struct dirent **entries = NULL;
    int found = scandir(pci, &entries, NULL, alphasort);
    int count = 0;

    for (int i = 0; i < found; i++) {
        if (count < CDDPI_MACHINE_GPUS && is_gpu(pci, entries[i]->d_name)) {
            nodes[count++] = (int)read_number(pci, entries[i]->d_name, "numa_node", -1);
        }
        free(entries[i]);
    }
    free(entries);
    if (visible != NULL) {
        return choose_visible(visible, nodes, count, out);
    }
    memcpy(out, nodes, (size_t)count * sizeof *out);
    return count;
}

/* Which ranks get which cores: order[i] is the core that comes at place i. */
struct near {
    const struct cddpi_rank_cores *cores;
    int ranks;
    int *order;
    bool *taken;
    int *filled; /* by rank */
};

/* Give @p rank cores of @p node (-1: of any) until it has @p wanted. */
static void take_cores(struct near *near, int rank, int node, int wanted)
{
    int begin = (int)((int64_t)near->cores->core_count * rank / near->ranks);

    for (int c = 0; c < near->cores->core_count && near->filled[rank] < wanted; c++) {
        if (!near->taken[c] && (node < 0 || near->cores->nodes[c] == node)) {
            near->taken[c] = true;
            near->order[begin + near->filled[rank]++] = c;
        }
    }
}

static int size_of(const struct near *near, int rank)
{
    int64_t count = near->cores->core_count;

    return (int)(count * (rank + 1) / near->ranks - count * rank / near->ranks);
}

/* The number of a node's cores that each of its ranks may have. */
static int part_of_node(const struct near *near, const int *nodes, int each, int node)
{
    int cores = 0;
    int sharers = 0;

    for (int c = 0; c < near->cores->core_count; c++) {
        cores += near->cores->nodes[c] == node;
    }
    for (int r = 0; r < near->ranks; r++) {
        sharers += nodes[r * each] == node;
    }
    return cores / sharers;
}

static void divide(struct near *near, const int *nodes, int each)
{
    for (int r = 0; r < near->ranks; r++) {
        int node = nodes[r * each];

        if (node >= 0) {
            int part = part_of_node(near, nodes, each, node);

            take_cores(near, r, node, part < size_of(near, r) ? part : size_of(near, r));
        }
    }
    for (int r = 0; r < near->ranks; r++) {
        take_cores(near, r, -1, size_of(near, r));
    }
}

/* Put the cores in their new order. */
static void reorder(const struct near *near, const struct cddpi_rank_cores *from,
                    struct cddpi_rank_cores *to)
{
    int at = 0;

    for (int i = 0; i < from->core_count; i++) {
        int c = near->order[i];

        to->first[i] = at;
        to->nodes[i] = from->nodes[c];
        for (int k = from->first[c]; k < from->first[c + 1]; k++) {
            to->cpus[at++] = from->cpus[k];
        }
    }
    to->first[from->core_count] = at;
}

cddp_status cddpi_cores_near(struct cddpi_rank_cores *cores, const int *nodes, int gpus, int ranks)
{
    size_t count = (size_t)cores->core_count;
    struct cddpi_rank_cores moved = *cores;
    struct near near = {.cores = cores, .ranks = ranks};
    cddp_status status = CDDP_OK;

    if (ranks < 1 || gpus < ranks || cores->core_count < ranks) {
        return CDDP_OK;
    }
    near.order = cddpi_zalloc_array(count, sizeof *near.order);
    near.taken = cddpi_zalloc_array(count, sizeof *near.taken);
    near.filled = cddpi_zalloc_array((size_t)ranks, sizeof *near.filled);
    moved.cpus = cddpi_zalloc_array((size_t)cores->cpu_count, sizeof *moved.cpus);
    moved.first = cddpi_zalloc_array(count + 1, sizeof *moved.first);
    moved.nodes = cddpi_zalloc_array(count, sizeof *moved.nodes);
    if (near.order == NULL || near.taken == NULL || near.filled == NULL || moved.cpus == NULL ||
        moved.first == NULL || moved.nodes == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a list of %zu cores", count);
        cddpi_cores_fini(&moved);
    } else {
        divide(&near, nodes, gpus / ranks);
        reorder(&near, cores, &moved);
        cddpi_cores_fini(cores);
        *cores = moved;
    }
    cddpi_free(near.order);
    cddpi_free(near.taken);
    cddpi_free(near.filled);
    return status;
}
