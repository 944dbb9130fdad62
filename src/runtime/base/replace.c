/* replace.c - replaces files atomically. */
#include "base/replace.h"
#include "base/file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_TRIES = 64 };

/* The file name in @p path, without its folder. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Open the folder that holds @p path. */
static cddp_status open_parent(const char *path, int *out)
{
    size_t bytes = (size_t)(base_of(path) - path);
    char *folder;
    cddp_status status = CDDP_OK;
    int dir;

    if (path[bytes] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "\"%s\" is not a file name", path);
    }
    folder = bytes == 0 ? cddpi_strdup(".") : cddpi_format("%.*s", (int)bytes, path);
    CDDPI_TRY_MEMORY(folder != NULL, "%s: no memory for %zu bytes", path, strlen(path));
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder of %s", path);
    } else {
        *out = dir;
    }
    cddpi_free(folder);
    return status;
}

/* A name in @p dir that is not in use: a crashed writer with our process id may have left files
 * behind. Writers on other machines, with our process id, draw other numbers. */
static char *temporary_name(int dir, const char *base)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        unsigned number = 0;
        char *name;

        if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
            number = (unsigned)i;
        }
        name = cddpi_format(".%s.tmp-%ld-%u", base, (long)getpid(), number);

        if (name == NULL || faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
            return name; /* if another process takes the name meanwhile, creating the file fails */
        }
        cddpi_free(name);
    }
    return NULL;
}

/* Fail if @p path is, or links to, something other than a regular file, such as a device or a pipe:
 * rename() would replace it by a file. */
static cddp_status check_place(int dir, const char *path)
{
    struct stat info;

    if (fstatat(dir, base_of(path), &info, 0) != 0) {
        return errno == ENOENT || errno == ELOOP
                   ? CDDP_OK
                   : cddpi_fail_errno(CDDP_ERR_IO, errno, "look at %s", path);
    }
    return S_ISREG(info.st_mode)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "%s: it exists and is not a regular file, but %s",
                            path, cddpi_file_kind_text(info.st_mode));
}

static void release(struct cddpi_replacement *replacement)
{
    cddpi_fd_close(&replacement->dir);
    cddpi_free(replacement->path);
    cddpi_free(replacement->temporary);
    *replacement = (struct cddpi_replacement){0};
}

/* Takes over @p dir, the folder that holds @p path. */
static cddp_status open_in(int dir, const char *path, struct cddpi_replacement *out)
{
    struct cddpi_replacement opened = {.path = cddpi_strdup(path), .dir = dir};
    cddp_status status;

    if (opened.path == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, strlen(path));
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, check_place(opened.dir, path));
    opened.temporary = temporary_name(opened.dir, base_of(path));
    if (opened.temporary == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory, or no name, for a temporary file",
                            path);
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status,
                   cddpi_writer_open(&opened.writer, opened.dir, opened.temporary, opened.path));
    *out = opened;
    return CDDP_OK;

fail:
    release(&opened);
    return status;
}

cddp_status cddpi_replacement_open(const char *path, struct cddpi_replacement *out)
{
    int dir = -1;

    CDDPI_TRY(open_parent(path, &dir));
    return open_in(dir, path, out);
}

/* Rename the temporary file to its final name. @p flush: also flush the folder, which makes the
 * name durable; the contents are already flushed. */
static cddp_status move_in(const struct cddpi_replacement *replacement, const char *path,
                           bool flush)
{
    const char *base = base_of(path);

    if (cddpi_file_renameat(replacement->dir, replacement->temporary, base) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s to %s", replacement->temporary,
                                path);
    }
    if (flush && cddpi_file_fsync(replacement->dir) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno,
                                "flush the folder of %s (which is whole, but a loss of power now "
                                "may bring the old one back)",
                                path);
    }
    return CDDP_OK;
}

static cddp_status finish(struct cddpi_replacement *replacement, const char *path, bool flush)
{
    const char *name = path != NULL ? path : replacement->path;
    cddp_status status = flush ? cddpi_writer_finish(&replacement->writer)
                               : cddpi_writer_flush(&replacement->writer);

    assert(base_of(name) - name == base_of(replacement->path) - replacement->path);
    if (status == CDDP_OK) {
        status = move_in(replacement, name, flush);
    }
    if (status != CDDP_OK) {
        cddpi_replacement_discard(replacement);
        return status;
    }
    cddpi_writer_close(&replacement->writer);
    release(replacement);
    return CDDP_OK;
}

cddp_status cddpi_replacement_finish(struct cddpi_replacement *replacement, const char *path)
{
    return finish(replacement, path, true);
}

void cddpi_replacement_discard(struct cddpi_replacement *replacement)
{
    if (replacement->path == NULL) {
        return;
    }
    cddpi_writer_close(&replacement->writer);
    (void)unlinkat(replacement->dir, replacement->temporary, 0);
    release(replacement);
}

/* Whether temporary_name() of any process could have made @p name for @p base. */
static bool is_temporary(const char *name, const char *base)
{
    size_t length = strlen(base);
    int end = 0;

    return name[0] == '.' && strncmp(name + 1, base, length) == 0 &&
           sscanf(name + 1 + length, ".tmp-%*[0-9]-%*[0-9]%n", &end) == 0 && end > 0 &&
           name[1 + length + (size_t)end] == '\0';
}

static bool is_old(int dir, const char *name, int seconds)
{
    struct stat info;

    return fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           info.st_mtime < time(NULL) - seconds;
}

/* Closes @p dir. @p seconds: 0: whatever their age. */
static void sweep(int dir, const char *base, int seconds)
{
    const struct dirent *entry;
    DIR *stream = fdopendir(dir);

    if (stream == NULL) {
        cddpi_fd_close(&dir);
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (is_temporary(entry->d_name, base) &&
            (seconds == 0 || is_old(dir, entry->d_name, seconds))) {
            (void)cddpi_file_unlinkat(dir, entry->d_name, 0);
        }
    }
    closedir(stream);
}

void cddpi_replacement_sweep(const char *path)
{
    int dir = -1;

    if (open_parent(path, &dir) == CDDP_OK) {
        sweep(dir, base_of(path), 0);
    }
}

void cddpi_replacement_sweep_old(int dir, const char *name, int seconds)
{
    int own = cddpi_folder_open_fd(dir, ".", false);

    if (own >= 0) {
        sweep(own, name, seconds);
    }
}

/* Fill a file that has just been opened. */
static cddp_status fill(struct cddpi_replacement *replacement, cddpi_file_put_fn put, void *context,
                        bool flush)
{
    cddp_status status = put(context, &replacement->writer);

    if (status != CDDP_OK) {
        cddpi_replacement_discard(replacement);
        return status;
    }
    return finish(replacement, NULL, flush);
}

static cddp_status replace(const char *path, cddpi_file_put_fn put, void *context, bool flush)
{
    struct cddpi_replacement replacement;

    CDDPI_TRY(cddpi_replacement_open(path, &replacement));
    return fill(&replacement, put, context, flush);
}

cddp_status cddpi_file_replace(const char *path, cddpi_file_put_fn put, void *context)
{
    return replace(path, put, context, true);
}

cddp_status cddpi_file_replace_quickly(const char *path, cddpi_file_put_fn put, void *context)
{
    return replace(path, put, context, false);
}

cddp_status cddpi_file_replace_quickly_at(int dir, const char *path, cddpi_file_put_fn put,
                                          void *context)
{
    struct cddpi_replacement replacement;
    int own = fcntl(dir, F_DUPFD_CLOEXEC, 0);

    if (own < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder of %s", path);
    }
    CDDPI_TRY(open_in(own, path, &replacement));
    return fill(&replacement, put, context, false);
}

static cddp_status put_line(void *context, struct cddpi_writer *writer)
{
    return cddpi_writer_put_line(writer, *(const char *const *)context);
}

cddp_status cddpi_file_replace_line(const char *path, const char *text)
{
    return cddpi_file_replace(path, put_line, &text);
}
