/* shared_copy.h - owns copies of snapshots in memory that the ranks of a machine share: each rank
 * copies a part of the state, and threads of all of them write the files.
 *
 * One rank, the writer, makes the memory, and the others open it. For each snapshot:
 *
 *     writer: cddpi_shared_copy_begin()        helpers of the last copy find nothing to do
 *     all:    cddpi_shared_copy_tensors(), cddpi_shared_copy_put()        together each byte once
 *     writer: cddpi_saving_begin(), or cddpi_shared_copy_end()
 *     others: cddpi_helper_begin() and, before the next copy, cddpi_helper_end()
 *
 * Between these lines, the caller lets the ranks wait for each other.
 *
 * The writer makes one file after the other, and offers each in pieces. Who takes a piece writes it
 * to its place in the file. The writer computes the checksum from the memory, and at the end itself
 * writes all pieces that are not done. These are the same bytes, so that it does not matter if a
 * helper is slow, dies, cannot write, or does not see the folder: then the writer does what the
 * helper does not. */
#ifndef CDDPI_CHECKPOINT_SHARED_COPY_H
#define CDDPI_CHECKPOINT_SHARED_COPY_H

#include "checkpoint/snapshot.h"

/* Where the data of the files is in the memory: packed as in the files. */
struct cddpi_shared_layout {
    uint64_t first[CDDPI_SNAPSHOT_DATA_FILES], bytes[CDDPI_SNAPSHOT_DATA_FILES];
    uint64_t whole; /* bytes of the memory */
};

/** Lay out @p snapshot, whose tensors need no data. The same for all ranks with equal tensors. */
void cddpi_shared_lay_out(const cddp_snapshot *snapshot, struct cddpi_shared_layout *out);

struct cddpi_shared_head;

/* Where other processes find the memory. */
struct cddpi_shared_place {
    uint64_t start_time; /* of the writer's process */
    int32_t pid, fd;
};

/* A rank's view of the memory. All zeros: none. */
struct cddpi_shared_copy {
    struct cddpi_shared_head *head;
    size_t bytes;                      /* of the memory: for the largest snapshot so far */
    struct cddpi_shared_place place;   /* the writer's; its descriptor is owned */
    struct cddpi_shared_layout layout; /* of the current snapshot */
};

/** Make memory of @p bytes bytes, of which this process is the writer.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_shared_copy_create(size_t bytes, struct cddpi_shared_copy *out);
/** Open the memory that the writer has made at @p place.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_PEER, CDDP_ERR_UNAVAILABLE. */
CDDP_CHECKED cddp_status cddpi_shared_copy_open(const struct cddpi_shared_place *place,
                                                size_t bytes, struct cddpi_shared_copy *out);
/** Release this rank's view; accepts an empty one. */
void cddpi_shared_copy_close(struct cddpi_shared_copy *shared);

/** The writer: a copy of the snapshot of step @p step begins. */
void cddpi_shared_copy_begin(struct cddpi_shared_copy *shared, uint64_t step);
/** The writer: no more is written of the copy, and helpers end. */
void cddpi_shared_copy_end(struct cddpi_shared_copy *shared);

/** Let the @p count tensors of file @p file have their data in the memory. */
void cddpi_shared_copy_bind(const struct cddpi_shared_copy *shared, int file, cddp_tensor *tensors,
                            size_t count);
/** Copy part @p part of @p parts equal ones of all tensors of @p snapshot that have data. */
void cddpi_shared_copy_tensors(struct cddpi_shared_copy *shared, const cddp_snapshot *snapshot,
                               int part, int parts);
/** Copy @p bytes bytes of a tensor, from its byte @p first on, to @p place in the memory. */
void cddpi_shared_copy_put(struct cddpi_shared_copy *shared, const cddp_tensor *place,
                           uint64_t first, const void *data, size_t bytes);
/** The writer: whether all ranks together have copied as many bytes as there are. */
bool cddpi_shared_copy_is_whole(const struct cddpi_shared_copy *shared);
/** Put all data of file @p file to @p writer, with the help of other ranks. The writer's thread.
 *  @param progress  Counts the bytes; may be NULL. */
CDDP_CHECKED cddp_status cddpi_shared_copy_write(struct cddpi_shared_copy *shared, int file,
                                                 struct cddpi_writer *writer,
                                                 atomic_ullong *progress);

struct cddpi_helper;

/** Start a thread that helps to write the copy into the folder @p dir. It has the lowest priority.
 *  @param shared  Borrowed until the helper's end.
 *  @param part    The helper begins with this part of @p parts.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_helper_begin(struct cddpi_shared_copy *shared, const char *dir,
                                            int part, int parts, struct cddpi_helper **out);
/** End the thread, after the piece that it writes, and release it. Accepts NULL.
 *  @return False: it has not ended within @p limit_ms, as the disk does not answer. Call this
 * again, or leave it until the process ends, and with it what it has borrowed. */
bool cddpi_helper_end(struct cddpi_helper *helper, uint32_t limit_ms);

#endif
