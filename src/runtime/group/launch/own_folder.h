/* own_folder.h - owns folders for temporary files of this machine that only this user can
 * access. */
#ifndef CDDPI_GROUP_OWN_FOLDER_H
#define CDDPI_GROUP_OWN_FOLDER_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/** Get the path of this user's folder @p name in $TMPDIR or /tmp. All processes of the user with
 *  the same TMPDIR get the same path. */
CDDP_CHECKED cddp_status cddpi_own_folder_path(const char *name, char *out, size_t bytes);

/** Whether @p path is such a folder: not a link, owned by this user, mode 0700. False with
 *  *out_missing: it does not exist. */
bool cddpi_own_folder_is(const char *path, bool *out_missing);

/** Create the folder, unless it exists.
 *  @return CDDP_OK; CDDP_ERR_IO: it cannot be created, or other users can read or write the
 *  existing one. */
CDDP_CHECKED cddp_status cddpi_own_folder_make(const char *name, char *out, size_t bytes);

#endif
