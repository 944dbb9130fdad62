/* own_folder.h - folders of this machine's temporary files that only this user can look into. */
#ifndef CDDPI_GROUP_OWN_FOLDER_H
#define CDDPI_GROUP_OWN_FOLDER_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/** The path of folder @p name of this user, in $TMPDIR or /tmp: the same for all processes of the
 *  user that have one TMPDIR. */
CDDP_CHECKED cddp_status cddpi_own_folder_path(const char *name, char *out, size_t bytes);

/** Whether @p path is such a folder: no link, this user's, of mode 0700. False with *out_missing:
 *  there is nothing. */
bool cddpi_own_folder_is(const char *path, bool *out_missing);

/** Make it, unless it is there.
 *  @return CDDP_OK; CDDP_ERR_IO: it cannot be made, or others can write or read what is there. */
CDDP_CHECKED cddp_status cddpi_own_folder_make(const char *name, char *out, size_t bytes);

#endif
