/* failing_calls.c - loaded before the C library (LD_PRELOAD): a file system that fails for a while.
 * Calls that open, list or look at a path that ends with $FAILING_PATH fail with the errno
 * $FAILING_ERRNO; only the first $FAILING_CALLS of them ("" or unset: all). If $FAILING_LISTS is
 * set, only listing fails. Binding a local socket whose path ends with $HANGING_PATH never returns.
 * Who creates a path that ends with $HELD_PATH waits until a file $HELD_UNTIL exists.
 * Once a path that contains $SIGNALLED_PATH is open, the process gets
 * SIGINT. Like all of cddp, this file is compiled for large files, so its open is
 * the C library's open64. */
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static bool fails(const char *path)
{
    static atomic_int done;
    const char *end = getenv("FAILING_PATH");
    const char *calls = getenv("FAILING_CALLS");
    size_t length = path != NULL ? strlen(path) : 0;

    if (end == NULL || length < strlen(end) || strcmp(path + length - strlen(end), end) != 0 ||
        (calls != NULL && calls[0] != '\0' && atomic_fetch_add(&done, 1) >= atoi(calls))) {
        return false;
    }
    errno = atoi(getenv("FAILING_ERRNO"));
    return true;
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
    const char *end = getenv("HELD_PATH");
    size_t length = strlen(path);

    if (end == NULL || (flags & O_CREAT) == 0 || length < strlen(end) ||
        strcmp(path + length - strlen(end), end) != 0) {
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

    if (getenv("FAILING_LISTS") == NULL && fails(path)) {
        return -1;
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
    if (getenv("FAILING_LISTS") == NULL && (fails(from) || fails(to))) {
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

EXPORT int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    const char *end = getenv("HANGING_PATH");
    const struct sockaddr_un *local = address.__sockaddr_un__;
    size_t length = local->sun_family == AF_UNIX ? strlen(local->sun_path) : 0;

    while (end != NULL && length >= strlen(end) &&
           strcmp(local->sun_path + length - strlen(end), end) == 0) {
        (void)pause();
    }
    return (int)syscall(SYS_bind, fd, local, bytes);
}

EXPORT FILE *fopen(const char *path, const char *form)
{
    FILE *(*real)(const char *, const char *);

    next("fopen", &real);
    return getenv("FAILING_LISTS") == NULL && fails(path) ? NULL : real(path, form);
}

EXPORT DIR *opendir(const char *path)
{
    int fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    return fd >= 0 ? fdopendir(fd) : NULL;
}

static bool list_fails(DIR *folder)
{
    char link[64];
    char path[PATH_MAX];
    ssize_t length;

    if (getenv("FAILING_LISTS") == NULL) {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(folder));
    length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return fails(path);
}

EXPORT struct dirent *readdir(DIR *folder)
{
    struct dirent *(*real)(DIR *);

    next("readdir", &real);
    return list_fails(folder) ? NULL : real(folder);
}
