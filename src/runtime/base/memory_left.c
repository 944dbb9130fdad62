/* memory_left.c - reads from the kernel's files how much memory is left, and owns the stack size of
 * the program and its threads. A file that cannot be read sets no limit. */
#include "base/memory_left.h"

#include "base/error.h"
#include "base/machine.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define NO_LIMIT (UINT64_C(1) << 62) /* cgroups v1 write almost 2^63 for no limit */

const char *cddpi_print_size(uint64_t bytes, char *out)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 10 * 1024) {
        snprintf(out, CDDPI_SIZE_TEXT, "%" PRIu64 " bytes", bytes);
        return out;
    }
    while (size >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        size /= 1024;
        unit++;
    }
    snprintf(out, CDDPI_SIZE_TEXT, "%.1f %s", size, units[unit]);
    return out;
}

static void keep_least(struct cddpi_memory_left *left, uint64_t bytes, const char *limit)
{
    if (bytes < left->bytes) {
        left->bytes = bytes;
        snprintf(left->limit, sizeof left->limit, "%s", limit);
    }
}

/* How many bytes can be swapped out when the group reaches its memory limit. */
static uint64_t swap_left(const struct cddpi_control_group *group, uint64_t of_machine)
{
    uint64_t limit = 0;
    uint64_t used = 0;
    bool is_known;

    if (group->is_v2) {
        is_known = cddpi_kernel_file_number(group->path, "/memory.swap.max", "", &limit) &&
                   cddpi_kernel_file_number(group->path, "/memory.swap.current", "", &used);
    } else {
        is_known = cddpi_kernel_file_number(group->path, "/memory.memsw.limit_in_bytes", "",
                                            &limit) &&
                   cddpi_kernel_file_number(group->path, "/memory.memsw.usage_in_bytes", "", &used);
    }
    limit = limit > used ? limit - used : 0;
    return is_known && limit < of_machine ? limit : of_machine;
}

/* Lower @p left to what this control group has left, if that is less. */
static void look_at_group(const struct cddpi_control_group *group, uint64_t swap,
                          struct cddpi_memory_left *left)
{
    static const char *const caches[2][2] = {{"total_inactive_file", "total_active_file"},
                                             {"inactive_file", "active_file"}};
    char text[sizeof left->limit], size[CDDPI_SIZE_TEXT];
    uint64_t limit = 0;
    uint64_t used = 0;
    uint64_t cached = 0;

    if (!cddpi_kernel_file_number(
            group->path, group->is_v2 ? "/memory.max" : "/memory.limit_in_bytes", "", &limit) ||
        limit >= NO_LIMIT ||
        !cddpi_kernel_file_number(
            group->path, group->is_v2 ? "/memory.current" : "/memory.usage_in_bytes", "", &used)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 0;

        if (cddpi_kernel_file_number(group->path, "/memory.stat", caches[group->is_v2][i],
                                     &bytes)) {
            cached += bytes;
        }
    }
    used = used > cached ? used - cached : 0;
    snprintf(text, sizeof text, "the limit of %s of control group %s",
             cddpi_print_size(limit, size), group->path);
    keep_least(left, (limit > used ? limit - used : 0) + swap_left(group, swap), text);
}

void cddpi_memory_left(struct cddpi_memory_left *out)
{
    uint64_t free_bytes = 0;
    uint64_t swap = 0;

    out->bytes = UINT64_MAX;
    out->limit[0] = '\0';
    if (cddpi_kernel_file_number("/proc", "/meminfo", "SwapFree", &swap)) {
        swap *= 1024;
    }
    if (cddpi_kernel_file_number("/proc", "/meminfo", "MemAvailable", &free_bytes)) {
        keep_least(out, 1024 * free_bytes + swap, "what is free on this machine");
    }
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        struct cddpi_control_group group;

        cddpi_control_group_find(is_v2, "memory", &group);
        while (group.path[0] != '\0') {
            look_at_group(&group, swap, out);
            if (!cddpi_control_group_leave(&group)) {
                break;
            }
        }
    }
}

cddp_status cddpi_memory_need(uint64_t bytes, const char *format, ...)
{
    struct cddpi_memory_left left;
    char text[1024], needed[CDDPI_SIZE_TEXT], there[CDDPI_SIZE_TEXT];
    va_list arguments;

    cddpi_memory_left(&left);
    if (bytes <= left.bytes) {
        return CDDP_OK;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(
        CDDP_ERR_NO_MEMORY, "%s: %s of memory are needed, but only %s can be had (%s)", text,
        cddpi_print_size(bytes, needed), cddpi_print_size(left.bytes, there), left.limit);
}

static rlim_t address_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

bool cddpi_address_space_is_limited(void)
{
    return address_limit() != RLIM_INFINITY;
}

cddp_status cddpi_address_space_need(uint64_t bytes, const char *what)
{
    char needed[CDDPI_SIZE_TEXT];
    void *room;

    if (!cddpi_address_space_is_limited()) {
        return CDDP_OK;
    }
    room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "%s needs %s of addresses, and ulimit -v (%llu KiB, RLIMIT_AS) leaves "
                          "less: raise it",
                          what, cddpi_print_size(bytes, needed),
                          (unsigned long long)(address_limit() >> 10));
    }
    munmap(room, bytes);
    return CDDP_OK;
}

void cddpi_memory_kills(struct cddpi_memory_kills *out)
{
    static const char *const names[] = {"/memory.oom_control", "/memory.events"};

    *out = (struct cddpi_memory_kills){0};
    for (int is_v2 = 1; is_v2 >= 0 && !out->is_own; is_v2--) {
        struct cddpi_control_group group;

        cddpi_control_group_find(is_v2, "memory", &group);
        if (group.path[0] != '\0' &&
            cddpi_kernel_file_number(group.path, names[is_v2], "oom_kill", &out->count)) {
            snprintf(out->counter, sizeof out->counter, "%s%s", group.path, names[is_v2]);
            out->is_own = true;
        }
    }
    if (!out->is_own && cddpi_kernel_file_number("/proc", "/vmstat", "oom_kill", &out->count)) {
        snprintf(out->counter, sizeof out->counter, "/proc/vmstat");
    }
}

enum { LEAST_KIB = 256, USUAL_KIB = 8192 };

/* Set the stack size of new threads. Their default is the limit from when the program began. */
static void set_thread_stack(size_t bytes)
{
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes) == 0) {
        if (pthread_attr_setstacksize(&attributes, bytes) == 0) {
            (void)pthread_setattr_default_np(&attributes);
        }
        pthread_attr_destroy(&attributes);
    }
}

cddp_status cddpi_stack_ensure(void)
{
    const rlim_t least = (rlim_t)LEAST_KIB << 10;
    const rlim_t usual = (rlim_t)USUAL_KIB << 10;
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= least) {
        return CDDP_OK;
    }
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > usual ? usual
                                                                               : limit.rlim_max;
    if (limit.rlim_cur < least) {
        return cddpi_fail(
            CDDP_ERR_UNAVAILABLE,
            "the stack may have %llu KiB only (ulimit -s): at least %d KiB are needed",
            (unsigned long long)limit.rlim_cur >> 10, LEAST_KIB);
    }
    if (setrlimit(RLIMIT_STACK, &limit) == 0) {
        set_thread_stack((size_t)limit.rlim_cur);
    }
    return CDDP_OK;
}
