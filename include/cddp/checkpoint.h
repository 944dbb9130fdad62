/** @file
 *  checkpoint.h - safetensors files, and snapshots: directories of them, written atomically.
 *
 *  Any thread may call these functions, and several threads may read one cddp_safetensors at once.
 *  All calls may return CDDP_ERR_NO_MEMORY, and CDDP_ERR_ARGUMENT if a required argument is NULL.
 *
 *  Collective: no, all of these. (cddp_ddp_save() and cddp_ddp_load() of ddp.h are.) */
#ifndef CDDP_CHECKPOINT_H
#define CDDP_CHECKPOINT_H

#include <cddp/process.h>
#include <cddp/types.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Write @p tensors to @p path in the safetensors format, atomically: into a temporary file in the
 *  same directory, which is flushed and then renamed. The data are 64-byte aligned and in the order
 *  of @p tensors.
 *  @param metadata  Key, value, key, value ..., ended by NULL; NULL: no metadata.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (a name occurs twice, a name is not UTF-8 ...);
 *          CDDP_ERR_UNAVAILABLE (an unknown flag); CDDP_ERR_IO (the text names the file). On an
 *          error, an older file at @p path is unchanged. */
CDDP_CHECKED cddp_status cddp_safetensors_write(const char *path, const cddp_tensor *tensors,
                                                size_t count, const char *const *metadata);

/** An open file, memory-mapped. */
typedef struct cddp_safetensors cddp_safetensors;

/** Map @p path and check its whole structure: header length, JSON, every offset, no holes, no
 *  overlaps. The type BOOL becomes CDDP_BOOL; its bytes must be 0 or 1.
 *  @param out  Release with cddp_safetensors_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_FORMAT (the text says what is wrong), CDDP_ERR_NOT_FOUND.
 */
CDDP_CHECKED cddp_status cddp_safetensors_open(const char *path, cddp_safetensors **out);
/** Close the file; its tensors become invalid. NULL is accepted. */
CDDP_API void cddp_safetensors_close(cddp_safetensors *file);
/** How many tensors the file holds. */
CDDP_API size_t cddp_safetensors_count(const cddp_safetensors *file);
/** Tensor @p index in file order; NULL if @p index is not below the count. Its data is read-only
 *  and valid until the file is closed. Only the first tensor is sure to be aligned, since the
 *  format allows no holes. */
CDDP_API const cddp_tensor *cddp_safetensors_at(const cddp_safetensors *file, size_t index);
/** The tensor called @p name; NULL if there is none. */
CDDP_API const cddp_tensor *cddp_safetensors_find(const cddp_safetensors *file, const char *name);
/** The value of @p key in the metadata; NULL if there is none. */
CDDP_API const char *cddp_safetensors_metadata(const cddp_safetensors *file, const char *key);
/** Copy the tensors of @p path into the memory of @p params. Names, types and shapes must match,
 *  and neither side may have a tensor that the other lacks. If one does not match, nothing is
 *  copied, and the error names it. Gradients and CDDP_PARAM_FROZEN mean nothing here.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND,
 *          CDDP_ERR_UNAVAILABLE (an unknown flag). */
CDDP_CHECKED cddp_status cddp_safetensors_load(const char *path, const cddp_param *params,
                                               size_t count);

/** A snapshot is a directory DIR/step-00000500 with the files model.safetensors,
 *  optimizer.safetensors and state.json. It is written as DIR/.step-00000500.tmp-N, flushed and
 *  renamed. Then DIR/latest, a text file with the snapshot's name, is replaced. */
typedef struct cddp_snapshot {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** How many steps have been done. */
    uint64_t step;
    /** The tensors of model.safetensors. */
    const cddp_tensor *model;
    /** How many tensors model has. */
    size_t model_count;
    /** The tensors of optimizer.safetensors. */
    const cddp_tensor *optimizer;
    /** How many tensors optimizer has. */
    size_t optimizer_count;
    /** A JSON object: the position in the data, and whatever else the trainer needs to resume. */
    const char *state_json;

} cddp_snapshot;
/** The defaults of cddp_snapshot. */
#define CDDP_SNAPSHOT_INIT                                                                         \
    {                                                                                              \
        sizeof(cddp_snapshot), 0, NULL, 0, NULL, 0, NULL                                           \
    }
CDDP_NO_TAIL(cddp_snapshot, state_json);

/** How a snapshot is written; zero means default. */
typedef struct cddp_snapshot_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** How many snapshots to keep, with the new one; 0: all. */
    uint32_t keep;
    /** 0: there are no flags yet. */
    uint32_t flags;

} cddp_snapshot_options;
/** The defaults of cddp_snapshot_options. */
#define CDDP_SNAPSHOT_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(cddp_snapshot_options), 0, 0                                                        \
    }
CDDP_NO_TAIL(cddp_snapshot_options, flags);

/** A snapshot that a thread of cddp writes. */
typedef struct cddp_saving cddp_saving;

/** Write @p snapshot below @p dir, which is created if it does not exist. Then delete all snapshots
 *  but the newest options.keep, and files of crashed writers. If the disk is full, snapshots that
 *  would be deleted anyway are deleted before the write, oldest first, but never the newest
 *  complete one. Only one process may write at a time, for example rank 0. On an error, nothing but
 *  these deletions has happened, except that @p dir may be new.
 *
 *  Without @p out, the call returns when the snapshot is complete on the disk. With @p out, it
 *  copies everything, which takes as much memory as the tensors, and returns: the tensors may
 *  change at once. A thread of cddp then writes the copy, with the lowest priority. If the process
 *  ends before that thread is done, the snapshot does not exist, and the one before it is complete.
 *  Snapshots of a process are written one after another: the call waits until an earlier one is
 *  written. So at most two copies are in memory.
 *
 *  Collective: no.
 *  @param snapshot  Borrowed for the call, with all that it points to.
 *  @param options   NULL for all defaults.
 *  @param out       NULL, or receives a handle. Release with cddp_saving_destroy().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (state_json is not a JSON object ...), CDDP_ERR_IO,
 *          CDDP_ERR_NO_MEMORY, CDDP_ERR_UNAVAILABLE (an unknown flag; libsodium, which makes
 *          checksums, does not start). With @p out, cddp_saving_wait() returns the errors of the
 *          write itself. */
CDDP_CHECKED cddp_status cddp_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                             const cddp_snapshot_options *options,
                                             cddp_saving **out);
/** Check whether the snapshot is written, without waiting. A failed write is done, too: then the
 *  status is its error. Any thread. Collective: no.
 *  @return as cddp_saving_wait(). */
CDDP_CHECKED cddp_status cddp_saving_test(cddp_saving *saving, bool *out_done);
/** Wait until the snapshot is written, or writing has failed. Any thread; every call returns the
 *  same status. Collective: no.
 *  @return as cddp_snapshot_write(); CDDP_ERR_STATE (a forked child). */
CDDP_CHECKED cddp_status cddp_saving_wait(cddp_saving *saving);
/** Wait as cddp_saving_wait() does, then release the handle and the copy; NULL is accepted. If the
 *  write failed and no call has returned its error, the log has it as a warning. Collective: no. */
CDDP_API void cddp_saving_destroy(cddp_saving *saving);

/** Find the newest complete snapshot below @p dir: all its files open and match the checksums in
 *  state.json. Broken snapshots are skipped.
 *  @param out_path     Path of the snapshot; release with cddp_free().
 *  @param out_skipped  A text with one line for each newer snapshot that was skipped, and the
 *                      reason; NULL if none was. Release with cddp_free(). The parameter may be
 *                      NULL.
 *  @return CDDP_ERR_NOT_FOUND if no snapshot is complete (the text says which are broken). */
CDDP_CHECKED cddp_status cddp_snapshot_find(const char *dir, char **out_path, char **out_skipped);

/** Like cddp_snapshot_find(), for the process that will write below @p dir, while no other process
 *  writes there. It waits until a snapshot that a thread of this process writes is complete. It
 *  also removes files of crashed writers, completes renames that they had begun, and makes
 *  DIR/latest name the snapshot that was found. If some of that fails, the log has a warning. */
CDDP_CHECKED cddp_status cddp_snapshot_recover(const char *dir, char **out_path,
                                               char **out_skipped);

/** Read the state and the step of the snapshot at @p path.
 *  @param out_json  The JSON object that was written as state_json, in compact form; release with
 *                   cddp_free(). May be NULL.
 *  @param out_step  May be NULL.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND. */
CDDP_CHECKED cddp_status cddp_snapshot_read_state(const char *path, char **out_json,
                                                  uint64_t *out_step);

/** Check the checksums of the snapshot at @p path, then copy its tensors into the memory of
 *  @p model and @p optimizer, each as cddp_safetensors_load() does. If either does not match,
 *  nothing is copied.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND,
 *          CDDP_ERR_UNAVAILABLE (an unknown flag). */
CDDP_CHECKED cddp_status cddp_snapshot_load(const char *path, const cddp_param *model,
                                            size_t model_count, const cddp_param *optimizer,
                                            size_t optimizer_count);

#ifdef __cplusplus
}
#endif
#endif
