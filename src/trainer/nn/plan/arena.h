/* arena.h - places buffers of known lifetimes in one arena, or in several regions.
 *
 * Time counts what ops do in a step: op i runs at i, the rest see plan_schedule.c. A buffer is
 * alive from `first` to `last`, both included. A buffer may be made an alias of another: a view of
 * it, or its successor in place; they then share memory and lifetime. */
#ifndef CDDPI_NN_PLAN_ARENA_H
#define CDDPI_NN_PLAN_ARENA_H

#include <cddp/status.h>

#include <stdbool.h>

/* A region is memory of its own. All is in the first, unless the gradients of parameters are made
 * apart from backward (plan->split): then a batch needs the first from forward to backward, and for
 * the rest of the time only what the gradients of parameters are made of. */
enum cddpi_region {
    CDDPI_REGION_BATCH,   /* from forward to backward */
    CDDPI_REGION_KEPT,    /* made in forward, and read until then: inputs of layers */
    CDDPI_REGION_GRADS,   /* made in backward, and read until then: gradients of outputs */
    CDDPI_REGION_SCRATCH, /* while gradients of parameters are made: of no batch */
    CDDPI_REGIONS
};

struct cddpi_arena_buffer {
    size_t bytes;
    enum cddpi_region region;
    size_t offset; /* in its region, once placed */
    int first, last;
    int recomputed; /* the buffer for the same contents when recomputed; -1: there is none */
    int root;       /* whose memory this is: its own number, or that of what it is an alias of */
};

struct cddpi_arena {
    struct cddpi_arena_buffer *buffers;
    int count, capacity;
    size_t alignment;            /* of buffers; 0: CDDPI_ALIGNMENT, of which it is a multiple */
    size_t bytes[CDDPI_REGIONS]; /* once placed */
};

/** A new buffer's number, or -1 without memory. */
int cddpi_arena_add(struct cddpi_arena *arena, size_t bytes, int first, int last);
/** A buffer for the same contents as @p buffer's, recomputed at @p first: its number, or -1 without
 *  memory. */
int cddpi_arena_recomputed(struct cddpi_arena *arena, int buffer, int first, int last);
/** The buffer whose memory @p buffer has: itself, or what it is an alias of. */
const struct cddpi_arena_buffer *cddpi_arena_root(const struct cddpi_arena *arena, int buffer);
/** Keep @p buffer's memory alive until @p last at least. */
void cddpi_arena_extend(struct cddpi_arena *arena, int buffer, int last);
/** Let @p buffer be a view of @p base, no longer than it. */
void cddpi_arena_view(struct cddpi_arena *arena, int buffer, int base);
/** Let @p buffer, written at @p time, take the place of @p base if that is not read later and it
 *  is long enough; tells whether. */
bool cddpi_arena_replace(struct cddpi_arena *arena, int buffer, int base, int time);
/** Give every buffer its offset; what is an alias is in the region of what it is an alias of. */
CDDP_CHECKED cddp_status cddpi_arena_place(struct cddpi_arena *arena);
/** Whether no two buffers that are alive at once overlap, and all lie aligned in the arena. */
bool cddpi_arena_valid(const struct cddpi_arena *arena);
/** All regions together, once placed. */
size_t cddpi_arena_total(const struct cddpi_arena *arena);
/** What the buffers would take without sharing. */
size_t cddpi_arena_sum(const struct cddpi_arena *arena);
void cddpi_arena_fini(struct cddpi_arena *arena);

#endif
