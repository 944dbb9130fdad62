/* folder.h - creates and lists folders; reads paths from users that no shell has expanded (in
 * train.conf, after "key=", in --option=, in a manifest's environment); says which files may be
 * run. Any thread. */
#ifndef CDDPI_FOLDER_H
#define CDDPI_FOLDER_H

#include "base/shared.h"

#include <cddp/status.h>

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/** Create @p path and its missing parents, like mkdir -p. "" creates nothing.
 *  @return CDDP_OK, CDDP_ERR_IO (names the folder), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_folder_make(const char *path);

/** CDDP_ERR_ARGUMENT if the component of @p path that ends at offset @p end is "~" or contains
 *  "$NAME". A shell should have replaced it, and a folder with such a name is dangerous to
 *  remove. */
CDDP_CHECKED cddp_status cddpi_folder_check_name(const char *path, size_t end);

/** Open the folder @p path for listing. CDDP_ERR_NOT_FOUND means only that there is no such folder
 *  (missing, or not a folder). Any other failure, CDDP_ERR_IO, means that the folder may exist. */
CDDP_CHECKED cddp_status cddpi_folder_open(const char *path, DIR **out);

/** A descriptor of the folder @p name in @p dir (or AT_FDCWD); -1 with errno. @p follow: follow
 *  symbolic links. */
int cddpi_folder_open_fd(int dir, const char *name, bool follow);

/** Whether there is a @p name, a file or folder, in @p folder. */
CDDPI_SHARED bool cddpi_folder_holds(const char *folder, const char *name);

/** The next name in @p folder, without "." and "..". NULL: no more names. Errors call the folder
 *  @p path. The name is valid until the next call. A read error is reported as an error, not as the
 *  end. */
CDDP_CHECKED cddp_status cddpi_folder_next(DIR *folder, const char *path, const char **out);

/** Replace a leading "~" or "~/" of @p path by $HOME. Release @p out with cddpi_free(). A variable
 *  ($NAME, ${NAME}) or "~user" is CDDP_ERR_ARGUMENT, unless a file or folder of exactly that name
 *  exists: otherwise a user who meant the variable would get a folder called "$NAME". */
CDDP_CHECKED cddp_status cddpi_user_path(const char *path, char **out);

/** Whether the mode in @p info lets other users write. By convention, group N of user N is private;
 *  with such groups umask 002 is common. */
bool cddpi_others_write(const struct stat *info);

/** Whether @p path, with symbolic links resolved, may be run in this process: no other user could
 *  have put it there or can change it. The file and its folder belong to root, to this user or to
 *  the owner of @p like, and nobody else can write them. The owner of @p like is allowed because he
 *  could change that file as well (NULL: nobody). A sticky folder that others can write is not
 *  enough. A user's private group counts as the user.
 *  @param out_real  The path that was checked, without symbolic links.
 *  @param why       If false: the reason, with the path. */
bool cddpi_file_is_trusted(const char *path, const char *like, char out_real[PATH_MAX], char *why,
                           size_t why_bytes);

#endif
