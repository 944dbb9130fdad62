/* arena.h - places buffers of known lifetimes in one arena, or in several regions.
 *
 * Time counts what the ops do in a step: the forward of op i runs at time i; plan_schedule.c
 * defines the other times. A buffer is alive from `first` to `last`, both included. A buffer can be
 * an alias of another one, as a view of it or as its successor in place: then both share memory and
 * lifetime. */
#ifndef CDDPI_NN_PLAN_ARENA_H
#define CDDPI_NN_PLAN_ARENA_H

#include <cddp/status.h>

#include <stdbool.h>

/* Each region is a separate block of memory. Everything is in the first region, unless parameter
 * gradients are computed apart from backward (plan->split). Then a batch needs the first region
 * only from forward to backward, and for the rest of the time only the inputs of its parameter
 * gradients. */
enum cddpi_region {
    CDDPI_REGION_BATCH,   /* from forward to backward */
    CDDPI_REGION_KEPT,    /* written by forward, read for parameter gradients: inputs of layers */
    CDDPI_REGION_GRADS,   /* written by backward, read for parameter gradients: gradients of outputs
                           */
    CDDPI_REGION_SCRATCH, /* used while parameter gradients are computed; belongs to no batch */
    CDDPI_REGIONS
};

struct cddpi_arena_buffer {
    size_t bytes;
    enum cddpi_region region;
    size_t offset; /* in its region; set by cddpi_arena_place() */
    int first, last;
    int recomputed; /* the buffer that holds the same contents when they are recomputed; -1: not
                       recomputed */
    int root; /* the buffer that owns this memory: this one, or the end of its chain of aliases */
};

struct cddpi_arena {
    struct cddpi_arena_buffer *buffers;
    int count, capacity;
    size_t alignment; /* of buffers; a multiple of CDDPI_ALIGNMENT, and 0 means CDDPI_ALIGNMENT */
    size_t bytes[CDDPI_REGIONS]; /* set by cddpi_arena_place() */
};

/** The number of a new buffer, or -1 if memory ran out. */
int cddpi_arena_add(struct cddpi_arena *arena, size_t bytes, int first, int last);
/** Add a buffer for the same contents as @p buffer, recomputed at time @p first. Returns its
 *  number, or -1 if memory ran out. */
int cddpi_arena_recomputed(struct cddpi_arena *arena, int buffer, int first, int last);
/** The buffer that owns @p buffer's memory: itself, or the one it is an alias of. */
const struct cddpi_arena_buffer *cddpi_arena_root(const struct cddpi_arena *arena, int buffer);
/** Keep @p buffer's memory alive until @p last at least. */
void cddpi_arena_extend(struct cddpi_arena *arena, int buffer, int last);
/** Make @p buffer a view of @p base; it is no longer than @p base. */
void cddpi_arena_view(struct cddpi_arena *arena, int buffer, int base);
/** Let @p buffer, which is written at @p time, reuse the memory of @p base, if @p base is not read
 *  later and is large enough. Returns whether it does. */
bool cddpi_arena_replace(struct cddpi_arena *arena, int buffer, int base, int time);
/** Give every buffer its offset. An alias is in the region of the buffer that it aliases. */
CDDP_CHECKED cddp_status cddpi_arena_place(struct cddpi_arena *arena);
/** Bytes of all regions together, after cddpi_arena_place(). */
size_t cddpi_arena_total(const struct cddpi_arena *arena);
void cddpi_arena_fini(struct cddpi_arena *arena);

#endif
