/* snapshot.h - names inside a folder of snapshots, and what the files of src/checkpoint share about
 * them.
 *
 *     latest                    text: the name of the newest, for people and scripts
 *     step-00000500/            whole
 *     .step-00000500.tmp-PID/   being written, or being deleted
 *     .step-00000500.old-PID/   was step-00000500 until its successor of that name was in place
 *     .latest.tmp-PID */
#ifndef CDDPI_CHECKPOINT_SNAPSHOT_H
#define CDDPI_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/file.h"

#include <cddp/checkpoint.h>
#include <jansson.h>

enum { CDDPI_SNAPSHOT_NAME_BYTES = 64 };

/* what a snapshot consists of, and nothing else is deleted in one; state.json is the last */
enum { CDDPI_SNAPSHOT_DATA_FILES = 2, CDDPI_SNAPSHOT_FILES = 3 };
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

/** All entries of @p dir with names as above, newest step first, a whole one before its old one.
 * Release with cddpi_free(). @p shown names the folder in errors. */
cddp_status cddpi_snapshot_list(int dir, const char *shown, struct cddpi_snapshot_entry **out,
                                size_t *out_count);

/** Delete the snapshot folder @p name: never through a link, and not at all when it holds anything
 * that is no snapshot's. A warning in the log says why it is still there. */
void cddpi_snapshot_remove(int dir, const char *shown, const char *name);
/** The same for a whole one: renamed first, so that half of it is never taken for a snapshot. */
void cddpi_snapshot_discard(int dir, const char *shown, const struct cddpi_snapshot_entry *entry);

/** Remove what crashed writers left behind, and finish what they had begun. */
void cddpi_snapshot_sweep(int dir, const char *shown);

/* state.json's document: format, version, step, files (name: bytes and blake2b), state, and
 * blake2b: the checksum of all the rest, as compact text with sorted keys. */
enum { CDDPI_STATE_VERSION = 1, CDDPI_STATE_BYTES_MAX = 64 << 20 };

/** Put the document's own checksum into it; false: no memory. */
bool cddpi_state_seal(json_t *document);
/** Read and check the document at @p path; to be released with json_decref(). */
cddp_status cddpi_state_read(const char *path, json_t **out);

#endif
