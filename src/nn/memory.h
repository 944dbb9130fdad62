/* memory.h - places buffers of known lifetimes in one arena.
 *
 * Time counts what ops do in a step: op i runs at i, the rest see schedule.c. A buffer is alive
 * from `first` to `last`, both included. A buffer may be made an alias of another: a view of it, or
 * its successor in place; they then share memory and lifetime. */
#ifndef CDDPI_NN_MEMORY_H
#define CDDPI_NN_MEMORY_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_buffer {
    size_t bytes;
    size_t offset; /* in the arena, once placed */
    int first, last;
    int again; /* the buffer that holds the same when it was made again; -1: there is none */
    int root;  /* whose memory this is: its own number, or that of what it is an alias of */
};

struct cddpi_memory {
    struct cddpi_buffer *buffers;
    int count, capacity;
    size_t alignment; /* of buffers; 0: CDDPI_ALIGNMENT, of which it is a multiple */
    size_t bytes;     /* of the arena, once placed */
};

/** A new buffer's number, or -1 without memory. */
int cddpi_memory_add(struct cddpi_memory *memory, size_t bytes, int first, int last);
/** A buffer for the same contents as @p buffer's, made again at @p first: its number, or -1 without
 *  memory. */
int cddpi_memory_again(struct cddpi_memory *memory, int buffer, int first, int last);
/** The buffer whose memory @p buffer has: itself, or what it is an alias of. */
const struct cddpi_buffer *cddpi_memory_root(const struct cddpi_memory *memory, int buffer);
/** Keep @p buffer's memory alive until @p last at least. */
void cddpi_memory_extend(struct cddpi_memory *memory, int buffer, int last);
/** Let @p buffer be a view of @p base, no longer than it. */
void cddpi_memory_view(struct cddpi_memory *memory, int buffer, int base);
/** Let @p buffer, written at @p time, take the place of @p base if nobody reads that later and it
 *  is long enough; tells whether. */
bool cddpi_memory_replace(struct cddpi_memory *memory, int buffer, int base, int time);
/** Give every buffer its offset. */
CDDP_CHECKED cddp_status cddpi_memory_place(struct cddpi_memory *memory);
/** Whether no two buffers that are alive at once overlap, and all lie aligned in the arena. */
bool cddpi_memory_valid(const struct cddpi_memory *memory);
/** What the buffers would take without sharing. */
size_t cddpi_memory_sum(const struct cddpi_memory *memory);
void cddpi_memory_fini(struct cddpi_memory *memory);

#endif
