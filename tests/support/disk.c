/* disk.c - small disks for tests, if this process may mount them. */
#include "support/disk.h"

static void support_write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

/* Become root of a user namespace with its own mounts. This process stays in it. */
static bool support_own_mounts(void)
{
    char users[64];
    char groups[64];

    snprintf(users, sizeof users, "0 %d 1", (int)getuid());
    snprintf(groups, sizeof groups, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    support_write_map("/proc/self/setgroups", "deny");
    support_write_map("/proc/self/uid_map", users);
    support_write_map("/proc/self/gid_map", groups);
    return true;
}

void need_small_disk(const char *path, const char *size)
{
    char options[64];

    snprintf(options, sizeof options, "size=%s", size);
    if (mount("tmpfs", path, "tmpfs", MS_NODEV, options) == 0 ||
        (errno == EPERM && support_own_mounts() &&
         mount("tmpfs", path, "tmpfs", MS_NODEV, options) == 0)) {
        return;
    }
    print_message("no small disk can be mounted here (%s)\n", strerror(errno));
    skip();
}

void fill_disk(const char *path, off_t spare)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    off_t bytes = 0;
    ssize_t wrote;

    assert_true(fd >= 0);
    while ((wrote = write(fd, zeros, sizeof zeros)) > 0) {
        bytes += wrote;
    }
    assert_true(bytes > spare && ftruncate(fd, bytes - spare) == 0);
    close(fd);
}
