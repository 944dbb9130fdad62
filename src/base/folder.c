/* folder.c - makes folders. (Those of checkpoints are made and flushed in src/checkpoint/file.c.)
 */
#include "base/folder.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

cddp_status cddpi_folder_make(const char *path)
{
    size_t length = strlen(path);
    char *part = cddpi_strdup(path);
    cddp_status status = CDDP_OK;

    if (part == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "make the folder %s: no memory", path);
    }
    for (size_t i = 1; status == CDDP_OK && i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s", part);
        }
        part[i] = path[i];
    }
    cddpi_free(part);
    return status;
}
