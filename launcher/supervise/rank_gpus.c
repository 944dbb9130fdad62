/* rank_gpus.c - reads where GPUs are from /sys and /proc. It does not ask CUDA, which takes seconds
 * to start, and which a process must not use before it forks. */
#include "launcher/supervise/rank_gpus.h"

#include "base/alloc.h"
#include "base/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read a file of the kernel; false: it cannot be read. */
static bool read_text(const char *root, const char *device, const char *name, char *out,
                      size_t bytes)
{
    char path[512];
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "%s/%s/%s", root, device, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    got = read(fd, out, bytes - 1);
    close(fd);
    out[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Read the number in a file of /sys; @p otherwise: it cannot be read. */
static long read_number(const char *pci, const char *device, const char *name, long otherwise)
{
    char text[32];

    return read_text(pci, device, name, text, sizeof text) ? strtol(text, NULL, 0) : otherwise;
}

static bool is_gpu(const char *pci, const char *device)
{
    enum { NVIDIA = 0x10de, DISPLAY = 3 };

    return device[0] != '.' && read_number(pci, device, "vendor", 0) == NVIDIA &&
           read_number(pci, device, "class", 0) >> 16 == DISPLAY;
}

/* Whether this process can use the GPU. In a container, and in a part of a machine that a scheduler
 * gave us, /sys shows all GPUs, but CUDA numbers only those that it can open. */
static bool is_usable(const struct cddpi_gpu_paths *paths, const char *device)
{
    static const char label[] = "Device Minor:";
    char text[1024];
    char path[512];
    const char *minor;

    if (!read_text(paths->driver, device, "information", text, sizeof text)) {
        return false;
    }
    minor = strstr(text, label);
    if (minor == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s/nvidia%ld", paths->dev,
             strtol(minor + sizeof label - 1, NULL, 10));
    return access(path, R_OK | W_OK) == 0; /* it heeds control groups, and wakes no GPU */
}

/* Choose from the @p count nodes those that CUDA_VISIBLE_DEVICES names by number. As in CUDA, a
 * negative number ends the list. */
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
        if (index < 0) {
            break;
        }
        if (index >= count) {
            return 0; /* whoever wrote it counts other GPUs than we do */
        }
        out[chosen++] = nodes[index];
        at = *end == ',' ? end + 1 : end;
    }
    return chosen;
}

int cddpi_gpu_nodes(const struct cddpi_gpu_paths *paths, const char *visible,
                    int out[CDDPI_MACHINE_GPUS])
{
    int nodes[CDDPI_MACHINE_GPUS];
    struct dirent **entries = NULL;
    int found = scandir(paths->pci, &entries, NULL, alphasort);
    int count = 0;
    long model = -1;
    bool equal = true;

    for (int i = 0; i < found; i++) {
        const char *device = entries[i]->d_name;

        if (count < CDDPI_MACHINE_GPUS && is_gpu(paths->pci, device) && is_usable(paths, device)) {
            long own = read_number(paths->pci, device, "device", 0);

            equal = equal && (count == 0 || own == model);
            model = own;
            nodes[count++] = (int)read_number(paths->pci, device, "numa_node", -1);
        }
        free(entries[i]);
    }
    free(entries);
    if (!equal) {
        return 0; /* CUDA puts the fastest first */
    }
    if (visible != NULL) {
        return choose_visible(visible, nodes, count, out);
    }
    memcpy(out, nodes, (size_t)count * sizeof *out);
    return count;
}

/* The value of the last argument "KEY=value"; NULL: there is none. */
static const char *argument_of(const struct cddpi_launch_options *options, const char *key)
{
    size_t length = strlen(key);
    const char *value = NULL;

    for (int i = 0; options->config != NULL && i < options->argument_count; i++) {
        const char *argument = options->arguments[i];

        if (strncmp(argument, key, length) == 0 && argument[length] == '=') {
            value = argument + length + 1;
        }
    }
    return value;
}

bool cddpi_gpu_per_rank(const struct cddpi_launch_options *options, const char *device,
                        const char *visible)
{
    const char *where = argument_of(options, "train.device");

    if (argument_of(options, "train.devices") != NULL ||
        argument_of(options, "parallel.devices") != NULL) {
        return false;
    }
    if (where == NULL || strstr(where, "auto") != NULL) {
        where = device;
    }
    if (where != NULL && where[0] != '\0') {
        return strcmp(where, "cuda") == 0 || strcmp(where, "\"cuda\"") == 0;
    }
    return options->per_gpu || (visible != NULL && visible[0] != '\0');
}

/* Which ranks get which cores: order[i] is the core that comes at place i. */
struct near {
    const struct cddpi_rank_cores *cores;
    int ranks;
    int *order;
    bool *taken;
    int *filled; /* by rank */
};

static int begin_of(const struct near *near, int rank)
{
    return (int)((int64_t)near->cores->core_count * rank / near->ranks);
}

static int size_of(const struct near *near, int rank)
{
    return begin_of(near, rank + 1) - begin_of(near, rank);
}

/* Give @p rank cores of @p node (-1: of any) until it has @p wanted. */
static void take_cores(struct near *near, int rank, int node, int wanted)
{
    int begin = begin_of(near, rank);

    for (int c = 0; c < near->cores->core_count && near->filled[rank] < wanted; c++) {
        if (!near->taken[c] && (node < 0 || near->cores->nodes[c] == node)) {
            near->taken[c] = true;
            near->order[begin + near->filled[rank]++] = c;
        }
    }
}

/* The number of a node's cores that each of its ranks may have. */
static int part_of_node(const struct near *near, const int *nodes, int node)
{
    int cores = 0;
    int sharers = 0;

    for (int c = 0; c < near->cores->core_count; c++) {
        cores += near->cores->nodes[c] == node;
    }
    for (int r = 0; r < near->ranks; r++) {
        sharers += nodes[r] == node;
    }
    return cores / sharers;
}

static void divide(struct near *near, const int *nodes)
{
    for (int r = 0; r < near->ranks; r++) {
        int node = nodes[r];

        if (node >= 0) {
            int part = part_of_node(near, nodes, node);

            take_cores(near, r, node, part < size_of(near, r) ? part : size_of(near, r));
        }
    }
    for (int r = 0; r < near->ranks; r++) {
        take_cores(near, r, -1, size_of(near, r));
    }
}

/* Whether all cores of @p rank are of one node, in the new order or in that of before. */
static bool has_one_node(const struct near *near, int rank, bool now)
{
    int begin = begin_of(near, rank);
    int first = near->cores->nodes[now ? near->order[begin] : begin];

    for (int i = begin; i < begin + size_of(near, rank); i++) {
        if (near->cores->nodes[now ? near->order[i] : i] != first) {
            return false;
        }
    }
    return true;
}

/* Whether a rank that had cores of one node would have cores of several. */
static bool splits_a_rank(const struct near *near)
{
    for (int r = 0; r < near->ranks; r++) {
        if (has_one_node(near, r, false) && !has_one_node(near, r, true)) {
            return true;
        }
    }
    return false;
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
        divide(&near, nodes);
        if (splits_a_rank(&near)) {
            cddpi_cores_fini(&moved);
        } else {
            reorder(&near, cores, &moved);
            cddpi_cores_fini(cores);
            *cores = moved;
        }
    }
    cddpi_free(near.order);
    cddpi_free(near.taken);
    cddpi_free(near.filled);
    return status;
}
