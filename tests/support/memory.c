/* memory.c - a simulated machine with little memory left, for tests. */
#include "support/memory.h"

void support_set_memory(const char *machine, unsigned kilobytes)
{
    char path[4300];
    char text[64];

    snprintf(path, sizeof path, "%s/proc", machine);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/proc/meminfo", machine);
    snprintf(text, sizeof text, "MemAvailable: %u kB\n", kilobytes);
    support_write_file(path, text, strlen(text));
    cddpi_kernel_files_set_root(machine);
}

void support_end_memory(void)
{
    cddpi_kernel_files_set_root(NULL);
}
