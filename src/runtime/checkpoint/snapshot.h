/* snapshot.h - names inside a folder of snapshots, and what the files of src/runtime/checkpoint
 * share about them.
 *
 *     latest                    text: the name of the newest, for people and scripts
 *     step-00000500/            whole
 *     .step-00000500.tmp-PID/   being written, or being deleted
 *     .step-00000500.old-PID/   was step-00000500 until its successor of that name was in place
 *     .latest.tmp-PID */
#ifndef CDDPI_CHECKPOINT_SNAPSHOT_H
#define CDDPI_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/safetensors.h"

#include <jansson.h>

enum { CDDPI_SNAPSHOT_NAME_BYTES = 64 };

/* The files of a snapshot: a folder that has others is not deleted. state.json is the last. */
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
    int64_t pid; /* not of CDDPI_SNAPSHOT_WHOLE */
};

/** The name of a step's folder, of @p kind and this process. */
void cddpi_snapshot_name(enum cddpi_snapshot_kind kind, uint64_t step,
                         char out[CDDPI_SNAPSHOT_NAME_BYTES]);

/** Whether @p path, @p snapshot and what it points at are there; @p call is for the text. */
cddp_status cddpi_snapshot_check(const char *call, const char *path, const cddp_snapshot *snapshot);

/** All entries of @p dir with names as above, newest step first, a whole one before its old one.
 * Release with cddpi_free(). @p shown names the folder in errors. */
cddp_status cddpi_snapshot_list(int dir, const char *shown, struct cddpi_snapshot_entry **out,
                                size_t *out_count);

/** Whether the folder @p dir holds snapshots, whole or broken. None are where it is missing or no
 *  folder; what cannot be read is an error, never "none".
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_snapshot_any(const char *dir, bool *out);

/** Delete the snapshot folder @p name, but never through a link, nor if it has files that are not a
 *  snapshot's. A warning in the log says why it is still there. */
void cddpi_snapshot_remove(int dir, const char *shown, const char *name);
/** The same for a whole one: renamed first, so that half of it is never taken for a snapshot. */
void cddpi_snapshot_discard(int dir, const char *shown, const struct cddpi_snapshot_entry *entry);

/** Whether the snapshot at @p path is whole and that of @p step, by its checksums.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_IO, CDDP_ERR_NOT_FOUND, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_snapshot_verify(const char *path, uint64_t step);

/* The room that a snapshot wants. snapshot_room.c */
struct cddpi_snapshot_room {
    bool is_missing;    /* the write failed because there is none: a full disk, or a quota */
    uint64_t wanted;    /* bytes that the snapshot takes, about */
    uint64_t least;     /* bytes that it takes at least */
    uint64_t available; /* bytes that the file system has; a quota may give less */
};

/* Where the tensors' data comes from that is not in this process's memory. The files may be written
 * several times, until there is room. */
struct cddpi_snapshot_source {
    cddpi_tensor_data_fn put;
    void *contexts[CDDPI_SNAPSHOT_DATA_FILES]; /* of the model's tensors, of the optimizer's */
};

/** As cddp_snapshot_write().
 *  @param source    NULL: all data is in memory.
 *  @param spare     If there is no room and @p keep is not 0, the oldest snapshots are deleted
 * until there is, but so many stay, and always the newest whole one. None is deleted if that would
 * not help.
 *  @param out_room  Set in all cases but CDDP_ERR_ARGUMENT. */
cddp_status cddpi_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                 const struct cddpi_snapshot_source *source, unsigned keep,
                                 unsigned spare, struct cddpi_snapshot_room *out_room);

/** Open the data files of the snapshot at @p path once their checksums and the tensors' names,
 * types and shapes were checked. @p into's memory is not looked at.
 *  @param out  Of the model and the optimizer; release with cddp_safetensors_close(). NULL on
 * error.
 */
cddp_status cddpi_snapshot_open(const char *path, const cddp_snapshot *into,
                                cddp_safetensors *out[CDDPI_SNAPSHOT_DATA_FILES]);

/** Whether this thread's last failure was that there is no room. */
bool cddpi_snapshot_wants_room(void);
/** What @p snapshot wants, and what the file system of @p dir has. */
void cddpi_snapshot_measure(int dir, const cddp_snapshot *snapshot,
                            struct cddpi_snapshot_room *out);
/** Delete the oldest snapshot as above, of another step than @p step; false: none may be deleted,
 *  or deleting failed. */
bool cddpi_snapshot_make_room(int dir, const char *shown, uint64_t step, unsigned spare,
                              const struct cddpi_snapshot_room *room);

/** Remove what crashed writers left behind, and finish what they had begun.
 *  @param alone  No other writer can be at work. So whatever there is was left by a crashed one,
 *                even if its process id is in use, by another process. */
void cddpi_snapshot_sweep(int dir, const char *shown, bool alone);

/** Write @p text and a newline as the new file @p name, which errors call @p shown, and flush it.
 */
cddp_status cddpi_snapshot_write_text(int dir, const char *name, const char *shown,
                                      const char *text);

/* Replace `latest` in two steps: write the new one beside it, which may need space, and rename. */
cddp_status cddpi_pointer_write(int dir, const char *shown, const char *name);
cddp_status cddpi_pointer_move(int dir, const char *shown);
/** Both steps, if it names another snapshot; a failure is a warning in the log. Where there is no
 *  room for the new one, the old one is deleted first: `latest` is for people, and can be remade.
 */
void cddpi_pointer_set(int dir, const char *shown, const char *name);
/** Remove what was written beside its place, if it is there. */
void cddpi_pointer_discard(int dir);

/* state.json's document: format, version, step, files (name: bytes and blake2b), state, and
 * blake2b: the checksum of all the rest, as compact text with sorted keys. */
enum { CDDPI_STATE_VERSION = 1, CDDPI_STATE_BYTES_MAX = 64 << 20 };

/** Put the document's own checksum into it; false: no memory. */
bool cddpi_state_seal(json_t *document);
/** Read and check the document at @p path; to be released with json_decref(). */
cddp_status cddpi_state_read(const char *path, json_t **out);

#endif
