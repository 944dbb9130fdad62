/* own_folder.c - owns the folders below $TMPDIR or /tmp in which ranks of one user meet. Their
 * names can be guessed, so each is checked before it is used. */
#include "group/launch/own_folder.h"

#include "base/error.h"
#include "group/launch/launch_variable.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

cddp_status cddpi_own_folder_path(const char *name, char *out, size_t bytes)
{
    const char *base = cddpi_launch_variable("TMPDIR");

    if (base == NULL) {
        base = "/tmp";
    }
    if ((size_t)snprintf(out, bytes, "%s/cddp-%ld-%s", base, (long)geteuid(), name) >= bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: TMPDIR is too long");
    }
    return CDDP_OK;
}

bool cddpi_own_folder_is(const char *path, bool *out_missing)
{
    struct stat stat_of;

    *out_missing = false;
    if (lstat(path, &stat_of) != 0) {
        *out_missing = errno == ENOENT;
        return false;
    }
    return S_ISDIR(stat_of.st_mode) && stat_of.st_uid == geteuid() && (stat_of.st_mode & 0077) == 0;
}

cddp_status cddpi_own_folder_make(const char *name, char *out, size_t bytes)
{
    cddp_status status = cddpi_own_folder_path(name, out, bytes);
    bool is_missing;

    if (status != CDDP_OK) {
        return status;
    }
    if (mkdir(out, 0700) != 0 && errno != EEXIST) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "join: make folder %s (%s)", out,
                                cddpi_launch_variable("TMPDIR") != NULL
                                    ? "below TMPDIR, which has to be there"
                                    : "TMPDIR can name another place than /tmp");
    }
    if (!cddpi_own_folder_is(out, &is_missing)) {
        return cddpi_fail(CDDP_ERR_IO, "join: %s is not a folder of this user alone (mode 0700)",
                          out);
    }
    return CDDP_OK;
}
