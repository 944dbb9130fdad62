/* control_group.c - reads the kernel's files about control groups, below a root that tests can
 * set. */
#include "base/control_group.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = CDDPI_CONTROL_GROUP_BYTES, LINE_BYTES = 4096 };

static const char *files_root = "";

void cddpi_kernel_files_set_root(const char *root)
{
    files_root = root != NULL ? root : "";
}

FILE *cddpi_kernel_file_open(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];

    return snprintf(path, sizeof path, "%s%s%s", files_root, folder, name) < (int)sizeof path
               ? fopen(path, "re")
               : NULL;
}

bool cddpi_kernel_file_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    FILE *file = cddpi_kernel_file_open(folder, name);
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
    if (file != NULL) {
        fclose(file);
    }
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
    FILE *file = cddpi_kernel_file_open("/proc/self", "/mountinfo");
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
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

/* The path of this process's control group within its hierarchy. */
static bool find_membership(bool is_v2, const char *controller, char out[PATH_BYTES])
{
    FILE *file = cddpi_kernel_file_open("/proc/self", "/cgroup");
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
    if (file != NULL) {
        fclose(file);
    }
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
