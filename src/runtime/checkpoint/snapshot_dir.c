/* snapshot_dir.c - owns the names in a folder of snapshots: listing them, deleting snapshots, and
 * sweeping up what crashed writers left. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "checkpoint/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* An entry this old has no living writer. If its process id exists, another process has it now. */
enum { STALE_SECONDS = 3600 };

const char *const cddpi_snapshot_files[CDDPI_SNAPSHOT_FILES] = {
    [CDDPI_SNAPSHOT_MODEL] = "model.safetensors",
    [CDDPI_SNAPSHOT_OPTIMIZER] = "optimizer.safetensors",
    [CDDPI_SNAPSHOT_STATE] = "state.json"};

static void name_of(enum cddpi_snapshot_kind kind, uint64_t step, int64_t writer,
                    char out[CDDPI_SNAPSHOT_NAME_BYTES])
{
    switch (kind) {
    case CDDPI_SNAPSHOT_WHOLE:
        snprintf(out, CDDPI_SNAPSHOT_NAME_BYTES, "step-%08" PRIu64, step);
        break;
    case CDDPI_SNAPSHOT_OLD:
        snprintf(out, CDDPI_SNAPSHOT_NAME_BYTES, ".step-%08" PRIu64 ".old-%" PRId64, step, writer);
        break;
    case CDDPI_SNAPSHOT_TEMPORARY:
        snprintf(out, CDDPI_SNAPSHOT_NAME_BYTES, ".step-%08" PRIu64 ".tmp-%" PRId64, step, writer);
        break;
    case CDDPI_SNAPSHOT_POINTER:
        snprintf(out, CDDPI_SNAPSHOT_NAME_BYTES, ".latest.tmp-%" PRId64, writer);
        break;
    }
}

/* A hash, in the high half, of where this process's id is unique: hosts may share the folder. */
static int64_t place_here(void)
{
    char place[CDDPI_PROCESS_PLACE_BYTES];

    cddpi_process_place(place);
    return (int64_t)(cddpi_hash_text(cddpi_hash_start, place) >> 33 << 32);
}

void cddpi_snapshot_name(enum cddpi_snapshot_kind kind, uint64_t step,
                         char out[CDDPI_SNAPSHOT_NAME_BYTES])
{
    name_of(kind, step, place_here() | getpid(), out);
}

/* Parse the digits from @p text up to @p end as a number. */
static bool parse_part(const char *text, const char *end, int64_t *out)
{
    char digits[24];
    size_t length = (size_t)(end - text);

    if (length == 0 || length >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, length);
    digits[length] = '\0';
    return cddpi_parse_integer(digits, 0, INT64_MAX, out);
}

/* Parse @p name. False: cddpi_snapshot_name() would not have made exactly this name. */
static bool parse_name(const char *name, struct cddpi_snapshot_entry *out)
{
    static const struct {
        const char *mark;
        enum cddpi_snapshot_kind kind;
    } marks[] = {{".old-", CDDPI_SNAPSHOT_OLD}, {".tmp-", CDDPI_SNAPSHOT_TEMPORARY}};
    struct cddpi_snapshot_entry entry = {.kind = CDDPI_SNAPSHOT_WHOLE};
    int64_t step = 0;

    if (strlen(name) >= sizeof entry.name) {
        return false;
    }
    if (strncmp(name, ".latest.tmp-", 12) == 0) {
        entry.kind = CDDPI_SNAPSHOT_POINTER;
        if (!parse_part(name + 12, name + strlen(name), &entry.writer)) {
            return false;
        }
    } else if (strncmp(name, "step-", 5) == 0) {
        if (!parse_part(name + 5, name + strlen(name), &step)) {
            return false;
        }
    } else if (strncmp(name, ".step-", 6) == 0) {
        const char *mark = NULL;

        for (size_t i = 0; i < 2 && mark == NULL; i++) {
            mark = strstr(name, marks[i].mark);
            entry.kind = marks[i].kind;
        }
        if (mark == NULL || !parse_part(name + 6, mark, &step) ||
            !parse_part(mark + 5, name + strlen(name), &entry.writer)) {
            return false;
        }
    } else {
        return false;
    }
    entry.step = (uint64_t)step;
    name_of(entry.kind, entry.step, entry.writer, entry.name);
    if (strcmp(entry.name, name) != 0) {
        return false;
    }
    *out = entry;
    return true;
}

static int compare_entries(const void *left, const void *right)
{
    const struct cddpi_snapshot_entry *a = left;
    const struct cddpi_snapshot_entry *b = right;

    if (a->step != b->step) {
        return a->step > b->step ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Open the folder @p name in @p dir for readdir(), without following a link. */
static DIR *open_stream(int dir, const char *name)
{
    int fd = cddpi_folder_open_fd(dir, name, false);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;

    if (stream == NULL && fd >= 0) {
        close(fd);
    }
    return stream;
}

cddp_status cddpi_snapshot_list(int dir, const char *shown, struct cddpi_snapshot_entry **out,
                                size_t *out_count)
{
    struct cddpi_snapshot_entry *entries = NULL;
    size_t count = 0;
    size_t room = 0;
    const struct dirent *row;
    cddp_status status;
    DIR *stream = open_stream(dir, ".");

    if (stream == NULL) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "list the folder %s", shown);
    }
    while ((errno = 0, row = readdir(stream)) != NULL) {
        struct cddpi_snapshot_entry entry;
        struct cddpi_snapshot_entry *more;

        if (!parse_name(row->d_name, &entry)) {
            continue;
        }
        more = cddpi_grow(entries, &room, count + 1, sizeof *entries);
        if (more == NULL) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu names", shown, count);
            goto fail;
        }
        entries = more;
        entries[count++] = entry;
    }
    if (errno != 0) { /* an incomplete list would make existing snapshots look missing */
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "list the folder %s", shown);
        goto fail;
    }
    closedir(stream);
    if (count > 0) {
        qsort(entries, count, sizeof *entries, compare_entries);
    }
    *out = entries;
    *out_count = count;
    return CDDP_OK;

fail:
    closedir(stream);
    cddpi_free(entries);
    return status;
}

cddp_status cddpi_snapshot_any(const char *dir, bool *out)
{
    struct cddpi_snapshot_entry *entries = NULL;
    size_t count = 0;
    int fd = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    cddp_status status;

    *out = false;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return CDDP_OK;
    }
    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s", dir);
    }
    status = cddpi_snapshot_list(fd, dir, &entries, &count);
    close(fd);
    for (size_t i = 0; status == CDDP_OK && i < count; i++) {
        *out = *out || entries[i].kind == CDDPI_SNAPSHOT_WHOLE ||
               entries[i].kind == CDDPI_SNAPSHOT_OLD;
    }
    cddpi_free(entries);
    return status;
}

static bool is_ours(const char *name)
{
    for (int i = 0; i < CDDPI_SNAPSHOT_FILES; i++) {
        if (strcmp(name, cddpi_snapshot_files[i]) == 0) {
            return true;
        }
    }
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void left_alone(const char *shown, const char *name, const char *why)
{
    cddpi_log(CDDPI_LOG_WARN, "checkpoint: %s/%s is not deleted: %s", shown, name, why);
}

/* Open @p name for readdir() if it is a folder that contains only a snapshot's files. */
static DIR *open_if_ours(int dir, const char *shown, const char *name)
{
    DIR *stream = open_stream(dir, name);
    const struct dirent *row;
    const char *why = NULL;

    if (stream == NULL) {
        if (errno != ENOENT) {
            left_alone(shown, name, strerror(errno));
        }
        return NULL;
    }
    while ((errno = 0, row = readdir(stream)) != NULL) {
        if (!is_ours(row->d_name)) {
            why = "it holds files that cddp did not write";
            break;
        }
    }
    if (row == NULL && errno == 0) {
        return stream;
    }
    left_alone(shown, name, why != NULL ? why : strerror(errno));
    closedir(stream);
    return NULL;
}

void cddpi_snapshot_remove(int dir, const char *shown, const char *name)
{
    DIR *stream = open_if_ours(dir, shown, name);

    if (stream == NULL) {
        return;
    }
    for (int i = CDDPI_SNAPSHOT_FILES - 1; i >= 0; i--) {
        if (cddpi_file_unlinkat(dirfd(stream), cddpi_snapshot_files[i], 0) != 0 &&
            errno != ENOENT) {
            left_alone(shown, name, strerror(errno));
            closedir(stream);
            return;
        }
    }
    closedir(stream);
    if (cddpi_file_unlinkat(dir, name, AT_REMOVEDIR) != 0) {
        left_alone(shown, name, strerror(errno));
    }
}

void cddpi_snapshot_discard(int dir, const char *shown, const struct cddpi_snapshot_entry *entry)
{
    char temporary[CDDPI_SNAPSHOT_NAME_BYTES];
    DIR *stream = open_if_ours(dir, shown, entry->name);

    if (stream == NULL) {
        return;
    }
    closedir(stream);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_TEMPORARY, entry->step, temporary);
    if (cddpi_file_renameat(dir, entry->name, temporary) != 0) {
        left_alone(shown, entry->name, strerror(errno));
        return;
    }
    cddpi_snapshot_remove(dir, shown, temporary);
}

/* Whether the writer of this temporary entry can no longer be at work. */
static bool is_abandoned(int dir, const struct cddpi_snapshot_entry *entry)
{
    int64_t place = entry->writer >> 32 << 32;
    pid_t pid = (pid_t)(entry->writer & INT32_MAX);
    struct stat info;

    /* versions before 0.2 give no place */
    if ((place == 0 || place == place_here()) &&
        (pid == getpid() || pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH))) {
        return true;
    }
    return fstatat(dir, entry->name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           time(NULL) - info.st_mtime > STALE_SECONDS;
}

/* A writer died after it had moved an old snapshot aside. Delete the old one if the new one is in
 * place, else move the old one back. */
static void sweep_old(int dir, const char *shown, const struct cddpi_snapshot_entry *entry)
{
    char whole[CDDPI_SNAPSHOT_NAME_BYTES];

    cddpi_snapshot_name(CDDPI_SNAPSHOT_WHOLE, entry->step, whole);
    if (faccessat(dir, whole, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        cddpi_snapshot_remove(dir, shown, entry->name);
    } else if (cddpi_file_renameat(dir, entry->name, whole) != 0) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: rename %s/%s back to %s: %s", shown, entry->name,
                  whole, strerror(errno));
    }
}

void cddpi_snapshot_sweep(int dir, const char *shown, bool alone)
{
    struct cddpi_snapshot_entry *entries;
    size_t count;

    if (cddpi_snapshot_list(dir, shown, &entries, &count) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: %s", cddp_last_error());
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (entries[i].kind == CDDPI_SNAPSHOT_WHOLE || !(alone || is_abandoned(dir, &entries[i]))) {
            continue;
        }
        if (entries[i].kind == CDDPI_SNAPSHOT_OLD) {
            sweep_old(dir, shown, &entries[i]);
        } else if (entries[i].kind == CDDPI_SNAPSHOT_TEMPORARY) {
            cddpi_snapshot_remove(dir, shown, entries[i].name);
        } else {
            (void)cddpi_file_unlinkat(dir, entries[i].name, 0);
        }
    }
    cddpi_free(entries);
}
