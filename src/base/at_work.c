/* at_work.c - owns this process's end of the pipe to the launcher. */
#include "base/at_work.h"

#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static int report_fd = -1; /* set before there are other threads */
static atomic_bool has_begun;

void cddpi_at_work_open(void)
{
    int fd = (int)cddpi_env_integer(CDDPI_ENV_REPORT_FD, 3, INT16_MAX, -1);
    struct stat status;

    /* The number may be an older launcher's, and the descriptor something else by now. */
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
        fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
        report_fd = fd;
    }
}

void cddpi_at_work_begin(void)
{
    atomic_store(&has_begun, true);
    cddpi_at_work_tell();
}

static void tell(char what)
{
    int kept = errno;

    if (report_fd >= 0) {
        (void)!write(report_fd, &what, 1); /* full or closed: there is nothing to add */
    }
    errno = kept;
}

void cddpi_at_work_tell(void)
{
    if (atomic_load(&has_begun)) {
        tell(CDDPI_AT_WORK);
    }
}

void cddpi_at_work_saved(void)
{
    tell(CDDPI_SAVED);
}
