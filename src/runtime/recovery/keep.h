/* keep.h - keeps the state of a loop in memory that outlives its ranks, so that a job that has lost
 * ranks goes on from its last steps, and not from its last checkpoint. cddp-train keeps what
 * train.recovery says (train/kept_state.h), other programs what they register (cddp/recovery.h).
 *
 * At the end of a step, each rank copies its part of the state: with a sharded optimizer what it
 * updates, else an equal part. Two rules make the parts one state:
 *
 *     A step is kept when every part of it is whole.
 *     The job goes on from the greatest step that is kept.
 *
 * No rank needs to hear of the others' copies: it copies before it sends gradients of the next
 * step, and without these no other rank can reach the end of that step. So ranks are at most one
 * copy apart, and each has the two newest.
 *
 * In a job of several launchers, mostly one on each machine, each rank also sends its copy to a
 * rank of another one, so that a machine may be lost. */
#ifndef CDDPI_RECOVERY_KEEP_H
#define CDDPI_RECOVERY_KEEP_H

#include "recovery/kept_memory.h"

#include <cddp/group.h>

/* Most files that a rank reads: its own, and what earlier ranks of its machine have left. */
enum { CDDPI_KEEP_FILES = 32 };

/* Bytes [first, first + bytes) of an array of the state. */
struct cddpi_keep_piece {
    uint64_t array; /* cddpi_hash_text() of its name */
    uint64_t first, bytes;
};

/* A piece, and where this rank has it. */
struct cddpi_keep_at {
    struct cddpi_keep_piece piece;
    unsigned char *data;
};

struct cddpi_keep_list {
    struct cddpi_keep_at *at;
    size_t count, room;
};

/* A part of the state that functions write and read: see cddp_recovery_callbacks. */
struct cddpi_keep_calls {
    uint64_t bytes; /* the same on all ranks */
    cddp_status (*save)(void *owner, void *to);
    cddp_status (*load)(void *owner, const void *from, int part, int parts);
    void *owner;
    bool is_foreign; /* the functions are the program's, and may fail in any way */
};

enum { CDDPI_KEEP_CALLS = 64 };

/* What a state consists of, as this rank has it. */
struct cddpi_keep_contents {
    struct cddpi_keep_list keeps; /* what it copies: all ranks together have each byte once */
    struct cddpi_keep_list takes; /* what it needs of a state that is restored */
    struct cddpi_keep_calls calls[CDDPI_KEEP_CALLS];
    size_t call_count;
    uint64_t whole; /* bytes of what all ranks keep, without calls; 0: this rank does not know */
    uint64_t cover; /* its cddpi_keep_cover(); 0: this rank does not know */
};

/* Whose state it is; no function is NULL. */
struct cddpi_keep_owner {
    const char *name; /* at the beginning of texts: "train.recovery" */
    void *self;
    bool is_frugal; /* nothing is kept if that takes more than half of the memory that is left */
    /* Fill keep->state, before the first copy and before a state is restored. */
    cddp_status (*list)(void *self);
    /* Bring the state from the device, whose steps have ended, to where `keeps` are, or from where
     * `takes` are to the device. Collective. */
    cddp_status (*fetch)(void *self);
    cddp_status (*send)(void *self);
    /* Warn; say what becomes of the run. */
    void (*warn)(void *self, const char *text);
    void (*tell)(void *self, const char *text);
};

struct cddpi_keep {
    const struct cddpi_keep_owner *owner;
    cddp_group *group;
    int rank, world_size;
    struct cddpi_kept_memory files[CDDPI_KEEP_FILES]; /* the first is this rank's own */
    int count;
    bool is_on;                       /* this run keeps its state, as far as this rank knows */
    bool is_off;                      /* all ranks know that one of them cannot */
    struct cddpi_kept_stamp restored; /* from which this run goes on; step 0: from none */
    bool was_refused;                 /* what was kept of it was refused, as all ranks know */
    uint64_t run, writer;             /* of the stamps; the same on all ranks */
    uint64_t layout;                  /* of the state */
    struct cddpi_keep_contents state;
    bool is_listed;
    uint64_t bytes;       /* of a copy */
    uint64_t kept_step;   /* of the last one */
    uint64_t newest;      /* no later step is kept; 0: none is */
    uint64_t copies;      /* made by this process */
    int prepared;         /* slots that have memory */
    bool sends;           /* to rank `to`, and gets that of rank `from` */
    bool sends_none;      /* all ranks know that one of them has no memory for another's */
    int to, from;         /* in the group */
    uint64_t other_bytes; /* of what it gets */
    int64_t began_ns, spent_ns;
};

/** Open the memory that the launcher holds for this rank. Collective. On an error, too, close it.
 *  @param owner   Borrowed until the end.
 *  @param run     The number of the run; that of rank 0 is used. Not 0.
 *  @param layout  A hash of what a state must have in common with this one for this rank to go on
 *                 from it.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_open(struct cddpi_keep *keep, cddp_group *group,
                                         const struct cddpi_keep_owner *owner, uint64_t run,
                                         uint64_t layout);
void cddpi_keep_close(struct cddpi_keep *keep);
/** The run begins, from what was restored, if anything: what else was kept of it is forgotten.
 *  Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_begin(struct cddpi_keep *keep);

/** Empty the lists of @p state, and release their memory. */
void cddpi_keep_clear(struct cddpi_keep_contents *state);
/** Add bytes [first, first + bytes) of @p array, at @p data, to a list of the state. Without bytes:
 *  nothing. @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_keep_add(struct cddpi_keep_list *list, uint64_t array,
                                        uint64_t first, uint64_t bytes, void *data);
/** Add what functions write and read. There is room for CDDPI_KEEP_CALLS of them. */
void cddpi_keep_add_calls(struct cddpi_keep_contents *state, const struct cddpi_keep_calls *calls);
/** What rank @p rank of @p ranks keeps of an array of @p bytes bytes that all have: bytes
 *  [*first, *first + the result). */
uint64_t cddpi_keep_share(uint64_t bytes, int rank, int ranks, uint64_t *first);
/** A number for bytes [first, first + bytes) of @p array. The sum of those of several pieces is
 * that of all bytes of arrays only if the pieces have each byte once: of two pieces, one begins
 * where the other ends, and the sum is that of both together. */
uint64_t cddpi_keep_cover(uint64_t array, uint64_t first, uint64_t bytes);

/** Whether rank 0 would keep the state now, so that copies take at most 2 % of the time. */
bool cddpi_keep_is_due(const struct cddpi_keep *keep);
/** Keep the state at the end of step @p step, which is not 0, as all ranks have agreed. Where that
 *  is not possible, no rank keeps anything from then on, and one warns. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_keep_step(struct cddpi_keep *keep, uint64_t step);

/** Step @p step begins, as all ranks know. If later ones are kept, the loop has gone back by
 * itself: they are forgotten. */
void cddpi_keep_follow(struct cddpi_keep *keep, uint64_t step);

/** The run fails, and its state may be the cause: a loss that is no number, or other replicas. The
 *  job does not go on from what it has kept. */
void cddpi_keep_refuse(const struct cddpi_keep *keep);

/** Restore the newest state that is kept, if it is not older than a checkpoint at step
 *  @p checkpoint: keep->restored. Collective.
 *  @param checkpoint  Rank 0's is used. 0: there is none.
 *  @return An error of the group. CDDP_ERR_FORMAT: what was kept is not in order, and is forgotten.
 *          Where memory does not suffice, rank 0 says so, and nothing is restored. */
CDDP_CHECKED cddp_status cddpi_keep_restore(struct cddpi_keep *keep, uint64_t checkpoint);

#endif
