/* snapshot.h - owns the names inside a folder of snapshots, and what the files of
 * src/runtime/checkpoint share about snapshots.
 *
 *     latest                    text: the name of the newest snapshot, for people and scripts
 *     step-00000500/            a complete snapshot
 *     .step-00000500.tmp-N/     being written or deleted by writer N: its place and process id
 *     .step-00000500.old-N/     the previous step-00000500, until the new one is in place
 *     .latest.tmp-N             the next `latest`, before its rename */
#ifndef CDDPI_CHECKPOINT_SNAPSHOT_H
#define CDDPI_CHECKPOINT_SNAPSHOT_H

#include "base/shared.h"
#include "checkpoint/safetensors.h"

#include <jansson.h>
#include <stdatomic.h>

enum { CDDPI_SNAPSHOT_NAME_BYTES = 64 };

/* The files of a snapshot, in the order in which they are written: state.json is the last. A folder
 * that contains any other file is never deleted. */
enum {
    CDDPI_SNAPSHOT_MODEL,
    CDDPI_SNAPSHOT_OPTIMIZER,
    CDDPI_SNAPSHOT_DATA_FILES,
    CDDPI_SNAPSHOT_STATE = CDDPI_SNAPSHOT_DATA_FILES,
    CDDPI_SNAPSHOT_FILES
};
extern const char *const cddpi_snapshot_files[CDDPI_SNAPSHOT_FILES];

enum cddpi_snapshot_kind {
    CDDPI_SNAPSHOT_WHOLE,
    CDDPI_SNAPSHOT_OLD,
    CDDPI_SNAPSHOT_TEMPORARY,
    CDDPI_SNAPSHOT_POINTER /* .latest.tmp-N */
};

struct cddpi_snapshot_entry {
    char name[CDDPI_SNAPSHOT_NAME_BYTES];
    enum cddpi_snapshot_kind kind;
    uint64_t step;
    int64_t writer; /* its place and process id; unused for CDDPI_SNAPSHOT_WHOLE */
};

/** The name of an entry of @p kind for @p step, with this process's id where the kind has one. */
void cddpi_snapshot_name(enum cddpi_snapshot_kind kind, uint64_t step,
                         char out[CDDPI_SNAPSHOT_NAME_BYTES]);

/** Read what the caller passed to cddp_snapshot_write(). Fails if something is NULL or too large.
 */
cddp_status cddpi_snapshot_read(const char *dir, const cddp_snapshot *snapshot, cddp_snapshot *out);

/** List the entries of @p dir that have names as above. The newest step comes first; among entries
 *  of the same step, the complete snapshot comes first. @p shown names the folder in errors.
 *  @param out  Release with cddpi_free(). */
cddp_status cddpi_snapshot_list(int dir, const char *shown, struct cddpi_snapshot_entry **out,
                                size_t *out_count);

/** Whether the folder @p dir holds snapshots, complete or broken. False if it does not exist or is
 *  not a folder; an error if it cannot be read.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
CDDPI_SHARED cddp_status cddpi_snapshot_any(const char *dir, bool *out);

/** Delete the folder @p name, unless it is a link or contains files that are not a snapshot's. If
 *  it stays, a warning in the log says why. */
void cddpi_snapshot_remove(int dir, const char *shown, const char *name);
/** Delete a complete snapshot: rename it first, so that a half-deleted folder never looks like a
 *  snapshot. Otherwise like cddpi_snapshot_remove(). */
void cddpi_snapshot_discard(int dir, const char *shown, const struct cddpi_snapshot_entry *entry);

/** Check by checksums that the snapshot at @p path is complete and belongs to @p step.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_snapshot_verify(const char *path, uint64_t step);
/** Whether this thread's last failure, @p status, means that a snapshot is broken: wrong contents,
 * or a bad disk. Other failures, such as missing permission or no free descriptors, may be
 * temporary: an older snapshot instead would throw away training steps. */
CDDPI_SHARED bool cddpi_snapshot_is_broken(cddp_status status);
/** Like cddpi_snapshot_verify(), for who needs only the model, of any step. */
CDDPI_SHARED cddp_status cddpi_snapshot_verify_model(const char *path);

/* The space that a snapshot needs. snapshot_room.c */
struct cddpi_snapshot_room {
    bool is_missing;    /* the write failed: the disk is full or a quota is exceeded */
    uint64_t wanted;    /* bytes that the snapshot takes, estimated */
    uint64_t least;     /* bytes that the snapshot takes at least: the tensors' data */
    uint64_t available; /* free bytes of the file system; a quota may allow fewer */
};

struct cddpi_shared_copy;

/* Where the data of tensors comes from that have none in this process's memory, and how far the
 * write has come. All zeros: all data is in memory. */
struct cddpi_snapshot_source {
    /* Copy all data of tensor @p index to @p out. May be called several times for each tensor: if
     * the disk is full, the files are written again after older snapshots were deleted. */
    cddp_status (*fetch)(void *context, size_t index, void *out);
    void *contexts[CDDPI_SNAPSHOT_DATA_FILES]; /* fetch's context: the model's, the optimizer's */
    atomic_ullong *progress; /* counts the bytes that were written, for another thread; or NULL */
    struct cddpi_shared_copy *shared; /* has all data, which others help to write; or NULL */
};

/** Like cddp_snapshot_write() without a handle, for the only writer of this process.
 *  @param snapshot  As cddpi_snapshot_read() gives it.
 *  @param source    NULL: all data is in memory.
 *  @param spare     If the disk is full and @p keep is not 0, the oldest snapshots are deleted
 *                   until there is space. At least this many stay, and always the newest complete
 *                   one. If deleting would not free enough space, all stay.
 *  @param out_room  Set unless CDDP_ERR_ARGUMENT is returned. */
cddp_status cddpi_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                 const struct cddpi_snapshot_source *source, unsigned keep,
                                 unsigned spare, struct cddpi_snapshot_room *out_room);

/** The same into the open folder @p folder, whatever its name has become; -1: open @p dir, and
 * create it if it does not exist. */
cddp_status cddpi_snapshot_write_into(int folder, const char *dir, const cddp_snapshot *snapshot,
                                      const struct cddpi_snapshot_source *source, unsigned keep,
                                      unsigned spare, struct cddpi_snapshot_room *out_room);

/* The tensors of a snapshot as memory to load into. */
struct cddpi_snapshot_params {
    const cddp_param *model;
    size_t model_count;
    const cddp_param *optimizer;
    size_t optimizer_count;
};

/** Like cddp_snapshot_find(), for who needs only the model: the optimizer's file, of twice its
 * size, is not read. */
CDDPI_SHARED cddp_status cddpi_snapshot_find_model(const char *dir, char **out_path,
                                                   char **out_skipped);

/** Open the data files of the snapshot at @p path. Check their checksums, and that their tensors
 *  have the names, types and shapes of those in @p into. Does not use the memory of @p into.
 *  @param out  The model's and the optimizer's file; release with cddp_safetensors_close(). NULL on
 *              error. */
cddp_status cddpi_snapshot_open(const char *path, const struct cddpi_snapshot_params *into,
                                cddp_safetensors *out[CDDPI_SNAPSHOT_DATA_FILES]);

/** Whether this thread's last failure was a full disk or an exceeded quota. */
bool cddpi_snapshot_wants_room(void);
/** Compute how much space @p snapshot needs and how much the file system of @p dir has. */
void cddpi_snapshot_measure(int dir, const cddp_snapshot *snapshot,
                            struct cddpi_snapshot_room *out);
/** Delete the oldest snapshot by the rules of cddpi_snapshot_write(), but not that of @p step.
 *  False: no snapshot may be deleted, deleting would not help, or it failed. */
bool cddpi_snapshot_make_room(int dir, const char *shown, uint64_t step, unsigned spare,
                              const struct cddpi_snapshot_room *room);

/** Wait until no other thread of this process writes a snapshot or recovers one, and keep other
 *  threads from it until cddpi_snapshot_end_turn(). */
void cddpi_snapshot_take_turn(void);
void cddpi_snapshot_end_turn(void);

/** Remove what crashed writers left behind, and finish replacements that they had begun.
 *  @param alone  The caller knows that no other writer is at work. Then every temporary entry
 *                belongs to a crashed writer, even if another process has its process id now. */
void cddpi_snapshot_sweep(int dir, const char *shown, bool alone);

/** Write @p text and a newline to the new file @p name in @p dir and flush it. @p shown names the
 *  file in errors. */
cddp_status cddpi_snapshot_write_text(int dir, const char *name, const char *shown,
                                      const char *text);

/* Replace `latest` in two steps: write a temporary file, which needs disk space, then rename it,
 * which needs none. */
cddp_status cddpi_pointer_write(int dir, const char *shown, const char *name);
cddp_status cddpi_pointer_move(int dir, const char *shown);
/** Do both steps if `latest` does not name @p name yet. A failure is only a warning in the log. If
 *  the disk is full, delete the old `latest` first: it is for people, and can be made again. */
void cddpi_pointer_set(int dir, const char *shown, const char *name);
/** Remove this process's temporary file for `latest`, if it exists. */
void cddpi_pointer_discard(int dir);

/* The document in state.json: format, version, step, files (name: bytes and blake2b), state, and
 * blake2b. The last is the checksum of all the others, as compact JSON with sorted keys. */
enum { CDDPI_STATE_VERSION = 1, CDDPI_STATE_BYTES_MAX = 64 << 20 };

/** Put the document's own checksum into it. False: no memory. */
bool cddpi_state_seal(json_t *document);
/** Read and check the document at @p path.
 *  @param out  Release with json_decref(). */
cddp_status cddpi_state_read(const char *path, json_t **out);

#endif
