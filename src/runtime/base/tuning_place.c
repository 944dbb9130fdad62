/* tuning_place.c - finds and makes the user's cache folder, and checks that only this user can put
 * files there. */
#include "base/tuning_file.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"

#include "cddp_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool log_once(const char *folder, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&said)) {
        cddpi_log(CDDPI_LOG_INFO, "%s%s%s: choices that are measured are not kept", folder,
                  folder[0] != '\0' ? ": " : "", why);
    }
    return false;
}

/* Whether $@p variable names a folder of this user's. Programs that run as another user, with sudo
 * for example, must leave nothing in it. */
static bool is_own_base(const char *path)
{
    struct stat info;

    return path != NULL && path[0] == '/' && (stat(path, &info) != 0 || info.st_uid == geteuid());
}

/* The cache folder; NULL: none, and @p out_why is the reason. */
static char *choose_folder(const char *own, const char **out_why)
{
    const char *shared = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char *folder = NULL;

    if (own != NULL) {
        if (cddpi_user_path(own, &folder) != CDDP_OK) {
            *out_why = cddp_last_error();
        }
        return folder;
    }
    if (shared != NULL && shared[0] == '/') {
        *out_why = "XDG_CACHE_HOME is another user's";
        return is_own_base(shared) ? cddpi_format("%s/cddp", shared) : NULL;
    }
    *out_why = "HOME is not set, or another user's";
    return is_own_base(home) ? cddpi_format("%s/.cache/cddp", home) : NULL;
}

/* Make @p folder, which only this user may read. */
static cddp_status make_private(const char *folder)
{
    char *parent = cddpi_strdup(folder);
    char *slash = parent != NULL ? strrchr(parent, '/') : NULL;
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(parent != NULL, "no memory");
    if (slash != NULL && slash != parent) {
        *slash = '\0';
        status = cddpi_folder_make(parent);
    }
    cddpi_free(parent);
    CDDPI_TRY(status);
    return mkdir(folder, 0700) == 0 || errno == EEXIST
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder");
}

/* Open the folder, unless somebody else can put files there. */
static bool open_folder(struct tuning_place *place)
{
    struct stat info;

    if (access(place->folder, F_OK) != 0 && make_private(place->folder) != CDDP_OK) {
        return log_once(place->folder, cddp_last_error());
    }
    place->dir = cddpi_folder_open_fd(AT_FDCWD, place->folder, true);
    if (place->dir < 0 || fstat(place->dir, &info) != 0) {
        return log_once(place->folder, strerror(errno));
    }
    if (info.st_uid != geteuid()) {
        return log_once(place->folder, "the folder is another user's");
    }
    return !cddpi_others_write(&info) || log_once(place->folder, "others can write the folder");
}

bool cddpi_tuning_place_init(struct tuning_place *place, const char *subject, const char *identity)
{
    const char *own = cddpi_env(CDDPI_ENV_CACHE);
    const char *why = "no memory";
    uint64_t hash;

    *place = (struct tuning_place){.dir = -1};
    if (own != NULL && strcmp(own, "off") == 0) {
        return false;
    }
    place->folder = choose_folder(own, &why);
    if (place->folder == NULL) {
        return log_once("", why);
    }
    place->identity = cddpi_format("%s: %s, cddp " CDDP_VERSION, subject, identity);
    if (place->identity == NULL) {
        return log_once(place->folder, "no memory");
    }
    for (char *at = place->identity; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' ? '?' : *at; /* one line */
    }
    hash = cddpi_hash_text(cddpi_hash_start, place->identity);
    place->name = cddpi_format("%s-%016llx", subject, (unsigned long long)hash);
    return place->name != NULL ? open_folder(place) : log_once(place->folder, "no memory");
}

void cddpi_tuning_place_fini(struct tuning_place *place)
{
    cddpi_fd_close(&place->dir);
    cddpi_free(place->folder);
    cddpi_free(place->name);
    cddpi_free(place->identity);
    *place = (struct tuning_place){.dir = -1};
}
