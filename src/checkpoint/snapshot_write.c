/* snapshot_write.c - owns how a snapshot comes into being: beside, flushed, renamed, pointed at. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One snapshot on its way to the disk. */
struct writing {
    const char *shown; /* the folder of snapshots, for errors */
    int dir;           /* and open */
    const cddp_snapshot *snapshot;
    json_t *document; /* of state.json */
    char name[CDDPI_SNAPSHOT_NAME_BYTES];
    char temporary[CDDPI_SNAPSHOT_NAME_BYTES];
    char old[CDDPI_SNAPSHOT_NAME_BYTES];
    char pointer[CDDPI_SNAPSHOT_NAME_BYTES];
    bool has_old; /* a snapshot of this step lies aside, as `old` */
    bool is_in;   /* ours has its name */
};

/* The document of state.json, still without files and checksum. */
static cddp_status begin_document(struct writing *writing)
{
    const char *text = writing->snapshot->state_json;
    json_error_t error;
    json_t *state = json_loads(text != NULL ? text : "{}", JSON_REJECT_DUPLICATES, &error);

    if (!json_is_object(state)) {
        json_decref(state);
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s/%s: the state is not a JSON object: %s",
                          writing->shown, writing->name,
                          state == NULL ? error.text : "another value");
    }
    writing->document = json_pack("{s:s, s:i, s:I, s:{}, s:o}", "format", "cddp snapshot",
                                  "version", CDDPI_STATE_VERSION, "step",
                                  (json_int_t)writing->snapshot->step, "files", "state", state);
    if (writing->document == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s/%s: no memory for the state", writing->shown,
                          writing->name);
    }
    return CDDP_OK;
}

/* Note a file's size and checksum in the document. */
static cddp_status note_file(struct writing *writing, const char *name, uint64_t bytes,
                             const unsigned char digest[CDDPI_DIGEST_BYTES])
{
    char hex[CDDPI_DIGEST_HEX_BYTES];

    sodium_bin2hex(hex, sizeof hex, digest, CDDPI_DIGEST_BYTES);
    if (json_object_set_new(json_object_get(writing->document, "files"), name,
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "blake2b", hex)) !=
        0) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s/%s: no memory for the state", writing->shown,
                          writing->name);
    }
    return CDDP_OK;
}

/* Write file @index of cddpi_snapshot_files. */
static cddp_status write_tensors(struct writing *writing, int into, int index)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* what HF's loaders ask for */
    const cddp_snapshot *snapshot = writing->snapshot;
    const char *name = cddpi_snapshot_files[index];
    unsigned char digest[CDDPI_DIGEST_BYTES];
    char *shown = cddpi_format("%s/%s/%s", writing->shown, writing->temporary, name);
    uint64_t bytes = 0;
    cddp_status status;

    if (shown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s/%s: no memory for a name", writing->shown, name);
    }
    status = cddpi_safetensors_put(
        into, name, shown, index == 0 ? snapshot->model : snapshot->optimizer,
        index == 0 ? snapshot->model_count : snapshot->optimizer_count, metadata, &bytes, digest);
    cddpi_free(shown);
    return status == CDDP_OK ? note_file(writing, name, bytes, digest) : status;
}

/* Write @text and a newline as the new file @name, which errors call @shown. */
static cddp_status write_text(int into, const char *name, const char *shown, const char *text)
{
    struct cddpi_writer writer;
    cddp_status status = cddpi_writer_open(&writer, into, name, shown);

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_writer_put_line(&writer, text);
    if (status == CDDP_OK) {
        status = cddpi_writer_finish(&writer);
    }
    cddpi_writer_close(&writer);
    return status;
}

static cddp_status write_state(struct writing *writing, int into)
{
    const char *name = cddpi_snapshot_files[CDDPI_SNAPSHOT_DATA_FILES];
    char *shown = cddpi_format("%s/%s/%s", writing->shown, writing->temporary, name);
    bool sealed = cddpi_state_seal(writing->document);
    char *text = sealed ? json_dumps(writing->document, JSON_INDENT(1)) : NULL;
    cddp_status status;

    if (shown == NULL || text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s/%s: no memory for the state", writing->shown,
                            writing->name);
    } else if (strlen(text) > CDDPI_STATE_BYTES_MAX) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %zu bytes of state; at most %d are allowed",
                            shown, strlen(text), CDDPI_STATE_BYTES_MAX);
    } else {
        status = write_text(into, name, shown, text);
    }
    free(text); /* jansson's */
    cddpi_free(shown);
    return status;
}

/* All files, flushed, into the temporary folder. */
static cddp_status write_files(struct writing *writing)
{
    cddp_status status = CDDP_OK;
    int into;

    if (cddpi_file_mkdirat(writing->dir, writing->temporary) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s/%s", writing->shown,
                                writing->temporary);
    }
    into = openat(writing->dir, writing->temporary,
                  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (into < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s/%s", writing->shown,
                                writing->temporary);
    }
    for (int i = 0; i < CDDPI_SNAPSHOT_DATA_FILES && status == CDDP_OK; i++) {
        status = write_tensors(writing, into, i);
    }
    if (status == CDDP_OK) {
        status = write_state(writing, into);
    }
    if (status == CDDP_OK && cddpi_file_fsync(into) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "flush the folder %s/%s", writing->shown,
                                  writing->temporary);
    }
    close(into);
    return status;
}

/* The new pointer, flushed, before anything is moved: from then on nothing needs space. */
static cddp_status write_pointer(struct writing *writing)
{
    char *shown = cddpi_format("%s/%s", writing->shown, writing->pointer);
    cddp_status status;

    if (shown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", writing->shown);
    }
    status = write_text(writing->dir, writing->pointer, shown, writing->name);
    cddpi_free(shown);
    return status;
}

static cddp_status fail_rename(const struct writing *writing, const char *from, const char *to)
{
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s/%s to %s", writing->shown, from, to);
}

/* Let the new folder take its name, from an older snapshot of the same step if need be, and then
 * the pointer. Between the two renames the old one is found under its other name. */
static cddp_status move_in(struct writing *writing)
{
    struct stat info;

    if (fstatat(writing->dir, writing->name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        if (!S_ISDIR(info.st_mode)) {
            return cddpi_fail(CDDP_ERR_IO, "%s/%s is in the way: it is not a folder",
                              writing->shown, writing->name);
        }
        if (cddpi_file_renameat(writing->dir, writing->name, writing->old) != 0) {
            return fail_rename(writing, writing->name, writing->old);
        }
        writing->has_old = true;
    }
    if (cddpi_file_renameat(writing->dir, writing->temporary, writing->name) != 0) {
        return fail_rename(writing, writing->temporary, writing->name);
    }
    writing->is_in = true;
    if (cddpi_file_fsync(writing->dir) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "flush the folder %s", writing->shown);
    }
    if (cddpi_file_renameat(writing->dir, writing->pointer, "latest") != 0) {
        return fail_rename(writing, writing->pointer, "latest");
    }
    if (cddpi_file_fsync(writing->dir) != 0) {
        /* the snapshot itself is flushed, and nobody trusts the pointer alone */
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: flush the folder %s: %s", writing->shown,
                  strerror(errno));
    }
    return CDDP_OK;
}

/* Back to how it was before. Where even that fails, the next write sweeps up what is left over. */
static void move_back(struct writing *writing)
{
    if (writing->is_in &&
        cddpi_file_renameat(writing->dir, writing->name, writing->temporary) != 0) {
        return;
    }
    if (writing->has_old) {
        (void)cddpi_file_renameat(writing->dir, writing->old, writing->name);
    }
    cddpi_snapshot_remove(writing->dir, writing->shown, writing->temporary);
    (void)cddpi_file_unlinkat(writing->dir, writing->pointer, 0);
}

/* Delete all but the newest @keep, the one just written always being one of them. */
static void delete_older(const struct writing *writing, unsigned keep)
{
    struct cddpi_snapshot_entry *entries;
    size_t count;
    unsigned kept = 1;

    if (keep == 0) {
        return;
    }
    if (cddpi_snapshot_list(writing->dir, writing->shown, &entries, &count) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: %s", cddp_last_error());
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (entries[i].kind != CDDPI_SNAPSHOT_WHOLE || entries[i].step == writing->snapshot->step) {
            continue;
        }
        if (kept < keep) {
            kept++;
            continue;
        }
        cddpi_snapshot_discard(writing->dir, writing->shown, &entries[i]);
    }
    cddpi_free(entries);
}

cddp_status cddp_snapshot_write(const char *dir, const cddp_snapshot *snapshot, unsigned keep)
{
    struct writing writing = {.shown = dir, .snapshot = snapshot, .dir = -1};
    cddp_status status;

    if (dir == NULL || dir[0] == '\0' || snapshot == NULL || snapshot->step > INT64_MAX ||
        (snapshot->model == NULL && snapshot->model_count > 0) ||
        (snapshot->optimizer == NULL && snapshot->optimizer_count > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "write a snapshot: no folder, no tensors or a step above 2^63 - 1");
    }
    cddpi_snapshot_name(CDDPI_SNAPSHOT_WHOLE, snapshot->step, writing.name);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_TEMPORARY, snapshot->step, writing.temporary);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_OLD, snapshot->step, writing.old);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, snapshot->step, writing.pointer);
    status = begin_document(&writing);
    if (status == CDDP_OK) {
        status = cddpi_file_open_dir(dir, &writing.dir);
    }
    if (status != CDDP_OK) {
        goto done;
    }
    cddpi_snapshot_sweep(writing.dir, dir);
    status = write_files(&writing);
    if (status == CDDP_OK) {
        status = write_pointer(&writing);
    }
    if (status == CDDP_OK) {
        status = move_in(&writing);
    }
    if (status != CDDP_OK) {
        move_back(&writing);
        goto done;
    }
    if (writing.has_old) {
        cddpi_snapshot_remove(writing.dir, dir, writing.old);
    }
    delete_older(&writing, keep);

done:
    if (writing.dir >= 0) {
        close(writing.dir);
    }
    json_decref(writing.document);
    return status;
}
