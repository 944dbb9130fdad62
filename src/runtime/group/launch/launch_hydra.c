/* launch_hydra.c - finds the launcher process that started the ranks of this machine, because
 * Hydra, the mpirun of MPICH and Intel MPI, gives its jobs no name. */
#include "group/launch/launch_hydra.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Compares only 15 characters, after which the kernel cuts process names off. */
static bool is_starter(const char *process, enum cddpi_launcher by)
{
    for (const char *const *name = cddpi_launcher_starters(by); *name != NULL; name++) {
        if (strncmp(process, *name, 15) == 0) {
            return true;
        }
    }
    return false;
}

/* Read about process @p pid: its parent, its start time (in the kernel's clock ticks), and whether
 * @p by starts ranks through it. */
static bool read_process(long pid, enum cddpi_launcher by, long *out_parent, char *out_start,
                         size_t bytes)
{
    char path[64];
    char line[1024] = "";
    char state;
    char start[24] = "";
    char *name_end;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    (void)!fgets(line, sizeof line, file);
    (void)fclose(file);
    name_end = strrchr(line, ')');
    if (name_end == NULL ||
        sscanf(name_end + 1,
               " %c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %23s",
               &state, out_parent, start) != 3) {
        return false;
    }
    snprintf(out_start, bytes, "%s", start);
    *name_end = '\0';
    return is_starter(strchr(line, '(') + 1, by);
}

long cddpi_launch_proxy(enum cddpi_launcher by, char *out_start, size_t bytes)
{
    long direct = (long)getppid();
    long pid = direct;

    for (int depth = 0; depth < 16 && pid > 1; depth++) {
        long parent = 0;
        bool is_proxy = read_process(pid, by, &parent, out_start, bytes);

        if (is_proxy) {
            return pid;
        }
        pid = parent;
    }
    (void)read_process(direct, by, &pid, out_start, bytes);
    return direct;
}
