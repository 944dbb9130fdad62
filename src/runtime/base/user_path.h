/* user_path.h - paths from users that no shell has expanded: in train.conf, after "key=", in
 * --option=, in a manifest's environment. */
#ifndef CDDPI_BASE_USER_PATH_H
#define CDDPI_BASE_USER_PATH_H

#include <cddp/status.h>

#include <stdbool.h>

/** Replace a leading "~" or "~/" of @p path by $HOME. Release @p out with cddpi_free(). A variable
 *  ($NAME, ${NAME}) or "~user" is CDDP_ERR_ARGUMENT, unless a file or folder of exactly that name
 *  exists: otherwise a user who meant the variable would get a folder called "$NAME". */
CDDP_CHECKED cddp_status cddpi_user_path(const char *path, char **out);

/** Whether @p name, one component of a path, is something that a shell should have replaced.
 *  Folders with such names are not created. */
bool cddpi_is_for_shell(const char *name, unsigned long length);

#endif
