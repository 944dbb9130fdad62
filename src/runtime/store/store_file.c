/* store_file.c - owns the store in a file that all ranks share: which handle creates the file's
 * contents, joins them and removes the file, and the operations on the file.
 *
 * A file belongs to one run: to all handles that are open at overlapping times. The first handle
 * finds that no other handle holds the LIVE lock, and starts the file afresh whatever it contains.
 * So no handle reads the file of a crashed run. The last handle removes the file. Both need the
 * exclusive DATA lock. After getting that lock, a handle checks that the path still names the file
 * that it has opened; if not, it opens the path again. */
#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "store/file_log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CLOSE_MS = 20000, /* closing waits this long for the lock; after that the file stays */
    FIRST_PAUSE_US = 1000,
    LONGEST_PAUSE_US = 20000
};

struct file {
    struct cddpi_store_backend base;
    struct cddpi_file_log log;
    struct cddpi_table *table;
    char *path;
};

/* Whether @p path still names the file that @p fd has open. */
static bool is_at_path(int fd, const char *path)
{
    struct stat opened;
    struct stat named;

    return fstat(fd, &opened) == 0 && opened.st_nlink > 0 && lstat(path, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* With DATA locked exclusively: start the file afresh as its first handle, or join its run. */
static cddp_status enter(struct file *file)
{
    enum cddpi_file_kind kind;
    bool alone;
    bool joined;

    CDDPI_TRY(cddpi_file_kind(file->log.fd, &kind));
    if (kind == CDDPI_FILE_FOREIGN) {
        return cddpi_fail(CDDP_ERR_FORMAT, "the file is not a cddp store; it is left as it is");
    }
    CDDPI_TRY(cddpi_file_lock_try(file->log.fd, CDDPI_LOCK_LIVE, true, &alone));
    if (alone) {
        cddp_status status = cddpi_file_begin(&file->log);

        if (status != CDDP_OK) {
            (void)unlink(file->path); /* it is incomplete, and no other handle uses it */
            return status;
        }
    }
    CDDPI_TRY(cddpi_file_lock_try(file->log.fd, CDDPI_LOCK_LIVE, false, &joined));
    if (!joined) {
        /* not a handle of this store: those take LIVE exclusively only while they hold DATA */
        return cddpi_fail(CDDP_ERR_IO, "another program locks the file");
    }
    return alone ? CDDP_OK : cddpi_file_join(&file->log);
}

/* With DATA locked exclusively: stop using the file, and remove it if this is the last handle. Then
 * release LIVE before DATA: the next handle that gets DATA must find LIVE free. */
static void leave(struct file *file)
{
    bool alone;

    if (cddpi_file_lock_try(file->log.fd, CDDPI_LOCK_LIVE, true, &alone) == CDDP_OK && alone &&
        is_at_path(file->log.fd, file->path)) {
        (void)unlink(file->path);
    }
    cddpi_file_unlock(file->log.fd, CDDPI_LOCK_LIVE);
    cddpi_file_unlock(file->log.fd, CDDPI_LOCK_DATA);
}

/* Open the file, lock it and enter. *out_again: another handle removed the file between open and
 * lock, so try again. */
static cddp_status open_once(struct file *file, int64_t deadline_ns, bool *out_again)
{
    cddp_status status;

    *out_again = false;
    CDDPI_TRY(
        cddpi_file_open_own(file->path, O_RDWR | O_CREAT, S_IRUSR | S_IWUSR, false, &file->log.fd));
    (void)cddpi_own_fd(file->log.fd); /* else a child process would inherit and keep the locks */
    CDDPI_TRY_GOTO(fail, status,
                   cddpi_file_lock_wait(file->log.fd, CDDPI_LOCK_DATA, true, deadline_ns));
    if (!is_at_path(file->log.fd, file->path)) {
        *out_again = true;
        status = CDDP_ERR_IO;
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, enter(file));
    cddpi_file_unlock(file->log.fd, CDDPI_LOCK_DATA);
    return CDDP_OK;

fail:
    cddpi_own_fd_close(file->log.fd);
    file->log.fd = -1;
    return status;
}

/* Carry out an operation that does not wait for keys. */
static cddp_status perform_now(struct file *file, const struct cddpi_store_request *request,
                               int64_t deadline_ns, struct cddpi_table_outcome *outcome)
{
    bool reads = request->op == CDDPI_STORE_TRY_GET || request->op == CDDPI_STORE_GET ||
                 request->op == CDDPI_STORE_LIST;
    struct cddpi_effect effect = {0};
    uint64_t end;
    cddp_status status;

    CDDPI_TRY(cddpi_file_lock_wait(file->log.fd, CDDPI_LOCK_DATA, !reads, deadline_ns));
    status = cddpi_file_follow(&file->log, file->table);
    if (status == CDDP_OK) {
        cddpi_table_decide(file->table, request, &effect, outcome);
        if (effect.kind != CDDPI_EFFECT_NONE && outcome->status == CDDP_OK) {
            status = cddpi_file_append(&file->log, &effect, &end);
            /* if there is no memory for the table, the next operation reads the entry again */
            if (status == CDDP_OK && cddpi_table_commit(file->table, &effect, NULL)) {
                file->log.end = end;
            }
        }
        cddpi_effect_fini(&effect);
        if (status != CDDP_OK) {
            cddpi_value_release(outcome->value);
        }
    }
    cddpi_file_unlock(file->log.fd, CDDPI_LOCK_DATA);
    return status;
}

/* Check once whether all keys of a WAIT exist, or get the value of a GET. outcome->status is
 * NOT_FOUND if a key is missing. */
static cddp_status look(struct file *file, const struct cddpi_store_request *request,
                        int64_t deadline_ns, struct cddpi_table_outcome *outcome)
{
    struct cddpi_slice missing;
    size_t cursor = 0;
    cddp_status status;

    if (request->op == CDDPI_STORE_GET) {
        return perform_now(file, request, deadline_ns, outcome);
    }
    status = cddpi_file_lock_wait(file->log.fd, CDDPI_LOCK_DATA, false, deadline_ns);
    if (status == CDDP_OK) {
        status = cddpi_file_follow(&file->log, file->table);
        cddpi_file_unlock(file->log.fd, CDDPI_LOCK_DATA);
    }
    outcome->status = cddpi_table_first_missing(file->table, request->value, &cursor, &missing)
                          ? CDDP_ERR_NOT_FOUND
                          : CDDP_OK;
    return status;
}

/* Poll until the keys exist: other machines may change the file over NFS, which wakes no one here.
 */
static cddp_status perform_waiting(struct file *file, const struct cddpi_store_request *request,
                                   int64_t deadline_ns, struct cddpi_table_outcome *outcome)
{
    uint32_t pause_us = FIRST_PAUSE_US;

    for (;;) {
        /* the deadline is read before the look, so that the last look comes after it */
        bool last = cddpi_left_ms(deadline_ns) == 0;
        cddp_status status = look(file, request, deadline_ns, outcome);

        if (status != CDDP_OK || outcome->status != CDDP_ERR_NOT_FOUND) {
            return status;
        }
        if (last) {
            outcome->status = CDDP_ERR_TIMEOUT;
            if (request->op == CDDPI_STORE_WAIT) {
                outcome->value = cddpi_table_missing(file->table, request->value);
            }
            return CDDP_OK;
        }
        cddpi_pause(pause_us, deadline_ns);
        pause_us = pause_us * 3 / 2 < LONGEST_PAUSE_US ? pause_us * 3 / 2 : LONGEST_PAUSE_US;
    }
}

static cddp_status perform(struct cddpi_store_backend *backend,
                           const struct cddpi_store_request *request, int64_t deadline_ns,
                           struct cddpi_store_reply *out)
{
    struct file *file = (struct file *)backend;
    struct cddpi_table_outcome outcome = {.status = CDDP_OK};
    struct cddpi_store_reply reply = {.status = CDDP_OK};
    bool waits = request->op == CDDPI_STORE_GET || request->op == CDDPI_STORE_WAIT;

    CDDPI_TRY(waits ? perform_waiting(file, request, deadline_ns, &outcome)
                    : perform_now(file, request, deadline_ns, &outcome));
    if (outcome.value != NULL) {
        reply.data = cddpi_realloc(NULL, outcome.value->bytes + 1);
        if (reply.data == NULL) {
            cddpi_value_release(outcome.value);
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the answer");
        }
        memcpy(reply.data, outcome.value->data, outcome.value->bytes);
        reply.data[outcome.value->bytes] = '\0';
        reply.bytes = outcome.value->bytes;
        cddpi_value_release(outcome.value);
    }
    reply.status = outcome.status;
    reply.flag = outcome.flag;
    *out = reply;
    return CDDP_OK;
}

static void close_file(struct cddpi_store_backend *backend, bool forked)
{
    struct file *file = (struct file *)backend;

    if (file->log.fd >= 0) {
        if (!forked && cddpi_file_lock_wait(file->log.fd, CDDPI_LOCK_DATA, true,
                                            cddpi_deadline_ns(CLOSE_MS)) == CDDP_OK) {
            leave(file);
        } else if (!forked) {
            cddpi_file_unlock(file->log.fd, CDDPI_LOCK_LIVE); /* a clone() child may have fd */
        }
        cddpi_own_fd_close(file->log.fd);
    }
    cddpi_table_destroy(file->table);
    cddpi_free(file->path);
    cddpi_wipe(&file->log, sizeof file->log); /* it contains keys */
    cddpi_free(file);
}

static const struct cddpi_store_ops file_ops = {perform, close_file};

cddp_status cddpi_store_open_file(const char *path, const char *token, int64_t deadline_ns,
                                  struct cddpi_store_backend **out)
{
    struct file *file;
    bool again;
    cddp_status status;

    if (path[0] != '/') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "the path must be absolute: file:///path");
    }
    file = cddpi_zalloc(sizeof *file);
    CDDPI_TRY_MEMORY(file != NULL, "no memory");
    file->base.ops = &file_ops;
    file->log.fd = -1;
    file->path = cddpi_strdup(path);
    file->table = cddpi_table_create();
    if (file->path == NULL || file->table == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory");
        goto fail;
    }
    cddpi_auth_key(token, "cddp file store", file->log.key);
    do {
        status = open_once(file, deadline_ns, &again);
    } while (again && cddpi_left_ms(deadline_ns) > 0);
    if (status == CDDP_OK) {
        *out = &file->base;
        return CDDP_OK;
    }
    if (again) {
        status = cddpi_fail(CDDP_ERR_TIMEOUT, "the file was removed each time after it was opened");
    }

fail:
    close_file(&file->base, false);
    return status;
}
