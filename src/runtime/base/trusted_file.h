/* trusted_file.h - whether a file may be run in this process: no other user could have put it there
 * or can change it. */
#ifndef CDDPI_BASE_TRUSTED_FILE_H
#define CDDPI_BASE_TRUSTED_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/** Whether @p path, with symbolic links resolved, can be trusted: the file and its folder belong to
 *  root, to this user or to the owner of @p like, and nobody else can write them. The owner of
 *  @p like is allowed because he could change that file as well (NULL: nobody). A sticky folder
 *  that others can write is not enough. A user's private group counts as the user.
 *  @param out_real  The path that was checked, without symbolic links.
 *  @param why       If false: the reason, with the path. */
bool cddpi_file_is_trusted(const char *path, const char *like, char out_real[PATH_MAX], char *why,
                           size_t why_bytes);

#endif
