/* snapshot_write.c - owns writing a snapshot: into a temporary folder, which is flushed, renamed to
 * its final name, and then named by `latest`. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shared_copy.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A snapshot while it is written. */
struct writing {
    const char *shown; /* the folder of snapshots, for errors */
    int dir;           /* descriptor of that folder */
    const cddp_snapshot *snapshot;
    const struct cddpi_snapshot_source *source; /* NULL: the data is in memory */
    json_t *document;                           /* for state.json */
    char name[CDDPI_SNAPSHOT_NAME_BYTES];
    char temporary[CDDPI_SNAPSHOT_NAME_BYTES];
    char old[CDDPI_SNAPSHOT_NAME_BYTES];
    bool has_old;     /* an older snapshot of this step was renamed to `old` */
    bool is_in;       /* the new snapshot was renamed to `name` */
    bool has_pointer; /* the new `latest` is written but not renamed yet */
};

/* Make the document for state.json, still without files and checksum. */
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

/* Put a file's size and checksum into the document. */
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

/* One of the data files. */
struct tensor_file {
    int index;                                  /* of cddpi_snapshot_files */
    const struct cddpi_snapshot_source *source; /* NULL: the data is in memory */
    void *context;                              /* of source->fetch */
    const cddp_tensor *tensors;
};

/* A piece is still in the processor's cache when it is written after it was hashed. */
enum { PIECE_BYTES = 1 << 18 };

static cddp_status put_pieces(const struct tensor_file *file, const unsigned char *data,
                              size_t bytes, struct cddpi_writer *writer)
{
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        CDDPI_TRY(cddpi_writer_put(writer, data + at, piece));
        if (file->source != NULL && file->source->progress != NULL) {
            atomic_fetch_add(file->source->progress, piece);
        }
    }
    return CDDP_OK;
}

/* A cddpi_tensor_data_fn. */
static cddp_status put_tensor(void *context, size_t index, struct cddpi_writer *writer)
{
    const struct tensor_file *file = context;
    const cddp_tensor *tensor = &file->tensors[index];
    size_t bytes = cddpi_tensor_size(tensor);
    void *fetched;
    cddp_status status;

    if (tensor->data != NULL || bytes == 0) {
        return put_pieces(file, tensor->data, bytes, writer);
    }
    fetched = cddpi_alloc_aligned(bytes);
    CDDPI_TRY_MEMORY(fetched != NULL, "checkpoint: no memory for the %zu bytes of %s", bytes,
                     tensor->name);
    status = file->source->fetch(file->context, index, fetched);
    if (status == CDDP_OK) {
        status = put_pieces(file, fetched, bytes, writer);
    }
    cddpi_free(fetched);
    return status;
}

/* A cddpi_file_put_fn for data that ranks share. */
static cddp_status put_shared(void *context, struct cddpi_writer *writer)
{
    const struct tensor_file *file = context;

    return cddpi_shared_copy_write(file->source->shared, file->index, writer,
                                   file->source->progress);
}

/* Write file @p index of cddpi_snapshot_files. */
static cddp_status write_tensors(struct writing *writing, int into, int index)
{
    static const char *const metadata[] = {"format", "pt",
                                           NULL}; /* Hugging Face's loaders require it */
    const cddp_snapshot *snapshot = writing->snapshot;
    const struct cddpi_snapshot_source *source = writing->source;
    struct tensor_file file = {index, source, source != NULL ? source->contexts[index] : NULL,
                               index == CDDPI_SNAPSHOT_MODEL ? snapshot->model
                                                             : snapshot->optimizer};
    size_t count = index == CDDPI_SNAPSHOT_MODEL ? snapshot->model_count
                                                 : snapshot->optimizer_count;
    const char *name = cddpi_snapshot_files[index];
    unsigned char digest[CDDPI_DIGEST_BYTES];
    char *shown = cddpi_format("%s/%s/%s", writing->shown, writing->temporary, name);
    uint64_t bytes = 0;
    cddp_status status = CDDP_OK;

    if (shown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s/%s: no memory for a name", writing->shown, name);
    }
    if (source == NULL || source->fetch == NULL) {
        status = cddpi_safetensors_check(shown, file.tensors, count);
    }
    if (status == CDDP_OK && source != NULL && source->shared != NULL) {
        status = cddpi_safetensors_put_together(into, name, shown, file.tensors, count, metadata,
                                                put_shared, &file, &bytes, digest);
    } else if (status == CDDP_OK) {
        status = cddpi_safetensors_put(into, name, shown, file.tensors, count, metadata, put_tensor,
                                       &file, &bytes, digest);
    }
    cddpi_free(shown);
    return status == CDDP_OK ? note_file(writing, name, bytes, digest) : status;
}

static cddp_status write_state(struct writing *writing, int into)
{
    const char *name = cddpi_snapshot_files[CDDPI_SNAPSHOT_STATE];
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
        status = cddpi_snapshot_write_text(into, name, shown, text);
    }
    free(text); /* jansson allocated it */
    cddpi_free(shown);
    return status;
}

/* Write all files into the temporary folder and flush them. */
static cddp_status write_files(struct writing *writing)
{
    cddp_status status = CDDP_OK;
    int into;

    if (cddpi_file_mkdirat(writing->dir, writing->temporary) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s/%s", writing->shown,
                                writing->temporary);
    }
    into = cddpi_folder_open_fd(writing->dir, writing->temporary, false);
    if (into < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s/%s", writing->shown,
                                writing->temporary);
    }
    for (int i = 0; i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        CDDPI_TRY_GOTO(done, status, write_tensors(writing, into, i));
    }
    CDDPI_TRY_GOTO(done, status, write_state(writing, into));
    if (cddpi_file_fsync(into) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "flush the folder %s/%s", writing->shown,
                                  writing->temporary);
    }

done:
    close(into);
    return status;
}

static cddp_status rename_entry(const struct writing *writing, const char *from, const char *to)
{
    return cddpi_file_renameat(writing->dir, from, to) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s/%s to %s", writing->shown, from,
                                  to);
}

/* Rename an older snapshot of the same step to `old`, rename the new folder to its final name, and
 * then replace `latest`. After a crash between the two renames, a sweep moves the old one back. */
static cddp_status move_in(struct writing *writing)
{
    struct stat info;

    if (fstatat(writing->dir, writing->name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        if (!S_ISDIR(info.st_mode)) {
            return cddpi_fail(CDDP_ERR_IO, "%s/%s is in the way: it is not a folder",
                              writing->shown, writing->name);
        }
        CDDPI_TRY(rename_entry(writing, writing->name, writing->old));
        writing->has_old = true;
    }
    CDDPI_TRY(rename_entry(writing, writing->temporary, writing->name));
    writing->is_in = true;
    if (cddpi_file_fsync(writing->dir) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "flush the folder %s", writing->shown);
    }
    if (writing->has_pointer) {
        return cddpi_pointer_move(writing->dir, writing->shown);
    }
    cddpi_pointer_set(writing->dir, writing->shown, writing->name);
    return CDDP_OK;
}

/* Undo move_in() and remove the temporary entries. If that fails, the next write's sweep does it.
 */
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
    cddpi_pointer_discard(writing->dir);
}

/* Delete all but the newest @p keep snapshots. The one just written always counts as one of them,
 * even if others have a higher step. */
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
        if (kept++ >= keep) {
            cddpi_snapshot_discard(writing->dir, writing->shown, &entries[i]);
        }
    }
    cddpi_free(entries);
}

/* Write the complete snapshot. After a failure the caller calls move_back(). */
static cddp_status write_whole(struct writing *writing)
{
    cddp_status status;

    CDDPI_TRY(write_files(writing));
    /* the new `latest` is written before any rename: no later step needs disk space */
    status = cddpi_pointer_write(writing->dir, writing->shown, writing->name);
    writing->has_pointer = status == CDDP_OK;
    if (status != CDDP_OK && cddpi_snapshot_wants_room()) {
        cddpi_pointer_discard(writing->dir);
        status = CDDP_OK; /* a full disk may cost `latest`, but not the snapshot */
    }
    return status == CDDP_OK ? move_in(writing) : status;
}

/* Fail again with @p failure (the disk is full), and append how much space a checkpoint needs. */
static cddp_status fail_full(cddp_status status, const struct cddpi_failure *failure, bool by_quota,
                             const struct cddpi_snapshot_room *room)
{
    const double mib = 1 << 20;

    (void)cddpi_fail_again(status, failure);
    return by_quota
               ? cddpi_fail_suffix(status, "; a checkpoint takes about %.3g MiB",
                                   (double)room->wanted / mib)
               : cddpi_fail_suffix(status,
                                   "; a checkpoint takes about %.3g MiB, and %.3g MiB are free",
                                   (double)room->wanted / mib, (double)room->available / mib);
}

/* Write the snapshot. If the disk is full, delete older ones and try again. */
static cddp_status write_with_room(struct writing *writing, bool may_free, unsigned spare,
                                   struct cddpi_snapshot_room *room)
{
    for (;;) {
        cddp_status status = write_whole(writing);
        bool by_quota = cddpi_last_errno() == EDQUOT;
        struct cddpi_failure failure;

        if (status == CDDP_OK) {
            room->is_missing = false;
            return CDDP_OK;
        }
        room->is_missing = cddpi_snapshot_wants_room();
        move_back(writing);
        if (!room->is_missing) {
            return status;
        }
        failure = *cddpi_last_failure();
        cddpi_snapshot_measure(writing->dir, writing->snapshot, room);
        if (!may_free || !cddpi_snapshot_make_room(writing->dir, writing->shown,
                                                   writing->snapshot->step, spare, room)) {
            return fail_full(status, &failure, by_quota, room);
        }
        writing->has_old = false;
        writing->is_in = false;
    }
}

cddp_status cddpi_snapshot_write_into(int folder, const char *dir, const cddp_snapshot *snapshot,
                                      const struct cddpi_snapshot_source *source, unsigned keep,
                                      unsigned spare, struct cddpi_snapshot_room *out_room)
{
    struct writing writing = {.shown = dir, .snapshot = snapshot, .source = source, .dir = folder};
    cddp_status status;

    memset(out_room, 0, sizeof *out_room);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_WHOLE, snapshot->step, writing.name);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_TEMPORARY, snapshot->step, writing.temporary);
    cddpi_snapshot_name(CDDPI_SNAPSHOT_OLD, snapshot->step, writing.old);
    CDDPI_TRY_GOTO(done, status, begin_document(&writing));
    if (folder < 0) {
        CDDPI_TRY_GOTO(done, status, cddpi_file_open_dir(dir, &writing.dir));
    }
    cddpi_snapshot_sweep(writing.dir, dir, false);
    CDDPI_TRY_GOTO(done, status, write_with_room(&writing, keep > 0, spare, out_room));
    if (writing.has_old) {
        cddpi_snapshot_remove(writing.dir, dir, writing.old);
    }
    delete_older(&writing, keep);

done:
    if (folder < 0 && writing.dir >= 0) {
        close(writing.dir);
    }
    json_decref(writing.document);
    return status;
}

cddp_status cddpi_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                 const struct cddpi_snapshot_source *source, unsigned keep,
                                 unsigned spare, struct cddpi_snapshot_room *out_room)
{
    return cddpi_snapshot_write_into(-1, dir, snapshot, source, keep, spare, out_room);
}
