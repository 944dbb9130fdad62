/* folder.c - creates folders and lists their names. (src/runtime/checkpoint/checkpoint_file.c
 * creates and flushes the folders of checkpoints.) */
#include "base/folder.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/user_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* mkdir() of @p path failed with @p error_number. EEXIST is not a failure if the path is a folder.
 * Only the @p last component is checked: if an earlier one is not a folder, creating the next one
 * fails. */
static cddp_status check_there(const char *path, int error_number, bool last)
{
    struct stat info;

    if (error_number != EEXIST) {
        return cddpi_fail_errno(CDDP_ERR_IO, error_number, "make the folder %s", path);
    }
    if (last && stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        return cddpi_fail_errno(CDDP_ERR_IO, ENOTDIR, "make the folder %s: it is %s", path,
                                cddpi_file_kind_text(info.st_mode));
    }
    return CDDP_OK; /* if stat() failed, using the folder will report why */
}

cddp_status cddpi_folder_check_name(const char *path, size_t end)
{
    size_t begin = end;

    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    return cddpi_is_for_shell(path + begin, end - begin)
               ? cddpi_fail(CDDP_ERR_ARGUMENT,
                            "%s: no folder called %.*s is made: a shell should have replaced that",
                            path, (int)(end - begin), path + begin)
               : CDDP_OK;
}

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
        if (access(part, F_OK) != 0) {
            status = cddpi_folder_check_name(path, i);
        }
        if (status == CDDP_OK && mkdir(part, 0777) != 0) {
            status = check_there(part, errno, i == length);
        }
        part[i] = path[i];
    }
    cddpi_free(part);
    return status;
}

cddp_status cddpi_folder_open(const char *path, DIR **out)
{
    *out = opendir(path);
    return *out != NULL ? CDDP_OK
                        : cddpi_fail_errno(errno == ENOENT || errno == ENOTDIR ? CDDP_ERR_NOT_FOUND
                                                                               : CDDP_ERR_IO,
                                           errno, "%s", path);
}

int cddpi_folder_open_fd(int dir, const char *name, bool follow)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
}

cddp_status cddpi_folder_next(DIR *folder, const char *path, const char **out)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(folder);
    } while (entry != NULL &&
             (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    if (entry == NULL && errno != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "list the folder %s", path);
    }
    *out = entry != NULL ? entry->d_name : NULL;
    return CDDP_OK;
}
