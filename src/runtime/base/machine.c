/* machine.c - reads the kernel's boot id. */
#include "base/machine.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void cddpi_machine(char out[CDDPI_MACHINE_BYTES])
{
    char id[CDDPI_MACHINE_BYTES] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, id, sizeof id - 1) : -1;

    if (fd >= 0) {
        close(fd);
    }
    if (bytes <= 0) {
        (void)gethostname(id, sizeof id - 1);
    }
    id[strcspn(id, "\n")] = '\0';
    memcpy(out, id, sizeof id);
}
