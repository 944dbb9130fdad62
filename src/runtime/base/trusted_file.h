/* trusted_file.h - whether a file may be run in this process: no other user could have put it there
 * or can change it. */
#ifndef CDDPI_BASE_TRUSTED_FILE_H
#define CDDPI_BASE_TRUSTED_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/** Whether @p path, with its links followed, and the folder that it is in belong to root, this user
 *  or the owner of @p like (who could change that as well; NULL: nobody), and others can write
 *  neither: a sticky folder will not do. A user's private group counts as the user.
 *  @param out_real  The path that was looked at, which no link changes any more.
 *  @param why       Of false: the reason, with the path. */
bool cddpi_file_is_trusted(const char *path, const char *like, char out_real[PATH_MAX], char *why,
                           size_t why_bytes);

#endif
