/* memory_left.c - owns the reading of the kernel's files about memory that is left. A file that
 * cannot be read sets no limit. */
#include "base/memory_left.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 400, LINE_BYTES = 4096 };

#define NO_LIMIT (UINT64_C(1) << 62) /* version 1 writes almost 2^63 for no limit */

static const char *files_root = "";

/* The control group of this process in one hierarchy, as a folder of the file system. */
struct control_group {
    bool is_v2;
    char path[PATH_BYTES]; /* without the root; "": there is none */
    size_t mount_length;   /* how much of the path is where the hierarchy is mounted */
};

void cddpi_memory_set_root(const char *root)
{
    files_root = root != NULL ? root : "";
}

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

static FILE *open_file(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];

    return snprintf(path, sizeof path, "%s%s%s", files_root, folder, name) < (int)sizeof path
               ? fopen(path, "re")
               : NULL;
}

/* The number that is all of a file, or follows @p key at the beginning of one of its lines. */
static bool read_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    FILE *file = open_file(folder, name);
    char line[LINE_BYTES];
    size_t length = strlen(key);
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        char *number = line + length + strspn(line + length, ": \t");
        char *end = number;

        if (strncmp(line, key, length) == 0 && (length == 0 || number > line + length)) {
            uint64_t value = strtoull(number, &end, 10);

            is_found = end > number;
            *out = is_found ? value : *out;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

/* Whether @p word is one of the words in @p list, which commas divide. */
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

/* Where the hierarchy is mounted, and which of its control groups is the top one there. */
static bool find_mount(bool is_v2, char mount[PATH_BYTES], char top[PATH_BYTES])
{
    FILE *file = open_file("/proc/self", "/mountinfo");
    char line[LINE_BYTES];
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        const char *kind = strstr(line, " - ");
        char type[32], options[LINE_BYTES];

        is_found = kind != NULL && sscanf(line, "%*s %*s %*s %399s %399s", top, mount) == 2 &&
                   sscanf(kind, " - %31s %*s %4095s", type, options) == 2 &&
                   (is_v2 ? strcmp(type, "cgroup2") == 0
                          : strcmp(type, "cgroup") == 0 && has_word(options, "memory"));
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

/* The path of this process's control group within its hierarchy. */
static bool find_membership(bool is_v2, char out[PATH_BYTES])
{
    FILE *file = open_file("/proc/self", "/cgroup");
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
        is_found = (is_v2 ? strcmp(line, "0:") == 0 : has_word(kinds + 1, "memory")) &&
                   snprintf(out, PATH_BYTES, "%s", path) < PATH_BYTES;
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

static void find_group(bool is_v2, struct control_group *out)
{
    char mount[PATH_BYTES], top[PATH_BYTES], path[PATH_BYTES];
    const char *below = path;
    size_t length;

    out->is_v2 = is_v2;
    out->path[0] = '\0';
    if (!find_mount(is_v2, mount, top) || !find_membership(is_v2, path)) {
        return;
    }
    length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0')) {
        below += length;
    } else {
        below = ""; /* a container that sees its own control group at the top */
    }
    if (strcmp(below, "/") == 0 || strstr(below, "..") != NULL) {
        below = "";
    }
    out->mount_length = strlen(mount);
    if (snprintf(out->path, sizeof out->path, "%s%s", mount, below) >= (int)sizeof out->path) {
        out->path[0] = '\0';
    }
}

static void keep_least(struct cddpi_memory_left *left, uint64_t bytes, const char *limit)
{
    if (bytes < left->bytes) {
        left->bytes = bytes;
        snprintf(left->limit, sizeof left->limit, "%s", limit);
    }
}

/* How many bytes can be swapped out once the group's memory limit is reached. */
static uint64_t swap_left(const struct control_group *group, uint64_t of_machine)
{
    uint64_t limit = 0;
    uint64_t used = 0;
    bool is_known;

    if (group->is_v2) {
        is_known = read_number(group->path, "/memory.swap.max", "", &limit) &&
                   read_number(group->path, "/memory.swap.current", "", &used);
    } else {
        is_known = read_number(group->path, "/memory.memsw.limit_in_bytes", "", &limit) &&
                   read_number(group->path, "/memory.memsw.usage_in_bytes", "", &used);
    }
    limit = limit > used ? limit - used : 0;
    return is_known && limit < of_machine ? limit : of_machine;
}

/* Lower @p left to what one control group has left. */
static void look_at_group(const struct control_group *group, uint64_t swap,
                          struct cddpi_memory_left *left)
{
    static const char *const caches[2][2] = {{"total_inactive_file", "total_active_file"},
                                             {"inactive_file", "active_file"}};
    char text[sizeof left->limit], size[CDDPI_SIZE_TEXT];
    uint64_t limit = 0;
    uint64_t used = 0;
    uint64_t cached = 0;

    if (!read_number(group->path, group->is_v2 ? "/memory.max" : "/memory.limit_in_bytes", "",
                     &limit) ||
        limit >= NO_LIMIT ||
        !read_number(group->path, group->is_v2 ? "/memory.current" : "/memory.usage_in_bytes", "",
                     &used)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 0;

        if (read_number(group->path, "/memory.stat", caches[group->is_v2][i], &bytes)) {
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
    if (read_number("/proc", "/meminfo", "SwapFree", &swap)) {
        swap *= 1024;
    }
    if (read_number("/proc", "/meminfo", "MemAvailable", &free_bytes)) {
        keep_least(out, 1024 * free_bytes + swap, "what is free on this machine");
    }
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        struct control_group group;

        find_group(is_v2, &group);
        while (group.path[0] != '\0') {
            char *last = strrchr(group.path, '/');

            look_at_group(&group, swap, out);
            if (last == NULL || strlen(group.path) <= group.mount_length) {
                break;
            }
            *last = '\0';
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

void cddpi_memory_kills(struct cddpi_memory_kills *out)
{
    static const char *const names[] = {"/memory.oom_control", "/memory.events"};

    *out = (struct cddpi_memory_kills){0};
    for (int is_v2 = 1; is_v2 >= 0 && !out->is_own; is_v2--) {
        struct control_group group;

        find_group(is_v2, &group);
        if (group.path[0] != '\0' &&
            read_number(group.path, names[is_v2], "oom_kill", &out->count)) {
            snprintf(out->counter, sizeof out->counter, "%s%s", group.path, names[is_v2]);
            out->is_own = true;
        }
    }
    if (!out->is_own && read_number("/proc", "/vmstat", "oom_kill", &out->count)) {
        snprintf(out->counter, sizeof out->counter, "/proc/vmstat");
    }
}
