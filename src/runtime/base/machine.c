/* machine.c - reads the kernel's files about this machine and its control groups, below a root that
 * tests can set. A file that cannot be read sets no limit. */
#include "base/machine.h"
#include "base/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = CDDPI_CONTROL_GROUP_BYTES, LINE_BYTES = 4096 };

static const char *files_root = "";

void cddpi_machine(char out[CDDPI_MACHINE_BYTES])
{
    char id[CDDPI_MACHINE_BYTES] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, id, sizeof id - 1) : -1;

    cddpi_fd_close(&fd);
    if (bytes <= 0) {
        (void)gethostname(id, sizeof id - 1);
    }
    id[strcspn(id, "\n")] = '\0';
    memcpy(out, id, sizeof id);
}

void cddpi_kernel_files_set_root(const char *root)
{
    files_root = root != NULL ? root : "";
}

/* Open @p folder/@p name for reading. NULL: it cannot be read. */
static FILE *open_kernel_file(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];

    return snprintf(path, sizeof path, "%s%s%s", files_root, folder, name) < (int)sizeof path
               ? fopen(path, "re")
               : NULL;
}

bool cddpi_kernel_file_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    FILE *file = open_kernel_file(folder, name);
    char line[LINE_BYTES];
    size_t length = strlen(key);
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        size_t gap = strncmp(line, key, length) == 0 ? strspn(line + length, ": \t") : 0;

        if (gap > 0 || length == 0) {
            char *number = line + length + gap;
            char *end = number;
            uint64_t value = strtoull(number, &end, 10);

            is_found = end > number;
            *out = is_found ? value : *out;
        }
    }
    cddpi_stream_close(file);
    return is_found;
}

/* Whether the comma-separated @p list contains @p word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 &&
            (at[length] == ',' || at[length] == '\0' || at[length] == '\n')) {
            return true;
        }
    }
    return false;
}

/* Find where the hierarchy is mounted, and which control group its mount point shows. */
static bool find_mount(bool is_v2, const char *controller, char mount[PATH_BYTES],
                       char top[PATH_BYTES])
{
    FILE *file = open_kernel_file("/proc/self", "/mountinfo");
    char line[LINE_BYTES];
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        const char *kind = strstr(line, " - ");
        char type[32], options[LINE_BYTES];

        is_found = kind != NULL && sscanf(line, "%*s %*s %*s %399s %399s", top, mount) == 2 &&
                   sscanf(kind, " - %31s %*s %4095s", type, options) == 2 &&
                   (is_v2 ? strcmp(type, "cgroup2") == 0
                          : strcmp(type, "cgroup") == 0 && has_word(options, controller));
    }
    cddpi_stream_close(file);
    return is_found;
}

/* The path of this process's control group within its hierarchy. */
static bool find_membership(bool is_v2, const char *controller, char out[PATH_BYTES])
{
    FILE *file = open_kernel_file("/proc/self", "/cgroup");
    char line[LINE_BYTES];
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        char *kinds = strchr(line, ':');
        char *path = kinds != NULL ? strchr(kinds + 1, ':') : NULL;

        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        is_found = (is_v2 ? strcmp(line, "0:") == 0 : has_word(kinds + 1, controller)) &&
                   snprintf(out, PATH_BYTES, "%s", path) < PATH_BYTES;
    }
    cddpi_stream_close(file);
    return is_found;
}

void cddpi_control_group_find(bool is_v2, const char *controller, struct cddpi_control_group *out)
{
    char mount[PATH_BYTES], top[PATH_BYTES], path[PATH_BYTES];
    const char *below = path;
    size_t length;

    out->is_v2 = is_v2;
    out->path[0] = '\0';
    if (!find_mount(is_v2, controller, mount, top) || !find_membership(is_v2, controller, path)) {
        return;
    }
    length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0')) {
        below += length;
    } else {
        below = ""; /* the group is not below the mounted one: a container that sees its own group
                       at the mount point */
    }
    if (strcmp(below, "/") == 0 || strstr(below, "..") != NULL) {
        below = "";
    }
    out->mount_length = strlen(mount);
    if (snprintf(out->path, sizeof out->path, "%s%s", mount, below) >= (int)sizeof out->path) {
        out->path[0] = '\0';
    }
}

bool cddpi_control_group_leave(struct cddpi_control_group *group)
{
    char *last = strrchr(group->path, '/');

    if (last == NULL || strlen(group->path) <= group->mount_length) {
        return false;
    }
    *last = '\0';
    return true;
}

/* As long as the kernel's mask, which may have more than 1024 CPUs. */
struct cpu_masks {
    cpu_set_t of[CDDPI_MAX_CPUS / CPU_SETSIZE];
};

static int read_masks(struct cpu_masks *out)
{
    return sched_getaffinity(0, sizeof *out, out->of) == 0 ? CPU_COUNT_S(sizeof *out, out->of) : 0;
}

int cddpi_allowed_cpus(int **out)
{
    struct cpu_masks masks;
    int allowed = read_masks(&masks);
    int *cpus = allowed > 0 ? cddpi_zalloc_array((size_t)allowed, sizeof *cpus) : NULL;
    int count = 0;

    for (int cpu = 0; cpus != NULL && cpu < CDDPI_MAX_CPUS; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof masks, masks.of)) {
            cpus[count++] = cpu;
        }
    }
    if (cpus == NULL && allowed > 0) {
        errno = ENOMEM; /* the caller's allocator need not set it */
    }
    *out = cpus;
    return count;
}

static int count_allowed(void)
{
    struct cpu_masks masks;
    int count = read_masks(&masks);

    if (count < 1) {
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return count > 0 ? count : 1;
}

/* cgroups v2: "QUOTA PERIOD" or "max PERIOD" in one file. */
static double read_max(const char *folder)
{
    FILE *file = open_kernel_file(folder, "/cpu.max");
    char line[LINE_BYTES] = "";
    char *end = line;
    double quota;
    double period;

    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        line[0] = '\0';
    }
    cddpi_stream_close(file);
    quota = strtod(line, &end);
    if (end == line) {
        return 0;
    }
    period = strtod(end, NULL);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* cgroups v1: two files. A quota of -1 means unlimited; read as an unsigned number it is very
 * large. */
static double read_cfs(const char *folder)
{
    uint64_t quota = 0;
    uint64_t period = 0;

    if (!cddpi_kernel_file_number(folder, "/cpu.cfs_quota_us", "", &quota) ||
        !cddpi_kernel_file_number(folder, "/cpu.cfs_period_us", "", &period)) {
        return 0;
    }
    return (int64_t)quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

/* Find the smallest quota of this process's control group and its parent groups. */
static void look_at_groups(bool is_v2, struct cddpi_processors *out)
{
    struct cddpi_control_group group;

    cddpi_control_group_find(is_v2, "cpu", &group);
    while (group.path[0] != '\0') {
        double quota = is_v2 ? read_max(group.path) : read_cfs(group.path);

        if (quota > 0 && (out->quota <= 0 || quota < out->quota)) {
            out->quota = quota;
            snprintf(out->limit, sizeof out->limit, "%s %.*f of %s",
                     is_v2 ? "cpu.max" : "cpu.cfs_quota_us", quota < 0.1 ? 3 : 1, quota,
                     group.path);
        }
        if (!cddpi_control_group_leave(&group)) {
            break;
        }
    }
}

int cddpi_processors_within(int count, double quota)
{
    int within = quota > 0 && quota < count ? (int)(quota + 0.5) : count;

    return within > 1 ? within : 1;
}

void cddpi_processors(struct cddpi_processors *out)
{
    *out = (struct cddpi_processors){.allowed = count_allowed()};
    look_at_groups(true, out);
    look_at_groups(false, out);
    if (out->quota >= out->allowed) {
        out->quota = 0; /* the quota is no limit */
        out->limit[0] = '\0';
    }
    out->count = cddpi_processors_within(out->allowed, out->quota);
}
