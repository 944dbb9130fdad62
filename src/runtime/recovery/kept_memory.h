/* kept_memory.h - memory that outlives a rank: a file without a name that its launcher holds
 * (CDDP_KEEP_FDS), so that the job's next processes find in it what a killed rank had.
 *
 * Its own state and that of a rank on another machine have two slots each, which take turns: so one
 * of them is whole at any moment, although a process may be killed while it writes. What is read
 * back is checked, since any process of the job may have written there. */
#ifndef CDDPI_RECOVERY_KEPT_MEMORY_H
#define CDDPI_RECOVERY_KEPT_MEMORY_H

#include "base/machine.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CDDPI_KEPT_OWN = 0,   /* the first slot of this rank's state ... */
    CDDPI_KEPT_OTHER = 2, /* ... and of the other rank's */
    CDDPI_KEPT_SLOTS = 4
};

/* What a slot holds: one rank's part of the state of a run at the end of a step. */
struct cddpi_kept_stamp {
    uint64_t step;        /* 0: nothing */
    uint64_t run;         /* which run it is of: programs of one job may train several */
    uint64_t writer;      /* of all parts that were written by the same processes; random */
    uint64_t layout;      /* of what the state consists; another run has another */
    uint64_t bytes;       /* of this part */
    uint32_t part, parts; /* all parts together are the state */
};

struct cddpi_kept_header;

/* One such file, as this process sees it. All zeros: none. */
struct cddpi_kept_memory {
    int fd; /* the process's; it stays open */
    struct cddpi_kept_header *header;
    unsigned char *data[CDDPI_KEPT_SLOTS]; /* mapped; NULL: not yet */
    size_t mapped[CDDPI_KEPT_SLOTS];       /* bytes of them */
    uint64_t offset[CDDPI_KEPT_SLOTS];     /* of them in the file */
};

/** The files that the launcher holds for the ranks of this machine, in the order of their local
 *  ranks; there may be more than ranks now. Programs that this process starts do not get them.
 *  @param out  Room for CDDPI_MACHINE_RANKS.
 *  @return Their number; 0: the launcher holds none. */
int cddpi_kept_files(int *out);

/** Map the header of @p fd. A file that was not written by this version is emptied.
 *  @param out  Release with cddpi_kept_close().
 *  @return CDDP_OK; CDDP_ERR_IO, CDDP_ERR_NO_MEMORY: why the file cannot be used. */
CDDP_CHECKED cddp_status cddpi_kept_open(int fd, struct cddpi_kept_memory *out);
void cddpi_kept_close(struct cddpi_kept_memory *memory);

/** What @p slot holds; its step is 0 if that is not whole. */
struct cddpi_kept_stamp cddpi_kept_stamp(const struct cddpi_kept_memory *memory, int slot);
/** The data of @p slot, stamp.bytes of them; NULL: they cannot be mapped. */
const unsigned char *cddpi_kept_data(struct cddpi_kept_memory *memory, int slot);

/** The slot to write next: of @p first and the one after it, the one whose step of @p run is the
 *  lower. What another run has kept is overwritten; if both slots have that, the older. */
int cddpi_kept_next(const struct cddpi_kept_memory *memory, int first, uint64_t run);
/** Make room for @p bytes in @p slot. If it has less, what it held is lost; the other slot keeps
 *  what it has.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_kept_reserve(struct cddpi_kept_memory *memory, int slot,
                                            uint64_t bytes);
/** Begin to write @p slot, which has room: it holds nothing until cddpi_kept_end(). Returns where
 *  its data go. */
unsigned char *cddpi_kept_begin(struct cddpi_kept_memory *memory, int slot);
/** The data of @p slot are written. */
void cddpi_kept_end(struct cddpi_kept_memory *memory, int slot,
                    const struct cddpi_kept_stamp *stamp);

/** Forget all that is of @p run, but what is of @p writer and @p step. */
void cddpi_kept_forget_others(struct cddpi_kept_memory *memory, uint64_t run, uint64_t writer,
                              uint64_t step);
/** Forget that @p run was refused. */
void cddpi_kept_forget_refusal(struct cddpi_kept_memory *memory, uint64_t run);

/** Whether this is the first call about what @p writer has written. */
bool cddpi_kept_is_news(struct cddpi_kept_memory *memory, uint64_t writer);

/** Say that @p run failed in a way that its state may be the cause of: nobody may go on from what
 *  its ranks have kept. */
void cddpi_kept_refuse(const struct cddpi_kept_memory *memory, uint64_t run);
bool cddpi_kept_is_refused(const struct cddpi_kept_memory *memory, uint64_t run);

/** How many bytes of data this file could take without more memory. */
uint64_t cddpi_kept_room(const struct cddpi_kept_memory *memory);

#endif
