/* launch_hydra.c - finds the process by which Hydra, the mpirun of MPICH and Intel MPI, has started
 * the ranks of this machine. */
#include "group/launch_hydra.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of process @p pid: its parent, when it was started (in the kernel's ticks), and whether it is a
 * proxy of Hydra's. */
static bool read_process(long pid, long *out_parent, char *out_start, size_t bytes)
{
    char path[64];
    char line[1024] = "";
    char state;
    char start[24] = "";
    const char *name_end;
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
    return strstr(line, "(hydra_pmi_proxy)") != NULL;
}

long cddpi_launch_hydra_proxy(char *out_start, size_t bytes)
{
    long direct = (long)getppid();
    long pid = direct;

    for (int depth = 0; depth < 16 && pid > 1; depth++) {
        long parent = 0;
        bool is_proxy = read_process(pid, &parent, out_start, bytes);

        if (is_proxy) {
            return pid;
        }
        pid = parent;
    }
    (void)read_process(direct, &pid, out_start, bytes);
    return direct;
}
