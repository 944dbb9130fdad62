/* file_lock.c - owns open file description locks with a deadline. The kernel's own wait for a lock
 * has no deadline, so this file tries again and again, with growing pauses. */
#include "store/file_lock.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/auth.h"

#include <errno.h>
#include <fcntl.h>

enum { FIRST_PAUSE_US = 20, LONGEST_PAUSE_US = 2000 };

static int change(int fd, enum cddpi_file_lock lock, short type)
{
    struct flock range = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 62) + lock, .l_len = 1};
    int result;

    do {
        result = fcntl(fd, F_OFD_SETLK, &range);
    } while (result != 0 && errno == EINTR);
    return result;
}

cddp_status cddpi_file_lock_try(int fd, enum cddpi_file_lock lock, bool exclusive, bool *out_locked)
{
    if (change(fd, lock, exclusive ? F_WRLCK : F_RDLCK) == 0) {
        *out_locked = true;
        return CDDP_OK;
    }
    if (errno == EAGAIN || errno == EACCES) {
        *out_locked = false;
        return CDDP_OK;
    }
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "lock (does its file system know locks?)");
}

void cddpi_file_pause(uint32_t us, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - cddpi_now_ns();
    uint32_t random;
    int64_t ns;
    struct timespec pause;

    if (left_ns <= 0) {
        return;
    }
    cddpi_random_bytes(&random, sizeof random);
    ns = us * 500LL + random % (us * 500U + 1);
    ns = ns < left_ns ? ns : left_ns;
    pause.tv_sec = (time_t)(ns / 1000000000);
    pause.tv_nsec = (long)(ns % 1000000000);
    nanosleep(&pause, NULL);
}

cddp_status cddpi_file_lock_wait(int fd, enum cddpi_file_lock lock, bool exclusive,
                                 int64_t deadline_ns)
{
    uint32_t pause_us = FIRST_PAUSE_US;

    for (;;) {
        bool locked;
        cddp_status status = cddpi_file_lock_try(fd, lock, exclusive, &locked);

        if (status != CDDP_OK || locked) {
            return status;
        }
        if (cddpi_left_ms(deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "another process kept the file locked until the "
                                                "deadline");
        }
        cddpi_file_pause(pause_us, deadline_ns);
        pause_us = pause_us * 2 < LONGEST_PAUSE_US ? pause_us * 2 : LONGEST_PAUSE_US;
    }
}

void cddpi_file_unlock(int fd, enum cddpi_file_lock lock)
{
    (void)change(fd, lock, F_UNLCK);
}
