/* user_path.c - decides which parts of a path a shell should have replaced. */
#include "base/user_path.h"

#include "base/alloc.h"
#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

bool cddpi_is_for_shell(const char *name, unsigned long length)
{
    return (length == 1 && name[0] == '~') || find_variable(name, length) != NULL;
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
    cddp_status status = check_variables(path);

    *out = NULL;
    if (status != CDDP_OK) {
        return status;
    }
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
