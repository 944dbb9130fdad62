/* processors.c - counts the CPUs that this process may use. A file that cannot be read sets no
 * limit. */
#include "base/processors.h"

#include "base/control_group.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CPUS = 8192, LINE_BYTES = 128 };

/* The mask must be as long as the kernel's, which may have more than 1024 CPUs. */
static int count_allowed(void)
{
    cpu_set_t *mask = CPU_ALLOC(MAX_CPUS);
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    int count = 0;

    if (mask != NULL && sched_getaffinity(0, bytes, mask) == 0) {
        count = CPU_COUNT_S(bytes, mask);
    }
    CPU_FREE(mask);
    if (count < 1) {
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return count > 0 ? count : 1;
}

/* cgroups v2: "QUOTA PERIOD" or "max PERIOD" in one file. */
static double read_max(const char *folder)
{
    FILE *file = cddpi_kernel_file_open(folder, "/cpu.max");
    char line[LINE_BYTES] = "";
    char *end = line;
    double quota;
    double period;

    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
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
