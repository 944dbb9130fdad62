/* folder.h - making and reading folders. Any thread. */
#ifndef CDDPI_FOLDER_H
#define CDDPI_FOLDER_H

#include <cddp/status.h>

#include <dirent.h>
#include <stdbool.h>

/** Make @p path and what is missing above it, as mkdir -p does; "" is nothing to make.
 *  @return CDDP_OK, CDDP_ERR_IO (names the folder), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_folder_make(const char *path);

/** CDDP_ERR_ARGUMENT if the part of @p path that ends at @p end is called "~" or "$NAME": a shell
 * has not replaced it, and a folder of that name is dangerous to remove. */
CDDP_CHECKED cddp_status cddpi_folder_check_name(const char *path, size_t end);

/** Open the folder @p path to read its names. Only CDDP_ERR_NOT_FOUND means that there is none (it
 * is missing, or no folder); all else, CDDP_ERR_IO, says that there may be one. */
CDDP_CHECKED cddp_status cddpi_folder_open(const char *path, DIR **out);

/** A descriptor of the folder @p name in @p dir (or AT_FDCWD), -1 with errno; @p follow: through a
 * link, too. */
int cddpi_folder_open_fd(int dir, const char *name, bool follow);

/** The next name in @p folder, which errors call @p path, but not "." and ".."; NULL: there are no
 *  more. The name is valid until the next call. A name that cannot be read is an error: it is not
 *  the end. */
CDDP_CHECKED cddp_status cddpi_folder_next(DIR *folder, const char *path, const char **out);

#endif
