/* arena.h - places buffers of known lifetimes in one arena.
 *
 * Time counts what ops do in a step: op i runs at i, the rest see schedule.c. A buffer is alive
 * from `first` to `last`, both included. A buffer may be made an alias of another: a view of it, or
 * its successor in place; they then share memory and lifetime. */
#ifndef CDDPI_NN_PLAN_ARENA_H
#define CDDPI_NN_PLAN_ARENA_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_buffer {
    size_t bytes;
    size_t offset; /* in the arena, once placed */
    int first, last;
    int recomputed; /* the buffer for the same contents when recomputed; -1: there is none */
    int root;       /* whose memory this is: its own number, or that of what it is an alias of */
};

struct cddpi_arena {
    struct cddpi_buffer *buffers;
    int count, capacity;
    size_t alignment; /* of buffers; 0: CDDPI_ALIGNMENT, of which it is a multiple */
    size_t bytes;     /* of the arena, once placed */
};

/** A new buffer's number, or -1 without memory. */
int cddpi_arena_add(struct cddpi_arena *arena, size_t bytes, int first, int last);
/** A buffer for the same contents as @p buffer's, recomputed at @p first: its number, or -1 without
 *  memory. */
int cddpi_arena_recomputed(struct cddpi_arena *arena, int buffer, int first, int last);
/** The buffer whose memory @p buffer has: itself, or what it is an alias of. */
const struct cddpi_buffer *cddpi_arena_root(const struct cddpi_arena *arena, int buffer);
/** Keep @p buffer's memory alive until @p last at least. */
void cddpi_arena_extend(struct cddpi_arena *arena, int buffer, int last);
/** Let @p buffer be a view of @p base, no longer than it. */
void cddpi_arena_view(struct cddpi_arena *arena, int buffer, int base);
/** Let @p buffer, written at @p time, take the place of @p base if nobody reads that later and it
 *  is long enough; tells whether. */
bool cddpi_arena_replace(struct cddpi_arena *arena, int buffer, int base, int time);
/** Give every buffer its offset. */
CDDP_CHECKED cddp_status cddpi_arena_place(struct cddpi_arena *arena);
/** Whether no two buffers that are alive at once overlap, and all lie aligned in the arena. */
bool cddpi_arena_valid(const struct cddpi_arena *arena);
/** What the buffers would take without sharing. */
size_t cddpi_arena_sum(const struct cddpi_arena *arena);
void cddpi_arena_fini(struct cddpi_arena *arena);

#endif
