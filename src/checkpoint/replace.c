/* replace.c - owns the way by which a file appears whole or not at all: made under another name
 * beside its place, flushed, renamed. */
#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { NAME_TRIES = 64 };

/* The folder that holds @path, opened, and @path's last part. */
static cddp_status open_parent(const char *path, int *out_dir, const char **out_base)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    char *folder;
    int dir;

    if (base[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "\"%s\" is no file name", path);
    }
    folder = slash == NULL ? cddpi_strdup(".") : cddpi_format("%.*s", (int)(base - path), path);
    if (folder == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, strlen(path));
    }
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder of %s", path);

        cddpi_free(folder);
        return status;
    }
    cddpi_free(folder);
    *out_dir = dir;
    *out_base = base;
    return CDDP_OK;
}

/* A name in @dir that nothing has: a crashed writer of our process id may have left some behind. */
static char *temporary_name(int dir, const char *base)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        char *name = cddpi_format(".%s.tmp-%ld-%d", base, (long)getpid(), i);

        if (name == NULL || faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
            return name; /* if it has come up since, creating it says so */
        }
        cddpi_free(name);
    }
    return NULL;
}

/* From a flushed temporary file to the file of that name. */
static cddp_status move_in(int dir, const char *temporary, const char *base, const char *path)
{
    if (cddpi_file_renameat(dir, temporary, base) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s to %s", temporary, path);
    }
    if (cddpi_file_fsync(dir) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno,
                                "flush the folder of %s (which is whole, but a loss of power now "
                                "may bring the old one back)",
                                path);
    }
    return CDDP_OK;
}

cddp_status cddpi_file_replace(const char *path, cddpi_file_make_fn make, void *context)
{
    const char *base = NULL;
    char *temporary;
    int dir = -1;
    cddp_status status = open_parent(path, &dir, &base);

    if (status != CDDP_OK) {
        return status;
    }
    temporary = temporary_name(dir, base);
    if (temporary == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory, or no name, for a temporary file",
                            path);
    } else {
        status = make(context, dir, temporary, path);
        if (status == CDDP_OK) {
            status = move_in(dir, temporary, base, path);
        }
        if (status != CDDP_OK) {
            (void)unlinkat(dir, temporary, 0);
        }
    }
    cddpi_free(temporary);
    close(dir);
    return status;
}
