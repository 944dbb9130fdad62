/* ctl_socket.c - owns the name and the rights of the socket. A socket's address has room for 107
 * bytes, so the folder is named by its descriptor: paths may have any length. */
#include "launcher/ctl/ctl_socket.h"

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 64 };

static struct sockaddr_un address_in(int folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" CDDPI_CTL_SOCKET,
             folder);
    return address;
}

static int try_bind(int fd, int folder)
{
    struct sockaddr_un address = address_in(folder);

    return bind(fd, (const struct sockaddr *)&address, sizeof address);
}

/* Whether a process listens there. */
static bool is_answered(int folder)
{
    struct sockaddr_un address = address_in(folder);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* another user's or program's socket fails with another error */
    bool is_answered = fd < 0 ||
                       connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
                       errno != ECONNREFUSED;

    cddpi_fd_close(&fd);
    return is_answered;
}

/* The name is used: remove it if a process that is gone has left it. */
static cddp_status make_free(int folder, const char *dir, bool is_locked)
{
    struct stat info;

    if (fstatat(folder, CDDPI_CTL_SOCKET, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? CDDP_OK
                               : cddpi_fail_errno(CDDP_ERR_IO, errno, "%s/" CDDPI_CTL_SOCKET, dir);
    }
    if (!S_ISSOCK(info.st_mode)) {
        return cddpi_fail(CDDP_ERR_STATE, "%s/" CDDPI_CTL_SOCKET " is %s, not cddp-run's socket",
                          dir, cddpi_file_kind_text(info.st_mode));
    }
    if (!is_locked && is_answered(folder)) {
        return cddpi_fail(CDDP_ERR_STATE, "another cddp-run has %s/" CDDPI_CTL_SOCKET, dir);
    }
    return cddpi_file_unlinkat(folder, CDDPI_CTL_SOCKET, 0) == 0 || errno == ENOENT
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, errno, "remove %s/" CDDPI_CTL_SOCKET, dir);
}

static cddp_status bind_in(int fd, int folder, const char *dir, bool is_locked)
{
    /* Linux makes the file with the mode that the socket has: it never has another one */
    if (fchmod(fd, 0600) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "the mode of a socket");
    }
    if (try_bind(fd, folder) != 0) {
        if (errno == EADDRINUSE) {
            CDDPI_TRY(make_free(folder, dir, is_locked));
            errno = 0;
        }
        if (errno != 0 || try_bind(fd, folder) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "making %s/" CDDPI_CTL_SOCKET, dir);
        }
    }
    return listen(fd, BACKLOG) == 0 ? CDDP_OK
                                    : cddpi_fail_errno(CDDP_ERR_IO, errno, "listening in %s", dir);
}

cddp_status cddpi_ctl_socket_listen(const char *dir, bool is_locked, struct cddpi_ctl_socket *out)
{
    struct cddpi_ctl_socket made = {.fd = -1, .folder = -1};
    struct stat info = {0};
    cddp_status status;

    made.folder = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    if (made.folder < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", dir);
    }
    made.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made.fd < 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "making a socket");
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, bind_in(made.fd, made.folder, dir, is_locked));
    if (fstatat(made.folder, CDDPI_CTL_SOCKET, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s/" CDDPI_CTL_SOCKET, dir);
        goto fail;
    }
    made.device = info.st_dev;
    made.inode = info.st_ino;
    made.made = info.st_ctim;
    *out = made;
    return CDDP_OK;

fail:
    cddpi_fd_close(&made.fd);
    cddpi_fd_close(&made.folder);
    return status;
}

static bool is_there(const struct cddpi_ctl_socket *socket, int folder)
{
    struct stat info;

    return fstatat(folder, CDDPI_CTL_SOCKET, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           info.st_dev == socket->device && info.st_ino == socket->inode &&
           info.st_ctim.tv_sec == socket->made.tv_sec &&
           info.st_ctim.tv_nsec == socket->made.tv_nsec;
}

void cddpi_ctl_socket_close(struct cddpi_ctl_socket *socket)
{
    if (socket->folder >= 0 && is_there(socket, socket->folder)) {
        (void)cddpi_file_unlinkat(socket->folder, CDDPI_CTL_SOCKET, 0);
    }
    cddpi_fd_close(&socket->fd);
    cddpi_fd_close(&socket->folder);
}

bool cddpi_ctl_socket_is_in(const struct cddpi_ctl_socket *socket, const char *dir)
{
    int folder = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    bool is_in = socket->fd >= 0 && folder >= 0 && is_there(socket, folder);

    cddpi_fd_close(&folder);
    return is_in;
}

static cddp_status connect_in(int fd, int folder, const char *dir)
{
    struct sockaddr_un address = address_in(folder);

    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        return CDDP_OK;
    }
    if (errno == ENOENT) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "no job runs in %s, or its rank 0 has not begun yet, or cddp-run could "
                          "not make " CDDPI_CTL_SOCKET " there",
                          dir);
    }
    if (errno == ECONNREFUSED) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "no job runs in %s on this machine: its cddp-run was killed, or is on "
                          "another machine",
                          dir);
    }
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "connecting to %s/" CDDPI_CTL_SOCKET, dir);
}

cddp_status cddpi_ctl_socket_connect(const char *dir, uint32_t timeout_ms, int *out_fd)
{
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    int folder = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    int fd = -1;
    cddp_status status;

    if (folder < 0) {
        return errno == ENOENT || errno == ENOTDIR
                   ? cddpi_fail(CDDP_ERR_NOT_FOUND, "there is no folder %s", dir)
                   : cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", dir);
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "making a socket");
    } else {
        status = connect_in(fd, folder, dir);
    }
    cddpi_fd_close(&folder);
    if (status == CDDP_OK && geteuid() != 0 && !cddpi_ctl_socket_is_own(fd)) {
        status = cddpi_fail(CDDP_ERR_STATE,
                            "%s/" CDDPI_CTL_SOCKET " belongs to a process of another user", dir);
    }
    if (status != CDDP_OK) {
        cddpi_fd_close(&fd);
        return status;
    }
    *out_fd = fd;
    return CDDP_OK;
}

bool cddpi_ctl_socket_is_own(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof other;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 &&
           (other.uid == geteuid() || other.uid == 0);
}
