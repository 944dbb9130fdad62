/* folder.c - creates folders and lists their names, decides which parts of a path a shell should
 * have replaced, and checks the owner and mode of a file. (src/runtime/checkpoint/checkpoint_file.c
 * creates and flushes the folders of checkpoints.) */
#include "base/folder.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Find a variable in the @p length bytes at @p name; NULL: none. In a name with blanks or quotes, $
 * is an ordinary character: nobody wrote such a name for a shell. */
static const char *find_variable(const char *name, size_t length)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.:,@%${}";

    for (size_t i = 0; i + 1 < length && strspn(name, plain) >= length; i++) {
        if (name[i] == '$' &&
            (isalpha((unsigned char)name[i + 1]) || name[i + 1] == '_' || name[i + 1] == '{')) {
            return name + i;
        }
    }
    return NULL;
}

/* Whether @p name, one component of a path, is something that a shell should have replaced. */
static bool is_for_shell(const char *name, size_t length)
{
    return (length == 1 && name[0] == '~') || find_variable(name, length) != NULL;
}

cddp_status cddpi_folder_check_name(const char *path, size_t end)
{
    size_t begin = end;

    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    return is_for_shell(path + begin, end - begin)
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

    CDDPI_TRY_MEMORY(part != NULL, "make the folder %s: no memory", path);
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

bool cddpi_folder_holds(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);

    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
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

/* Whether the part of @p path before @p end exists. */
static bool is_there(const char *path, const char *end)
{
    char *part = cddpi_format("%.*s", (int)(end - path), path);
    struct stat info;
    bool found = part != NULL && lstat(part, &info) == 0;

    cddpi_free(part);
    return found;
}

/* Fail if a component of @p path contains a variable and does not exist under that name. */
static cddp_status check_variables(const char *path)
{
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(part, "/");
        const char *variable = find_variable(part, length);

        if (variable != NULL && !is_there(path, part + length)) {
            bool braced = variable[1] == '{';
            size_t name = strspn(variable + 1 + braced, "abcdefghijklmnopqrstuvwxyz"
                                                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "%s: the variable %.*s is not replaced here, and there is no file of "
                              "that name: write its value (a leading ~/ is $HOME)",
                              path, (int)(1 + 2 * braced + name), variable);
        }
        part += length + (part[length] == '/');
    }
    return CDDP_OK;
}

cddp_status cddpi_user_path(const char *path, char **out)
{
    const char *home = getenv("HOME");

    *out = NULL;
    CDDPI_TRY(check_variables(path));
    if (path[0] == '~' && (path[1] == '\0' || path[1] == '/')) {
        if (home == NULL || home[0] == '\0') {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: HOME is not set, so ~ stands for nothing",
                              path);
        }
        *out = cddpi_format("%s%s", home, path + 1);
    } else if (path[0] == '~' && isalpha((unsigned char)path[1]) &&
               !is_there(path, path + strcspn(path, "/"))) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "%s: the home of another user is not looked up here: write the whole path", path);
    } else {
        *out = cddpi_strdup(path);
    }
    return *out != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path);
}

static bool may_own(uid_t owner, uid_t also)
{
    return owner == 0 || owner == geteuid() || owner == also;
}

bool cddpi_others_write(const struct stat *info)
{
    unsigned group = info->st_gid == (gid_t)info->st_uid ? 0u : (unsigned)S_IWGRP;

    return ((unsigned)info->st_mode & (group | S_IWOTH)) != 0;
}

static bool look_at(const char *path, uid_t also, char *why, size_t why_bytes)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!may_own(info.st_uid, also)) {
        snprintf(why, why_bytes, "%s belongs to another user (%ld)", path, (long)info.st_uid);
        return false;
    }
    if (cddpi_others_write(&info)) {
        snprintf(why, why_bytes, "others can write %s (mode %04o)", path,
                 (unsigned)info.st_mode & 07777);
        return false;
    }
    return true;
}

bool cddpi_file_is_trusted(const char *path, const char *like, char out_real[PATH_MAX], char *why,
                           size_t why_bytes)
{
    char folder[PATH_MAX];
    struct stat info;
    uid_t also = geteuid();

    if (realpath(path, out_real) == NULL) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (like != NULL && stat(like, &info) == 0) {
        also = info.st_uid;
    }
    memcpy(folder, out_real, sizeof folder);
    *(strrchr(folder, '/') + (strrchr(folder, '/') == folder)) = '\0';
    /* Check the folder first: if it is safe, only its owner can have put the file there. */
    return look_at(folder, also, why, why_bytes) && look_at(out_real, also, why, why_bytes);
}
