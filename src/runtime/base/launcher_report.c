/* launcher_report.c - owns this process's end of the pipe to the launcher. */
#include "base/launcher_report.h"

#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set before other threads exist. */
static int report_fd = -1;
static pid_t launcher; /* its process id; 0: unknown */
static pid_t owner;    /* the process that opened the pipe: a rank may fork */
static int own_rank = -1;
static int rejoin_fd = -1;
static atomic_bool has_begun;
static atomic_bool has_left;
static atomic_ullong told_cards; /* a bit for each that was reported */

static void open_rejoin(void)
{
    int fd = (int)cddpi_env_integer(CDDPI_ENV_REJOIN_FD, 3, INT16_MAX, -1);
    int type = 0;
    socklen_t bytes = sizeof type;

    if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
        type == SOCK_SEQPACKET && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
        rejoin_fd = fd;
    }
}

void cddpi_launcher_report_open(void)
{
    int fd = (int)cddpi_env_integer(CDDPI_ENV_REPORT_FD, 3, INT16_MAX, -1);
    struct stat status;

    if (owner != 0) {
        return;
    }
    owner = getpid();

    /* The variable may be inherited from an outer launcher; the descriptor is then something
     * else. */
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
        fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
        report_fd = fd;
        launcher = (pid_t)cddpi_env_integer(CDDPI_ENV_LAUNCHER_PID, 1, INT32_MAX, 0);
        own_rank = (int)cddpi_env_integer(CDDPI_ENV_RANK, 0, UINT16_MAX, -1);
    }
    open_rejoin();
}

void cddpi_launcher_report_anew(void)
{
    own_rank = (int)cddpi_env_integer(CDDPI_ENV_RANK, 0, UINT16_MAX, -1);
    atomic_store(&has_begun, false);
    atomic_store(&has_left, false);
    atomic_store(&told_cards, 0);
}

int cddpi_launcher_rejoin_fd(void)
{
    cddpi_launcher_report_open();
    return launcher != 0 && getppid() == launcher && getpid() == owner ? rejoin_fd : -1;
}

enum cddpi_sender cddpi_launcher_sender(const siginfo_t *info)
{
    if (launcher == 0 || info->si_code > 0) { /* above 0: the kernel, for example a terminal */
        return CDDPI_SENT_BY_OTHERS;
    }
    /* 0: the sender is outside of this process's namespace, as the launcher of a container is */
    if (info->si_pid == launcher || info->si_pid == 0) {
        return CDDPI_SENT_BY_LAUNCHER;
    }
    return info->si_pid == getppid() ? CDDPI_SENT_BY_PARENT : CDDPI_SENT_BY_OTHERS;
}

void cddpi_launcher_report_begin(void)
{
    atomic_store(&has_begun, true);
    cddpi_launcher_report_alive();
}

static void tell_all(const char *what, size_t bytes)
{
    int kept = errno;

    if (report_fd >= 0) {
        (void)!write(report_fd, what, bytes); /* it is not an error if the pipe is full or closed */
    }
    errno = kept;
}

static void tell(char what)
{
    tell_all(&what, 1);
}

void cddpi_launcher_report_alive(void)
{
    if (atomic_load(&has_begun)) {
        tell(CDDPI_REPORT_ALIVE);
    }
}

void cddpi_launcher_report_saved(void)
{
    tell(CDDPI_REPORT_SAVED);
}

void cddpi_launcher_report_unsaved(void)
{
    tell(CDDPI_REPORT_UNSAVED);
}

void cddpi_launcher_report_kept(void)
{
    tell(CDDPI_REPORT_KEPT);
}

void cddpi_launcher_report_culprit(int rank, int culprit)
{
    const char report[CDDPI_REPORT_CULPRIT_BYTES] = {CDDPI_REPORT_CULPRIT, (char)(rank & 255),
                                                     (char)(rank >> 8 & 255), (char)(culprit & 255),
                                                     (char)(culprit >> 8 & 255)};

    tell_all(report, sizeof report); /* short enough for a pipe to write it in one piece */
}

static void put_number(char *out, size_t number)
{
    out[0] = (char)(number & 255);
    out[1] = (char)(number >> 8 & 255);
}

void cddpi_launcher_report_leaves(enum cddpi_sender sender)
{
    char report[CDDPI_REPORT_LEAVES_BYTES] = {CDDPI_REPORT_LEAVES};

    if (own_rank >= 0 && getpid() == owner && !atomic_exchange(&has_left, true)) {
        put_number(report + 1, (size_t)own_rank);
        report[3] = sender == CDDPI_SENT_BY_PARENT;
        tell_all(report, sizeof report);
    }
}

static size_t most(double number)
{
    return number < UINT16_MAX ? (size_t)number : UINT16_MAX;
}

void cddpi_launcher_report_slow(const struct cddpi_slow_rank *ranks, int count, int64_t measured_ms)
{
    char report[CDDPI_REPORT_SLOW_BYTES + CDDPI_REPORT_SLOW_RANKS * CDDPI_REPORT_SLOW_RANK_BYTES] =
        {CDDPI_REPORT_SLOW};
    char *at = report + CDDPI_REPORT_SLOW_BYTES;

    put_number(report + 1, (size_t)count);
    put_number(report + 3, most((double)measured_ms));
    for (int i = 0; i < count; i++, at += CDDPI_REPORT_SLOW_RANK_BYTES) {
        put_number(at, (size_t)ranks[i].rank);
        put_number(at + 2, most(100 * ranks[i].factor));
        put_number(at + 4, ranks[i].waits_for_data);
    }
    tell_all(report, (size_t)(at - report));
}

void cddpi_launcher_report_folder(const char *path)
{
    char report[CDDPI_REPORT_BYTES] = {CDDPI_REPORT_FOLDER};
    char real[PATH_MAX];
    size_t bytes;

    if (realpath(path, real) == NULL) {
        return;
    }
    bytes = strlen(real);
    if (bytes > sizeof report - CDDPI_REPORT_FOLDER_BYTES) {
        return;
    }
    put_number(report + 1, bytes);
    memcpy(report + CDDPI_REPORT_FOLDER_BYTES, real, bytes);
    tell_all(report, CDDPI_REPORT_FOLDER_BYTES + bytes);
}

void cddpi_launcher_report_failure(int rank, const char *text, size_t named)
{
    char report[CDDPI_REPORT_BYTES] = {CDDPI_REPORT_FAILURE};
    size_t bytes = strnlen(text, sizeof report - CDDPI_REPORT_FAILURE_BYTES);

    put_number(report + 1, (size_t)rank);
    put_number(report + 3, named);
    put_number(report + 5, bytes);
    memcpy(report + CDDPI_REPORT_FAILURE_BYTES, text, bytes);
    tell_all(report, CDDPI_REPORT_FAILURE_BYTES + bytes);
}

void cddpi_launcher_report_card(int rank, int index, const char *unique, const char *fault)
{
    char report[CDDPI_REPORT_BYTES] = {CDDPI_REPORT_CARD};
    char *text = report + CDDPI_REPORT_CARD_BYTES;
    unsigned long long bit = 1ULL << index % 64;

    if (rank < 0 || (atomic_fetch_or(&told_cards, bit) & bit) != 0) {
        return;
    }
    snprintf(text, sizeof report - CDDPI_REPORT_CARD_BYTES, "%s %s", unique, fault);
    put_number(report + 1, (size_t)rank);
    put_number(report + 3, (size_t)index);
    put_number(report + 5, strlen(text));
    tell_all(report, CDDPI_REPORT_CARD_BYTES + strlen(text));
}
