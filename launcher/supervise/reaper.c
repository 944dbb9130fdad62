/* reaper.c - kills and reaps descendants, including orphans. */
#include "launcher/supervise/reaper.h"

#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HURRY_MS = 1000 };

void cddpi_reaper_become(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The parent of process @p name (digits), or 0 if it is gone. */
static pid_t parent_of(const char *name)
{
    char path[300];
    char text[512];
    const char *after_name;
    int parent = 0;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "/proc/%s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    after_name = strrchr(text, ')'); /* the process's name may contain anything, even ")" */
    if (after_name == NULL || sscanf(after_name, ") %*c %d", &parent) != 1) {
        return 0;
    }
    return parent;
}

/* Send SIGKILL to each of our children. It cannot hit an unrelated process: a child's pid is not
 * reused before we reap the child. */
static void kill_children(void)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    pid_t self = getpid();

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == self) {
            kill((pid_t)atol(entry->d_name), SIGKILL);
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
}

bool cddpi_reaper_kill_all(unsigned timeout_ms, const sigset_t *hurry, int *out_signal)
{
    int64_t deadline = cddpi_deadline_ns(timeout_ms);
    struct timespec pause = {0, 1000000};

    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        int number;

        if (pid < 0 && errno == ECHILD) {
            return true;
        }
        if (pid > 0 || (pid < 0 && errno == EINTR)) {
            continue;
        }
        if (cddpi_left_ms(deadline) == 0) {
            return false;
        }
        kill_children();
        number = sigtimedwait(hurry, NULL, &pause);
        if (number > 0) {
            int64_t soon = cddpi_deadline_ns(HURRY_MS);

            *out_signal = number;
            deadline = soon < deadline ? soon : deadline;
        }
    }
}
