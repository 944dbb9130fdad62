/* snapshot.h - names inside a folder of snapshots, and what the files of src/runtime/checkpoint
 * share about them.
 *
 *     latest                    text: the name of the newest, for people and scripts
 *     step-00000500/            complete
 *     .step-00000500.tmp-PID/   being written, or being deleted
 *     .step-00000500.old-PID/   the previous step-00000500, until the new one is in place
 *     .latest.tmp-PID */
#ifndef CDDPI_CHECKPOINT_SNAPSHOT_H
#define CDDPI_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/safetensors.h"

#include <jansson.h>

enum { CDDPI_SNAPSHOT_NAME_BYTES = 64 };

/* The files of a snapshot; state.json is the last. A folder with other files is not deleted. */
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
    CDDPI_SNAPSHOT_POINTER /* .latest.tmp-PID */
};

struct cddpi_snapshot_entry {
    char name[CDDPI_SNAPSHOT_NAME_BYTES];
    enum cddpi_snapshot_kind kind;
    uint64_t step;
    int64_t pid; /* of its writer; unused for CDDPI_SNAPSHOT_WHOLE */
};

/** The name of a step's folder of @p kind, with this process's id. */
void cddpi_snapshot_name(enum cddpi_snapshot_kind kind, uint64_t step,
                         char out[CDDPI_SNAPSHOT_NAME_BYTES]);

/** Fail in the name of @p call if @p path, @p snapshot or a pointer in it is NULL. */
cddp_status cddpi_snapshot_check(const char *call, const char *path, const cddp_snapshot *snapshot);

/** All entries of @p dir with names as above: newest step first, and of one step the complete
 * snapshot first. Release with cddpi_free(). @p shown names the folder in errors. */
cddp_status cddpi_snapshot_list(int dir, const char *shown, struct cddpi_snapshot_entry **out,
                                size_t *out_count);

/** Whether the folder @p dir holds snapshots, complete or broken. If it does not exist or is not a
 *  folder, it holds none; if it cannot be read, that is an error.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_snapshot_any(const char *dir, bool *out);

/** Delete the snapshot folder @p name, unless it is a link or has files that are not a snapshot's.
 * If it stays, a warning in the log says why. */
void cddpi_snapshot_remove(int dir, const char *shown, const char *name);
/** The same for a complete one: rename it first, so that half of it is never taken for a snapshot.
 */
void cddpi_snapshot_discard(int dir, const char *shown, const struct cddpi_snapshot_entry *entry);

/** Check with its checksums that the snapshot at @p path is complete and that of @p step.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_snapshot_verify(const char *path, uint64_t step);

/* The space that a snapshot needs. snapshot_room.c */
struct cddpi_snapshot_room {
    bool is_missing;    /* the write failed because of a full disk or a quota */
    uint64_t wanted;    /* about how many bytes the snapshot takes */
    uint64_t least;     /* bytes that it takes at least */
    uint64_t available; /* free bytes of the file system; a quota may allow less */
};

/* The source of tensors whose data is not in this process's memory. The files may be written
 * several times, until there is space. */
struct cddpi_snapshot_source {
    cddpi_tensor_data_fn put;
    void *contexts[CDDPI_SNAPSHOT_DATA_FILES]; /* of the model's tensors, of the optimizer's */
};

/** Like cddp_snapshot_write().
 *  @param source    NULL: all data is in memory.
 *  @param spare     If there is no space and @p keep is not 0, the oldest snapshots are deleted
 * until there is. This many stay, and always the newest complete one. If deleting would not help,
 * all stay.
 *  @param out_room  Set unless CDDP_ERR_ARGUMENT is returned. */
cddp_status cddpi_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                 const struct cddpi_snapshot_source *source, unsigned keep,
                                 unsigned spare, struct cddpi_snapshot_room *out_room);

/** Open the data files of the snapshot at @p path. Their checksums are checked, and against @p into
 * the tensors' names, types and shapes, but not its memory.
 *  @param out  The model's and the optimizer's file; release with cddp_safetensors_close(). NULL on
 *              error. */
cddp_status cddpi_snapshot_open(const char *path, const cddp_snapshot *into,
                                cddp_safetensors *out[CDDPI_SNAPSHOT_DATA_FILES]);

/** Whether this thread's last failure was a lack of disk space. */
bool cddpi_snapshot_wants_room(void);
/** How much space @p snapshot needs, and how much the file system of @p dir has. */
void cddpi_snapshot_measure(int dir, const cddp_snapshot *snapshot,
                            struct cddpi_snapshot_room *out);
/** Delete the oldest snapshot as above, but not that of @p step. False: none may be deleted, or
 *  deleting failed. */
bool cddpi_snapshot_make_room(int dir, const char *shown, uint64_t step, unsigned spare,
                              const struct cddpi_snapshot_room *room);

/** Remove what crashed writers left, and finish what they had begun.
 *  @param alone  No other writer can be at work. Then every temporary entry is a crashed writer's,
 *                even if another process uses its process id now. */
void cddpi_snapshot_sweep(int dir, const char *shown, bool alone);

/** Write @p text and a newline as the new file @p name, which errors call @p shown, and flush it.
 */
cddp_status cddpi_snapshot_write_text(int dir, const char *name, const char *shown,
                                      const char *text);

/* Replace `latest` in two steps: write a temporary file, which may need space, and rename it. */
cddp_status cddpi_pointer_write(int dir, const char *shown, const char *name);
cddp_status cddpi_pointer_move(int dir, const char *shown);
/** Do both steps if `latest` names another snapshot. A failure is a warning in the log. If there is
 * no space for the new file, delete the old one first: `latest` is for people, and can be made
 * again. */
void cddpi_pointer_set(int dir, const char *shown, const char *name);
/** Remove the temporary file, if it exists. */
void cddpi_pointer_discard(int dir);

/* state.json's document: format, version, step, files (name: bytes and blake2b), state, and
 * blake2b: the checksum of all the rest, as compact text with sorted keys. */
enum { CDDPI_STATE_VERSION = 1, CDDPI_STATE_BYTES_MAX = 64 << 20 };

/** Put the document's own checksum into it; false: no memory. */
bool cddpi_state_seal(json_t *document);
/** Read and check the document at @p path; to be released with json_decref(). */
cddp_status cddpi_state_read(const char *path, json_t **out);

#endif
