/* earlier_run.c - owns moving an earlier run aside: all of it or nothing. */
#include "train/earlier_run.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What was renamed or created so far, to undo it. */
struct moves {
    struct {
        char *from, *to; /* from NULL: `to` is a new folder, or the link */
    } * all;
    size_t count;
};

static cddp_status fail_memory(const char *dir)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to put the earlier run aside", dir);
}

/* Record a move. Takes ownership of both names. */
static cddp_status note_move(struct moves *moves, char *from, char *to)
{
    void *more = cddpi_realloc(moves->all, (moves->count + 1) * sizeof *moves->all);

    if (more == NULL) {
        cddpi_free(from);
        cddpi_free(to);
        return fail_memory("earlier run");
    }
    moves->all = more;
    moves->all[moves->count].from = from;
    moves->all[moves->count++].to = to;
    return CDDP_OK;
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cddpi_free(names[i]);
    }
    cddpi_free(names);
}

/* Undo all moves. The last failure is kept. */
static void undo_moves(const struct moves *moves)
{
    for (size_t i = moves->count; i-- > 0;) {
        const char *from = moves->all[i].from;
        const char *to = moves->all[i].to;

        if (from != NULL) {
            (void)cddpi_file_renameat(AT_FDCWD, to, from);
        } else if (cddpi_file_unlinkat(AT_FDCWD, to, AT_REMOVEDIR) != 0) {
            (void)cddpi_file_unlinkat(AT_FDCWD, to, 0);
        }
    }
}

/* Rename @p name in @p dir to the same name in @p to. */
static cddp_status move_entry(struct moves *moves, const char *dir, const char *name,
                              const char *to)
{
    char *from_path = cddpi_format("%s/%s", dir, name);
    char *to_path = cddpi_format("%s/%s", to, name);
    cddp_status status = CDDP_OK;

    if (from_path == NULL || to_path == NULL) {
        status = fail_memory(dir);
    } else if (cddpi_file_renameat(AT_FDCWD, from_path, to_path) == 0) {
        return note_move(moves, from_path, to_path);
    } else if (errno != ENOENT) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s to %s", from_path, to_path);
    }
    cddpi_free(from_path);
    cddpi_free(to_path);
    return status;
}

/* Make a new folder earlier-1, earlier-2 ... in @p dir. @p moves owns its name. */
static cddp_status make_earlier(struct moves *moves, const char *dir, const char **out)
{
    for (int number = 1; number < 1000000; number++) {
        char *path = cddpi_format("%s/earlier-%d", dir, number);

        if (path == NULL) {
            return fail_memory(dir);
        }
        if (cddpi_file_mkdirat(AT_FDCWD, path) == 0) {
            *out = path;
            return note_move(moves, NULL, path);
        }
        if (errno != EEXIST) {
            cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s", path);

            cddpi_free(path);
            return status;
        }
        cddpi_free(path);
    }
    return cddpi_fail(CDDP_ERR_IO, "%s: a million earlier runs", dir);
}

static bool belongs_to_run(const char *name)
{
    return strcmp(name, "train.conf") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
           strcmp(name, "checkpoints") == 0 || strcmp(name, "collectives") == 0 ||
           strcmp(name, "trace") == 0 || strcmp(name, "images") == 0 ||
           strcmp(name, "report.html") == 0 || strncmp(name, "events.out.tfevents.", 20) == 0;
}

/* Names inside a run's folders of checkpoints, collectives, traces and images. */
static bool belongs_to_folder(const char *name)
{
    static const char *const begins[] = {"step-",    ".step-", "latest",
                                         ".latest.", "rank-",  ".rank-"};
    bool found = false;

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        found = found || strncmp(name, begins[i], strlen(begins[i])) == 0;
    }
    return found;
}

/* List the names in @p dir that @p wanted accepts, before any is moved. */
static cddp_status list_names(const char *dir, bool (*wanted)(const char *), char ***out,
                              size_t *out_count)
{
    DIR *folder = NULL;
    const char *name = "";
    cddp_status status;

    CDDPI_TRY(cddpi_folder_open(dir, &folder));
    while ((status = cddpi_folder_next(folder, dir, &name)) == CDDP_OK && name != NULL) {
        char **more;

        if (!wanted(name)) {
            continue;
        }
        more = cddpi_realloc(*out, (*out_count + 1) * sizeof *more);
        *out = more != NULL ? more : *out;
        if (more == NULL || (more[*out_count] = cddpi_strdup(name)) == NULL) {
            status = fail_memory(dir);
            break;
        }
        (*out_count)++;
    }
    closedir(folder);
    return status;
}

/* Move the contents of @p path, a link or a mount point, to a new folder earlier-N inside it, and
 * make a link to that folder as @p name in @p aside. */
static cddp_status move_contents(struct moves *moves, const char *path, const char *name,
                                 const char *aside)
{
    const char *inner = NULL;
    char *link = NULL;
    char *target = NULL;
    char **names = NULL;
    size_t count = 0;
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, list_names(path, belongs_to_folder, &names, &count));
    if (count == 0) {
        goto end;
    }
    CDDPI_TRY_GOTO(end, status, make_earlier(moves, path, &inner));
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY_GOTO(end, status, move_entry(moves, path, names[i], inner));
    }
    link = cddpi_format("%s/%s", aside, name);
    target = realpath(inner, NULL);
    if (link == NULL) {
        status = fail_memory(path);
    } else if (target == NULL || symlink(target, link) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "link %s to %s", link, inner);
    } else {
        status = note_move(moves, NULL, link);
        link = NULL;
    }
end:
    free_names(names, count);
    free(target); /* allocated by realpath() */
    cddpi_free(link);
    return status;
}

/* Move @p name in @p dir to @p aside. Of a link to a folder, and of a mount point, move the
 * contents. */
static cddp_status move_one(struct moves *moves, const char *dir, const char *name,
                            const char *aside)
{
    char *path = cddpi_format("%s/%s", dir, name);
    struct stat own, followed, around;
    bool has_own_place;
    cddp_status status;

    if (path == NULL) {
        return fail_memory(dir);
    }
    has_own_place = lstat(path, &own) == 0 && stat(path, &followed) == 0 &&
                    S_ISDIR(followed.st_mode) &&
                    (S_ISLNK(own.st_mode) ||
                     (stat(dir, &around) == 0 && around.st_dev != followed.st_dev));
    status = has_own_place ? move_contents(moves, path, name, aside)
                           : move_entry(moves, dir, name, aside);
    cddpi_free(path);
    return status;
}

cddp_status cddpi_earlier_run_put_aside(const char *dir, struct cddpi_progress *progress)
{
    struct moves moves = {NULL, 0};
    const char *aside = NULL;
    char **names = NULL;
    size_t count = 0;
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, list_names(dir, belongs_to_run, &names, &count));
    CDDPI_TRY_GOTO(end, status, make_earlier(&moves, dir, &aside));
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY_GOTO(end, status, move_one(&moves, dir, names[i], aside));
    }
    cddpi_progress_line(progress, "the earlier run in %s is now in %s", dir, aside);
end:
    if (status != CDDP_OK) {
        undo_moves(&moves);
    }
    free_names(names, count);
    for (size_t i = 0; i < moves.count; i++) {
        cddpi_free(moves.all[i].from);
        cddpi_free(moves.all[i].to);
    }
    cddpi_free(moves.all);
    return status;
}

/* Find out whether there are checkpoints of an earlier run at @p path. If it is not a folder,
 * fail. */
static cddp_status find_checkpoints(const char *path, bool *out)
{
    struct stat own, followed;

    if (lstat(path, &own) != 0) {
        return errno == ENOENT ? CDDP_OK : cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", path);
    }
    if (stat(path, &followed) != 0) {
        return errno == ENOENT
                   ? cddpi_fail(CDDP_ERR_IO,
                                "%s is a link to what is not there: is its disk mounted?", path)
                   : cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", path);
    }
    if (!S_ISDIR(followed.st_mode)) {
        *out = true;
        return CDDP_OK;
    }
    return cddpi_snapshot_any(path, out);
}

cddp_status cddpi_earlier_run_find(const char *dir, bool *out)
{
    char *metrics = cddpi_format("%s/metrics.jsonl", dir);
    char *checkpoints = cddpi_format("%s/checkpoints", dir);
    bool has_checkpoints = false;
    bool has_metrics = false;
    struct stat info;
    cddp_status status = CDDP_OK;

    if (metrics == NULL || checkpoints == NULL) {
        status = fail_memory(dir);
        goto end;
    }
    has_metrics = lstat(metrics, &info) == 0;
    if (!has_metrics && errno != ENOENT) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", metrics);
        goto end;
    }
    status = find_checkpoints(checkpoints, &has_checkpoints);
end:
    *out = has_metrics || has_checkpoints;
    cddpi_free(metrics);
    cddpi_free(checkpoints);
    return status;
}
