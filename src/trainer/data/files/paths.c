/* paths.c - owns the expansion of patterns to files. The order must be the same on all machines, so
 * it does not depend on the locale. */
#include "data/files/paths.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cddp_status append_path(struct cddpi_paths *paths, const char *name)
{
    char **names = cddpi_realloc(paths->names, (paths->count + 1) * sizeof *names);
    char *copy = names != NULL ? cddpi_strdup(name) : NULL;

    paths->names = names != NULL ? names : paths->names;
    CDDPI_TRY_MEMORY(copy != NULL, "%s: no memory for its name", name);
    names[paths->count++] = copy;
    return CDDP_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* An unreadable folder is an error, because it might contain some of the files. */
static cddp_status expand(const char *pattern, struct cddpi_paths *paths)
{
    glob_t found = {0};
    size_t before = paths->count;
    cddp_status status = CDDP_OK;
    int result = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found);

    if (result == GLOB_NOMATCH || (result == GLOB_ABORTED && errno == ENOENT)) {
        status = cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: there is no such file", pattern);
    } else if (result == GLOB_NOSPACE) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the names of files", pattern);
    } else if (result != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: reading the folder", pattern);
    }
    for (size_t i = 0; status == CDDP_OK && i < found.gl_pathc; i++) {
        status = append_path(paths, found.gl_pathv[i]);
    }
    globfree(&found);
    if (status == CDDP_OK) {
        qsort(paths->names + before, paths->count - before, sizeof *paths->names, compare);
    }
    return status;
}

static cddp_status check_distinct(const struct cddpi_paths *paths)
{
    char **sorted = cddpi_zalloc_array(paths->count, sizeof *sorted);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(sorted != NULL, "%s: no memory", paths->names[0]);
    memcpy(sorted, paths->names, paths->count * sizeof *sorted);
    qsort(sorted, paths->count, sizeof *sorted, compare);
    for (size_t i = 1; status == CDDP_OK && i < paths->count; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0) {
            status = cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the file is named twice", sorted[i]);
        }
    }
    cddpi_free(sorted);
    return status;
}

cddp_status cddpi_paths_find(char *const *patterns, size_t count, struct cddpi_paths *out)
{
    struct cddpi_paths paths = {NULL, 0};
    cddp_status status = CDDP_OK;

    for (size_t i = 0; status == CDDP_OK && i < count; i++) {
        if (access(patterns[i], F_OK) == 0) {
            status = append_path(&paths, patterns[i]);
        } else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", patterns[i]);
        } else {
            status = expand(patterns[i], &paths);
        }
    }
    if (status == CDDP_OK) {
        status = paths.count > 0 ? check_distinct(&paths)
                                 : cddpi_fail(CDDP_ERR_ARGUMENT, "data: no file is named");
    }
    if (status != CDDP_OK) {
        cddpi_paths_fini(&paths);
        return status;
    }
    *out = paths;
    return CDDP_OK;
}

void cddpi_paths_fini(struct cddpi_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        cddpi_free(paths->names[i]);
    }
    cddpi_free(paths->names);
    *paths = (struct cddpi_paths){NULL, 0};
}
