/* control_group.c - real control groups (cgroups) for tests, where this process can create them. */
#include "support/control_group.h"

#include "base/machine.h"

#include <sys/stat.h>

const char *support_control_group(const char *controller, const char *file)
{
    struct cddpi_control_group group;
    static char path[600];

    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        char probe[800];

        cddpi_control_group_find(is_v2, controller, &group);
        snprintf(path, sizeof path, "%s/cddp-test-%d", group.path, (int)getpid());
        if (group.path[0] == '\0' || mkdir(path, 0700) != 0) {
            continue;
        }
        snprintf(probe, sizeof probe, "%s/%s", path,
                 is_v2 && strcmp(controller, "cpu") == 0 ? "cpu.max" : file);
        if (access(probe, W_OK) == 0) {
            return path;
        }
        rmdir(path);
    }
    return NULL;
}

bool support_control(const char *group, const char *file, const char *text)
{
    char path[800];
    FILE *to;

    snprintf(path, sizeof path, "%s/%s", group, file);
    to = fopen(path, "r+e"); /* does not create the file */
    return to != NULL && fputs(text, to) >= 0 && fclose(to) == 0;
}

void support_set_quota(const char *group, const char *microseconds)
{
    char both[64];

    snprintf(both, sizeof both, "%s 100000", microseconds);
    if (!support_control(group, "cpu.cfs_quota_us", microseconds)) {
        (void)support_control(group, "cpu.max", both);
    }
}
