/* trusted_file.c - checks the owner and mode of a file and of its folder. */
#include "base/trusted_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool may_own(uid_t owner, uid_t also)
{
    return owner == 0 || owner == geteuid() || owner == also;
}

/* The mode bits that let other users write. By convention, group N of user N is private; with such
 * groups umask 002 is common. */
static unsigned written_by_others(const struct stat *info)
{
    unsigned group = info->st_gid == (gid_t)info->st_uid ? 0u : (unsigned)S_IWGRP;

    return (unsigned)info->st_mode & (group | S_IWOTH);
}

static bool look_at(const char *path, uid_t also, char *why, size_t why_bytes)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!may_own(info.st_uid, also)) {
        snprintf(why, why_bytes, "%s belongs to another user (%ld)", path, (long)info.st_uid);
        return false;
    }
    if (written_by_others(&info) != 0) {
        snprintf(why, why_bytes, "others can write %s (mode %04o)", path,
                 (unsigned)info.st_mode & 07777);
        return false;
    }
    return true;
}

bool cddpi_file_is_trusted(const char *path, const char *like, char out_real[PATH_MAX], char *why,
                           size_t why_bytes)
{
    char folder[PATH_MAX];
    struct stat info;
    uid_t also = geteuid();

    if (realpath(path, out_real) == NULL) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (like != NULL && stat(like, &info) == 0) {
        also = info.st_uid;
    }
    memcpy(folder, out_real, sizeof folder);
    *(strrchr(folder, '/') + (strrchr(folder, '/') == folder)) = '\0';
    /* Check the folder first: if it is safe, only its owner can have put the file there. */
    return look_at(folder, also, why, why_bytes) && look_at(out_real, also, why, why_bytes);
}
