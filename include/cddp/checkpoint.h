/** @file
 *  checkpoint.h - safetensors files, and directories of them that appear whole or not at all. Any
 * thread; a cddp_safetensors may be read by several at a time. All calls may give
 * CDDP_ERR_NO_MEMORY and, for NULL where something must be, CDDP_ERR_ARGUMENT. */
#ifndef CDDP_CHECKPOINT_H
#define CDDP_CHECKPOINT_H

#include <cddp/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A named tensor in the caller's memory. */
typedef struct cddp_tensor {
    /** Unique in its file. */
    const char *name;
    /** Type of its elements. */
    cddp_type type;
    /** 0 to CDDP_MAX_DIMS; 0 is a scalar. */
    int dims;
    /** Row-major. */
    int64_t shape[CDDP_MAX_DIMS];
    /** As many elements as the product of the shape. */
    void *data;

} cddp_tensor;

/** Write @p tensors to @p path in the safetensors format (data 64-byte aligned, sorted as given),
 * through a temporary file beside it that is flushed and then renamed.
 *  @param metadata  Pairs key, value, key, value ..., ended by NULL; NULL for none.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (two of a name, a name that is no UTF-8 ...), CDDP_ERR_IO
 *          (names the file): then an older file of that name is as it was. */
CDDP_CHECKED cddp_status cddp_safetensors_write(const char *path, const cddp_tensor *tensors,
                                                size_t count, const char *const *metadata);

/** An open file, memory-mapped. */
typedef struct cddp_safetensors cddp_safetensors;

/** Map @p path and check all of it: header length, JSON, every offset, no holes, no overlaps. Type
 *  BOOL is bool, whose bytes are 0 or 1.
 *  @param out  Release with cddp_safetensors_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_FORMAT (says what is wrong), CDDP_ERR_NOT_FOUND. */
CDDP_CHECKED cddp_status cddp_safetensors_open(const char *path, cddp_safetensors **out);
/** Release the file and all tensors of it; NULL is accepted. */
CDDP_API void cddp_safetensors_close(cddp_safetensors *file);
/** How many tensors it holds. */
CDDP_API size_t cddp_safetensors_count(const cddp_safetensors *file);
/** Tensor @p index in file order; data is read-only and valid until the file is closed. The format
 * allows no holes, so only the first tensor is sure to be aligned. NULL beyond the last. */
CDDP_API const cddp_tensor *cddp_safetensors_at(const cddp_safetensors *file, size_t index);
/** The tensor called @p name; NULL if there is none. */
CDDP_API const cddp_tensor *cddp_safetensors_find(const cddp_safetensors *file, const char *name);
/** Value of @p key in the metadata, or NULL. */
CDDP_API const char *cddp_safetensors_metadata(const cddp_safetensors *file, const char *key);
/** Copy the tensors of @p path into @p tensors' memory: same names, types and shapes, none missing
 * and none more. Nothing is written unless all fits; the error says which tensor does not.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND. */
CDDP_CHECKED cddp_status cddp_safetensors_load(const char *path, const cddp_tensor *tensors,
                                               size_t count);

/** A snapshot: DIR/step-00000500/{model.safetensors,optimizer.safetensors,state.json}, written as
 * DIR/.step-00000500.tmp-PID, flushed, renamed; then DIR/latest (a text file with its name) is
 * replaced. */
typedef struct cddp_snapshot {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** How many steps were made. */
    uint64_t step;
    /** What model.safetensors holds. */
    const cddp_tensor *model;
    /** How many tensors that are. */
    size_t model_count;
    /** What optimizer.safetensors holds. */
    const cddp_tensor *optimizer;
    /** How many tensors that are. */
    size_t optimizer_count;
    /** A JSON object: the position in the data, and whatever else the trainer needs. */
    const char *state_json;

} cddp_snapshot;
/** A cddp_snapshot of defaults. */
#define CDDP_SNAPSHOT_INIT                                                                         \
    {                                                                                              \
        sizeof(cddp_snapshot), 0, NULL, 0, NULL, 0, NULL                                           \
    }

/** Write @p snapshot below @p dir (made if missing), then delete all but the newest @p keep (0:
 * keep all) and left-overs of crashed writers. One process writes at a time: rank 0. Where the disk
 * is full, the oldest of those are deleted before it is written, but never the newest whole one. On
 * an error everything else is as it was before.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (the state is no JSON object ...), CDDP_ERR_IO,
 *          CDDP_ERR_UNAVAILABLE (libsodium, for checksums, does not start). */
CDDP_CHECKED cddp_status cddp_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                             unsigned keep);

/** Find the newest snapshot below @p dir that is whole: every file opens and matches the checksums
 * in its state.json. Broken ones are passed over.
 *  @param out_path     Its path; release with cddp_free().
 *  @param out_skipped  Text, one line for each newer snapshot that was passed over and why, or
 *                      NULL; release with cddp_free(). May itself be NULL.
 *  @return CDDP_ERR_NOT_FOUND if there is none that is whole (the text says which are broken). */
CDDP_CHECKED cddp_status cddp_snapshot_find(const char *dir, char **out_path, char **out_skipped);

/** As cddp_snapshot_find(), for the process that will write there, while nobody else does: also
 *  remove what crashed writers left behind, finish what they had begun, and let DIR/latest name
 *  what was found. If some of that cannot be done, the log has a warning. */
CDDP_CHECKED cddp_status cddp_snapshot_recover(const char *dir, char **out_path,
                                               char **out_skipped);

/** The state that was given to write for the snapshot at @p path (the same JSON object, in compact
 * form), and its step; each may be NULL. Release the text with cddp_free().
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND. */
CDDP_CHECKED cddp_status cddp_snapshot_read_state(const char *path, char **out_json,
                                                  uint64_t *out_step);

/** Load model and optimizer tensors of the snapshot at @p path, each as cddp_safetensors_load(),
 *  after their checksums were checked. Nothing is written unless both fit.
 *  @param into  Only its tensors are used.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND. */
CDDP_CHECKED cddp_status cddp_snapshot_load(const char *path, const cddp_snapshot *into);

#ifdef __cplusplus
}
#endif
#endif
