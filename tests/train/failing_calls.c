/* failing_calls.c - loaded before the C library (LD_PRELOAD): a file system that fails for a while.
 * Calls that open, list or look at a path that ends with $FAILING_PATH fail with the errno
 * $FAILING_ERRNO; only the first $FAILING_CALLS of them ("" or unset: all), after $SPARED_CALLS
 * that do not. If $FAILING_LISTS is set, only listing fails, if $FAILING_FLUSHES is set, only
 * fsync. Binding a local socket whose path ends with $HANGING_PATH never returns. Who creates a
 * path that ends with $HELD_PATH waits until a file $HELD_UNTIL exists. Who opens $REPLACED_PATH as
 * a stream gets $REPLACED_BY. The thread that writes checkpoints is killed, with its process, in
 * its call number $KILLED_CALL that changes files. Once a path that contains $SIGNALLED_PATH is
 * open, the process gets SIGINT. Like all of cddp, this file is compiled for large files, so its
 * open is the C library's open64. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static bool ends_with(const char *path, const char *end)
{
    size_t length = path != NULL ? strlen(path) : 0;

    return end != NULL && length >= strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text != NULL && text[0] != '\0' ? atoi(text) : otherwise;
}

static bool fails(const char *path)
{
    static atomic_int done;
    int spared = number_of("SPARED_CALLS", 0);
    int before;

    if (!ends_with(path, getenv("FAILING_PATH"))) {
        return false;
    }
    before = atomic_fetch_add(&done, 1);
    if (before < spared || before - spared >= number_of("FAILING_CALLS", INT_MAX)) {
        return false;
    }
    errno = atoi(getenv("FAILING_ERRNO"));
    return true;
}

/* Whether @p path fails where files are opened or renamed. */
static bool opening_fails(const char *path)
{
    return getenv("FAILING_LISTS") == NULL && getenv("FAILING_FLUSHES") == NULL && fails(path);
}

/* Whether the file or folder @p fd fails where only such calls as this one do. */
static bool only_fails(const char *variable, int fd)
{
    char link[64];
    char path[PATH_MAX];
    ssize_t length;

    if (getenv(variable) == NULL) {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return fails(path);
}

/* A call that changes files. */
static void count_change(void)
{
    static atomic_int done;
    int killed = number_of("KILLED_CALL", 0);
    char name[16] = "";

    if (killed > 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "cddp-save") == 0 &&
        atomic_fetch_add(&done, 1) + 1 == killed) {
        (void)kill(getpid(), SIGKILL);
    }
}

/* The function that is called @p name behind this one. */
static void next(const char *name, void *out)
{
    void *found = dlsym(RTLD_NEXT, name);

    memcpy(out, &found, sizeof found);
}

static void hold(const char *path, int flags)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if ((flags & O_CREAT) == 0 || !ends_with(path, getenv("HELD_PATH"))) {
        return;
    }
    while (access(getenv("HELD_UNTIL"), F_OK) != 0) {
        nanosleep(&pause, NULL);
    }
}

static int open_at(int dir, const char *path, int flags, int mode)
{
    const char *signalled = getenv("SIGNALLED_PATH");
    int opened;

    if (opening_fails(path)) {
        return -1;
    }
    if ((flags & O_CREAT) != 0) {
        count_change();
    }
    hold(path, flags);
    opened = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (opened >= 0 && signalled != NULL && strstr(path, signalled) != NULL) {
        (void)raise(SIGINT);
    }
    return opened;
}

#define MODE_OF(flags)                                                                             \
    int mode = 0;                                                                                  \
    if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {                                                  \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode = va_arg(arguments, int);                                                             \
        va_end(arguments);                                                                         \
    }

EXPORT int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(dir, path, flags, mode);
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (opening_fails(from) || opening_fails(to)) {
        return -1;
    }
    count_change();
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    count_change();
    return (int)syscall(SYS_mkdirat, dir, path, mode);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    count_change();
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

EXPORT int fsync(int fd)
{
    count_change();
    return only_fails("FAILING_FLUSHES", fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

EXPORT int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    const struct sockaddr_un *local = address.__sockaddr_un__;

    while (local->sun_family == AF_UNIX && ends_with(local->sun_path, getenv("HANGING_PATH"))) {
        (void)pause();
    }
    return (int)syscall(SYS_bind, fd, local, bytes);
}

EXPORT FILE *fopen(const char *path, const char *form)
{
    const char *replaced = getenv("REPLACED_PATH");
    FILE *(*real)(const char *, const char *);

    next("fopen", &real);
    if (replaced != NULL && strcmp(path, replaced) == 0) {
        path = getenv("REPLACED_BY");
    }
    return opening_fails(path) ? NULL : real(path, form);
}

EXPORT DIR *opendir(const char *path)
{
    int fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    return fd >= 0 ? fdopendir(fd) : NULL;
}

EXPORT struct dirent *readdir(DIR *folder)
{
    struct dirent *(*real)(DIR *);

    next("readdir", &real);
    return only_fails("FAILING_LISTS", dirfd(folder)) ? NULL : real(folder);
}
