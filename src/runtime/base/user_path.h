/* user_path.h - paths as users write them, where no shell has read them: in train.conf, behind
 * "key=", in --option=, in a manifest's environment. */
#ifndef CDDPI_BASE_USER_PATH_H
#define CDDPI_BASE_USER_PATH_H

#include <cddp/status.h>

#include <stdbool.h>

/** @p path with a leading "~" or "~/" replaced by $HOME; cddpi_free(). A variable ($NAME, ${NAME})
 * and
 *  "~user" are CDDP_ERR_ARGUMENT, unless a file or folder of that very name is there: who meant the
 *  name has it, and who meant the variable would get a folder called "$NAME". */
CDDP_CHECKED cddp_status cddpi_user_path(const char *path, char **out);

/** Whether @p name, a part of a path between slashes, is what a shell should have replaced: no
 * folder of such a name is made. */
bool cddpi_is_for_shell(const char *name, unsigned long length);

#endif
